//! Sessions that this side may resume as a client.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

/// Maximum number of remembered servers.
const SERVERS: usize = 256;
/// Maximum number of tickets per server: enough for a client that opens many connections at once.
const TICKETS_PER_SERVER: usize = 1024;

/// The sessions of one transport, each used once.
#[derive(Default)]
pub(crate) struct ClientSessions {
    servers: Mutex<Servers>,
}

#[derive(Default)]
struct Servers {
    known: HashMap<ServerName<'static>, Server>,
    /// Oldest first.
    order: VecDeque<ServerName<'static>>,
}

#[derive(Default)]
struct Server {
    group: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl ClientSessions {
    fn with<R>(&self, name: &ServerName<'_>, action: impl FnOnce(&mut Server) -> R) -> Option<R> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.known.get_mut(&name.to_owned()).map(action)
    }

    fn with_new(&self, name: ServerName<'static>, action: impl FnOnce(&mut Server)) {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let Servers { known, order } = &mut *servers;
        if !known.contains_key(&name) {
            if order.len() >= SERVERS
                && let Some(oldest) = order.pop_front()
            {
                known.remove(&oldest);
            }
            order.push_back(name.clone());
        }
        action(known.entry(name).or_default());
    }
}

impl ClientSessionStore for ClientSessions {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.with_new(name, |server| server.group = Some(group));
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.with(name, |server| server.group).flatten()
    }

    fn set_tls12_session(&self, name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.with_new(name, |server| server.tls12 = Some(value));
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.with(name, |server| server.tls12.clone()).flatten()
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        self.with(name, |server| server.tls12 = None);
    }

    fn insert_tls13_ticket(&self, name: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.with_new(name, |server| {
            if server.tickets.len() >= TICKETS_PER_SERVER {
                server.tickets.pop_front();
            }
            server.tickets.push_back(value);
        });
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.with(name, |server| server.tickets.pop_back()).flatten()
    }
}

impl fmt::Debug for ClientSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSessions").finish_non_exhaustive()
    }
}
