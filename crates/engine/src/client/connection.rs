//! An open connection, whatever its protocol.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use http::Response;

use super::http1::Http1;
use super::slots::Slots;
use super::{ClientRequest, ConnectTimings, Error, Remote, StatsProbe, upgrade};
use crate::Incoming;
use crate::http2::{BufferedBytes, SendBuffer};
use crate::http3::ClientConnection;
use crate::limits::Limits;
use crate::message::Protocol;
use crate::runtime::Handle;
use crate::tcp::HandshakeProgress;
use crate::tls::TlsSummary;

/// An open connection.
pub struct Connection {
    pub(super) sender: Sender,
    pub(super) handle: Handle,
    pub(super) protocol: Protocol,
    pub(super) remote: Remote,
    pub(super) secure: bool,
    pub(super) timings: ConnectTimings,
    /// Over TCP: when TLS began, and its progress.
    pub(super) tls: Option<(Instant, Rc<HandshakeProgress>)>,
    pub(super) probe: StatsProbe,
    pub(super) ended: EndedFlag,
    pub(super) limits: Rc<Limits>,
}

pub(super) enum Sender {
    Http1(Rc<Http1>),
    Http2(
        h2::client::SendRequest<BufferedBytes>,
        Rc<SendBuffer>,
        Rc<upgrade::ExtendedConnectSupport>,
        Rc<Slots>,
    ),
    Http3(Rc<ClientConnection>),
}

/// Set when the task that drives a connection has ended.
pub(super) type EndedFlag = Rc<Cell<bool>>;

impl Connection {
    /// Returns the HTTP/3 connection, if it is one.
    pub(crate) fn http3(&self) -> Option<&ClientConnection> {
        match &self.sender {
            Sender::Http3(connection) => Some(connection),
            Sender::Http1(..) | Sender::Http2(..) => None,
        }
    }

    /// Returns the protocol.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Returns the server's address.
    pub fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Returns how long opening the connection took, as far as it is complete.
    pub fn timings(&self) -> ConnectTimings {
        let tls = match &self.sender {
            Sender::Http3(connection) => connection.handshake(),
            _ => self.tls.as_ref().and_then(|(began, progress)| {
                Some(progress.done_at()?.saturating_duration_since(*began))
            }),
        };
        ConnectTimings { tls, ..self.timings }
    }

    /// Returns the result of TLS: whether a session was resumed and early data accepted. `None` in
    /// clear text, and until the handshake is complete.
    pub fn tls(&self) -> Option<TlsSummary> {
        match &self.sender {
            Sender::Http3(connection) => connection.tls(),
            _ => self.tls.as_ref().and_then(|(_, progress)| progress.summary()),
        }
    }

    /// Waits for the end of a handshake that continues while requests are sent.
    ///
    /// # Errors
    ///
    /// If the handshake fails.
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

    pub(super) fn handshake_failure(&self) -> Option<Error> {
        let reason = match &self.sender {
            Sender::Http3(connection) => connection.handshake_failure(),
            _ => self.tls.as_ref().and_then(|(_, progress)| progress.failure()),
        }?;
        Some(Error::Handshake { remote: self.remote.clone(), reason })
    }

    /// Whether data that is sent now is early data.
    pub(super) fn is_early(&self) -> bool {
        match (&self.sender, &self.tls) {
            (Sender::Http3(connection), _) => connection.is_early(),
            (_, Some((_, progress))) => {
                progress.summary().is_none() && progress.failure().is_none()
            }
            (_, None) => false,
        }
    }

    /// Returns a handle to the connection's worker.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Whether another request may be sent.
    pub fn is_usable(&self) -> bool {
        match &self.sender {
            Sender::Http1(connection) => connection.is_open(),
            // After GOAWAY the connection accepts no request, and a handle that has sent none
            // reports it.
            Sender::Http2(sender, ..) => {
                let is_ready =
                    || sender.clone().poll_ready(&mut Context::from_waker(Waker::noop()));
                !self.ended.get() && matches!(is_ready(), Poll::Ready(Ok(())))
            }
            Sender::Http3(connection) => connection.is_usable(),
        }
    }

    /// Whether a request would begin at once. Over HTTP/1.1 the previous request may still be being
    /// sent when its response is complete.
    pub fn is_ready(&self) -> bool {
        match &self.sender {
            Sender::Http1(connection) => connection.is_ready(),
            Sender::Http2(..) | Sender::Http3(_) => self.is_usable(),
        }
    }

    /// Wakes `waker` when the server closes an HTTP/1.1 connection while it is idle.
    /// [`Connection::is_usable`] returns `false` from then on.
    pub fn watch(&self, waker: &Waker) {
        if let Sender::Http1(connection) = &self.sender {
            connection.watch(waker);
        }
    }

    /// Waits until the previous exchange is complete in both directions. Returns at once over
    /// HTTP/2 and HTTP/3.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] if the connection ends.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn ready(&mut self) -> Result<(), Error> {
        match &mut self.sender {
            Sender::Http1(connection) => {
                let is_open = poll_fn(|cx| connection.poll_ready(cx)).await;
                is_open
                    .then_some(())
                    .ok_or_else(|| Error::Refused("the connection is closed".to_owned()))
            }
            Sender::Http2(..) | Sender::Http3(_) => Ok(()),
        }
    }

    /// Closes an HTTP/1.1 connection at once, whatever is in flight. Dropping a connection instead
    /// lets a running exchange finish, including an upload that no caller waits for. Over HTTP/2
    /// and HTTP/3, drop the response to end its exchange.
    pub fn abort(self) {
        if let Sender::Http1(connection) = &self.sender {
            connection.abort();
        }
    }

    /// Returns a probe for the counters of the connection's transport.
    pub fn stats(&self) -> &StatsProbe {
        &self.probe
    }

    /// Returns another handle on the same connection, which closes with its last handle. `None`
    /// over HTTP/1.1, which carries one request at a time.
    pub fn share(&self) -> Option<Self> {
        let sender = match &self.sender {
            Sender::Http1(..) => return None,
            Sender::Http2(sender, send_buffer, offer, slots) => {
                Sender::Http2(sender.clone(), send_buffer.clone(), offer.clone(), slots.clone())
            }
            Sender::Http3(connection) => Sender::Http3(connection.clone()),
        };
        Some(Self {
            sender,
            handle: self.handle.clone(),
            protocol: self.protocol,
            remote: self.remote.clone(),
            secure: self.secure,
            timings: self.timings,
            tls: self.tls.clone(),
            probe: self.probe.clone(),
            ended: self.ended.clone(),
            limits: self.limits.clone(),
        })
    }

    /// Sends a request and waits for the head of the response. The request's URI has to name the
    /// host.
    ///
    /// With an [`Upgrade`](crate::Upgrade) in its extensions, the request asks to switch to another
    /// protocol, whatever its method. If the server accepts, with 101 over HTTP/1.1 or 2xx over
    /// HTTP/2 and HTTP/3, the response's body is the data that the server sends from then on, and
    /// the request's body is the data that is sent to it. Otherwise the response is an ordinary
    /// one, and over HTTP/1.1 nothing of the request's body was sent.
    ///
    /// Before the handshake is complete, a request that must not be sent early waits, and one that
    /// the server has refused with 425 (Too Early) is sent again.
    ///
    /// A [`ClientRequest`] also has callbacks for interim responses and for the queue.
    ///
    /// # Errors
    ///
    /// If the server refuses the request or the connection ends first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request.
    pub fn send<'a>(
        &mut self,
        request: impl Into<ClientRequest<'a>>,
    ) -> impl Future<Output = Result<Response<Incoming>, Error>> {
        self.deliver(request.into())
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}
