//! What a server is started with: addresses become sockets, a certificate becomes an identity.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use pronghorn_certificates::Loaded;
use pronghorn_engine::{Congestion, Identity, Listener};

use crate::Error;
#[cfg(feature = "acme")]
use crate::acme::{Acme, PendingOrders};

/// An address to listen on.
pub(crate) struct ListenAddress {
    /// The address as given.
    pub(crate) name: String,
    pub(crate) addresses: io::Result<Vec<SocketAddr>>,
    pub(crate) secure: bool,
}

pub(crate) enum Certificate {
    None,
    Identity(Identity),
    Files(PathBuf, PathBuf),
    Pem(Vec<u8>, Vec<u8>),
    #[cfg(feature = "acme")]
    Acme(Box<Acme>),
    #[cfg(feature = "development-certificate")]
    Development(Option<PathBuf>),
}

/// The identity of a server.
pub(crate) struct LoadedCertificate {
    pub(crate) identity: Identity,
    pub(crate) spki_sha256: Option<String>,
    #[cfg(feature = "acme")]
    pub(crate) orders: Option<PendingOrders>,
}

impl LoadedCertificate {
    fn new(identity: Identity, spki_sha256: Option<String>) -> Self {
        Self {
            identity,
            spki_sha256,
            #[cfg(feature = "acme")]
            orders: None,
        }
    }
}

/// `has_clear`: there is a cleartext listener too.
#[cfg_attr(not(feature = "acme"), expect(unused_variables, reason = "only HTTP-01 needs it"))]
pub(crate) fn load(certificate: Certificate, has_clear: bool) -> Result<LoadedCertificate, Error> {
    let loaded = match certificate {
        Certificate::None => return Err(Error::NoCertificate),
        Certificate::Identity(identity) => return Ok(LoadedCertificate::new(identity, None)),
        #[cfg(feature = "acme")]
        Certificate::Acme(acme) => {
            let (identity, orders) = acme.load(has_clear)?;
            return Ok(LoadedCertificate { identity, spki_sha256: None, orders: Some(orders) });
        }
        Certificate::Files(chain, key) => Loaded::from_files(&chain, &key)?,
        Certificate::Pem(chain, key) => Loaded::from_pem(&chain, &key)?,
        #[cfg(feature = "development-certificate")]
        Certificate::Development(Some(folder)) => Loaded::for_development(&folder)?,
        #[cfg(feature = "development-certificate")]
        Certificate::Development(None) => {
            Loaded::for_development(&pronghorn_certificates::user_folder().ok_or(Error::NoHome)?)?
        }
    };
    Ok(LoadedCertificate::new(loaded.identity, Some(loaded.spki_sha256)))
}

/// Binds every address that can be bound, and adds the reasons for the others to `errors`.
pub(crate) fn bind(
    listeners: Vec<ListenAddress>,
    workers: usize,
    congestion: Option<Congestion>,
    errors: &mut Vec<Error>,
) -> Vec<Listener> {
    if listeners.is_empty() {
        errors.push(Error::NoAddress);
    }
    let (mut bound, mut given) = (Vec::new(), HashSet::new());
    for ListenAddress { name, addresses, secure } in listeners {
        let addresses = addresses.and_then(|addresses| match &addresses[..] {
            [] => Err(io::Error::other("the host name has no addresses")),
            _ => Ok(addresses),
        });
        let addresses = addresses.unwrap_or_else(|source| {
            errors.push(Error::Address { address: name, source });
            Vec::new()
        });
        for address in addresses {
            // Port 0 is another free port each time.
            if address.port() != 0 && !given.insert(address) {
                errors.push(Error::AddressTwice(address));
                continue;
            }
            let listener = if secure { Listener::secure } else { Listener::clear };
            match listener(address, workers, congestion) {
                Ok(listener) => bound.push(listener),
                Err(error) => errors.push(error.into()),
            }
        }
    }
    bound
}

/// Reads a certificate chain and its key from PEM files.
pub(crate) fn identity_from_files(chain: &Path, key: &Path) -> Result<Identity, Error> {
    Ok(Loaded::from_files(chain, key)?.identity)
}
