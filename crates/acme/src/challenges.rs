//! Responses to ACME challenges, while an authority validates them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use instant_acme::KeyAuthorization;
use pronghorn_engine::provider;
use rcgen::{
    CertificateParams, CustomExtension, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

/// Path prefix of RFC 8555, section 8.3.
const PATH: &str = "/.well-known/acme-challenge/";

/// All active proofs: at most one per running order.
#[derive(Debug, Default)]
pub struct Challenges {
    /// Number of proofs, checked by requests before they take the lock.
    open: AtomicUsize,
    proofs: RwLock<Vec<(String, Proof)>>,
}

#[derive(Clone, Debug)]
pub(super) enum Proof {
    /// Content of the response to a clear-text request for the token.
    Http { token: String, content: Bytes },
    /// Certificate for a handshake with `acme-tls/1`.
    Tls(Arc<CertifiedKey>),
}

impl Proof {
    pub(super) fn http(token: &str, authorization: &KeyAuthorization) -> Self {
        Self::Http {
            token: token.to_owned(),
            content: Bytes::copy_from_slice(authorization.as_str().as_bytes()),
        }
    }

    /// Creates the certificate of RFC 8737, section 3: for one name, with the digest of the key
    /// authorization.
    pub(super) fn tls(host: &str, digest: &[u8]) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut parameters = CertificateParams::new([host.to_owned()])?;
        parameters.distinguished_name = DistinguishedName::new();
        parameters.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
        let certificate = CertificateDer::from(parameters.self_signed(&key)?);
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        // The certificate is not matched with the key here: its extension is critical, and unknown
        // to the library.
        let key = provider()
            .key_provider
            .load_private_key(key)
            .map_err(|_| rcgen::Error::KeyGenerationUnavailable)?;
        Ok(Self::Tls(Arc::new(CertifiedKey::new(vec![certificate], key))))
    }
}

impl Challenges {
    /// Publishes a proof for a name, in lower case, until the returned guard is dropped.
    pub(super) fn publish(self: &Arc<Self>, host: &str, proof: Proof) -> PublishedProof {
        let mut proofs = self.proofs.write().unwrap_or_else(PoisonError::into_inner);
        proofs.retain(|(other, _)| other != host);
        proofs.push((host.to_owned(), proof));
        self.open.store(proofs.len(), Ordering::Release);
        PublishedProof { host: host.to_owned(), challenges: self.clone() }
    }

    fn find<T>(&self, host: &str, take: impl Fn(&Proof) -> Option<T>) -> Option<T> {
        let proofs = self.proofs.read().unwrap_or_else(PoisonError::into_inner);
        proofs
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case(host))
            .find_map(|(_, proof)| take(proof))
    }

    /// Returns the response content for a clear-text request that looks for a proof.
    pub fn answer(&self, host: &str, path: &str) -> Option<Bytes> {
        if self.open.load(Ordering::Acquire) == 0 {
            return None;
        }
        let wanted = path.strip_prefix(PATH)?;
        self.find(host, |proof| match proof {
            Proof::Http { token, content } if token == wanted => Some(content.clone()),
            _ => None,
        })
    }

    /// Returns the certificate for a handshake that looks for a proof.
    pub fn certificate(&self, host: &str) -> Option<Arc<CertifiedKey>> {
        self.find(host, |proof| match proof {
            Proof::Tls(key) => Some(key.clone()),
            Proof::Http { .. } => None,
        })
    }
}

/// A published proof.
pub(super) struct PublishedProof {
    host: String,
    challenges: Arc<Challenges>,
}

impl Drop for PublishedProof {
    fn drop(&mut self) {
        let mut proofs = self.challenges.proofs.write().unwrap_or_else(PoisonError::into_inner);
        proofs.retain(|(host, _)| *host != self.host);
        self.challenges.open.store(proofs.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proof_is_there_for_its_name_as_long_as_it_is_shown() {
        let challenges = Arc::new(Challenges::default());
        let ask = |host: &str, path: &str| challenges.answer(host, path);
        let proof =
            Proof::Http { token: "token".to_owned(), content: Bytes::from_static(b"token.key") };
        let shown = challenges.publish("a.example", proof);
        let other = challenges.publish("b.example", Proof::tls("b.example", &[7; 32]).unwrap());
        assert_eq!(
            ask("A.example", "/.well-known/acme-challenge/token").as_deref(),
            Some(&b"token.key"[..])
        );
        assert_eq!(ask("b.example", "/.well-known/acme-challenge/token"), None);
        assert_eq!(ask("a.example", "/.well-known/acme-challenge/other"), None);
        assert_eq!(ask("a.example", "/.well-known/acme-challenge/"), None);
        assert!(
            challenges.certificate("b.example").is_some()
                && challenges.certificate("a.example").is_none()
        );
        drop(shown);
        assert_eq!(ask("a.example", "/.well-known/acme-challenge/token"), None);
        drop(other);
        assert!(challenges.certificate("b.example").is_none());
        assert_eq!(challenges.open.load(Ordering::Relaxed), 0);
    }
}
