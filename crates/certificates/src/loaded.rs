//! Certificate chains and their keys, loaded from PEM.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use pronghorn_engine::{Identity, provider};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use webpki::EndEntityCert;

use crate::error::CertificateError;
use crate::source::Source;

/// A certificate chain and its key, ready to use.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Identity for the workers.
    pub identity: Identity,
    /// The same key pair, to choose among several by server name ([`Identity::with_resolver`]).
    pub key: Arc<CertifiedKey>,
    /// SHA-256 of the certificate's public key (SPKI), in base64, as Chromium's
    /// `--ignore-certificate-errors-spki-list` expects it.
    pub spki_sha256: String,
    /// Path of the certificate; for one given as text, a description.
    pub cert: PathBuf,
}

impl Loaded {
    /// Reads a chain and its key from PEM files.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or has other content, or if the two do not match.
    pub fn from_files(cert: &Path, key: &Path) -> Result<Self, CertificateError> {
        Self::from_sources(Source::File(cert), Source::File(key))
    }

    /// Reads a chain and its key from PEM text.
    ///
    /// # Errors
    ///
    /// Returns an error if one has other content, or if the two do not match.
    pub fn from_pem(cert: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        Self::from_sources(Source::Text(cert), Source::Text(key))
    }

    /// Reads a chain and its key, each from a file or from text.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or has other content, or if the two do not match.
    pub fn from_sources(cert: Source<'_>, key: Source<'_>) -> Result<Self, CertificateError> {
        let chain = cert.read().and_then(|text| CertificateDer::pem_slice_iter(&text).collect());
        let private = key.read().map_err(KeyError::Pem).and_then(|text| private_key(&text));
        Self::new(chain, private, cert.name("the certificate chain"), key.name("the key"))
    }

    /// `cert` and `key` name the sources.
    fn new(
        chain: Result<Vec<CertificateDer<'static>>, pem::Error>,
        private: Result<PrivateKeyDer<'static>, KeyError>,
        cert: &Path,
        key: &Path,
    ) -> Result<Self, CertificateError> {
        let malformed = |reason| CertificateError::Malformed { path: cert.to_owned(), reason };
        let chain =
            chain.map_err(|error| pem_error(cert, "certificate", error)).and_then(|chain| {
                let leaf = chain
                    .first()
                    .ok_or_else(|| malformed("contains no certificate in PEM form".to_owned()))?;
                let leaf = EndEntityCert::try_from(leaf).map_err(|error| match error {
                    webpki::Error::UnsupportedCertVersion => {
                        CertificateError::Version { path: cert.to_owned() }
                    }
                    other => malformed(format!("contains no usable certificate ({other})")),
                })?;
                let spki_sha256 = spki_sha256(&leaf);
                Ok((chain, spki_sha256))
            });
        let private = private.map_err(|error| match error {
            KeyError::Pem(error) => pem_error(key, "private key", error),
            KeyError::Encrypted => CertificateError::Encrypted { key: key.to_owned() },
        });
        let private = private.and_then(|private| {
            match provider().key_provider.load_private_key(private.clone_key()) {
                Ok(_) => Ok(private),
                Err(error) => {
                    let reason = match error {
                        rustls::Error::General(text) => text,
                        other => other.to_string(),
                    };
                    Err(CertificateError::UnsupportedKey { key: key.to_owned(), reason })
                }
            }
        });
        let ((chain, spki_sha256), private) = match (chain, private) {
            (Ok(chain), Ok(private)) => (chain, private),
            (Err(chain), Err(private)) => {
                return Err(CertificateError::Both(Box::new([chain, private])));
            }
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        let is_of_key = |certificate: &CertificateDer<'static>| {
            let chain = vec![certificate.clone()];
            CertifiedKey::from_der(chain, private.clone_key(), &provider()).is_ok()
        };
        let unusable = |error| CertificateError::Unusable {
            cert: cert.to_owned(),
            key: key.to_owned(),
            reason: match error {
                rustls::Error::InconsistentKeys(_) => {
                    "the key does not belong to the certificate".to_owned()
                }
                other => other.to_string(),
            },
        };
        let certified = CertifiedKey::from_der(chain.clone(), private.clone_key(), &provider());
        let certified = certified.map_err(|error| {
            if chain.iter().skip(1).any(is_of_key) {
                CertificateError::Order { cert: cert.to_owned() }
            } else {
                unusable(error)
            }
        })?;
        let identity = Identity::new(chain, private).map_err(unusable)?;
        Ok(Self { identity, key: Arc::new(certified), spki_sha256, cert: cert.to_owned() })
    }
}

/// The reason why a PEM text has no usable private key.
enum KeyError {
    Pem(pem::Error),
    Encrypted,
}

/// Returns the first private key of a PEM text.
fn private_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, KeyError> {
    PrivateKeyDer::from_pem_slice(text).map_err(|error| {
        if is_encrypted(text) { KeyError::Encrypted } else { KeyError::Pem(error) }
    })
}

/// Returns whether a PEM text contains a key encrypted with a passphrase, in PKCS #8 form (RFC
/// 7468, section 11) or OpenSSL's older form (RFC 1421).
fn is_encrypted(text: &[u8]) -> bool {
    let marks: [&[u8]; 2] = [b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED"];
    marks.iter().any(|mark| text.windows(mark.len()).any(|window| window == *mark))
}

fn pem_error(path: &Path, what: &str, error: pem::Error) -> CertificateError {
    let path = path.to_owned();
    match error {
        pem::Error::Io(source) => CertificateError::File { path, source },
        pem::Error::NoItemsFound => {
            CertificateError::Malformed { path, reason: format!("contains no {what} in PEM form") }
        }
        other => CertificateError::Malformed {
            path,
            reason: format!("contains no usable {what} ({other})"),
        },
    }
}

fn spki_sha256(certificate: &EndEntityCert<'_>) -> String {
    let spki = certificate.subject_public_key_info();
    BASE64_STANDARD.encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &spki))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a certificate and its key.
    fn pair() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn chain_in_the_wrong_order_is_told_from_another_key() {
        let ((own, key), (issuer, _)) = (pair(), pair());
        let load = |chain: String| Loaded::from_pem(chain.as_bytes(), key.as_bytes());
        assert!(load(own.clone() + &issuer).is_ok());
        let error = load(issuer.clone() + &own).err().unwrap();
        assert!(matches!(error, CertificateError::Order { .. }), "{error}");
        assert!(error.hint("name", "both").starts_with("put the server's own certificate first"));
        let error = load(issuer).err().unwrap();
        assert!(matches!(error, CertificateError::Unusable { .. }), "{error}");
    }
}
