//! An open connection, whatever it speaks.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use http::{HeaderMap, Request, Response, StatusCode};

use super::http1::Http1;
use super::slots::Slots;
use super::{ConnectTimings, Error, Remote, StatsProbe, upgrade};
use crate::http2::{Held, Outbox};
use crate::http3;
use crate::limits::Limits;
use crate::message::Protocol;
use crate::runtime::Handle;
use crate::tcp::Progress;
use crate::tls::TlsSummary;
use crate::{Body, Incoming};

/// An open connection.
pub struct Connection {
    pub(super) sender: Sender,
    pub(super) handle: Handle,
    pub(super) protocol: Protocol,
    pub(super) remote: Remote,
    pub(super) secure: bool,
    pub(super) timings: ConnectTimings,
    /// Over TCP: when TLS began, and how far it is.
    pub(super) tls: Option<(Instant, Rc<Progress>)>,
    pub(super) probe: StatsProbe,
    pub(super) ended: Ended,
    pub(super) limits: Rc<Limits>,
}

pub(super) enum Sender {
    Http1(Rc<Http1>),
    Http2(h2::client::SendRequest<Held>, Rc<Outbox>, Rc<upgrade::Offer>, Rc<Slots>),
    Http3(Rc<http3::ClientConnection>),
}

/// Told when a request waits for the server to allow another one, and when it does not any more.
pub(crate) type OnQueue<'a> = &'a mut dyn FnMut(bool);

/// Notified of each interim response.
pub(super) type OnInterim<'a> = &'a mut dyn FnMut(StatusCode, HeaderMap);

/// Who wants to hear what of a request on its way.
#[derive(Default)]
pub(crate) struct Observer<'a> {
    pub(crate) on_interim: Option<OnInterim<'a>>,
    pub(crate) on_queue: Option<OnQueue<'a>>,
}

/// Set when what drives a connection has ended.
pub(super) type Ended = Rc<Cell<bool>>;

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

    /// Where it was made to.
    pub fn remote(&self) -> &Remote {
        &self.remote
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

    pub(super) fn handshake_failure(&self) -> Option<Error> {
        let reason = match &self.sender {
            Sender::Http3(connection) => connection.handshake_failure(),
            _ => self.tls.as_ref().and_then(|(_, progress)| progress.failure()),
        }?;
        Some(Error::Handshake { remote: self.remote.clone(), reason })
    }

    /// Whether what is sent now is early data.
    pub(super) fn is_early(&self) -> bool {
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
            Sender::Http1(connection) => connection.is_open(),
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
            Sender::Http1(connection) => connection.is_ready(),
            Sender::Http2(..) | Sender::Http3(_) => self.is_usable(),
        }
    }

    /// Wakes `waker` when the server closes an HTTP/1.1 connection while it is idle; [`Connection::is_usable`] returns `false` from then on.
    pub fn watch(&self, waker: &Waker) {
        if let Sender::Http1(connection) = &self.sender {
            connection.watch(waker);
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
            Sender::Http1(connection) => {
                let is_open = poll_fn(|cx| connection.poll_ready(cx)).await;
                is_open.then_some(()).ok_or_else(|| Error::Refused("the connection is closed".to_owned()))
            }
            Sender::Http2(..) | Sender::Http3(_) => Ok(()),
        }
    }

    /// Ends an HTTP/1.1 connection at once, whatever is on its way there. When a connection is dropped, what was begun goes on to its end,
    /// an upload that nobody waits for included. Over HTTP/2 and HTTP/3 dropping the response ends its exchange.
    pub fn abort(self) {
        if let Sender::Http1(connection) = &self.sender {
            connection.abort();
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
            remote: self.remote.clone(),
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
        self.deliver(Box::new(request), &mut Observer::default()).await
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
        self.deliver(Box::new(request), &mut Observer { on_interim: Some(&mut on_interim), on_queue: None }).await
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
        self.deliver(Box::new(request), &mut Observer { on_interim: None, on_queue: Some(&mut on_queue) }).await
    }

    /// Sends a request as [`Connection::send`] does, and tells of interim responses as [`Connection::send_informed`] and of the queue as
    /// [`Connection::send_watched`], where that is asked for. The request has a place of its own, since it is handed on often.
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
        request: Box<Request<Body>>,
        on_interim: Option<&'a mut dyn FnMut(StatusCode, HeaderMap)>,
        on_queue: Option<&'a mut dyn FnMut(bool)>,
    ) -> Result<Response<Incoming>, Error> {
        self.deliver(request, &mut Observer { on_interim, on_queue }).await
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("protocol", &self.protocol).finish_non_exhaustive()
    }
}
