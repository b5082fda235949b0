//! What a key can be signed with.

use std::fmt;

use super::error::SignError;
use super::public_key::PublicKey;
use super::scheme::Scheme;

/// A private key that is somewhere: in this process, in a security module, on another machine.
pub trait KeySource: fmt::Debug + Send + Sync {
    /// Returns the name for messages and metrics. It contains no secret.
    fn name(&self) -> &str;

    /// Returns whether [`sign`](Self::sign) may wait for something other than the processor.
    fn may_block(&self) -> bool;

    /// Returns the public key.
    fn public_key(&self) -> &PublicKey;

    /// Signs a digest. Returns a signature that verifies with the public key, within the source's
    /// own timeout.
    ///
    /// # Errors
    ///
    /// Returns the reason why there is no signature.
    fn sign(&self, scheme: Scheme, digest: &[u8]) -> Result<Vec<u8>, SignError>;
}
