//! The signer: signs for clients that it knows by their certificates.
//!
//! One thread has the connections. Others, by default as many as there are cores, take what is
//! queued and sign; answers leave in the order in which they are ready, those of one batch
//! together. [`Config`] is the configuration file, [`Server`] a running signer.

mod clients;
mod config;
mod connection;
mod keys;
mod limits;
mod log;
mod metrics;
mod pool;
mod problem;
mod settings;
mod shared;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

pub use self::clients::{Client, Identity};
pub use self::config::{AdminTable, Config};
pub use self::keys::Key;
pub use self::limits::Limits;
use self::log::Log;
use self::metrics::Metrics;
use self::pool::Queue;
pub use self::problem::{Fault, Problem};
pub use self::settings::Settings;
use self::shared::Shared;
use super::pipe::Pipe;

/// Time to wait after accepting failed, as when file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A running signer. Dropping it ends it without answers to what is in flight; see
/// [`shutdown`](Self::shutdown).
#[derive(Debug)]
pub struct Server {
    addresses: Vec<SocketAddr>,
    drain: watch::Sender<Option<Duration>>,
    thread: Option<JoinHandle<usize>>,
    shared: Arc<Shared>,
}

/// The reason why a signer cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be used.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// A thread or its event loop cannot be created.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
}

impl Server {
    /// Listens and starts the threads. `log` gets lines about connections; it must not block.
    ///
    /// # Errors
    ///
    /// Returns an error if an address cannot be used or a thread cannot be started.
    pub fn start(
        settings: Settings,
        log: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        let Settings { listen, tls, clients, keys, limits, threads } = settings;
        let listeners = listen
            .into_iter()
            .map(|address| bind(address).map_err(|source| StartError::Bind { address, source }))
            .collect::<Result<Vec<_>, _>>()?;
        let addresses =
            listeners.iter().map(TcpListener::local_addr).collect::<Result<Vec<_>, _>>()?;
        let shared = Arc::new(Shared {
            clients,
            queue: Queue::new(threads),
            metrics: Metrics::new(keys),
            limits,
            log: Log::new(log),
        });
        for number in 0..threads {
            let shared = shared.clone();
            std::thread::Builder::new()
                .name(format!("sign-{number}"))
                .spawn(move || pool::work(&shared.queue, &shared.metrics))?;
        }
        let (drain, drained) = watch::channel(None);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let io = shared.clone();
        let thread = std::thread::Builder::new().name("signer-io".to_owned()).spawn(move || {
            let aborted = runtime.block_on(serve(listeners, tls, io.clone(), drained));
            io.queue.close();
            aborted
        })?;
        Ok(Self { addresses, drain, thread: Some(thread), shared })
    }

    /// Returns the addresses that it listens on.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the metrics in the text format of Prometheus.
    pub fn metrics(&self) -> String {
        self.shared.metrics.exposition(self.shared.queue.len())
    }

    /// Stops accepting, answers what is in flight, and closes the connections. Returns the number
    /// of connections that had not ended after `grace` and were aborted.
    pub fn shutdown(mut self, grace: Duration) -> usize {
        self.drain.send_replace(Some(grace));
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or(0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The threads end on their own.
        self.drain.send_replace(Some(Duration::ZERO));
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves until the drain has ended. Returns the number of connections that were aborted.
async fn serve(
    listeners: Vec<TcpListener>,
    tls: Arc<ServerConfig>,
    shared: Arc<Shared>,
    mut drain: watch::Receiver<Option<Duration>>,
) -> usize {
    // Each connection has a sender, so that the end of the last one can be awaited.
    let (alive, mut ended) = mpsc::channel::<()>(1);
    let acceptor = TlsAcceptor::from(tls);
    let handshakes = Arc::new(Semaphore::new(shared.limits.handshakes));
    let mut accepting = tokio::task::JoinSet::new();
    for listener in listeners {
        let listener = match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => {
                shared.log.line(&format!("warning: cannot listen: {error}"));
                continue;
            }
        };
        let accept = Accept {
            acceptor: acceptor.clone(),
            handshakes: handshakes.clone(),
            shared: shared.clone(),
            drain: drain.clone(),
            alive: alive.clone(),
        };
        accepting.spawn(accept.run(listener));
    }
    let grace = drain
        .wait_for(Option::is_some)
        .await
        .map_or(Duration::ZERO, |grace| grace.unwrap_or_default());
    accepting.shutdown().await;
    drop(alive);
    if timeout(grace, ended.recv()).await.is_ok() { 0 } else { shared.metrics.open() }
}

/// The task that accepts connections.
struct Accept {
    acceptor: TlsAcceptor,
    handshakes: Arc<Semaphore>,
    shared: Arc<Shared>,
    drain: watch::Receiver<Option<Duration>>,
    alive: mpsc::Sender<()>,
}

impl Accept {
    async fn run(self, listener: tokio::net::TcpListener) {
        loop {
            let (tcp, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    self.shared.log.line(&format!("warning: cannot accept: {error}"));
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            // With a slot before it, a listener without connections would keep one.
            let Ok(slot) = self.handshakes.clone().acquire_owned().await else { return };
            let (acceptor, shared) = (self.acceptor.clone(), self.shared.clone());
            let (drain, alive) = (self.drain.clone(), self.alive.clone());
            tokio::spawn(async move {
                connect(acceptor, tcp, peer, shared, drain, slot).await;
                drop(alive);
            });
        }
    }
}

/// Completes the handshake of a connection and serves it.
async fn connect(
    acceptor: TlsAcceptor,
    tcp: TcpStream,
    peer: SocketAddr,
    shared: Arc<Shared>,
    mut drain: watch::Receiver<Option<Duration>>,
    slot: tokio::sync::OwnedSemaphorePermit,
) {
    // Without it, answers wait for acknowledgements. A socket that has failed says so when read.
    let _ = tcp.set_nodelay(true);
    let limits = &shared.limits;
    let handshake = timeout(limits.handshake_timeout.0, acceptor.accept(tcp));
    let outcome = tokio::select! {
        outcome = handshake => outcome,
        // A client whose handshake is not complete has no request in flight.
        _ = drain.wait_for(Option::is_some) => return,
    };
    let stream = match outcome {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            shared.metrics.on_failed_handshake();
            return shared.log.line(&format!("{peer}: the TLS handshake failed: {error}"));
        }
        Err(_) => {
            shared.metrics.on_failed_handshake();
            return shared.log.line(&format!(
                "{peer}: no TLS handshake within {:?}; see handshake_timeout in [limits]",
                limits.handshake_timeout.0
            ));
        }
    };
    drop(slot);
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    // The handshake has verified that it is on the list.
    let Some(client) = certificate.and_then(|leaf| shared.clients.find(leaf)) else { return };
    let Some(open) = shared.metrics.open_connection(limits.connections) else {
        return shared.log.line(&format!(
            "warning: {peer}: refused: {} connections are open; raise connections in [limits]",
            limits.connections
        ));
    };
    let pipe = Pipe::new(stream, limits.message_bytes);
    if let Err(error) = connection::serve(pipe, &client, &shared, drain).await {
        shared.log.line(&format!("{peer} ({}): {error}", client.name()));
    }
    drop(open);
}
