//! The client of signers: persistent connections to several addresses, and blocking requests.

mod config;
mod connection;
mod endpoint;
mod request;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use tokio::sync::watch;

pub use self::config::SignerConfig;
use self::endpoint::Endpoint;
pub use self::endpoint::{AddressState, Phase};
use self::request::Reply;
use super::error::SignError;
use super::protocol::Operation;

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
    /// Whether the client connects.
    connects: watch::Sender<bool>,
}

impl SignerClient {
    /// Starts the client's thread, which connects to all addresses.
    ///
    /// # Errors
    ///
    /// Returns a message if an address is invalid or the thread cannot be started.
    pub fn start(config: &SignerConfig) -> Result<Arc<Self>, String> {
        let client = Self::idle(config)?;
        client.connect();
        Ok(client)
    }

    /// Starts the client's thread, which connects at [`SignerClient::connect`] or at the first
    /// request. A configuration can be checked so without a connection.
    ///
    /// # Errors
    ///
    /// Returns a message if an address is invalid or the thread cannot be started.
    pub fn idle(config: &SignerConfig) -> Result<Arc<Self>, String> {
        let addresses = config.parsed()?;
        let started = Instant::now();
        let (connects, mut connected) = watch::channel(false);
        let failed = |error: std::io::Error| format!("cannot start the signer's thread: {error}");
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (endpoints, tasks): (Vec<_>, Vec<_>) =
            addresses.into_iter().map(|address| Endpoint::new(address, config, started)).unzip();
        std::thread::Builder::new()
            .name("signer-client".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    if connected.wait_for(|connects| *connects).await.is_err() {
                        return;
                    }
                    for task in tasks {
                        tokio::spawn(task.run());
                    }
                    // Ends with an error when the client is dropped.
                    let _ = connected.changed().await;
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
            connects,
        }))
    }

    /// Connects to all addresses, unless it does so already.
    pub fn connect(&self) {
        self.connects.send_if_modified(|connects| !std::mem::replace(connects, true));
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
        self.connect();
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
