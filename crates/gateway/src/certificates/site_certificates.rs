//! Certificates by server name, which can be replaced while connections are accepted.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use pronghorn_acme::{Challenges, ManagedCertificate};
use pronghorn_engine::{ACME_TLS, ClientCertificatePolicy, SlowKeys};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::routing::hosts::Hosts;
use crate::switches::SiteSwitches;

/// A site's certificate and TLS settings.
#[derive(Clone, Debug)]
pub(crate) struct SiteCertificate {
    pub(crate) certificate: Certificate,
    /// Switches of the site, such as for HTTP/3.
    pub(crate) switches: Arc<SiteSwitches>,
    /// Whether client certificates are requested.
    pub(crate) asks_clients: bool,
    /// Whether its key may take time to sign.
    pub(crate) is_slow: bool,
}

/// A certificate with its key.
#[derive(Clone, Debug)]
pub(crate) enum Certificate {
    /// A certificate read from files.
    Read(Arc<CertifiedKey>),
    /// A certificate read from a file, whose key may take time to sign.
    Slow(Arc<CertifiedKey>),
    /// A certificate that is ordered and renewed automatically.
    Ordered(Arc<ManagedCertificate>),
}

impl Certificate {
    /// Whether the key may take time to sign.
    pub(crate) fn is_slow(&self) -> bool {
        matches!(self, Self::Slow(_))
    }

    /// Returns the current certificate; `None` before the first one is issued.
    pub(crate) fn key(&self) -> Option<Arc<CertifiedKey>> {
        match self {
            Self::Read(key) | Self::Slow(key) => Some(key.clone()),
            Self::Ordered(slot) => slot.key(),
        }
    }
}

/// The certificates of all sites. Read at each handshake, replaced at each reload.
pub(crate) struct SiteCertificates {
    names: RwLock<Arc<Names>>,
    challenges: Arc<Challenges>,
}

pub(crate) struct Names {
    pub(crate) sites: Hosts<SiteCertificate>,
    /// Certificate for clients without a server name and for unknown names; their requests are then
    /// refused.
    pub(crate) first: Option<SiteCertificate>,
    /// Whether any site requests client certificates.
    pub(crate) asks_any: bool,
}

impl Names {
    /// Returns the certificate for a server name.
    pub(crate) fn find(&self, name: Option<&str>) -> Option<&SiteCertificate> {
        name.and_then(|name| self.sites.find(name)).or(self.first.as_ref())
    }
}

impl SiteCertificates {
    pub(crate) fn new(names: Arc<Names>, challenges: Arc<Challenges>) -> Self {
        Self { names: RwLock::new(names), challenges }
    }

    fn names(&self) -> Arc<Names> {
        self.names.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn replace(&self, names: Arc<Names>) {
        // A poisoned lock is safe, since the value is replaced as a whole.
        *self.names.write().unwrap_or_else(PoisonError::into_inner) = names;
    }
}

impl ClientCertificatePolicy for SiteCertificates {
    fn requests_any(&self) -> bool {
        self.names().asks_any
    }

    fn requests(&self, server_name: Option<&str>) -> bool {
        self.names().find(server_name).is_some_and(|found| found.asks_clients)
    }
}

impl SlowKeys for SiteCertificates {
    fn is_slow(&self, server_name: Option<&str>) -> bool {
        self.names().find(server_name).is_some_and(|found| found.is_slow)
    }
}

impl ResolvesServerCert for SiteCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if hello.alpn().is_some_and(|protocols| protocols.eq([ACME_TLS])) {
            return self.challenges.certificate(hello.server_name()?);
        }
        let names = self.names();
        let found = names.find(hello.server_name())?;
        let wants_http3 =
            hello.alpn().is_some_and(|mut protocols| protocols.any(|protocol| protocol == b"h3"));
        // Without a certificate the handshake fails, and the client falls back to TCP.
        if found.switches.http3() || !wants_http3 { found.certificate.key() } else { None }
    }
}

impl fmt::Debug for SiteCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SiteCertificates").finish_non_exhaustive()
    }
}
