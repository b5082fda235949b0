//! Errors of security modules.

use std::path::PathBuf;
use std::time::Duration;

use cryptoki::error::{Error, RvError};

/// The reason why a key in a security module cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Pkcs11Error {
    /// The URI is invalid.
    #[error("invalid PKCS#11 URI: {0}")]
    Uri(String),
    /// The program is linked statically.
    #[error("a statically linked program cannot load the PKCS#11 module {}", .0.display())]
    Static(PathBuf),
    /// The module cannot be loaded or initialized.
    #[error("cannot load the PKCS#11 module {}: {reason}", path.display())]
    Module {
        /// Path of the module.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// There is no such token.
    #[error("no such token; the module has {0}")]
    NoToken(String),
    /// The token has no such private key, or several.
    #[error("{0} private keys match on the token {1:?}")]
    KeyCount(usize, String),
    /// The PIN cannot be read, or the token refuses it.
    #[error("{0}")]
    Pin(String),
    /// The token has no public key that belongs to the private one.
    #[error("the token does not have the public key")]
    NoPublicKey,
    /// The key is of another kind.
    #[error("unsupported kind of key: use RSA, ECDSA P-256 or ECDSA P-384")]
    Unsupported,
    /// The test signature does not belong to the public key.
    #[error("the key's signature does not verify with the certificate's public key")]
    WrongKey,
    /// A function of the module failed.
    #[error("{0}")]
    Call(String),
    /// The module did not answer.
    #[error("the module did not answer within {0:?}")]
    TimedOut(Duration),
}

impl Pkcs11Error {
    /// Returns what to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Uri(_) => "write it like \
                pkcs11:token=T;object=O?module-path=/usr/lib/softhsm/libsofthsm2.so&pin-source=file:/etc/pin"
                .to_owned(),
            Self::Static(_) => "use the dynamically linked program".to_owned(),
            Self::Module { .. } => "check `module-path` of the URI".to_owned(),
            Self::NoToken(_) => "correct `token`, `serial` or `slot-id` of the URI".to_owned(),
            Self::KeyCount(..) => {
                "name exactly one key with `object` or `id`; pkcs11-tool --list-objects shows them"
                    .to_owned()
            }
            Self::Pin(_) => "correct `pin-source` or `pin-value` of the URI".to_owned(),
            Self::NoPublicKey => "give the key's certificate: { key = \"pkcs11:…\", cert = \
                \"cert.pem\" }"
                .to_owned(),
            Self::Unsupported => "name another key".to_owned(),
            Self::WrongKey => "name the key that belongs to the certificate".to_owned(),
            Self::Call(_) | Self::TimedOut(_) => {
                "check the security module, and its log".to_owned()
            }
        }
    }
}

impl From<Error> for Pkcs11Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Pkcs11(
                reason @ (RvError::PinIncorrect
                | RvError::PinInvalid
                | RvError::PinLenRange
                | RvError::PinExpired
                | RvError::PinLocked
                | RvError::UserPinNotInitialized),
                _,
            ) => Self::Pin(format!("the token refused the PIN ({reason:?})")),
            Error::Pkcs11(reason, function) => {
                Self::Call(format!("{function:?} of the module failed with {reason:?}"))
            }
            other => Self::Call(other.to_string()),
        }
    }
}
