//! Certificates by the server's name, which can be changed while connections are made.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use pronghorn_engine::{ACME_TLS, AsksClients};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::acme::{Challenges, Slot};
use crate::hosts::Hosts;
use crate::switches::SiteSwitches;

/// What a site shows to those who ask for its name.
#[derive(Clone, Debug)]
pub(crate) struct SiteCertificate {
    pub(crate) certificate: Certificate,
    /// Whether it may be spoken to over HTTP/3.
    pub(crate) switches: Arc<SiteSwitches>,
    /// Whether clients are asked for one of their own.
    pub(crate) asks_clients: bool,
}

/// A certificate with its key.
#[derive(Clone, Debug)]
pub(crate) enum Certificate {
    /// As it was read.
    Read(Arc<CertifiedKey>),
    /// As it comes and is renewed.
    Ordered(Arc<Slot>),
}

impl Certificate {
    /// What is shown now; `None` before the first one has come.
    pub(crate) fn key(&self) -> Option<Arc<CertifiedKey>> {
        match self {
            Self::Read(key) => Some(key.clone()),
            Self::Ordered(slot) => slot.key(),
        }
    }
}

/// The certificates of all sites. Read at each handshake, written at each reload.
pub(crate) struct SiteCertificates {
    names: RwLock<Arc<Names>>,
    challenges: Arc<Challenges>,
}

pub(crate) struct Names {
    pub(crate) sites: Hosts<SiteCertificate>,
    /// For clients that name nobody, and for names without a site: they learn at the request that there is none.
    pub(crate) first: Option<SiteCertificate>,
    /// Whether clients of any site are asked for one.
    pub(crate) asks_any: bool,
}

impl Names {
    /// What is shown to a client that asks for this name.
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
        // It is written as a whole, so that a panic leaves it whole.
        *self.names.write().unwrap_or_else(PoisonError::into_inner) = names;
    }
}

impl AsksClients for SiteCertificates {
    fn asks_any(&self) -> bool {
        self.names().asks_any
    }

    fn asks(&self, server_name: Option<&str>) -> bool {
        self.names().find(server_name).is_some_and(|found| found.asks_clients)
    }
}

impl ResolvesServerCert for SiteCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if hello.alpn().is_some_and(|protocols| protocols.eq([ACME_TLS])) {
            return self.challenges.certificate(hello.server_name()?);
        }
        let names = self.names();
        let found = names.find(hello.server_name())?;
        let wants_http3 = hello.alpn().is_some_and(|mut protocols| protocols.any(|protocol| protocol == b"h3"));
        // Without a certificate the handshake fails, and the client goes back to TCP.
        if found.switches.http3() || !wants_http3 { found.certificate.key() } else { None }
    }
}

impl fmt::Debug for SiteCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SiteCertificates").finish_non_exhaustive()
    }
}
