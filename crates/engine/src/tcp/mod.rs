//! Connections over TCP: accepting, TLS, the choice of protocol, and their time-outs.

mod clear_text;
mod head_clock;
mod info;
mod polled;
mod prior_knowledge;
mod proxy_protocol;
mod queue;
mod stream;
mod tls;

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use http::HeaderValue;
use mio::Interest;
use rustls::ServerConfig;
use socket2::SockRef;
use tokio::io::AsyncWrite;

use crate::context::{Context, HANDSHAKE_NOTICE, Notice};
use crate::limits::TCP_UNSENT_BYTES;
use crate::message::{Peer, Protocol};
use crate::runtime::{ReactorHandle, Registration, Sleep};
use crate::seats::Ticket;
use crate::tls::ACME_TLS;
use crate::udp::canonical;
use crate::{http1, http2};

pub(crate) use head_clock::HeadClock;
use info::TcpPath;
pub(crate) use info::TcpProbe;
pub(crate) use stream::{Activity, Ends, ExchangeGuard, TcpStream, UnixStream};
pub(crate) use tls::{Progress, TlsStream};

/// How long accepting pauses when the process is out of descriptors: the queue stays, and the error would only repeat.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listening TCP socket of one worker.
pub(crate) struct TcpListener {
    registration: Registration,
    socket: mio::net::TcpListener,
    tls: Option<Arc<ServerConfig>>,
    alt_svc: Option<HeaderValue>,
    pause: Option<Pin<Box<Sleep>>>,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    TlsFailed,
    TimedOut,
    ProtocolError,
}

impl TcpListener {
    pub(crate) fn new(
        socket: std::net::TcpListener,
        tls: Option<Arc<ServerConfig>>,
        alt_svc: Option<HeaderValue>,
        reactor: &ReactorHandle,
    ) -> io::Result<Self> {
        // Accepted connections inherit it. Where it cannot be had, the kernel holds more.
        let _ = SockRef::from(&socket).set_tcp_notsent_lowat(TCP_UNSENT_BYTES);
        let mut socket = mio::net::TcpListener::from_std(socket);
        let registration = reactor.register(&mut socket, Interest::READABLE)?;
        Ok(Self { registration, socket, tls, alt_svc, pause: None })
    }

    /// Connections accepted from here on have this TLS.
    pub(crate) fn set_tls(&mut self, tls: Arc<ServerConfig>) {
        self.tls = Some(tls);
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.registration.readiness().is_readable() && self.pause.is_none()
    }

    /// Accepts at most `budget` connections and returns how many were.
    pub(crate) fn accept(&mut self, budget: usize, context: &Rc<Context>) -> usize {
        let mut accepted = 0;
        while accepted < budget {
            match self.socket.accept() {
                Ok((socket, remote)) => {
                    accepted += 1;
                    self.spawn(socket, canonical(remote), context);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.registration.readiness().clear_readable();
                    break;
                }
                // The peer has gone while it waited in the queue; others wait behind it.
                Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => accepted += 1,
                Err(_) => {
                    context.stats.accepts_failed.add(1);
                    self.pause = Some(Box::pin(context.handle.sleep(ACCEPT_PAUSE)));
                    break;
                }
            }
        }
        accepted
    }

    /// Ends a pause whose time has come. The sleep's waker is the worker's own wake-up.
    pub(crate) fn poll_pause(&mut self, cx: &mut TaskContext<'_>) {
        if self.pause.as_mut().is_some_and(|pause| pause.as_mut().poll(cx).is_ready()) {
            self.pause = None;
        }
    }

    fn spawn(&self, socket: mio::net::TcpStream, remote: SocketAddr, context: &Rc<Context>) {
        let is_balancer = context.config.balancers.as_ref().is_some_and(|balancers| balancers.contain(remote.ip()));
        let limits = &context.config.limits;
        let admitted =
            if is_balancer { context.seats.admit_balancer(remote.ip(), limits) } else { context.seats.admit(remote.ip(), limits) };
        let mut ticket = match admitted {
            Ok(ticket) => ticket,
            Err(refusal) => return refusal.count(&context.stats),
        };
        // Small answers must not wait for the acknowledgement of the one before. A socket that refuses is only slower.
        let _ = socket.set_nodelay(true);
        context.stats.tcp_accepted.add(1);
        let Ok(mut stream) = TcpStream::new(socket, &context.handle, &context.config.limits) else { return };
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
        let (tls, alt_svc, task_context) = (self.tls.clone(), self.alt_svc.clone(), context.clone());
        let open = Open::new(remote, stream.activity().clone(), context.clone());
        let place = open.place;
        // The head and the content of a response often come from two polls of others.
        let task = context.handle.spawn_last(async move {
            let _open = open;
            if is_balancer {
                match Box::pin(introduced(&mut stream, &task_context)).await {
                    Ok(Some((client, own))) => {
                        peer.remote = client;
                        ticket = own;
                    }
                    Ok(None) => {}
                    Err(()) => return,
                }
            }
            let _ticket = ticket;
            let outcome = match tls {
                Some(tls) => serve_tls(stream, tls, peer, alt_svc, task_context.clone()).await,
                None => serve_clear(stream, peer, alt_svc, task_context.clone()).await,
            };
            let stats = &task_context.stats;
            match outcome {
                Outcome::Done => {}
                Outcome::TlsFailed => stats.tls_failed.add(1),
                Outcome::TimedOut => stats.tcp_timed_out.add(1),
                Outcome::ProtocolError => stats.tcp_protocol_errors.add(1),
            }
        });
        context.tcp_connections.borrow_mut()[place].1 = task;
    }
}

/// Counts an open connection, also when its future is dropped.
struct Open {
    remote: SocketAddr,
    /// Where it stands among the connections over TCP.
    place: usize,
    context: Rc<Context>,
}

impl Open {
    fn new(remote: SocketAddr, activity: Rc<Activity>, context: Rc<Context>) -> Self {
        context.stats.tcp_open.add(1);
        context.handler.on_opened(remote);
        let place = context.tcp_connections.borrow_mut().insert((activity, usize::MAX));
        Self { remote, place, context }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.context.stats.tcp_open.subtract(1);
        self.context.tcp_connections.borrow_mut().remove(self.place);
        self.context.handler.on_closed(self.remote);
    }
}

/// Learns from a balancer whom a connection is for, and counts it for that client. `None`: for the balancer itself.
async fn introduced(stream: &mut TcpStream, context: &Rc<Context>) -> Result<Option<(SocketAddr, Ticket)>, ()> {
    let stats = &context.stats;
    let mut reading = pin!(proxy_protocol::read(stream));
    let mut timeout = pin!(context.handle.sleep(context.config.limits.handshake_timeout()));
    let mut shutdown = Notice::new(context);
    let client = poll_fn(|cx| match reading.as_mut().poll(cx) {
        Poll::Ready(Ok(client)) => Poll::Ready(Ok(client)),
        Poll::Ready(Err(_)) => {
            stats.proxy_headers_refused.add(1);
            Poll::Ready(Err(()))
        }
        Poll::Pending if shutdown.poll_after(cx, HANDSHAKE_NOTICE, &context.handle).is_ready() => Poll::Ready(Err(())),
        Poll::Pending => timeout.as_mut().poll(cx).map(|()| {
            stats.handshakes_timed_out.add(1);
            Err(())
        }),
    })
    .await?;
    let Some(client) = client else { return Ok(None) };
    match context.seats.admit(client.ip(), &context.config.limits) {
        Ok(ticket) => Ok(Some((client, ticket))),
        Err(refusal) => {
            refusal.count(stats);
            Err(())
        }
    }
}

async fn serve_tls(stream: TcpStream, tls: Arc<ServerConfig>, peer: Peer, alt_svc: Option<HeaderValue>, context: Rc<Context>) -> Outcome {
    let activity = stream.activity().clone();
    let path = stream.path();
    // The futures of the phases are boxed, so that a connection takes what its present one needs and not what the largest would.
    let mut handshake = Box::pin(TlsStream::accept(stream, tls, context.stats.clone()));
    let mut timeout = pin!(context.handle.sleep(context.config.limits.handshake_timeout()));
    let mut shutdown = Notice::new(&context);
    let io = poll_fn(|cx| match handshake.as_mut().poll(cx) {
        Poll::Ready(accepted) => Poll::Ready(Ok(accepted)),
        Poll::Pending if shutdown.poll_after(cx, HANDSHAKE_NOTICE, &context.handle).is_ready() => Poll::Ready(Err(Outcome::Done)),
        Poll::Pending => timeout.as_mut().poll(cx).map(|()| {
            context.stats.handshakes_timed_out.add(1);
            Err(Outcome::TimedOut)
        }),
    })
    .await;
    drop(handshake);
    let io = match io {
        Ok(Ok(io)) => io,
        Ok(Err(None)) => return Outcome::TlsFailed,
        Ok(Err(Some((mut io, request)))) => {
            Box::pin(clear_text::refuse(io.io(), request, &context)).await;
            return Outcome::TlsFailed;
        }
        Err(outcome) => return outcome,
    };
    if io.alpn_protocol() == Some(ACME_TLS) {
        // The certificate was all that was asked for. RFC 8737, section 3: no data is exchanged.
        let mut io = io;
        let mut closed = pin!(poll_fn(|cx| Pin::new(&mut io).poll_shutdown(cx)));
        poll_fn(|cx| if closed.as_mut().poll(cx).is_ready() { Poll::Ready(()) } else { timeout.as_mut().poll(cx) }).await;
        return Outcome::Done;
    }
    let handshake = io.progress().clone();
    let is_http2 = io.alpn_protocol() == Some(b"h2");
    let protocol = if is_http2 { Protocol::Http2 } else { Protocol::Http1 };
    let server_name = io.server_name().map(Arc::from);
    let peer = Peer { protocol, tls: io.parameters(), server_name, client_certificate: io.client_certificate(), ..peer };
    let connected = Connected { peer, handshake: Some(handshake.clone()), path };
    let mut serve: Pin<Box<dyn Future<Output = Outcome>>> = if is_http2 {
        Box::pin(http2::serve(io, connected, alt_svc, activity, context.clone()))
    } else {
        Box::pin(http1::serve(io, connected, alt_svc, activity, context.clone()))
    };
    // A client that sends early data has to complete the handshake in time too.
    poll_fn(|cx| match serve.as_mut().poll(cx) {
        Poll::Pending if handshake.summary().is_none() => timeout.as_mut().poll(cx).map(|()| {
            context.stats.handshakes_timed_out.add(1);
            Outcome::TimedOut
        }),
        outcome => outcome,
    })
    .await
}

async fn serve_clear(stream: TcpStream, peer: Peer, alt_svc: Option<HeaderValue>, context: Rc<Context>) -> Outcome {
    let activity = stream.activity().clone();
    let path = stream.path();
    if context.config.http2_prior_knowledge {
        match Box::pin(prior_knowledge::is_http2(&stream, &context)).await {
            Ok(false) => {}
            Ok(true) => {
                let peer = Peer { protocol: Protocol::Http2, ..peer };
                // Boxed, so that a connection over HTTP/1.1 does not take the room for it.
                return Box::pin(http2::serve(stream, Connected { peer, handshake: None, path }, alt_svc, activity, context)).await;
            }
            Err(outcome) => return outcome,
        }
    }
    http1::serve(stream, Connected { peer, handshake: None, path }, alt_svc, activity, context).await
}

/// The client of a connection whose handshake may still go on.
#[derive(Clone)]
pub(crate) struct Connected {
    peer: Peer,
    handshake: Option<Rc<Progress>>,
    path: TcpPath,
}

impl Connected {
    /// The peer of a request that comes now.
    ///
    /// What was sent early and is looked at only after the handshake is as good as any other request: the client is there.
    pub(crate) fn now(&self) -> Peer {
        let early_data = self.handshake.as_ref().is_some_and(|handshake| handshake.summary().is_none());
        Peer { early_data, ..self.peer.clone() }
    }

    /// Whom a request is for that does not say it: the name that TLS was asked for, or where the client has connected to.
    pub(crate) fn authority(&self) -> Option<String> {
        let local = self.path.local()?;
        Some(self.peer.server_name.as_ref().map_or_else(|| local.to_string(), |name| format!("{name}:{}", local.port())))
    }

    /// The round trip time, as the kernel has it now.
    pub(crate) fn rtt(&self) -> Duration {
        self.path.rtt()
    }
}

/// Ends a connection on which the peer leaves us waiting.
pub(crate) struct Watchdog {
    activity: Rc<Activity>,
    sleep: Pin<Box<Sleep>>,
    /// When the sleep ends.
    armed: Instant,
    /// The sleep knows whom to wake: a connection's task is the same all its life.
    is_set: bool,
    /// Not before this time, whatever was missed until then.
    from: Instant,
    context: Rc<Context>,
}

/// What a peer did not do in time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missed {
    Anything,
    Head,
    Taking,
}

impl Watchdog {
    pub(crate) fn new(activity: Rc<Activity>, context: &Rc<Context>) -> Self {
        let now = context.handle.now();
        let armed = now + context.config.limits.idle_timeout();
        Self {
            activity,
            sleep: Box::pin(context.handle.timers().sleep_until(armed)),
            armed,
            is_set: false,
            from: now,
            context: context.clone(),
        }
    }

    /// Ready when the peer's time is up, which has then been counted.
    pub(crate) fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        let now = self.context.handle.now();
        // Between requests only the time for idling runs, and that only moves back.
        if self.is_set && now < self.armed && !self.activity.has_exchanges() && !self.activity.is_pressed() {
            return Poll::Pending;
        }
        loop {
            let (deadline, missed) = self.next();
            if now >= deadline {
                self.count(missed);
                return Poll::Ready(());
            }
            // A deadline that moves back is looked at only when the time is up, so that traffic costs no timer.
            if deadline < self.armed {
                self.rearm(deadline);
            }
            if self.is_set && now < self.armed {
                return Poll::Pending;
            }
            self.is_set = true;
            std::task::ready!(self.sleep.as_mut().poll(cx));
            self.rearm(deadline);
        }
    }

    /// What is due next.
    fn next(&self) -> (Instant, Missed) {
        let (limits, now) = (&self.context.config.limits, self.context.handle.now());
        let silent_since = if self.activity.waits_for_peer() { self.activity.last().max(self.from) } else { now };
        let head = self.activity.head().map(|(began, _)| (began.max(self.from) + limits.head_timeout(), Missed::Head));
        let taking = self.activity.sending.deadline().map(|deadline| (deadline.max(self.from + limits.response_timeout()), Missed::Taking));
        let idle = Some((silent_since + limits.idle_timeout(), Missed::Anything));
        let due = [head, taking, idle].into_iter().flatten().min_by_key(|(deadline, _)| *deadline);
        due.expect("invariant: there is always the time for idling")
    }

    fn count(&self, missed: Missed) {
        let stats = &self.context.stats;
        match missed {
            Missed::Anything => stats.idle_timeouts.add(1),
            Missed::Head => stats.head_timeouts.add(1),
            Missed::Taking => self.activity.sending.count(stats),
        }
    }

    fn rearm(&mut self, deadline: Instant) {
        self.armed = deadline;
        self.is_set = false;
        self.sleep.reset(deadline);
    }

    /// Gives the peer the whole time once more.
    pub(crate) fn restart(&mut self) {
        self.from = self.context.handle.now();
    }
}
