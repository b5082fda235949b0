//! The client of signers: persistent connections to several addresses, and blocking requests.

mod connection;
mod endpoint;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::sync::watch;

use self::endpoint::{Address, Endpoint};
pub use self::endpoint::{AddressState, Phase};
use super::error::SignError;
use super::protocol::Operation;

/// Time to wait for a signature.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Time to connect: TCP, TLS, and the first ping.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time between pings of a connection.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// Requests that may wait for their answers.
const OUTSTANDING: usize = 1024;

/// Called with an address, and the error or `None` when it is connected.
type Listener = Arc<dyn Fn(&str, Option<&str>) + Send + Sync>;

/// The settings of a [`SignerClient`].
#[derive(Clone)]
pub struct SignerConfig {
    /// Name for messages and metrics.
    pub name: String,
    /// Addresses, each `host:port`. They are used in turn; one that fails is skipped for a while.
    pub addresses: Vec<String>,
    /// Name that the signers' certificates must have; by default the host of each address.
    pub server_name: Option<String>,
    /// The client's certificate, and the authorities of signers; see
    /// [`client_tls`](super::client_tls).
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

    fn parsed(&self) -> Result<Vec<Address>, String> {
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

/// A client of signers that have the same keys. A thread of its own has the connections.
pub struct SignerClient {
    name: String,
    timeout: Duration,
    limit: usize,
    outstanding: AtomicUsize,
    /// Position of the address that is next in turn.
    turn: AtomicUsize,
    endpoints: Vec<Endpoint>,
    started: Instant,
    _stop: watch::Sender<()>,
}

/// A request for one address.
#[derive(Debug)]
struct Request {
    operation: Operation,
    reply: Reply,
    deadline: Instant,
}

/// Where the answer of one address goes.
#[derive(Debug)]
struct Reply {
    position: usize,
    sender: SyncSender<(usize, Result<Vec<u8>, SignError>)>,
}

impl Reply {
    fn send(self, result: Result<Vec<u8>, SignError>) {
        // Each address answers once, for which there is capacity; the caller may have timed out.
        let _ = self.sender.try_send((self.position, result));
    }
}

impl SignerClient {
    /// Starts the client's thread, which connects to all addresses.
    ///
    /// # Errors
    ///
    /// Returns a message if an address is invalid or the thread cannot be started.
    pub fn start(config: &SignerConfig) -> Result<Arc<Self>, String> {
        let addresses = config.parsed()?;
        let started = Instant::now();
        let (stop, mut stopped) = watch::channel(());
        let failed = |error: std::io::Error| format!("cannot start the signer's thread: {error}");
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (endpoints, tasks): (Vec<_>, Vec<_>) =
            addresses.into_iter().map(|address| Endpoint::new(address, config, started)).unzip();
        std::thread::Builder::new()
            .name("signer-client".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    for task in tasks {
                        tokio::spawn(task.run());
                    }
                    // Ends with an error when the client is dropped.
                    let _ = stopped.changed().await;
                });
                runtime.shutdown_background();
            })
            .map_err(failed)?;
        Ok(Arc::new(Self {
            name: format!("signer:{}", config.name),
            timeout: config.timeout,
            limit: config.outstanding,
            outstanding: AtomicUsize::new(0),
            turn: AtomicUsize::new(0),
            endpoints,
            started,
            _stop: stop,
        }))
    }

    /// Returns the name of the client's keys: `signer:NAME`.
    pub fn source_name(&self) -> &str {
        &self.name
    }

    /// Returns the number of requests that wait for their answers.
    pub fn outstanding(&self) -> usize {
        self.outstanding.load(Ordering::Relaxed)
    }

    /// Returns the states of all addresses.
    pub fn addresses(&self) -> Vec<AddressState> {
        self.endpoints.iter().map(|endpoint| endpoint.state(self.now())).collect()
    }

    /// Sends a request and blocks until an answer is accepted, for at most the timeout. Addresses
    /// are tried in turn: the next one when one fails, or when one has taken its share of the time.
    /// The answer of the slower one still counts then.
    ///
    /// # Errors
    ///
    /// Returns the last reason, or that the time is over.
    pub fn request(
        &self,
        operation: &Operation,
        accepts: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<u8>, SignError> {
        let _slot = self.slot()?;
        let deadline = Instant::now() + self.timeout;
        let share = self.timeout / self.endpoints.len() as u32;
        let (sender, answers) = sync_channel(self.endpoints.len());
        let mut order = self.order().into_iter();
        let mut open = Vec::new();
        let mut last_error = SignError::TimedOut(self.timeout);
        let mut next_at = Instant::now();
        loop {
            while open.is_empty() || Instant::now() >= next_at {
                let Some(position) = order.next() else {
                    next_at = deadline;
                    break;
                };
                let reply = Reply { position, sender: sender.clone() };
                match self.endpoints[position].send(operation, reply, deadline) {
                    Ok(()) => {
                        open.push(position);
                        next_at = deadline.min(Instant::now() + share);
                    }
                    Err(error) => last_error = error,
                }
            }
            if open.is_empty() {
                return Err(last_error);
            }
            match answers.recv_timeout(next_at.saturating_duration_since(Instant::now())) {
                Ok((position, answer)) => {
                    open.retain(|one| *one != position);
                    let answer = answer.and_then(|signature| {
                        if accepts(&signature) {
                            Ok(signature)
                        } else {
                            Err(SignError::WrongSignature)
                        }
                    });
                    match answer {
                        Ok(signature) => {
                            self.endpoints[position].on_signature();
                            return Ok(signature);
                        }
                        Err(error) => {
                            self.endpoints[position].on_failure(&error, self.now());
                            last_error = error;
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                    let error = SignError::TimedOut(self.timeout);
                    for position in open {
                        self.endpoints[position].on_failure(&error, self.now());
                    }
                    return Err(error);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(last_error),
            }
        }
    }

    /// Returns the positions of all addresses: working ones first, in turn.
    fn order(&self) -> Vec<usize> {
        let count = self.endpoints.len();
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % count;
        let mut order: Vec<_> = (0..count).map(|step| (first + step) % count).collect();
        let now = self.now();
        order.sort_by_key(|position| self.endpoints[*position].rank(now));
        order
    }

    fn slot(&self) -> Result<Slot<'_>, SignError> {
        let slot = Slot(&self.outstanding);
        if self.outstanding.fetch_add(1, Ordering::Relaxed) >= self.limit {
            return Err(SignError::Busy(self.limit));
        }
        Ok(slot)
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }
}

/// One of the outstanding requests.
struct Slot<'a>(&'a AtomicUsize);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for SignerClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignerClient").field("name", &self.name).finish_non_exhaustive()
    }
}
