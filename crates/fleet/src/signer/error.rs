//! The reason why a source did not sign.

use std::time::Duration;

use super::protocol::ErrorCode;
use super::scheme::Scheme;

/// The reason why a source of a key did not sign.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// No answer arrived in time.
    #[error("no signature within {0:?}")]
    TimedOut(Duration),
    /// As many requests as allowed are waiting for their answers. The source may be healthy.
    #[error("{0} requests are waiting already, as many as the limit allows")]
    Busy(usize),
    /// The calling thread runs a worker, which may not wait. The source may be healthy.
    #[error("a worker cannot wait for a signature")]
    OnWorker,
    /// The source cannot be reached.
    #[error("{0}")]
    Unavailable(String),
    /// The signer answered with an error.
    #[error("the signer answered {0}")]
    Refused(ErrorCode),
    /// The signature does not belong to the certificate's key.
    #[error("the signature is wrong")]
    WrongSignature,
    /// The key cannot be used so.
    #[error("the key does not support {0:?}")]
    Unsupported(Scheme),
    /// The cryptographic operation failed.
    #[error("{0}")]
    Failed(String),
    /// No source of a key signed; the reasons are separated by semicolons.
    #[error("no source of the key signed: {0}")]
    AllFailed(String),
}

impl SignError {
    /// Returns whether the failure says something about the source, rather than about its load.
    pub(crate) fn is_fault(&self) -> bool {
        !matches!(self, Self::Busy(_) | Self::OnWorker | Self::Unsupported(_))
    }
}
