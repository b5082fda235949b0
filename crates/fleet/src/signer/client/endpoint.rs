//! One address of a client: its state, and the task that keeps it connected.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::config::{Address, Listener, SignerConfig};
use super::connection::{self, Connection, End};
use super::request::{Reply, Request};
use crate::signer::backoff::{Backoff, pause_after};
use crate::signer::error::SignError;
use crate::signer::pipe::Pipe;
use crate::signer::protocol::Operation;

/// Time until the next attempt to connect after one that failed. It doubles with each further one.
const MIN_PAUSE: Duration = Duration::from_millis(200);
/// Maximum time until the next attempt.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// After a connection of this time, the next attempt is made at once: the signer was restarted.
const MIN_LIFE: Duration = Duration::from_secs(1);
/// Time for which an address that answered wrongly or too late is tried last. It doubles.
const MIN_AVOIDED: Duration = Duration::from_secs(1);
/// Maximum time for which such an address is tried last.
const MAX_AVOIDED: Duration = Duration::from_secs(30);
/// Maximum size of a response. One with the signature of an RSA key of 8192 bits has 1,031 bytes.
const RESPONSE_BYTES: usize = 8 << 10;

/// Whether an address is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not connected yet, or again after a connection that worked; requests wait for it.
    Connecting,
    /// Connected, and the signer has answered a ping.
    Connected,
    /// The last attempt failed; requests fail at once.
    Failed,
}

/// The state of one address.
#[derive(Clone, Debug)]
pub struct AddressState {
    /// The address as it was given.
    pub address: String,
    /// Whether it is connected.
    pub phase: Phase,
    /// Whether it is tried last because it answered wrongly or too late.
    pub is_avoided: bool,
    /// Number of signatures.
    pub signatures: u64,
    /// Number of requests that failed, timed out or were answered wrongly.
    pub failures: u64,
    /// Number of connections that were established.
    pub connections: u64,
    /// Reason of the last failure.
    pub last_error: Option<String>,
}

#[derive(Debug, Default)]
struct Shared {
    phase: AtomicU8,
    /// Milliseconds since the client's start.
    avoided_until: AtomicU64,
    consecutive_failures: AtomicU32,
    signatures: AtomicU64,
    failures: AtomicU64,
    connections: AtomicU64,
    last_error: Mutex<Option<String>>,
}

impl Shared {
    fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Connecting,
            1 => Phase::Connected,
            _ => Phase::Failed,
        }
    }

    fn set_phase(&self, phase: Phase) {
        let number = match phase {
            Phase::Connecting => 0,
            Phase::Connected => 1,
            Phase::Failed => 2,
        };
        self.phase.store(number, Ordering::Relaxed);
    }

    fn set_error(&self, error: &str) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_owned());
    }
}

/// The callers' side of an address.
pub(super) struct Endpoint {
    address: String,
    requests: mpsc::Sender<Request>,
    limit: usize,
    shared: Arc<Shared>,
}

impl Endpoint {
    pub(super) fn new(address: Address, config: &SignerConfig, started: Instant) -> (Self, Task) {
        let (sender, requests) = mpsc::channel(config.outstanding.max(1));
        let shared = Arc::new(Shared::default());
        let task = Task {
            address: address.clone(),
            tls: config.tls.clone(),
            connect_timeout: config.connect_timeout,
            settings: connection::Settings {
                ping_timeout: config.timeout,
                ping_interval: config.ping_interval,
                waiting: config.outstanding.saturating_mul(2),
            },
            listener: config.listener.clone(),
            requests,
            shared: shared.clone(),
            started,
        };
        let limit = config.outstanding;
        (Self { address: address.text, requests: sender, limit, shared }, task)
    }

    pub(super) fn send(
        &self,
        operation: &Operation,
        reply: Reply,
        deadline: Instant,
    ) -> Result<(), SignError> {
        let request = Request { operation: operation.clone(), reply, deadline };
        self.requests.try_send(request).map_err(|error| match error {
            TrySendError::Full(_) => SignError::Busy(self.limit),
            TrySendError::Closed(_) => SignError::Unavailable("the client has ended".to_owned()),
        })
    }

    /// Returns a number by which addresses are tried, the smallest first.
    pub(super) fn rank(&self, now: u64) -> u8 {
        let is_avoided = now < self.shared.avoided_until.load(Ordering::Relaxed);
        match self.shared.phase() {
            Phase::Connected if !is_avoided => 0,
            Phase::Connecting => 1,
            Phase::Connected => 2,
            Phase::Failed => 3,
        }
    }

    pub(super) fn on_signature(&self) {
        self.shared.signatures.fetch_add(1, Ordering::Relaxed);
        if self.shared.consecutive_failures.swap(0, Ordering::Relaxed) > 0 {
            self.shared.avoided_until.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn on_failure(&self, error: &SignError, now: u64) {
        let shared = &self.shared;
        shared.failures.fetch_add(1, Ordering::Relaxed);
        // A connection that failed has set the phase.
        if !error.is_fault() || matches!(error, SignError::Unavailable(_)) {
            return;
        }
        shared.set_error(&error.to_string());
        // Requests that were sent together fail together, which counts once.
        if now >= shared.avoided_until.load(Ordering::Relaxed) {
            let failures = shared.consecutive_failures.fetch_add(1, Ordering::Relaxed) + 1;
            let pause = pause_after(failures, MIN_AVOIDED, MAX_AVOIDED).as_millis() as u64;
            shared.avoided_until.fetch_max(now + pause, Ordering::Relaxed);
        }
    }

    pub(super) fn state(&self, now: u64) -> AddressState {
        let shared = &self.shared;
        AddressState {
            address: self.address.clone(),
            phase: shared.phase(),
            is_avoided: now < shared.avoided_until.load(Ordering::Relaxed),
            signatures: shared.signatures.load(Ordering::Relaxed),
            failures: shared.failures.load(Ordering::Relaxed),
            connections: shared.connections.load(Ordering::Relaxed),
            last_error: shared.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

/// The task of an address.
pub(super) struct Task {
    address: Address,
    tls: Arc<ClientConfig>,
    connect_timeout: Duration,
    settings: connection::Settings,
    listener: Listener,
    requests: mpsc::Receiver<Request>,
    shared: Arc<Shared>,
    started: Instant,
}

impl Task {
    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::new(MIN_PAUSE, MAX_PAUSE);
        loop {
            let error = match self.connect().await {
                Ok(Some(pipe)) => {
                    let connected = Instant::now();
                    match self.serve(pipe).await {
                        End::Stopped => return,
                        End::Failed(error) if connected.elapsed() >= MIN_LIFE => {
                            backoff.reset();
                            self.shared.set_phase(Phase::Connecting);
                            self.fail(&error);
                            continue;
                        }
                        End::Failed(error) => error,
                    }
                }
                Ok(None) => return,
                Err(error) => error,
            };
            let is_first = self.shared.phase() != Phase::Failed;
            self.shared.set_phase(Phase::Failed);
            self.shared.set_error(&error);
            if is_first {
                self.fail(&error);
            }
            if !self.pause(backoff.pause(), &error).await {
                return;
            }
        }
    }

    /// Reports a failure. Requests that are queued will be refused or served by another connection.
    fn fail(&self, error: &str) {
        self.shared.set_error(error);
        (self.listener)(&self.address.text, Some(error));
    }

    /// Connects. While the address has failed, requests are refused. Returns `None` if the client
    /// is dropped.
    async fn connect(&mut self) -> Result<Option<Pipe<TlsStream<TcpStream>>>, String> {
        let refuses = self.shared.phase() == Phase::Failed;
        let attempt = timeout(
            self.connect_timeout,
            open(self.address.clone(), self.tls.clone(), self.connect_timeout),
        );
        tokio::pin!(attempt);
        loop {
            tokio::select! {
                outcome = &mut attempt => return match outcome {
                    Ok(Ok(pipe)) => Ok(Some(pipe)),
                    Ok(Err(error)) => Err(error),
                    Err(_) => Err(format!("not connected within {:?}", self.connect_timeout)),
                },
                request = self.requests.recv(), if refuses => match request {
                    Some(request) => self.refuse(request),
                    None => return Ok(None),
                },
            }
        }
    }

    async fn serve(&mut self, pipe: Pipe<TlsStream<TcpStream>>) -> End {
        self.shared.connections.fetch_add(1, Ordering::Relaxed);
        self.shared.set_phase(Phase::Connected);
        let now = self.started.elapsed().as_millis() as u64;
        // What it did on another connection may be over, except where it answers pings only.
        if now >= self.shared.avoided_until.load(Ordering::Relaxed) {
            *self.shared.last_error.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        (self.listener)(&self.address.text, None);
        Connection::new(pipe, self.settings).run(&mut self.requests).await
    }

    /// Waits while it refuses requests. Returns whether the client exists.
    async fn pause(&mut self, pause: Duration, error: &str) -> bool {
        // Requests that waited for the attempt that failed.
        while let Ok(request) = self.requests.try_recv() {
            request.reply.send(Err(SignError::Unavailable(error.to_owned())));
        }
        let end = sleep(pause);
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => return true,
                request = self.requests.recv() => match request {
                    Some(request) => self.refuse(request),
                    None => return false,
                },
            }
        }
    }

    fn refuse(&self, request: Request) {
        let error = self.shared.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let error = error.unwrap_or_else(|| "not connected".to_owned());
        request.reply.send(Err(SignError::Unavailable(error)));
    }
}

/// Connects and pings: a signer that accepts connections may still be hung.
async fn open(
    address: Address,
    tls: Arc<ClientConfig>,
    limit: Duration,
) -> Result<Pipe<TlsStream<TcpStream>>, String> {
    let failed =
        |what: &str, error: &dyn std::fmt::Display| format!("{}: {what}: {error}", address.text);
    let tcp = TcpStream::connect((address.host.as_str(), address.port))
        .await
        .map_err(|error| failed("cannot connect", &error))?;
    tcp.set_nodelay(true).map_err(|error| failed("cannot connect", &error))?;
    let stream = TlsConnector::from(tls)
        .connect(address.server_name.clone(), tcp)
        .await
        .map_err(|error| failed("the TLS handshake failed", &error))?;
    let mut pipe = Pipe::new(stream, RESPONSE_BYTES);
    timeout(limit, connection::greet(&mut pipe))
        .await
        .map_err(|_| failed("no answer to a ping", &format_args!("{limit:?} passed")))?
        .map_err(|error| failed("no answer to a ping", &error))?;
    Ok(pipe)
}
