//! Connections to servers, over the three protocols.

mod failure;
mod http1;
mod interim;
mod request;
mod response;
mod slots;
mod stats;
mod tls;
mod upgrade;
mod upload;

use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use http::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::AlertDescription;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::config::Congestion;
use crate::http2::{Held, Outbox};
use crate::http3::{self, RequestHead};
use crate::limits::{HTTP2_SEND_BYTES, Limits};
use crate::message::Protocol;
use crate::runtime::{Handle, Sleep};
use crate::tcp::{Progress, TcpProbe, TcpStream, TlsStream};
use crate::tcp_congestion;
use crate::tls::TlsSummary;
use crate::{Body, Incoming, Upgrade};

pub(crate) use http1::Link;
use interim::OnInterim;
pub(crate) use request::{for_http1, frame};
pub(crate) use slots::Slot;
use slots::Slots;
pub(crate) use stats::StatsSink;
pub use stats::{StatsProbe, TransportStats};
use tls::ClientTlsConfigs;
pub use tls::Resumption;

/// HTTP/2 begins with 64 KiB, which a path of 100 ms turns into 5 Mbit/s. What a response may hold is bounded by these.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// Requests on an HTTP/2 connection until the server has said how many it takes.
const FIRST_STREAMS: usize = 1;

/// Opens connections from a worker. Made by [`Worker::connector`](crate::Worker::connector).
#[derive(Clone)]
pub struct Connector {
    handle: Handle,
    tls: Arc<ClientTlsConfigs>,
    http3: http3::Client,
    congestion: Option<Congestion>,
    limits: Rc<Limits>,
}

/// Where to connect, and what to speak there.
#[derive(Clone, Debug)]
pub struct Target {
    /// The address.
    pub remote: SocketAddr,
    /// The host name or address that the certificate has to be for.
    //= RFC 9114 section 3.1
    //# Upon receiving a server certificate in the TLS handshake, the client MUST verify that the certificate is an
    //# acceptable match for the URI's origin server using the process described in Section 4.3.4 of [HTTP].
    //= RFC 9114 section 3.1
    //# If the certificate cannot be verified with respect to the URI's origin server, the client MUST NOT consider the
    //# server authoritative for that origin.
    pub server_name: String,
    /// What to speak; an error where the server does not have it. `None` is HTTP/2 or HTTP/1.1, as the server prefers.
    pub protocol: Option<Protocol>,
    /// Whether to use TLS; HTTP/3 always does.
    pub secure: bool,
    /// What to do with the session of an earlier connection.
    pub resumption: Resumption,
}

/// How long the parts of opening a connection took.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectTimings {
    /// The TCP handshake; `None` over QUIC, which has none of its own.
    pub tcp: Option<Duration>,
    /// The TLS handshake; over QUIC the whole handshake.
    pub tls: Option<Duration>,
}

/// Why a request got no response.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection could not be made.
    #[error("cannot connect to {remote}: {source}")]
    Connect {
        /// Where to.
        remote: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The TLS or QUIC handshake failed; a certificate that is not trusted ends here too.
    #[error("handshake with {remote} failed: {reason}")]
    Handshake {
        /// With whom.
        remote: SocketAddr,
        /// What was wrong.
        reason: String,
    },
    /// The server does not speak the protocol asked for.
    #[error("the server does not speak {0}")]
    Unsupported(Protocol),
    /// The server does not offer extended CONNECT, or goes on in something else than was asked for.
    #[error("the server offers no upgrade to {0}")]
    NoUpgrade(String),
    /// The server has not taken the request, as when it is about to close the connection: it can be sent again on another one.
    #[error("the server did not take the request: {0}")]
    Refused(String),
    /// The server gave up the exchange and left the connection open.
    #[error("the server gave up the exchange: {0}")]
    Reset(String),
    /// The connection ended before the exchange did.
    #[error("the connection ended before the exchange: {0}")]
    Closed(String),
    /// The server was not heard from any more. What became of the request, nobody knows.
    #[error("the server is gone: {0}")]
    Lost(String),
    /// The exchange failed after the connection was made.
    #[error("the exchange failed: {0}")]
    Exchange(String),
}

/// An open connection.
pub struct Connection {
    sender: Sender,
    handle: Handle,
    protocol: Protocol,
    remote: SocketAddr,
    secure: bool,
    timings: ConnectTimings,
    /// Over TCP: when TLS began, and how far it is.
    tls: Option<(Instant, Rc<Progress>)>,
    probe: StatsProbe,
    ended: Ended,
    limits: Rc<Limits>,
}

enum Sender {
    Http1(hyper::client::conn::http1::SendRequest<Body>, Rc<upgrade::Http1Upgrade>, Rc<Link>),
    Http2(h2::client::SendRequest<Held>, Rc<Outbox>, Rc<upgrade::Offer>, Rc<Slots>),
    Http3(Rc<http3::ClientConnection>),
}

/// Told when a request waits for the server to allow another one, and when it does not any more.
pub(crate) type OnQueue<'a> = &'a mut dyn FnMut(bool);

/// Who wants to hear what of a request on its way.
#[derive(Default)]
pub(crate) struct Observer<'a> {
    pub(crate) on_interim: Option<OnInterim<'a>>,
    pub(crate) on_queue: Option<OnQueue<'a>>,
}

/// Set when what drives a connection has ended.
type Ended = Rc<Cell<bool>>;

impl Connector {
    pub(crate) fn new(
        handle: Handle,
        tls: &rustls::ClientConfig,
        http3: http3::Client,
        congestion: Option<Congestion>,
        limits: Limits,
    ) -> Result<Self, String> {
        Ok(Self { handle, tls: Arc::new(ClientTlsConfigs::new(tls)?), http3, congestion, limits: Rc::new(limits) })
    }

    /// The same connector, over the same sockets, with TLS as `tls` says: for servers that other certificates are trusted with.
    ///
    /// # Errors
    ///
    /// When `tls` does not allow TLS 1.3.
    pub fn with_tls(&self, tls: &rustls::ClientConfig) -> Result<Self, String> {
        Self::new(self.handle.clone(), tls, self.http3.clone(), self.congestion, (*self.limits).clone())
    }

    /// The worker that it is on.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Opens a connection. With [`Resumption::EarlyData`] it may be there before the handshake is done.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached, is not trusted, or does not speak the protocol.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was opened.
    pub async fn connect(&self, target: &Target) -> Result<Connection, Error> {
        if target.protocol == Some(Protocol::Http3) {
            return self.connect_http3(target).await;
        }
        let remote = target.remote;
        let began = Instant::now();
        let socket = mio::net::TcpStream::connect(remote).and_then(|socket| {
            socket.set_nodelay(true)?;
            if let Some(congestion) = self.congestion {
                tcp_congestion::choose(&SockRef::from(&socket), congestion).map_err(io::Error::other)?;
            }
            let limits = Limits::default();
            notice_lost_peer(&SockRef::from(&socket), limits.idle_timeout())?;
            TcpStream::new(socket, &self.handle, &limits)
        });
        let stream = socket.map_err(|source| Error::Connect { remote, source })?;
        let mut stream = stream;
        stream.connected().await.map_err(|source| Error::Connect { remote, source })?;
        let probe = stream.probe();
        let timings = ConnectTimings { tcp: Some(began.elapsed()), tls: None };
        if !target.secure {
            return self.speak(stream, probe, target, target.protocol.unwrap_or(Protocol::Http1), timings, None).await;
        }
        let began = Instant::now();
        let tls = self.tls.tcp(target.protocol, target.resumption);
        // What is sent early is in the words of the protocol, which has to be known for that.
        let early_data = target.resumption == Resumption::EarlyData && target.protocol.is_some();
        let failed = |reason: String| Error::Handshake { remote, reason };
        let name = ServerName::try_from(target.server_name.clone()).map_err(|error| failed(error.to_string()))?;
        let stream = match TlsStream::connect(stream, tls, name, early_data).await {
            Ok(stream) => stream,
            Err(error) => {
                let alert = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
                return Err(match (alert, target.protocol) {
                    (Some(rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)), Some(protocol)) => {
                        Error::Unsupported(protocol)
                    }
                    _ => failed(error.to_string()),
                });
            }
        };
        let progress = stream.progress().clone();
        let negotiated = match (progress.summary(), target.protocol) {
            (None, Some(protocol)) => protocol,
            _ if stream.alpn_protocol() == Some(b"h2") => Protocol::Http2,
            _ => Protocol::Http1,
        };
        if target.protocol.is_some_and(|wanted| wanted != negotiated) {
            return Err(Error::Unsupported(Protocol::Http2));
        }
        self.speak(stream, probe, target, negotiated, timings, Some((began, progress))).await
    }

    async fn connect_http3(&self, target: &Target) -> Result<Connection, Error> {
        let tls = &self.tls.quic[target.resumption as usize];
        let connection = self.http3.connect(target.remote, &target.server_name, tls).await;
        let connection = connection.map_err(|reason| Error::Handshake { remote: target.remote, reason })?;
        let probe = StatsProbe::quic(connection.probe());
        Ok(Connection {
            sender: Sender::Http3(Rc::new(connection)),
            handle: self.handle.clone(),
            protocol: Protocol::Http3,
            remote: target.remote,
            secure: true,
            timings: ConnectTimings::default(),
            tls: None,
            probe,
            ended: Ended::default(),
            limits: self.limits.clone(),
        })
    }

    async fn speak<T>(
        &self,
        stream: T,
        probe: Rc<TcpProbe>,
        target: &Target,
        protocol: Protocol,
        timings: ConnectTimings,
        tls: Option<(Instant, Rc<Progress>)>,
    ) -> Result<Connection, Error>
    where
        T: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let failed = |reason: String| Error::Handshake { remote: target.remote, reason };
        let ended = Ended::default();
        let on_end = ended.clone();
        let sender = if protocol == Protocol::Http2 {
            let handshake = h2::client::Builder::new()
                .initial_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                // Until the server has said how many it takes: the library would send a hundred, and have most refused by some.
                .initial_max_send_streams(FIRST_STREAMS)
                // Nobody would read what a server pushes.
                .enable_push(false)
                .max_header_list_size(self.limits.field_section_bytes() as u32)
                .handshake::<_, Held>(stream)
                .await;
            let (sender, mut connection) = handshake.map_err(|error| failed(error.to_string()))?;
            let offer = upgrade::Offer::new();
            let asked = offer.clone();
            let slots = Slots::new(FIRST_STREAMS);
            let taken = slots.clone();
            let (handle, patience) = (self.handle.clone(), self.limits.response_timeout());
            // What goes wrong there reaches the requests on the connection.
            self.handle.spawn(async move {
                let ping = connection.ping_pong();
                let mut forsaken: Option<Pin<Box<Sleep>>> = None;
                let driven = poll_fn(|cx| {
                    let ended = Pin::new(&mut connection).poll(cx).map(drop);
                    taken.update(connection.max_concurrent_send_streams());
                    if ended.is_pending() && taken.is_forsaken() {
                        // It says goodbye, which a server that takes nothing any more would have it do for ever.
                        return forsaken.get_or_insert_with(|| Box::pin(handle.sleep(patience))).as_mut().poll(cx);
                    }
                    ended
                });
                asked.drive(ping, driven).await;
                taken.close();
                on_end.set(true);
            });
            // Of uploads no more waits to be written than of a server's answers.
            Sender::Http2(sender, Outbox::new(HTTP2_SEND_BYTES), offer, slots)
        } else {
            let handshake = hyper::client::conn::http1::Builder::new()
                .max_header_size(self.limits.field_section_bytes() as usize)
                .handshake(TokioIo::new(stream))
                .await;
            let (sender, connection) = handshake.map_err(|error| failed(error.to_string()))?;
            let (upgrade, link) = (Rc::<upgrade::Http1Upgrade>::default(), Rc::<Link>::default());
            let (asked, driver) = (upgrade.clone(), link.clone());
            let (handle, patience) = (self.handle.clone(), self.limits.response_timeout());
            self.handle.spawn(async move {
                http1::drive(connection, &asked, &driver, &handle, patience).await;
                on_end.set(true);
            });
            Sender::Http1(sender, upgrade, link)
        };
        let probe = StatsProbe::tcp(probe);
        let Target { remote, secure, .. } = *target;
        let (handle, limits) = (self.handle.clone(), self.limits.clone());
        Ok(Connection { sender, handle, protocol, remote, secure, timings, tls, probe, ended, limits })
    }
}

/// Has the system end a connection that is silent and whose peer has not been heard from for about `timeout`. Nobody else would notice over
/// TCP. While data is on its way the time-outs of requests count: the option of the system for that (`TCP_USER_TIMEOUT`) also ends
/// connections whose peer is there and lets nothing more come, as a slow reader of an upload does.
fn notice_lost_peer(socket: &SockRef<'_>, timeout: Duration) -> io::Result<()> {
    const PROBES: u32 = 3;
    let probing = TcpKeepalive::new().with_time(timeout / 2).with_interval(timeout / 2 / PROBES).with_retries(PROBES);
    socket.set_tcp_keepalive(&probing)
}

impl Connection {
    /// The connection, if it is one of HTTP/3.
    pub(crate) fn http3(&self) -> Option<&http3::ClientConnection> {
        match &self.sender {
            Sender::Http3(connection) => Some(connection),
            Sender::Http1(..) | Sender::Http2(..) => None,
        }
    }

    /// What is spoken.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// How long opening it took, as far as it is done.
    pub fn timings(&self) -> ConnectTimings {
        let tls = match &self.sender {
            Sender::Http3(connection) => connection.handshake(),
            _ => self.tls.as_ref().and_then(|(began, progress)| Some(progress.done_at()?.saturating_duration_since(*began))),
        };
        ConnectTimings { tls, ..self.timings }
    }

    /// What TLS came to: whether a session was resumed and early data accepted. `None` in clear text, and until the handshake is done.
    pub fn tls(&self) -> Option<TlsSummary> {
        match &self.sender {
            Sender::Http3(connection) => connection.tls(),
            _ => self.tls.as_ref().and_then(|(_, progress)| progress.summary()),
        }
    }

    /// Waits for the end of a handshake that goes on while requests are sent.
    ///
    /// # Errors
    ///
    /// When the handshake fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn handshake(&self) -> Result<(), Error> {
        poll_fn(|cx| match (&self.sender, &self.tls) {
            (Sender::Http3(connection), _) => connection.poll_done(cx),
            (_, Some((_, progress))) => progress.poll_done(cx),
            (_, None) => Poll::Ready(()),
        })
        .await;
        self.handshake_failure().map_or(Ok(()), Err)
    }

    fn handshake_failure(&self) -> Option<Error> {
        let reason = match &self.sender {
            Sender::Http3(connection) => connection.handshake_failure(),
            _ => self.tls.as_ref().and_then(|(_, progress)| progress.failure()),
        }?;
        Some(Error::Handshake { remote: self.remote, reason })
    }

    /// Whether what is sent now is early data.
    fn is_early(&self) -> bool {
        match (&self.sender, &self.tls) {
            (Sender::Http3(connection), _) => connection.is_early(),
            (_, Some((_, progress))) => progress.summary().is_none() && progress.failure().is_none(),
            (_, None) => false,
        }
    }

    /// The worker that the connection is on.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Whether another request may be sent.
    pub fn is_usable(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender, ..) => !sender.is_closed(),
            // After GOAWAY it takes no request, and says so of a handle that has sent none.
            Sender::Http2(sender, ..) => {
                let is_ready = || sender.clone().poll_ready(&mut Context::from_waker(Waker::noop()));
                !self.ended.get() && matches!(is_ready(), Poll::Ready(Ok(())))
            }
            Sender::Http3(connection) => connection.is_usable(),
        }
    }

    /// Whether a request would begin at once. Over HTTP/1.1 the one before may still be going out when its response is complete.
    pub fn is_ready(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender, ..) => sender.is_ready(),
            Sender::Http2(..) | Sender::Http3(_) => self.is_usable(),
        }
    }

    /// Waits until the exchange before is over in both directions. Over HTTP/2 and HTTP/3 nothing has to wait for that.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when the connection ends.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn ready(&mut self) -> Result<(), Error> {
        match &mut self.sender {
            Sender::Http1(sender, ..) => sender.ready().await.map_err(|error| failure::http1(&error, false)),
            Sender::Http2(..) | Sender::Http3(_) => Ok(()),
        }
    }

    /// Ends an HTTP/1.1 connection at once, whatever is on its way there. When a connection is dropped, what was begun goes on to its end,
    /// an upload that nobody waits for included. Over HTTP/2 and HTTP/3 dropping the response ends its exchange.
    pub fn abort(self) {
        if let Sender::Http1(_, _, link) = &self.sender {
            link.abort();
        }
    }

    /// Reads what the connection's transport has done.
    pub fn stats(&self) -> &StatsProbe {
        &self.probe
    }

    /// Another handle on the same connection, which closes with the last of them; `None` over HTTP/1.1, which carries one request
    /// at a time.
    pub fn share(&self) -> Option<Self> {
        let sender = match &self.sender {
            Sender::Http1(..) => return None,
            Sender::Http2(sender, outbox, offer, slots) => Sender::Http2(sender.clone(), outbox.clone(), offer.clone(), slots.clone()),
            Sender::Http3(connection) => Sender::Http3(connection.clone()),
        };
        Some(Self {
            sender,
            handle: self.handle.clone(),
            protocol: self.protocol,
            remote: self.remote,
            secure: self.secure,
            timings: self.timings,
            tls: self.tls.clone(),
            probe: self.probe.clone(),
            ended: self.ended.clone(),
            limits: self.limits.clone(),
        })
    }

    /// Sends a request, whose URI names the host, and waits for the head of the response.
    ///
    /// With an [`Upgrade`] among its extensions it asks to go on in another protocol, whatever its method. If the response grants that, by
    /// 101 over HTTP/1.1 and by 2xx over HTTP/2 and HTTP/3, its body is what the server sends from there on, and the request's body is what is
    /// sent. Otherwise it is a response like any other, and nothing of the request's body was sent over HTTP/1.1.
    ///
    /// Before the handshake is done, a request that may not go out early waits, and one that the server found too early is sent again.
    ///
    /// # Errors
    ///
    /// When the server refuses the request or the connection ends first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request.
    pub async fn send(&mut self, request: Request<Body>) -> Result<Response<Incoming>, Error> {
        self.deliver(request, &mut Observer::default()).await
    }

    /// Sends a request as [`Connection::send`] does, and hands over each interim response (1xx) that comes before the final one.
    ///
    /// # Errors
    ///
    /// Those of [`Connection::send`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request.
    pub async fn send_informed(
        &mut self,
        request: Request<Body>,
        mut on_interim: impl FnMut(StatusCode, HeaderMap),
    ) -> Result<Response<Incoming>, Error> {
        self.deliver(request, &mut Observer { on_interim: Some(&mut on_interim), on_queue: None }).await
    }

    /// Sends a request as [`Connection::send`] does, and says when it begins (`true`) and ends (`false`) to wait for the server to allow
    /// another request beside those that are open. Until then nothing of it is sent and nothing of its content asked for, and when the
    /// connection ends meanwhile, that is [`Error::Refused`].
    ///
    /// # Errors
    ///
    /// Those of [`Connection::send`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request.
    pub async fn send_watched(&mut self, request: Request<Body>, mut on_queue: impl FnMut(bool)) -> Result<Response<Incoming>, Error> {
        self.deliver(request, &mut Observer { on_interim: None, on_queue: Some(&mut on_queue) }).await
    }

    /// Sends a request as [`Connection::send`] does, and tells of interim responses as [`Connection::send_informed`] and of the queue as
    /// [`Connection::send_watched`], where that is asked for.
    ///
    /// # Errors
    ///
    /// Those of [`Connection::send`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request.
    pub async fn send_observed<'a>(
        &mut self,
        request: Request<Body>,
        on_interim: Option<&'a mut dyn FnMut(StatusCode, HeaderMap)>,
        on_queue: Option<&'a mut dyn FnMut(bool)>,
    ) -> Result<Response<Incoming>, Error> {
        self.deliver(request, &mut Observer { on_interim, on_queue }).await
    }

    async fn deliver(&mut self, mut request: Request<Body>, observer: &mut Observer<'_>) -> Result<Response<Incoming>, Error> {
        frame(&mut request)?;
        let (request, again) = if self.is_early() { self.early(request).await? } else { (request, None) };
        let response = self.exchange(request, observer).await;
        match (response, again) {
            (Ok(response), Some(again)) if response.status() == StatusCode::TOO_EARLY => {
                //= RFC 8470 section 5.2
                //# A user agent SHOULD retry automatically, but any retries MUST NOT be sent in early data.
                self.handshake().await?;
                self.exchange(again, observer).await
            }
            (Err(error), _) => Err(self.handshake_failure().unwrap_or(error)),
            (response, _) => response,
        }
    }

    /// A request that may be sent early, and a copy of it; or, after the handshake, any request.
    async fn early(&self, request: Request<Body>) -> Result<(Request<Body>, Option<Request<Body>>), Error> {
        let (head, mut body) = request.into_parts();
        //= RFC 8470 section 4
        //# MUST NOT send unsafe methods (or methods whose safety is not known) in early data.
        if head.method.is_safe()
            && head.extensions.get::<Upgrade>().is_none()
            && let Some(content) = body.take_full()
        {
            let copy = Request::from_parts(head.clone(), Body::from(content.clone()));
            return Ok((Request::from_parts(head, Body::from(content)), Some(copy)));
        }
        self.handshake().await?;
        Ok((Request::from_parts(head, body), None))
    }

    async fn exchange(&mut self, mut request: Request<Body>, observer: &mut Observer<'_>) -> Result<Response<Incoming>, Error> {
        let upgrade = request.extensions_mut().remove::<Upgrade>();
        if self.protocol != Protocol::Http1 {
            request::for_streams(&mut request, self.secure)?;
        }
        match &mut self.sender {
            Sender::Http1(sender, asked, link) => {
                sender.ready().await.map_err(|error| failure::http1(&error, false))?;
                let (mut request, tunnel) = match &upgrade {
                    None => {
                        link.begin(request.body_mut());
                        (for_http1(request), None)
                    }
                    Some(upgrade) => {
                        let (request, outgoing) = upgrade::for_http1(request, upgrade)?;
                        (request, Some((upgrade, asked.ask(), outgoing)))
                    }
                };
                let informed = observer.on_interim.is_some().then(interim::Waiting::default);
                if let Some(informed) = &informed {
                    informed.watch(&mut request);
                }
                let mut response = pin!(sender.send_request(request));
                let response = poll_fn(|cx| {
                    let response = response.as_mut().poll(cx);
                    if let (Some(informed), Some(on_interim)) = (&informed, observer.on_interim.as_mut()) {
                        informed.poll(cx, on_interim);
                    }
                    response
                });
                let mut response = response.await.map_err(|error| failure::http1(&error, true))?;
                response::check(response.status(), response.headers_mut(), upgrade.is_some())?;
                if let Some((upgrade, asking, outgoing)) = tunnel
                    && response.status() == StatusCode::SWITCHING_PROTOCOLS
                {
                    if !upgrade::is_granted(&response, upgrade) {
                        return Err(Error::NoUpgrade(upgrade.to_string()));
                    }
                    return Ok(response.map(|_| Incoming::tunnel(asking.grant(outgoing))));
                }
                Ok(response.map(|body| Incoming::http1_response(body, link.clone())))
            }
            Sender::Http2(sender, outbox, offer, slots) => {
                let request = match &upgrade {
                    Some(upgrade) if !offer.wait(|| sender.is_extended_connect_protocol_enabled()).await => {
                        return Err(Error::NoUpgrade(upgrade.to_string()));
                    }
                    Some(upgrade) => upgrade::for_http2(request, upgrade),
                    None => request,
                };
                let refused = || Error::Refused("it takes no more requests".to_owned());
                let mut slot = slots.take(sender, &mut observer.on_queue).await.ok_or_else(refused)?;
                poll_fn(|cx| sender.poll_ready(cx)).await.map_err(|error| failure::http2(&error, false))?;
                let (head, mut body) = request.into_parts();
                let request = Request::from_parts(head, ());
                let ends = body.full_size() == Some(0);
                let (mut response, mut stream) = sender.send_request(request, ends).map_err(|error| failure::http2(&error, false))?;
                // At once if it fits into the windows. Otherwise it waits outside of the library, which would hold it as long as it takes.
                let full = body.full_size().filter(|size| {
                    stream.reserve_capacity(*size);
                    *size <= stream.capacity().min(outbox.room())
                });
                match full.and_then(|_| body.take_full()) {
                    Some(data) if !ends => stream.send_data(outbox.hold(data), true).map_err(|error| failure::http2(&error, true))?,
                    Some(_) => {}
                    None => self.handle.spawn(upload::send(stream, body, outbox.clone(), slot.share(), &self.handle, &self.limits)),
                }
                if let Some(on_interim) = &mut observer.on_interim {
                    while let Some(Ok(interim)) = poll_fn(|cx| response.poll_informational(cx)).await {
                        let (head, ()) = interim.into_parts();
                        // Which there is none of over HTTP/2.
                        if head.status != StatusCode::SWITCHING_PROTOCOLS {
                            on_interim(head.status, head.headers);
                        }
                    }
                }
                response
                    .await
                    .map(|response| response.map(|body| Incoming::http2_response(body, slot)))
                    .map_err(|error| failure::http2(&error, true))
            }
            Sender::Http3(connection) => {
                let (head, body) = request.into_parts();
                let handle = &self.handle;
                let spawn = |stream: std::rc::Rc<http3::Stream>, body| handle.spawn(stream.pump(body));
                let mut body = body;
                if upgrade.is_some() {
                    body.set_tunnel();
                }
                let head = RequestHead { method: head.method, uri: head.uri, headers: head.headers, upgrade };
                let sent = connection.send(head, body, spawn, observer).await;
                let (status, headers, body) = sent.map_err(|error| failure::http3(&error))?;
                let mut response = Response::new(body);
                *response.status_mut() = status;
                *response.headers_mut() = headers;
                Ok(response)
            }
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_is_told_to_look_after_the_peer() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = SockRef::from(&socket);
        notice_lost_peer(&socket, Duration::from_secs(30)).unwrap();
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(15));
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), Duration::from_secs(5));
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
        assert_eq!(socket.tcp_user_timeout().unwrap(), None);
    }
}
