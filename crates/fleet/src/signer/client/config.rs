//! Settings of a client.

use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

/// Time to wait for a signature.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Time to connect: TCP, TLS, and the first ping.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time between pings of a connection.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// Requests that may wait for their answers.
const OUTSTANDING: usize = 1024;

/// Called with an address, and the error or `None` when it is connected.
pub(super) type Listener = Arc<dyn Fn(&str, Option<&str>) + Send + Sync>;

/// The settings of a [`SignerClient`](crate::signer::SignerClient).
#[derive(Clone)]
pub struct SignerConfig {
    /// Name for messages and metrics.
    pub name: String,
    /// Addresses, each `host:port`. They are used in turn; one that fails is skipped for a while.
    pub addresses: Vec<String>,
    /// Name that the signers' certificates must have; by default the host of each address.
    pub server_name: Option<String>,
    /// The client's certificate, and the authorities of signers; see
    /// [`client_tls`](crate::signer::client_tls).
    pub tls: Arc<ClientConfig>,
    /// Maximum time of one signature, over all addresses (1 s).
    pub timeout: Duration,
    /// Maximum time to connect: TCP, TLS, and the first ping (3 s).
    pub connect_timeout: Duration,
    /// Time between pings of a connection (5 s). A ping that is not answered within `timeout` ends
    /// the connection.
    pub ping_interval: Duration,
    /// Maximum number of requests that wait for their answers (1024). Further ones fail at once.
    /// Each takes about 2 KiB.
    pub outstanding: usize,
    /// Notified when an address is connected, and when it fails. Must not block.
    pub listener: Listener,
}

impl SignerConfig {
    /// Returns the settings with their defaults.
    pub fn new(name: impl Into<String>, addresses: Vec<String>, tls: Arc<ClientConfig>) -> Self {
        Self {
            name: name.into(),
            addresses,
            server_name: None,
            tls,
            timeout: TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            ping_interval: PING_INTERVAL,
            outstanding: OUTSTANDING,
            listener: Arc::new(|_, _| {}),
        }
    }

    /// Parses the addresses.
    ///
    /// # Errors
    ///
    /// Returns a message that says which address or name is invalid.
    pub fn check(&self) -> Result<(), String> {
        self.parsed().map(drop)
    }

    pub(super) fn parsed(&self) -> Result<Vec<Address>, String> {
        if self.addresses.is_empty() {
            return Err("a signer needs at least one address".to_owned());
        }
        self.addresses.iter().map(|text| self.address(text)).collect()
    }

    fn address(&self, text: &str) -> Result<Address, String> {
        let invalid = || format!("invalid address {text:?} of a signer: use host:port");
        let (host, port) = text.rsplit_once(':').ok_or_else(invalid)?;
        let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(invalid)?;
        if host.is_empty() {
            return Err(invalid());
        }
        let name = self.server_name.as_deref().unwrap_or(host);
        let server_name = ServerName::try_from(name.to_owned())
            .map_err(|_| format!("invalid server name {name:?} of a signer"))?;
        Ok(Address { text: text.to_owned(), host: host.to_owned(), port, server_name })
    }
}

/// An address of a signer.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) text: String,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) server_name: ServerName<'static>,
}
