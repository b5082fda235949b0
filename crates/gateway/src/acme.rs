//! Certificates that the server orders itself (ACME, RFC 8555): kept on disk, ordered and renewed by a thread of its own.

mod authority;
mod challenges;
mod order;
mod renewing;
mod schedule;
mod slot;
mod store;

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc::UnboundedSender;

pub(crate) use challenges::Challenges;
pub(crate) use slot::Slot;
pub use slot::{NoRetry, OrderState};
use store::Store;
pub(crate) use store::lifetime;

use crate::config::{self, AcmeChallenge};

/// Where certificates are ordered, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) acme: config::Acme,
    /// In place of the file's name, what is in it.
    pub(crate) trust: Option<Arc<[u8]>>,
    /// Those that somebody listens for.
    pub(crate) challenges: Vec<AcmeChallenge>,
}

/// The names that certificates are wanted for.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    settings: Arc<Settings>,
    store: Arc<Store>,
    slots: Vec<Arc<Slot>>,
}

impl Wanted {
    pub(crate) fn new(settings: Settings, state_dir: &Path) -> Self {
        let store = Arc::new(Store::new(
            state_dir,
            &settings.acme.directory,
            settings.acme.external_account.as_ref().map(|account| account.id.as_str()),
        ));
        Self { settings: Arc::new(settings), store, slots: Vec::new() }
    }

    /// The place of a name's certificate: the one that it has, or a new one with what is kept on disk.
    ///
    /// # Errors
    ///
    /// When what is kept cannot be read.
    pub(crate) fn slot(&mut self, host: &str, before: Option<&Self>) -> io::Result<Arc<Slot>> {
        let named = |wanted: &Self| wanted.slots.iter().find(|slot| slot.host() == host).cloned();
        if let Some(slot) = named(self) {
            return Ok(slot);
        }
        let slot = match before.filter(|before| before.store == self.store).and_then(named) {
            Some(slot) => slot,
            None => Arc::new(Slot::new(host, self.store.certificate(host)?)),
        };
        self.slots.push(slot.clone());
        Ok(slot)
    }
}

/// Whoever orders, once it has been started.
#[derive(Default)]
pub(crate) struct Acme {
    pub(crate) challenges: Arc<Challenges>,
    orders: Mutex<Option<Orders>>,
}

struct Orders {
    tell: Arc<Tell>,
    /// There is a thread from the first wish on.
    wishes: Option<UnboundedSender<Wanted>>,
}

/// Where lines for the operator go.
type Tell = dyn Fn(&str) + Send + Sync;

impl Acme {
    /// Orders what is wanted from now on.
    ///
    /// # Errors
    ///
    /// When there is no thread, or the folder for certificates cannot be written.
    pub(crate) fn start(&self, wanted: Option<&Wanted>, tell: impl Fn(&str) + Send + Sync + 'static) -> io::Result<()> {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let orders = orders.insert(Orders { tell: Arc::new(tell), wishes: None });
        self.wish(orders, wanted)
    }

    /// What is wanted has changed. Orders that run for names that are still wanted go on.
    pub(crate) fn change(&self, wanted: Option<&Wanted>) {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(orders) = orders.as_mut() else { return };
        if let Err(error) = self.wish(orders, wanted) {
            (orders.tell)(&format!("error: certificates cannot be ordered: {error}"));
        }
    }

    fn wish(&self, orders: &mut Orders, wanted: Option<&Wanted>) -> io::Result<()> {
        if let Some(wanted) = wanted
            && let Err(error) = wanted.store.make()
        {
            // Whoever has all that is wanted can serve with a full disk too.
            if wanted.slots.iter().any(|slot| slot.lifetime().is_none()) {
                return Err(error);
            }
            (orders.tell)(&format!("warning: certificates cannot be renewed: {error}"));
        }
        let wishes = match (&orders.wishes, wanted) {
            (Some(wishes), _) => wishes,
            (None, None) => return Ok(()),
            (None, Some(_)) => orders.wishes.insert(renewing::start(self.challenges.clone(), orders.tell.clone())?),
        };
        let nothing = || Wanted { settings: Arc::default(), store: Arc::default(), slots: Vec::new() };
        wishes.send(wanted.cloned().unwrap_or_else(nothing)).map_err(|_| io::Error::other("the thread for them has ended"))
    }
}
