//! Errors of certificates and keys.

use std::io;
use std::path::PathBuf;

/// An error that makes a certificate unusable.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// A file contains no certificate or no key.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A certificate is not X.509 version 3.
    #[error(
        "{}: the certificate is not X.509 version 3, so it has no extensions such as host names",
        path.display()
    )]
    Version {
        /// File of the certificate.
        path: PathBuf,
    },
    /// The server's own certificate is not the first one of its chain.
    #[error("{}: the chain does not begin with the server's own certificate", cert.display())]
    Order {
        /// File of the certificate.
        cert: PathBuf,
    },
    /// A key is encrypted with a passphrase.
    #[error("{}: the key is encrypted with a passphrase", key.display())]
    Encrypted {
        /// File of the key.
        key: PathBuf,
    },
    /// A key is of an unsupported type, or too small.
    #[error("{}: unsupported key type or size ({reason})", key.display())]
    UnsupportedKey {
        /// File of the key.
        key: PathBuf,
        /// Error of the cryptography library.
        reason: String,
    },
    /// Certificate and key do not match.
    #[error("{} and {}: {reason}", cert.display(), key.display())]
    Unusable {
        /// File of the certificate.
        cert: PathBuf,
        /// File of the key.
        key: PathBuf,
        /// Reason why they cannot be used.
        reason: String,
    },
    /// The development certificate cannot be stored.
    #[error("cannot store a certificate in {}: {source}", folder.display())]
    Store {
        /// Path of the folder.
        folder: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The development key or certificate could not be created.
    #[error("cannot create a certificate: {0}")]
    Generation(String),
    /// Neither the certificate nor its key can be used.
    #[error("{}", .0.each_ref().map(ToString::to_string).join("; "))]
    Both(Box<[CertificateError; 2]>),
}

impl CertificateError {
    /// Supported kinds of keys, for error messages.
    pub const KEYS: &str = "RSA of 2048 to 8192 bits, ECDSA P-256, P-384 or P-521, or Ed25519";

    /// Returns a hint on how to fix the error. `verb` says how files are given, such as "name" in a
    /// configuration; `pair` says how the two are given, such as "the certificate chain as cert and
    /// its key as key".
    pub fn hint(&self, verb: &str, pair: &str) -> String {
        match self {
            Self::File { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "make it readable for this user".to_owned()
            }
            Self::File { .. } => "check the path".to_owned(),
            Self::Malformed { .. } => format!("{verb} {pair}, both in PEM form"),
            Self::Version { .. } => "reissue it with extensions (openssl x509 -req … -extfile \
                FILE, with subjectAltName=DNS:HOST in the file)"
                .to_owned(),
            Self::Order { .. } => {
                "put the server's own certificate first, and those of its issuers after it"
                    .to_owned()
            }
            Self::Encrypted { .. } => {
                "write an unencrypted copy (openssl pkey -in KEY -out PLAIN_KEY) that only the \
                    server's user can read"
                    .to_owned()
            }
            Self::UnsupportedKey { .. } => {
                format!("{verb} one of {}, and its certificate", Self::KEYS)
            }
            Self::Unusable { .. } => format!("{verb} the key that belongs to the certificate"),
            Self::Store { .. } | Self::Generation(_) | Self::Both(_) => {
                format!("{verb} files with a certificate and its key")
            }
        }
    }

    /// Splits the error into single ones, to be reported one by one.
    pub fn each(self) -> Vec<Self> {
        match self {
            Self::Both(both) => Vec::from(*both),
            one => vec![one],
        }
    }
}
