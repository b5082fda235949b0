//! Certificates: a chain and its key from PEM, and a certificate for development.
//!
//! What comes out is an identity that the engine serves with. It never asks anybody for a certificate. Start with [`Loaded`].

#![forbid(unsafe_code)]

mod authorities;
#[cfg(feature = "development")]
mod development;

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use pronghorn_engine::{Identity, provider};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use webpki::EndEntityCert;

pub use authorities::{Authorities, Untrusted};
#[cfg(feature = "development")]
pub use development::user_folder;

/// Why there is no usable certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file holds no certificate or no key.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// A key has a passphrase.
    #[error("{}: the key has a passphrase", key.display())]
    Encrypted {
        /// The key's file.
        key: PathBuf,
    },
    /// A key is of a kind that is not supported, or too small.
    #[error("{}: the key is of a kind or size that is not supported ({reason})", key.display())]
    UnsupportedKey {
        /// The key's file.
        key: PathBuf,
        /// What the library for cryptography said.
        reason: String,
    },
    /// Certificate and key do not fit.
    #[error("{} and {}: {reason}", cert.display(), key.display())]
    Unusable {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The certificate for development cannot be kept where it is to be.
    #[error("cannot keep a certificate in {}: {source}", folder.display())]
    Keeping {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The key or the certificate for development could not be made.
    #[error("cannot make a certificate: {0}")]
    Generation(String),
    /// Neither the certificate nor its key can be used.
    #[error("{}", .0.each_ref().map(ToString::to_string).join("; "))]
    Both(Box<[CertificateError; 2]>),
}

impl CertificateError {
    /// Keys that can be used, for whoever has another one.
    pub const KEYS: &str = "RSA of 2048 to 8192 bits, ECDSA P-256, P-384 or P-521, or Ed25519";

    /// What to do about it. `verb`: how files are given, such as "name" in a configuration; `pair`: how the two are, such as "the certificate
    /// chain as cert and its key as key".
    pub fn hint(&self, verb: &str, pair: &str) -> String {
        match self {
            Self::File { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => "make it readable for this user".to_owned(),
            Self::File { .. } => "check the path".to_owned(),
            Self::Malformed { .. } => format!("{verb} {pair}, both in PEM form"),
            Self::Encrypted { .. } => {
                "write a copy without one (openssl pkey -in KEY -out PLAIN_KEY) that only the server's user can read".to_owned()
            }
            Self::UnsupportedKey { .. } => format!("{verb} one of {}, and its certificate", Self::KEYS),
            Self::Unusable { .. } => format!("{verb} the key that the certificate was made for"),
            Self::Keeping { .. } | Self::Generation(_) | Self::Both(_) => format!("{verb} files with a certificate and its key"),
        }
    }

    /// Each thing that is wrong, to be told for itself.
    pub fn each(self) -> Vec<Self> {
        match self {
            Self::Both(both) => Vec::from(*both),
            one => vec![one],
        }
    }
}

/// Where a chain or a key is, in PEM form.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// In a file.
    File(&'a Path),
    /// In memory.
    Text(&'a [u8]),
}

impl<'a> Source<'a> {
    fn read(self) -> Result<Cow<'a, [u8]>, pem::Error> {
        match self {
            Self::File(path) => std::fs::read(path).map(Cow::from).map_err(pem::Error::Io),
            Self::Text(text) => Ok(text.into()),
        }
    }

    /// What errors call it. `kind`: for what is in memory.
    fn name(self, kind: &'a str) -> &'a Path {
        match self {
            Self::File(path) => path,
            Self::Text(_) => Path::new(kind),
        }
    }
}

/// A certificate chain and key, ready to use.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// For the workers.
    pub identity: Identity,
    /// The same, for those who choose among several by the server's name ([`Identity::with_resolver`]).
    pub key: Arc<CertifiedKey>,
    /// SHA-256 of the certificate's public key (SPKI), in base64: the form that Chromium's
    /// `--ignore-certificate-errors-spki-list` takes.
    pub spki_sha256: String,
    /// Where the certificate is; of one that was given as text, words that say so.
    pub cert: PathBuf,
}

impl Loaded {
    /// Reads a chain and its key from PEM files.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, holds something else, or the two do not belong together.
    pub fn from_files(cert: &Path, key: &Path) -> Result<Self, CertificateError> {
        Self::from_sources(Source::File(cert), Source::File(key))
    }

    /// Takes a chain and its key as PEM text.
    ///
    /// # Errors
    ///
    /// When one holds something else, or the two do not belong together.
    pub fn from_pem(cert: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        Self::from_sources(Source::Text(cert), Source::Text(key))
    }

    /// Takes a chain and its key, each from a file or as text.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, one holds something else, or the two do not belong together.
    pub fn from_sources(cert: Source<'_>, key: Source<'_>) -> Result<Self, CertificateError> {
        let chain = cert.read().and_then(|text| CertificateDer::pem_slice_iter(&text).collect());
        let private = key.read().map_err(KeyError::Pem).and_then(|text| private_key(&text));
        Self::new(chain, private, cert.name("the certificate chain"), key.name("the key"))
    }

    /// `cert`, `key`: where they come from.
    fn new(
        chain: Result<Vec<CertificateDer<'static>>, pem::Error>,
        private: Result<PrivateKeyDer<'static>, KeyError>,
        cert: &Path,
        key: &Path,
    ) -> Result<Self, CertificateError> {
        let malformed = |reason| CertificateError::Malformed { path: cert.to_owned(), reason };
        let chain = chain.map_err(|error| pem_error(cert, "certificate", error)).and_then(|chain| {
            let leaf = chain.first().ok_or_else(|| malformed("holds no certificate in PEM form".to_owned()))?;
            let leaf = EndEntityCert::try_from(leaf).map_err(|error| {
                malformed(match error {
                    webpki::Error::UnsupportedCertVersion => NOT_VERSION_3.to_owned(),
                    other => format!("holds no usable certificate ({other})"),
                })
            })?;
            let spki_sha256 = spki_sha256(&leaf);
            Ok((chain, spki_sha256))
        });
        let private = private.map_err(|error| match error {
            KeyError::Pem(error) => pem_error(key, "private key", error),
            KeyError::Encrypted => CertificateError::Encrypted { key: key.to_owned() },
        });
        let private = private.and_then(|private| match provider().key_provider.load_private_key(private.clone_key()) {
            Ok(_) => Ok(private),
            Err(error) => {
                let reason = match error {
                    rustls::Error::General(text) => text,
                    other => other.to_string(),
                };
                Err(CertificateError::UnsupportedKey { key: key.to_owned(), reason })
            }
        });
        let ((chain, spki_sha256), private) = match (chain, private) {
            (Ok(chain), Ok(private)) => (chain, private),
            (Err(chain), Err(private)) => return Err(CertificateError::Both(Box::new([chain, private]))),
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        let unusable = |error| CertificateError::Unusable {
            cert: cert.to_owned(),
            key: key.to_owned(),
            reason: match error {
                rustls::Error::InconsistentKeys(_) => "the key does not belong to the certificate".to_owned(),
                other => other.to_string(),
            },
        };
        let certified = CertifiedKey::from_der(chain.clone(), private.clone_key(), &provider()).map_err(unusable)?;
        let identity = Identity::new(chain, private).map_err(unusable)?;
        Ok(Self { identity, key: Arc::new(certified), spki_sha256, cert: cert.to_owned() })
    }
}

const NOT_VERSION_3: &str = "the certificate is not of X.509 version 3 and so has no extensions, such as the names that it is for; issue it again with \
     extensions (openssl x509 -req … -extfile FILE, with subjectAltName=DNS:HOST in the file)";

/// Why there is no private key in a text.
enum KeyError {
    Pem(pem::Error),
    Encrypted,
}

/// The first private key of a PEM text.
fn private_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, KeyError> {
    PrivateKeyDer::from_pem_slice(text).map_err(|error| if is_encrypted(text) { KeyError::Encrypted } else { KeyError::Pem(error) })
}

/// Whether a PEM text holds a key that is encrypted with a passphrase, as PKCS #8 (RFC 7468, section 11) or OpenSSL's older form (RFC 1421) has it.
fn is_encrypted(text: &[u8]) -> bool {
    let marks: [&[u8]; 2] = [b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED"];
    marks.iter().any(|mark| text.windows(mark.len()).any(|window| window == *mark))
}

fn pem_error(path: &Path, what: &str, error: pem::Error) -> CertificateError {
    let path = path.to_owned();
    match error {
        pem::Error::Io(source) => CertificateError::File { path, source },
        pem::Error::NoItemsFound => CertificateError::Malformed { path, reason: format!("holds no {what} in PEM form") },
        other => CertificateError::Malformed { path, reason: format!("holds no usable {what} ({other})") },
    }
}

fn spki_sha256(certificate: &EndEntityCert<'_>) -> String {
    let spki = certificate.subject_public_key_info();
    BASE64_STANDARD.encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &spki))
}
