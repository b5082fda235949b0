//! Sources of keys as signing keys of rustls.

use std::sync::Arc;

use rustls::sign::Signer;
use rustls::{Error, OtherError, SignatureAlgorithm, SignatureScheme};

use super::error::SignError;
use super::scheme::{KeyKind, Scheme};
use super::source::KeySource;

/// A TLS record with the fatal alert `internal_error` (RFC 8446 section 6.2), in clear. A client
/// that has sent its ClientHello and received no ServerHello accepts it.
pub const INTERNAL_ERROR_ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];

/// The failure of a signature, inside an error of rustls.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct SigningFailure(SignError);

/// Returns whether a handshake failed because no source of the server's key has signed. No alert
/// has been sent then: send [`INTERNAL_ERROR_ALERT`] instead of what rustls has queued.
pub fn is_signing_failure(error: &Error) -> bool {
    matches!(error, Error::Other(OtherError(cause)) if cause.is::<SigningFailure>())
}

/// A source with the scheme that was chosen for a handshake.
#[derive(Debug)]
struct SourceSigner {
    source: Arc<dyn KeySource>,
    tls: SignatureScheme,
    scheme: Scheme,
}

impl Signer for SourceSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let digest = self.scheme.digest(message);
        self.source
            .sign(self.scheme, digest.as_ref())
            .map_err(|error| Error::Other(OtherError(Arc::new(SigningFailure(error)))))
    }

    fn scheme(&self) -> SignatureScheme {
        self.tls
    }
}

/// Chooses the scheme of a handshake among those that its client offers.
pub(crate) fn choose_scheme(
    source: Arc<dyn KeySource>,
    offered: &[SignatureScheme],
) -> Option<Box<dyn Signer>> {
    let schemes = source.public_key().kind().tls_schemes();
    let tls = *schemes.iter().find(|scheme| offered.contains(scheme))?;
    let scheme = Scheme::of_tls(tls)?;
    Some(Box::new(SourceSigner { source, tls, scheme }))
}

pub(crate) fn algorithm(kind: KeyKind) -> SignatureAlgorithm {
    match kind {
        KeyKind::Rsa => SignatureAlgorithm::RSA,
        KeyKind::P256 | KeyKind::P384 => SignatureAlgorithm::ECDSA,
    }
}
