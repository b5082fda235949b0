//! Accepting TCP connections.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use http::HeaderValue;
use mio::Interest;
use socket2::SockRef;

use super::connected::Outcome;
use super::proxy_protocol;
use super::serve::{serve_clear, serve_tls};
use super::stream::{Activity, TcpStream};
use crate::connection_limits::ConnectionPermit;
use crate::context::Context;
use crate::dispatch::Dispatcher;
use crate::limits::TCP_UNSENT_BYTES;
use crate::message::{Peer, Protocol};
use crate::runtime::{ReactorHandle, Registration, Sleep};
use crate::shutdown::{HANDSHAKE_SHUTDOWN_DELAY, ShutdownNotice};
use crate::tls::ListenerTls;
use crate::udp::canonical;

/// Pause in accepting when the process is out of descriptors: the queue stays, and the error would
/// only repeat.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listening TCP socket of one worker.
pub(crate) struct TcpListener {
    registration: Registration,
    socket: mio::net::TcpListener,
    tls: Option<ListenerTls>,
    alt_svc: Option<HeaderValue>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl TcpListener {
    pub(crate) fn new(
        socket: std::net::TcpListener,
        tls: Option<ListenerTls>,
        alt_svc: Option<HeaderValue>,
        reactor: &ReactorHandle,
    ) -> io::Result<Self> {
        // Accepted connections inherit it. If it cannot be set, the kernel buffers more.
        let _ = SockRef::from(&socket).set_tcp_notsent_lowat(TCP_UNSENT_BYTES);
        let mut socket = mio::net::TcpListener::from_std(socket);
        let registration = reactor.register(&mut socket, Interest::READABLE)?;
        Ok(Self { registration, socket, tls, alt_svc, pause: None })
    }

    /// Sets the TLS configuration of connections accepted from now on.
    pub(crate) fn set_tls(&mut self, tls: ListenerTls) {
        self.tls = Some(tls);
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.registration.readiness().is_readable() && self.pause.is_none()
    }

    /// Accepts at most `budget` connections. Returns how many were accepted.
    pub(crate) fn accept(&mut self, budget: usize, dispatcher: &Rc<Dispatcher>) -> usize {
        let context = &dispatcher.context;
        let mut accepted = 0;
        while accepted < budget {
            match self.socket.accept() {
                Ok((socket, remote)) => {
                    accepted += 1;
                    self.spawn(socket, canonical(remote), dispatcher);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.registration.readiness().clear_readable();
                    break;
                }
                // The peer disconnected while it waited in the queue; others are queued behind it.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
                    ) =>
                {
                    accepted += 1;
                }
                Err(_) => {
                    context.stats.accepts_failed.add(1);
                    self.pause = Some(Box::pin(context.handle.sleep(ACCEPT_PAUSE)));
                    break;
                }
            }
        }
        accepted
    }

    /// Ends a pause that has expired. The sleep wakes the worker itself.
    pub(crate) fn poll_pause(&mut self, cx: &mut TaskContext<'_>) {
        if self.pause.as_mut().is_some_and(|pause| pause.as_mut().poll(cx).is_ready()) {
            self.pause = None;
        }
    }

    fn spawn(&self, socket: mio::net::TcpStream, remote: SocketAddr, dispatcher: &Rc<Dispatcher>) {
        let context = &dispatcher.context;
        let is_balancer = context
            .config
            .trusted_proxies
            .as_ref()
            .is_some_and(|proxies| proxies.contains(remote.ip()));
        let limits = &context.config.limits;
        let admitted = if is_balancer {
            context.connection_counts.admit_balancer(remote.ip(), limits)
        } else {
            context.connection_counts.admit(remote.ip(), limits)
        };
        let mut permit = match admitted {
            Ok(permit) => permit,
            Err(refusal) => return refusal.count(&context.stats),
        };
        // Small responses must not wait for the acknowledgment of the previous one. Without the
        // option, the socket is only slower.
        let _ = socket.set_nodelay(true);
        context.stats.tcp_accepted.add(1);
        let Ok(mut stream) = TcpStream::new(socket, &context.handle, &context.config.limits) else {
            return;
        };
        stream.meter(context.windows.send_window(&context.config.limits, context.stats.clone()));
        let mut peer = Peer {
            protocol: Protocol::Http1,
            remote,
            secure: self.tls.is_some(),
            early_data: false,
            tls: None,
            server_name: None,
            client_certificate: None,
        };
        let (tls, alt_svc, dispatcher) =
            (self.tls.clone(), self.alt_svc.clone(), dispatcher.clone());
        let open = OpenConnection::new(remote, stream.activity().clone(), dispatcher.clone());
        let index = open.index;
        // The head and the body of a response often come from two polls of other tasks.
        let task = context.handle.spawn_deferred(async move {
            let _open = open;
            if is_balancer {
                match Box::pin(read_proxy_header(&mut stream, &dispatcher.context)).await {
                    Ok(Some((client, own))) => {
                        peer.remote = client;
                        permit = own;
                    }
                    Ok(None) => {}
                    Err(()) => return,
                }
            }
            let _permit = permit;
            let outcome = match tls {
                Some(tls) => serve_tls(stream, tls, peer, alt_svc, dispatcher.clone()).await,
                None => serve_clear(stream, peer, alt_svc, dispatcher.clone()).await,
            };
            let stats = &dispatcher.context.stats;
            match outcome {
                Outcome::Done => {}
                Outcome::TlsFailed => stats.tls_failed.add(1),
                Outcome::TimedOut => stats.tcp_timed_out.add(1),
                Outcome::ProtocolError => stats.tcp_protocol_errors.add(1),
            }
        });
        context.tcp_connections.borrow_mut()[index].1 = task;
    }
}

/// Counts an open connection, even if its future is dropped.
struct OpenConnection {
    remote: SocketAddr,
    /// Index in the worker's table of TCP connections.
    index: usize,
    dispatcher: Rc<Dispatcher>,
}

impl OpenConnection {
    fn new(remote: SocketAddr, activity: Rc<Activity>, dispatcher: Rc<Dispatcher>) -> Self {
        let context = &dispatcher.context;
        context.stats.tcp_open.add(1);
        dispatcher.on_opened(remote);
        let index = context.tcp_connections.borrow_mut().insert((activity, usize::MAX));
        Self { remote, index, dispatcher }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let context = &self.dispatcher.context;
        context.stats.tcp_open.subtract(1);
        context.tcp_connections.borrow_mut().remove(self.index);
        self.dispatcher.on_closed(self.remote);
    }
}

/// Reads a balancer's PROXY header and counts the connection for the client in it. Returns `None`
/// if the balancer itself is the client.
async fn read_proxy_header(
    stream: &mut TcpStream,
    context: &Rc<Context>,
) -> Result<Option<(SocketAddr, ConnectionPermit)>, ()> {
    let stats = &context.stats;
    let mut reading = pin!(proxy_protocol::read(stream));
    let mut timeout = pin!(context.handle.sleep(context.config.limits.handshake_timeout()));
    let mut shutdown = ShutdownNotice::new(&context.shutdown);
    let client = poll_fn(|cx| match reading.as_mut().poll(cx) {
        Poll::Ready(Ok(client)) => Poll::Ready(Ok(client)),
        Poll::Ready(Err(_)) => {
            stats.proxy_headers_refused.add(1);
            Poll::Ready(Err(()))
        }
        Poll::Pending
            if shutdown.poll_after(cx, HANDSHAKE_SHUTDOWN_DELAY, &context.handle).is_ready() =>
        {
            Poll::Ready(Err(()))
        }
        Poll::Pending => timeout.as_mut().poll(cx).map(|()| {
            stats.handshakes_timed_out.add(1);
            Err(())
        }),
    })
    .await?;
    let Some(client) = client else { return Ok(None) };
    match context.connection_counts.admit(client.ip(), &context.config.limits) {
        Ok(permit) => Ok(Some((client, permit))),
        Err(refusal) => {
            refusal.count(stats);
            Err(())
        }
    }
}
