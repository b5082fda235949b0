//! Opening connections to servers.

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

use super::connection::{Connection, EndedFlag, Sender};
use super::http1::{self, Http1};
use super::slots::Slots;
use super::timings::ConnectTimings;
use super::tls::ClientTlsConfigs;
use super::{Error, Remote, Resumption, StatsProbe, upgrade};
use crate::config::Congestion;
use crate::http2::{BufferedBytes, CheckedFieldBlocks, SendBuffer};
use crate::http3::Client;
use crate::limits::{HTTP2_SEND_BYTES, Limits, TCP_UNSENT_BYTES};
use crate::message::Protocol;
use crate::runtime::{Handle, Sleep};
use crate::tcp::{HandshakeProgress, TcpStream, TlsStream};
use crate::tcp_congestion;

/// The default of 64 KiB limits a path of 100 ms to 5 Mbit/s. These windows also bound what a
/// response may buffer.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// Requests on an HTTP/2 connection until the server has announced its limit.
const FIRST_STREAMS: usize = 1;

/// Opens connections from a worker. Made by [`Worker::connector`](crate::Worker::connector).
#[derive(Clone)]
pub struct Connector {
    pub(super) handle: Handle,
    tls: Arc<ClientTlsConfigs>,
    http3: Client,
    congestion: Option<Congestion>,
    limits: Rc<Limits>,
}

/// A server to connect to, and the protocol.
#[derive(Clone, Debug)]
pub struct Target {
    /// Address.
    pub remote: SocketAddr,
    /// Host name or address that the certificate has to match.
    //= RFC 9114 section 3.1
    //# Upon receiving a server certificate in the TLS handshake, the client MUST verify that the certificate is an
    //# acceptable match for the URI's origin server using the process described in Section 4.3.4 of [HTTP].
    //= RFC 9114 section 3.1
    //# If the certificate cannot be verified with respect to the URI's origin server, the client MUST NOT consider the
    //# server authoritative for that origin.
    pub server_name: String,
    /// Protocol; an error if the server does not support it. `None` means HTTP/2 or HTTP/1.1, as
    /// the server prefers.
    pub protocol: Option<Protocol>,
    /// Whether to use TLS. HTTP/3 always does.
    pub secure: bool,
    /// How to use the session of an earlier connection.
    pub resumption: Resumption,
}

impl Connector {
    pub(crate) fn new(
        handle: Handle,
        tls: &rustls::ClientConfig,
        http3: Client,
        congestion: Option<Congestion>,
        limits: Limits,
    ) -> Result<Self, String> {
        Ok(Self {
            handle,
            tls: Arc::new(ClientTlsConfigs::new(tls)?),
            http3,
            congestion,
            limits: Rc::new(limits),
        })
    }

    /// Returns a connector that uses the same sockets with another TLS configuration, for example
    /// for servers with other trust roots.
    ///
    /// # Errors
    ///
    /// If `tls` does not allow TLS 1.3.
    pub fn with_tls(&self, tls: &rustls::ClientConfig) -> Result<Self, String> {
        Self::new(
            self.handle.clone(),
            tls,
            self.http3.clone(),
            self.congestion,
            (*self.limits).clone(),
        )
    }

    /// Returns a handle to the connector's worker.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Opens a connection. With [`Resumption::EarlyData`] it may be usable before the handshake is
    /// complete.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, is not trusted, or does not support the protocol.
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
            return self
                .speak(stream, probe, to, target.protocol.unwrap_or(Protocol::Http1), timings, None)
                .await;
        }
        let began = Instant::now();
        let tls = self.tls.tcp(target.protocol, target.resumption);
        // Early data is formatted for the protocol, which therefore has to be known.
        let early_data = target.resumption == Resumption::EarlyData && target.protocol.is_some();
        let failed = |reason: String| Error::Handshake { remote: remote.into(), reason };
        let name = ServerName::try_from(target.server_name.clone())
            .map_err(|error| failed(error.to_string()))?;
        let stream = match TlsStream::connect(stream, tls, name, early_data).await {
            Ok(stream) => stream,
            Err(error) => {
                let alert = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
                return Err(match (alert, target.protocol) {
                    (
                        Some(rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)),
                        Some(protocol),
                    ) => Error::Unsupported(protocol),
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

    /// Opens a TCP connection for a protocol that the engine does not implement. The connection is
    /// bound to the worker.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was opened.
    pub async fn open_tcp(
        &self,
        remote: SocketAddr,
    ) -> Result<impl AsyncRead + AsyncWrite + Unpin + use<>, Error> {
        self.tcp_stream(remote).await
    }

    async fn tcp_stream(&self, remote: SocketAddr) -> Result<TcpStream, Error> {
        let failed = |source| Error::Connect { remote: remote.into(), source };
        let socket = mio::net::TcpStream::connect(remote).and_then(|socket| {
            socket.set_nodelay(true)?;
            if let Some(congestion) = self.congestion {
                tcp_congestion::choose(&SockRef::from(&socket), congestion)
                    .map_err(io::Error::other)?;
            }
            let limits = Limits::default();
            // Without the option, the kernel buffers megabytes of an upload for a server that does
            // not read.
            let _ = SockRef::from(&socket).set_tcp_notsent_lowat(TCP_UNSENT_BYTES);
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
        let connection = connection
            .map_err(|reason| Error::Handshake { remote: target.remote.into(), reason })?;
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
            ended: EndedFlag::default(),
            limits: self.limits.clone(),
        })
    }

    /// Starts the protocol on a stream. `tls` is set if TLS is used, with the time when it began.
    pub(super) async fn speak<T>(
        &self,
        stream: T,
        probe: StatsProbe,
        remote: Remote,
        protocol: Protocol,
        timings: ConnectTimings,
        tls: Option<(Instant, Rc<HandshakeProgress>)>,
    ) -> Result<Connection, Error>
    where
        T: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let failed = |reason: String| Error::Handshake { remote: remote.clone(), reason };
        let ended = EndedFlag::default();
        let on_end = ended.clone();
        let sender = if protocol == Protocol::Http2 {
            let handshake = h2::client::Builder::new()
                .initial_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                // Until the server has announced its limit: h2 would send a hundred requests, and
                // some servers would refuse most of them.
                .initial_max_send_streams(FIRST_STREAMS)
                // Pushed responses would not be read.
                .enable_push(false)
                .max_header_list_size(self.limits.field_section_bytes() as u32)
                .handshake::<_, BufferedBytes>(CheckedFieldBlocks::of_server(stream, &self.limits))
                .await;
            let (sender, mut connection) = handshake.map_err(|error| failed(error.to_string()))?;
            let offer = upgrade::ExtendedConnectSupport::new();
            let asked = offer.clone();
            let slots = Slots::new(FIRST_STREAMS);
            let taken = slots.clone();
            let (handle, patience) = (self.handle.clone(), self.limits.response_timeout());
            // Errors of the connection reach the requests on it.
            self.handle.spawn(async move {
                let ping = connection.ping_pong();
                let mut forsaken: Option<Pin<Box<Sleep>>> = None;
                let driven = poll_fn(|cx| {
                    let ended = Pin::new(&mut connection).poll(cx).map(drop);
                    taken.update(connection.max_concurrent_send_streams());
                    if ended.is_pending() && taken.is_forsaken() {
                        // h2 sends GOAWAY, which never completes if the server does not read any
                        // more.
                        return forsaken
                            .get_or_insert_with(|| Box::pin(handle.sleep(patience)))
                            .as_mut()
                            .poll(cx);
                    }
                    ended
                });
                asked.drive(ping, driven).await;
                taken.close();
                on_end.set(true);
            });
            // Uploads may buffer no more than a server's responses.
            Sender::Http2(sender, SendBuffer::new(HTTP2_SEND_BYTES), offer, slots)
        } else {
            let connection = Http1::new(stream, self.limits.clone());
            if tls.is_some() {
                self.handle.spawn(http1::read_idle(Rc::downgrade(&connection)));
            }
            Sender::Http1(connection)
        };
        let secure = tls.is_some();
        let (handle, limits) = (self.handle.clone(), self.limits.clone());
        Ok(Connection {
            sender,
            handle,
            protocol,
            remote,
            secure,
            timings,
            tls,
            probe,
            ended,
            limits,
        })
    }
}

/// Has the system end an idle connection whose peer has not responded for about `timeout`. Over TCP
/// a lost peer would go unnoticed otherwise. While data is in flight the timeouts of requests
/// apply: the system's option for that (`TCP_USER_TIMEOUT`) also ends connections whose peer is
/// alive but keeps its window closed, such as a slow reader of an upload.
fn notice_lost_peer(socket: &SockRef<'_>, timeout: Duration) -> io::Result<()> {
    const PROBES: u32 = 3;
    let probing = TcpKeepalive::new()
        .with_time(timeout / 2)
        .with_interval(timeout / 2 / PROBES)
        .with_retries(PROBES);
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
