//! Keys on other machines.

use std::sync::Arc;

use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::sign::{Signer, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};

use super::client::SignerClient;
use super::error::SignError;
use super::protocol::Operation;
use super::public_key::PublicKey;
use super::rustls_key;
use super::scheme::Scheme;
use super::source::KeySource;

/// A private key that a signer has. A signature blocks the calling thread for at most the client's
/// timeout, and is verified before it is used.
#[derive(Clone, Debug)]
pub struct RemoteKey {
    client: Arc<SignerClient>,
    public: PublicKey,
}

impl RemoteKey {
    /// Returns the key with this public key. Signers find it by the public key's SKI.
    pub fn new(client: Arc<SignerClient>, public: PublicKey) -> Self {
        Self { client, public }
    }
}

impl KeySource for RemoteKey {
    fn name(&self) -> &str {
        self.client.source_name()
    }

    fn may_block(&self) -> bool {
        true
    }

    fn public_key(&self) -> &PublicKey {
        &self.public
    }

    fn sign(&self, scheme: Scheme, digest: &[u8]) -> Result<Vec<u8>, SignError> {
        if !self.public.kind().supports(scheme) {
            return Err(SignError::Unsupported(scheme));
        }
        let operation =
            Operation { ski: Some(self.public.ski()), ..Operation::new(scheme.opcode(), digest) };
        self.client.request(&operation, |signature| self.public.verifies(scheme, digest, signature))
    }
}

impl SigningKey for RemoteKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        rustls_key::choose_scheme(Arc::new(self.clone()), offered)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(self.public.spki())
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        rustls_key::algorithm(self.public.kind())
    }
}
