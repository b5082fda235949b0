//! PKCS#11 in a program that was built without it.

use std::convert::Infallible;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use super::error::SignError;
use super::public_key::PublicKey;
use super::scheme::Scheme;
use super::source::KeySource;

/// The reason why a key in a security module cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this program was built without PKCS#11")]
pub struct Pkcs11Error;

impl Pkcs11Error {
    /// Returns what to do about it.
    pub fn hint(&self) -> String {
        "use a program that was built with the feature `pkcs11`".to_owned()
    }
}

/// A PKCS#11 URI, which this program cannot parse.
#[derive(Clone, Debug)]
pub struct Pkcs11Uri(Infallible);

impl FromStr for Pkcs11Uri {
    type Err = Pkcs11Error;

    fn from_str(_: &str) -> Result<Self, Pkcs11Error> {
        Err(Pkcs11Error)
    }
}

impl Pkcs11Uri {
    /// Returns the URI with relative paths in a folder.
    #[must_use]
    pub fn in_folder(&self, _: &Path) -> Self {
        match self.0 {}
    }
}

/// A key in a security module, which this program cannot use.
#[derive(Debug)]
pub struct Pkcs11Key(Infallible);

impl Pkcs11Key {
    /// Opens a key.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn open(uri: &Pkcs11Uri, _: Option<PublicKey>, _: Duration) -> Result<Self, Pkcs11Error> {
        match uri.0 {}
    }
}

impl KeySource for Pkcs11Key {
    fn name(&self) -> &str {
        match self.0 {}
    }

    fn may_block(&self) -> bool {
        match self.0 {}
    }

    fn public_key(&self) -> &PublicKey {
        match self.0 {}
    }

    fn sign(&self, _: Scheme, _: &[u8]) -> Result<Vec<u8>, SignError> {
        match self.0 {}
    }
}
