//! What a server is started with, as it was given and as it is used: addresses and sockets, a certificate and an identity.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use pronghorn_certificates::Loaded;
use pronghorn_engine::{Congestion, Identity, Listener};

use crate::Error;

/// An address that was named.
pub(crate) struct Listen {
    /// As it was given.
    pub(crate) name: String,
    pub(crate) addresses: io::Result<Vec<SocketAddr>>,
    pub(crate) secure: bool,
}

pub(crate) enum Certificate {
    None,
    Identity(Identity),
    Files(PathBuf, PathBuf),
    Pem(Vec<u8>, Vec<u8>),
    #[cfg(feature = "development-certificate")]
    Development(Option<PathBuf>),
}

pub(crate) fn load(certificate: Certificate) -> Result<(Identity, Option<String>), Error> {
    let loaded = match certificate {
        Certificate::None => return Err(Error::NoCertificate),
        Certificate::Identity(identity) => return Ok((identity, None)),
        Certificate::Files(chain, key) => Loaded::from_files(&chain, &key)?,
        Certificate::Pem(chain, key) => Loaded::from_pem(&chain, &key)?,
        #[cfg(feature = "development-certificate")]
        Certificate::Development(Some(folder)) => Loaded::for_development(&folder)?,
        #[cfg(feature = "development-certificate")]
        Certificate::Development(None) => Loaded::for_development(&pronghorn_certificates::user_folder().ok_or(Error::NoHome)?)?,
    };
    Ok((loaded.identity, Some(loaded.spki_sha256)))
}

/// Binds all addresses that can be bound, and adds to `errors` why others cannot.
pub(crate) fn bind(listeners: Vec<Listen>, workers: usize, congestion: Option<Congestion>, errors: &mut Vec<Error>) -> Vec<Listener> {
    if listeners.is_empty() {
        errors.push(Error::NoAddress);
    }
    let mut bound = Vec::new();
    for Listen { name, addresses, secure } in listeners {
        let addresses = addresses.and_then(|addresses| match &addresses[..] {
            [] => Err(io::Error::other("the name has no address")),
            _ => Ok(addresses),
        });
        let addresses = addresses.unwrap_or_else(|source| {
            errors.push(Error::Address { address: name, source });
            Vec::new()
        });
        for address in addresses {
            let listener = if secure { Listener::secure } else { Listener::clear };
            match listener(address, workers, congestion) {
                Ok(listener) => bound.push(listener),
                Err(error) => errors.push(error.into()),
            }
        }
    }
    bound
}

/// Reads a chain and its key from PEM files.
pub(crate) fn identity_from_files(chain: &Path, key: &Path) -> Result<Identity, Error> {
    Ok(Loaded::from_files(chain, key)?.identity)
}
