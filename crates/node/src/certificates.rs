//! Selection of certificates by server name. They can change at any time.

use std::cell::RefCell;
use std::fmt;
use std::rc::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pronghorn_certificates::{CertificateError, Loaded, Source};
use pronghorn_engine::ClientCertificatePolicy;
use rustc_hash::FxHashMap;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::clients::Clients;
use crate::js::Failure;

/// An environment whose JavaScript can add certificates.
pub(crate) trait AsksForName {
    /// Notifies JavaScript of a server name without a certificate.
    fn ask_for_name(&self, app: u32, name: &str);
}

thread_local! {
    /// Environments of this thread, by the number in their certificates.
    static ENVIRONMENTS: RefCell<FxHashMap<u64, Weak<dyn AsksForName>>> = RefCell::default();
}

/// The certificates of an application.
pub(crate) struct Certificates {
    known: Mutex<Known>,
    /// Whether an entry asks clients for a certificate, or did.
    asks_clients: AtomicBool,
    environment: u64,
    app: u32,
}

#[derive(Default)]
struct Known {
    default: Option<Arc<Entry>>,
    names: FxHashMap<String, Arc<Entry>>,
    /// Whether JavaScript is asked for unknown names.
    asks: bool,
}

/// The certificate of a server name, or of all others.
#[derive(Debug)]
pub(crate) struct Entry {
    key: Arc<CertifiedKey>,
    /// Client certificate settings, if clients are asked for one.
    pub(crate) clients: Option<Clients>,
}

impl Entry {
    /// # Errors
    ///
    /// If a file cannot be read, is malformed, or certificate and key do not belong together. The
    /// message says what to do.
    pub(crate) fn new(
        cert: Source<'_>,
        key: Source<'_>,
        clients: Option<Clients>,
    ) -> Result<Self, Failure> {
        let loaded = Loaded::from_sources(cert, key).map_err(explain)?;
        Ok(Self { key: loaded.key, clients })
    }
}

/// Formats an error like the program and the gateway, with the option names of the package.
fn explain(error: CertificateError) -> Failure {
    const PAIR: &str =
        "the certificate chain as cert_file_name or cert, and its key as key_file_name or key";
    let hint = |error: &CertificateError| match error {
        CertificateError::Encrypted { .. } => "give it as passphrase".to_owned(),
        other => other.hint("give", PAIR),
    };
    let each: Vec<_> =
        error.each().iter().map(|error| format!("{error}: {}", hint(error))).collect();
    Failure(each.join("; "))
}

/// Registers an environment for handshakes of this thread. Returns its number for
/// [`Certificates::new`].
pub(crate) fn introduce(addon: Weak<dyn AsksForName>) -> u64 {
    ENVIRONMENTS.with_borrow_mut(|environments| {
        environments.retain(|_, known| known.strong_count() > 0);
        let number = environments.keys().max().map_or(0, |last| last + 1);
        environments.insert(number, addon);
        number
    })
}

impl Certificates {
    pub(crate) fn new(environment: u64, app: u32) -> Arc<Self> {
        Arc::new(Self {
            known: Mutex::default(),
            asks_clients: AtomicBool::default(),
            environment,
            app,
        })
    }

    /// Sets the entry of `name`, which may begin with `*.`; without a name, of all others.
    pub(crate) fn set(&self, name: Option<String>, entry: Entry) {
        if entry.clients.is_some() {
            self.asks_clients.store(true, Ordering::Relaxed);
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match name {
            Some(name) => drop(known.names.insert(name.to_ascii_lowercase(), Arc::new(entry))),
            None => known.default = Some(Arc::new(entry)),
        }
    }

    pub(crate) fn remove(&self, name: &str) {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .names
            .remove(&name.to_ascii_lowercase());
    }

    pub(crate) fn ask(&self) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).asks = true;
    }

    pub(crate) fn is_empty(&self) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.default.is_none() && known.names.is_empty() && !known.asks
    }

    /// Returns the entry of a lower-case name, or the default entry.
    pub(crate) fn entry(&self, name: Option<&str>) -> Option<Arc<Entry>> {
        let found = name.and_then(|name| self.find(name));
        found.or_else(|| self.known.lock().unwrap_or_else(PoisonError::into_inner).default.clone())
    }

    fn find(&self, name: &str) -> Option<Arc<Entry>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let wildcard = || known.names.get(&format!("*{}", &name[name.find('.')?..]));
        known.names.get(name).or_else(wildcard).cloned()
    }

    /// Asks JavaScript for the certificate of a name. It has to be added before the call returns.
    fn ask_for(&self, name: &str) {
        if !self.known.lock().unwrap_or_else(PoisonError::into_inner).asks {
            return;
        }
        let addon = ENVIRONMENTS.with_borrow(|environments| {
            environments.get(&self.environment).and_then(Weak::upgrade)
        });
        if let Some(addon) = addon {
            addon.ask_for_name(self.app, name);
        }
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if let Some(name) = hello.server_name() {
            let name = name.to_ascii_lowercase();
            let found = self.find(&name).or_else(|| {
                self.ask_for(&name);
                self.find(&name)
            });
            if let Some(found) = found {
                return Some(found.key.clone());
            }
        }
        self.entry(None).map(|entry| entry.key.clone())
    }
}

impl ClientCertificatePolicy for Certificates {
    fn requests_any(&self) -> bool {
        self.asks_clients.load(Ordering::Relaxed)
    }

    fn requests(&self, server_name: Option<&str>) -> bool {
        self.requests_any() && self.entry(server_name).is_some_and(|entry| entry.clients.is_some())
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("app", &self.app).finish_non_exhaustive()
    }
}
