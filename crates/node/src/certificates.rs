//! Which certificate a handshake is answered with: by the server's name, and changed at any time.

use std::cell::RefCell;
use std::fmt;
use std::rc::Weak;
use std::sync::{Arc, Mutex, PoisonError};

use pronghorn_engine::provider;
use rustc_hash::FxHashMap;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::addon::Addon;
use crate::js::Failure;

thread_local! {
    /// Environments of this thread, by the number that their certificates know them by.
    static ENVIRONMENTS: RefCell<FxHashMap<u64, Weak<Addon>>> = RefCell::default();
}

/// The certificates of an application.
pub(crate) struct Certificates {
    known: Mutex<Known>,
    environment: u64,
    app: u32,
}

#[derive(Default)]
struct Known {
    default: Option<Arc<CertifiedKey>>,
    names: FxHashMap<String, Arc<CertifiedKey>>,
    /// JavaScript wants to be asked for names that are not there.
    asks: bool,
}

/// Lets handshakes of this thread find JavaScript. Returns the number for [`Certificates::new`].
pub(crate) fn introduce(addon: Weak<Addon>) -> u64 {
    ENVIRONMENTS.with_borrow_mut(|environments| {
        environments.retain(|_, known| known.strong_count() > 0);
        let number = environments.keys().max().map_or(0, |last| last + 1);
        environments.insert(number, addon);
        number
    })
}

impl Certificates {
    pub(crate) fn new(environment: u64, app: u32) -> Arc<Self> {
        Arc::new(Self { known: Mutex::default(), environment, app })
    }

    /// Sets the certificate for `name`, which may begin with `*.`; with none, the one for all others.
    ///
    /// # Errors
    ///
    /// When there is no certificate in `chain`, or the key does not fit to it.
    pub(crate) fn set(&self, name: Option<String>, chain: &[u8], key: &[u8]) -> Result<(), Failure> {
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().map_err(|error| format!("certificate: {error}"))?;
        if chain.is_empty() {
            return Err("certificate: there is none in PEM form (-----BEGIN CERTIFICATE-----)".into());
        }
        let key = PrivateKeyDer::try_from(key.to_vec()).map_err(|error| format!("private key: {error}"))?;
        let certified = CertifiedKey::from_der(chain, key, &provider()).map_err(|error| format!("certificate and key: {error}"))?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match name {
            Some(name) => drop(known.names.insert(name.to_ascii_lowercase(), Arc::new(certified))),
            None => known.default = Some(Arc::new(certified)),
        }
        Ok(())
    }

    pub(crate) fn remove(&self, name: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).names.remove(&name.to_ascii_lowercase());
    }

    pub(crate) fn ask(&self) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).asks = true;
    }

    pub(crate) fn is_empty(&self) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.default.is_none() && known.names.is_empty() && !known.asks
    }

    fn find(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let wildcard = || known.names.get(&format!("*{}", &name[name.find('.')?..]));
        known.names.get(name).or_else(wildcard).cloned()
    }

    /// Lets JavaScript add the certificate for a name; it has to do so before it returns.
    fn ask_for(&self, name: &str) {
        if !self.known.lock().unwrap_or_else(PoisonError::into_inner).asks {
            return;
        }
        let addon = ENVIRONMENTS.with_borrow(|environments| environments.get(&self.environment).and_then(Weak::upgrade));
        if let Some(addon) = addon
            && let Some(missing_name) = addon.missing_name.get()
        {
            addon.env.scope(|| addon.env.call(missing_name, &[addon.env.number(self.app.into()), addon.env.string(name)]));
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
            if found.is_some() {
                return found;
            }
        }
        self.known.lock().unwrap_or_else(PoisonError::into_inner).default.clone()
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("app", &self.app).finish_non_exhaustive()
    }
}
