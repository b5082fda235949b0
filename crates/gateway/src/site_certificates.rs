//! Certificates by the server's name, which can be changed while connections are made.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::hosts::Hosts;
use crate::switches::SiteSwitches;

/// What a site shows to those who ask for its name.
#[derive(Clone, Debug)]
pub(crate) struct SiteCertificate {
    pub(crate) key: Arc<CertifiedKey>,
    /// Whether it may be spoken to over HTTP/3.
    pub(crate) switches: Arc<SiteSwitches>,
}

/// The certificates of all sites. Read at each handshake, written at each reload.
pub(crate) struct SiteCertificates(RwLock<Arc<Names>>);

pub(crate) struct Names {
    pub(crate) sites: Hosts<SiteCertificate>,
    /// For clients that name nobody, and for names without a site: they learn at the request that there is none.
    pub(crate) first: Option<SiteCertificate>,
}

impl SiteCertificates {
    pub(crate) fn new(names: Names) -> Self {
        Self(RwLock::new(Arc::new(names)))
    }

    pub(crate) fn replace(&self, names: Names) {
        // It is written as a whole, so that a panic leaves it whole.
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(names);
    }
}

impl ResolvesServerCert for SiteCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        let found = hello.server_name().and_then(|name| names.sites.find(name)).or(names.first.as_ref())?;
        let wants_http3 = hello.alpn().is_some_and(|mut protocols| protocols.any(|protocol| protocol == b"h3"));
        // Without a certificate the handshake fails, and the client goes back to TCP.
        (found.switches.http3() || !wants_http3).then(|| found.key.clone())
    }
}

impl fmt::Debug for SiteCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SiteCertificates").finish_non_exhaustive()
    }
}
