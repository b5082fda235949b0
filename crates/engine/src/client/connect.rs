//! Opening connections.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::AlertDescription;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::{Connection, Ended, Sender};
use super::http1::{self, Http1};
use super::slots::Slots;
use super::tls::ClientTlsConfigs;
use super::{Error, Remote, Resumption, StatsProbe, upgrade};
use crate::config::Congestion;
use crate::http2::{Checked, Held, Outbox};
use crate::http3;
use crate::limits::{HTTP2_SEND_BYTES, Limits};
use crate::message::Protocol;
use crate::runtime::{Handle, Sleep};
use crate::tcp::{Progress, TcpStream, TlsStream};
use crate::tcp_congestion;

/// HTTP/2 begins with 64 KiB, which a path of 100 ms turns into 5 Mbit/s. What a response may hold is bounded by these.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// Requests on an HTTP/2 connection until the server has said how many it takes.
const FIRST_STREAMS: usize = 1;

/// Opens connections from a worker. Made by [`Worker::connector`](crate::Worker::connector).
#[derive(Clone)]
pub struct Connector {
    pub(super) handle: Handle,
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
        let mut stream = self.tcp_stream(remote).await?;
        let probe = StatsProbe::tcp(stream.probe());
        let to = Remote::from(remote);
        let timings = ConnectTimings { tcp: Some(began.elapsed()), tls: None };
        if !target.secure {
            return self.speak(stream, probe, to, target.protocol.unwrap_or(Protocol::Http1), timings, None).await;
        }
        let began = Instant::now();
        let tls = self.tls.tcp(target.protocol, target.resumption);
        // What is sent early is in the words of the protocol, which has to be known for that.
        let early_data = target.resumption == Resumption::EarlyData && target.protocol.is_some();
        let failed = |reason: String| Error::Handshake { remote: remote.into(), reason };
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
        self.speak(stream, probe, to, negotiated, timings, Some((began, progress))).await
    }

    /// Opens a connection over TCP, for a protocol that the engine does not speak. It is bound to the worker.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was opened.
    pub async fn open_tcp(&self, remote: SocketAddr) -> Result<impl AsyncRead + AsyncWrite + Unpin + use<>, Error> {
        self.tcp_stream(remote).await
    }

    async fn tcp_stream(&self, remote: SocketAddr) -> Result<TcpStream, Error> {
        let failed = |source| Error::Connect { remote: remote.into(), source };
        let socket = mio::net::TcpStream::connect(remote).and_then(|socket| {
            socket.set_nodelay(true)?;
            if let Some(congestion) = self.congestion {
                tcp_congestion::choose(&SockRef::from(&socket), congestion).map_err(io::Error::other)?;
            }
            let limits = Limits::default();
            notice_lost_peer(&SockRef::from(&socket), limits.idle_timeout())?;
            TcpStream::new(socket, &self.handle, &limits)
        });
        let stream = socket.map_err(failed)?;
        stream.connected().await.map_err(failed)?;
        Ok(stream)
    }

    async fn connect_http3(&self, target: &Target) -> Result<Connection, Error> {
        let tls = &self.tls.quic[target.resumption as usize];
        let connection = self.http3.connect(target.remote, &target.server_name, tls).await;
        let connection = connection.map_err(|reason| Error::Handshake { remote: target.remote.into(), reason })?;
        let probe = StatsProbe::quic(connection.probe());
        Ok(Connection {
            sender: Sender::Http3(Rc::new(connection)),
            handle: self.handle.clone(),
            protocol: Protocol::Http3,
            remote: target.remote.into(),
            secure: true,
            timings: ConnectTimings::default(),
            tls: None,
            probe,
            ended: Ended::default(),
            limits: self.limits.clone(),
        })
    }

    /// Over TLS where `tls` says when it began.
    pub(super) async fn speak<T>(
        &self,
        stream: T,
        probe: StatsProbe,
        remote: Remote,
        protocol: Protocol,
        timings: ConnectTimings,
        tls: Option<(Instant, Rc<Progress>)>,
    ) -> Result<Connection, Error>
    where
        T: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let failed = |reason: String| Error::Handshake { remote: remote.clone(), reason };
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
                .handshake::<_, Held>(Checked::of_server(stream, &self.limits))
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
            let connection = Http1::new(stream, self.limits.clone());
            if tls.is_some() {
                self.handle.spawn(http1::read_idle(Rc::downgrade(&connection)));
            }
            Sender::Http1(connection)
        };
        let secure = tls.is_some();
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
