//! Sources of keys as signing keys of rustls.

use std::sync::Arc;

use pronghorn_engine::SigningFailed;
use rustls::sign::Signer;
use rustls::{Error, SignatureAlgorithm, SignatureScheme};

use super::scheme::{KeyKind, Scheme};
use super::source::KeySource;

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
            .map_err(|error| SigningFailed(error.to_string()).into())
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
