//! What a signer needs to start.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;

use super::clients::{Client, Clients};
use super::keys::Key;
use super::limits::Limits;
use crate::signer::tls::{TlsError, authorities, server_tls};

/// What a signer needs to start, with all files read.
#[derive(Debug)]
pub struct Settings {
    /// Addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// Bounds on what clients may use.
    pub limits: Limits,
    /// Number of threads that sign.
    pub threads: usize,
    pub(super) tls: Arc<ServerConfig>,
    pub(super) clients: Arc<Clients>,
    pub(super) keys: Vec<Arc<Key>>,
}

impl Settings {
    /// Reads the signer's certificate chain and key, and the authorities of its clients. `keys` are
    /// those with metrics. It signs on as many threads as there are cores.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or has other content.
    pub fn new(
        listen: Vec<SocketAddr>,
        [cert, key, client_ca]: [&Path; 3],
        clients: Vec<Client>,
        keys: Vec<Arc<Key>>,
    ) -> Result<Self, TlsError> {
        let clients = Clients::new(authorities(client_ca)?, clients)
            .map_err(|reason| TlsError { path: client_ca.to_owned(), reason, kind: None })?;
        let clients = Arc::new(clients);
        let tls = server_tls(cert, key, clients.clone())?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self { listen, limits: Limits::default(), threads, tls, clients, keys })
    }
}
