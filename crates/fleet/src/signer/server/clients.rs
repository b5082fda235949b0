//! The clients that may use the signer, and what each of them may use.

use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use pronghorn_engine::provider;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::keys::Key;
use crate::signer::protocol::Ski;

/// How a client's certificate is recognized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// By the subject's common name or a DNS name of the subject.
    Name(String),
    /// By the certificate's SHA-256 fingerprint.
    Sha256([u8; 32]),
}

impl Identity {
    /// Parses a fingerprint in hexadecimal form, with or without colons.
    pub fn of_fingerprint(text: &str) -> Option<Self> {
        let digits: Vec<_> = text.bytes().filter(|byte| *byte != b':').collect();
        let mut fingerprint = [0; 32];
        if digits.len() != 2 * fingerprint.len() {
            return None;
        }
        for (byte, pair) in fingerprint.iter_mut().zip(digits.chunks(2)) {
            let pair = std::str::from_utf8(pair).ok()?;
            *byte = pair
                .bytes()
                .all(|digit| digit.is_ascii_hexdigit())
                .then_some(())
                .and_then(|()| u8::from_str_radix(pair, 16).ok())?;
        }
        Some(Self::Sha256(fingerprint))
    }
}

/// A client and the keys that it may use.
#[derive(Debug)]
pub struct Client {
    name: String,
    identity: Identity,
    keys: HashMap<Ski, Arc<Key>>,
}

impl Client {
    /// Returns a client that may use these keys.
    pub fn new(identity: Identity, keys: impl IntoIterator<Item = Arc<Key>>) -> Self {
        let name = match &identity {
            Identity::Name(name) => name.clone(),
            Identity::Sha256([a, b, c, d, ..]) => format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}"),
        };
        let keys = keys.into_iter().map(|key| (key.source().public_key().ski(), key)).collect();
        Self { name, identity, keys }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn key(&self, ski: &Ski) -> Option<&Arc<Key>> {
        self.keys.get(ski)
    }
}

/// The list of clients. It verifies certificates in handshakes: an authority must have issued them,
/// and the list must have them.
#[derive(Debug)]
pub(super) struct Clients {
    authorities: Arc<dyn ClientCertVerifier>,
    list: Vec<Arc<Client>>,
}

impl Clients {
    pub(super) fn new(roots: RootCertStore, list: Vec<Client>) -> Result<Self, String> {
        let authorities = WebPkiClientVerifier::builder_with_provider(roots.into(), provider())
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { authorities, list: list.into_iter().map(Arc::new).collect() })
    }

    /// Returns the first client on the list that has this certificate.
    pub(super) fn find(&self, certificate: &CertificateDer<'_>) -> Option<Arc<Client>> {
        let fingerprint = digest(&SHA256, certificate);
        let names = names(certificate);
        self.list
            .iter()
            .find(|client| match &client.identity {
                Identity::Sha256(known) => known[..] == *fingerprint.as_ref(),
                Identity::Name(known) => names.iter().any(|name| name == known),
            })
            .cloned()
    }
}

/// Returns the common names and the DNS names of a certificate's subject.
fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let common = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    let mut names: Vec<_> = common.map(str::to_owned).collect();
    if let Ok(Some(alternative)) = parsed.subject_alternative_name() {
        names.extend(alternative.value.general_names.iter().filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        }));
    }
    names
}

impl ClientCertVerifier for Clients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.authorities.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.authorities.verify_client_cert(certificate, intermediates, now)?;
        // The client gets the alert `access_denied`.
        self.find(certificate)
            .map(|_| verified)
            .ok_or(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_has_64_digits_with_or_without_colons() {
        let plain = "ab".repeat(32);
        let colons = vec!["AB"; 32].join(":");
        assert_eq!(Identity::of_fingerprint(&plain), Some(Identity::Sha256([0xab; 32])));
        assert_eq!(Identity::of_fingerprint(&colons), Some(Identity::Sha256([0xab; 32])));
        for wrong in ["", "ab", &"+a".repeat(32), &"é".repeat(32), &plain[1..]] {
            assert_eq!(Identity::of_fingerprint(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn client_is_found_by_common_name_dns_name_and_fingerprint() {
        let mut params = rcgen::CertificateParams::new(["one.test".to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "gateway 1");
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let fingerprint = digest(&SHA256, certificate.der()).as_ref().try_into().unwrap();
        let finds = |identity| {
            let mut roots = RootCertStore::empty();
            roots.add(certificate.der().clone()).unwrap();
            let clients = Clients::new(roots, vec![Client::new(identity, [])]).unwrap();
            clients.find(certificate.der()).is_some()
        };
        assert!(finds(Identity::Name("one.test".to_owned())));
        assert!(finds(Identity::Name("gateway 1".to_owned())));
        assert!(finds(Identity::Sha256(fingerprint)));
        assert!(!finds(Identity::Name("two.test".to_owned())));
        assert!(!finds(Identity::Sha256([0; 32])));
    }
}
