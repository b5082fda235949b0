//! The responder: sends the response of one request.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use http::header::{CONTENT_LENGTH, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::body_limits::BodyMeter;
use crate::connection_fields::remove_connection_fields_of_response;
use crate::context::Context as WorkerContext;
use crate::gauge::GaugeGuard;
use crate::handshake_signal::HandshakeSignal;
use crate::http1::{Http1Exchange, Persistence};
use crate::http2::Http2Exchange;
use crate::http3::{Stream, WorkerState};
use crate::runtime::Handle;
use crate::{Body, Response};

/// Larger futures are boxed, so that they stay in one place.
const MOVED_BYTES: usize = 256;

/// Controls whether an HTTP/1.1 connection stays open after a response.
#[derive(Clone)]
pub struct KeepAlive(Option<Rc<Persistence>>);

impl KeepAlive {
    /// Closes the connection when the response is complete, as `connection: close` in a response
    /// head does. No effect over HTTP/2 and HTTP/3.
    pub fn disable(&self) {
        if let Some(persistence) = &self.0 {
            persistence.end();
        }
    }
}

impl fmt::Debug for KeepAlive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeepAlive").finish_non_exhaustive()
    }
}

/// Sends the response of one request. If it is dropped unused, as when the handler panics, the
/// request is answered with 500.
pub struct Responder {
    exchange: Option<Exchange>,
    context: Rc<WorkerContext>,
    interim_responses: u64,
    open: Option<GaugeGuard>,
    /// Present while the request counts as early data.
    early: Option<Rc<HandshakeSignal>>,
    /// The meter of the request's body, if it has one.
    meter: Option<Rc<BodyMeter>>,
    /// The request asks for another protocol.
    may_upgrade: bool,
    /// The method is CONNECT, so any 2xx response would begin a tunnel for the client.
    asks_for_tunnel: bool,
}

enum Exchange {
    Http1(Rc<Http1Exchange>),
    Http2(Http2Exchange),
    Http3(Rc<Stream>, Rc<WorkerState>),
}

impl Responder {
    pub(crate) fn http1(exchange: Rc<Http1Exchange>, context: &Rc<WorkerContext>) -> Self {
        Self::new(Exchange::Http1(exchange), context)
    }

    pub(crate) fn http2(exchange: Http2Exchange, context: &Rc<WorkerContext>) -> Self {
        Self::new(Exchange::Http2(exchange), context)
    }

    pub(crate) fn http3(
        stream: Rc<Stream>,
        state: Rc<WorkerState>,
        context: &Rc<WorkerContext>,
    ) -> Self {
        Self::new(Exchange::Http3(stream, state), context)
    }

    fn new(exchange: Exchange, context: &Rc<WorkerContext>) -> Self {
        Self {
            exchange: Some(exchange),
            context: context.clone(),
            interim_responses: 0,
            open: None,
            early: None,
            meter: None,
            may_upgrade: false,
            asks_for_tunnel: false,
        }
    }

    /// Marks the request as one that arrived before the handshake was complete, if there is a
    /// signal for its end.
    #[must_use]
    pub(crate) fn with_handshake(mut self, early: Option<Rc<HandshakeSignal>>) -> Self {
        self.early = early;
        self
    }

    /// Keeps `open` as long as the response lasts, and answers with the status of `meter` if the
    /// body was cut off. `may_upgrade`: whether the request asks for another protocol.
    /// `is_connect`: whether its method is CONNECT.
    pub(crate) fn attach(
        &mut self,
        open: GaugeGuard,
        meter: Option<Rc<BodyMeter>>,
        may_upgrade: bool,
        is_connect: bool,
    ) {
        (self.may_upgrade, self.asks_for_tunnel) = (may_upgrade, is_connect);
        self.open = Some(open);
        self.meter = meter;
    }

    pub(crate) fn context(&self) -> &Rc<WorkerContext> {
        &self.context
    }

    /// Returns a handle to the worker of the request.
    pub fn handle(&self) -> &Handle {
        &self.context.handle
    }

    /// Sends an interim response, such as 103 (Early Hints) with `link` fields. The final response
    /// follows by [`Responder::send`] or [`Responder::respond`].
    ///
    /// Does nothing for a status that is not interim, for 101, which HTTP/2 and HTTP/3 do not have,
    /// for HTTP/1.0 clients, and beyond
    /// [`Limits::interim_responses`](crate::Limits::interim_responses). 100 (Continue) needs no
    /// call: it is sent when the handler first reads the body of a request that waits for it.
    pub fn send_interim(&mut self, status: StatusCode, headers: &HeaderMap) {
        if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
            return;
        }
        if self.interim_responses >= self.context.config.limits.interim_responses() {
            self.context.stats.interim_responses_dropped.add(1);
            return;
        }
        self.interim_responses += 1;
        let mut headers = headers.clone();
        remove_connection_fields_of_response(&mut headers);
        headers.remove(http::header::CONTENT_LENGTH);
        match &self.exchange {
            Some(Exchange::Http1(exchange)) => exchange.send_interim(status, &headers),
            Some(Exchange::Http2(exchange)) => exchange.send_interim(status, headers),
            Some(Exchange::Http3(stream, _)) => stream.send_interim(status, headers),
            None => {}
        }
    }

    /// Waits until the client's handshake is complete, at once if it is. Then the request is no
    /// replay, and the client's address is verified: a handler may set
    /// [`Peer::early_data`](crate::Peer::early_data) of its request to false. Returns false if the
    /// client has left or the handshake failed.
    ///
    /// The wait ends with [`Limits::handshake_timeout`](crate::Limits::handshake_timeout).
    pub async fn handshake(&mut self) -> bool {
        let Some(signal) = self.early.clone() else { return true };
        self.context.stats.requests_held.add(1);
        let complete = poll_fn(|cx| match signal.poll_ended(cx) {
            Poll::Ready(complete) => Poll::Ready(complete),
            Poll::Pending => self.poll_closed(cx).map(|()| false),
        })
        .await;
        if complete {
            self.early = None;
        }
        complete
    }

    /// Returns a handle that closes the connection with this response, even after its head was
    /// sent.
    pub fn keep_alive(&self) -> KeepAlive {
        match &self.exchange {
            Some(Exchange::Http1(exchange)) => KeepAlive(Some(exchange.persistence())),
            _ => KeepAlive(None),
        }
    }

    /// Sends the response. A 2xx response to CONNECT, which would mean that a tunnel begins, is
    /// sent as 501. [`Responder::upgrade`] opens a tunnel.
    pub fn send(mut self, response: Response) {
        self.send_now(response);
    }

    /// Accepts the request's [`Request::upgrade`](crate::Request::upgrade) with these `headers`:
    /// 101 over HTTP/1.1, 200 over HTTP/2 and HTTP/3.
    ///
    /// From then on the request's `body` yields what the peer sends, and `outgoing` is sent to it,
    /// both at once. The limits on bodies do not apply: there is no size limit and no timeout,
    /// except that a peer that takes nothing is disconnected. The end of either body is the end of
    /// that direction. An error of `outgoing` aborts the stream, or over HTTP/1.1 the connection.
    /// So does the end of `outgoing` if the request's body was dropped. Data that arrives after the
    /// body was dropped is held back or discarded.
    ///
    /// A request without an upgrade is answered with 500, and one above
    /// [`Limits::open_tunnels`](crate::Limits::open_tunnels) with 503.
    pub fn upgrade(mut self, mut headers: HeaderMap, outgoing: impl Into<Body>) {
        if !self.may_upgrade {
            return self.send_now(Response::new(StatusCode::INTERNAL_SERVER_ERROR));
        }
        let Some(open) = self.context.open_tunnels.add(self.context.config.limits.open_tunnels())
        else {
            self.context.stats.tunnels_refused.add(1);
            let busy = Response::new(StatusCode::SERVICE_UNAVAILABLE);
            return self.send_now(busy.with_header(RETRY_AFTER, HeaderValue::from_static("1")));
        };
        self.context.stats.tunnels_opened.add(1);
        self.asks_for_tunnel = false;
        // The tunnel does not count as a request.
        self.open = Some(open);
        remove_connection_fields_of_response(&mut headers);
        //= RFC 9110 section 9.3.6
        //# A server MUST NOT send any Transfer-Encoding or Content-Length header fields in a 2xx (Successful) response to CONNECT.
        headers.remove(CONTENT_LENGTH);
        if let Some(meter) = self.meter.take() {
            meter.set_tunnel();
        }
        let mut outgoing = outgoing.into();
        outgoing.set_tunnel();
        if let Some(Exchange::Http1(exchange)) = &self.exchange {
            if let Some(open) = self.open.take() {
                outgoing.hold(open);
            }
            exchange.upgrade(headers, outgoing);
            self.exchange = None;
            return;
        }
        let mut response = Response::new(StatusCode::OK).with_body(outgoing);
        response.headers = headers;
        self.send_now(response);
    }

    fn send_now(&mut self, mut response: Response) {
        if self.asks_for_tunnel && response.status.is_success() {
            //= RFC 9110 section 9.3.6
            //# Any 2xx (Successful) response indicates that the sender (and all inbound proxies) will switch to tunnel mode immediately
            //# after the response header section
            // No tunnel was opened. The handler has answered for a resource that the client has not
            // requested.
            response = Response::new(StatusCode::NOT_IMPLEMENTED);
        }
        if self.early.take().is_some() {
            let stats = &self.context.stats;
            let is_refused = response.status == StatusCode::TOO_EARLY;
            let counter =
                if is_refused { &stats.requests_too_early } else { &stats.requests_early };
            counter.add(1);
        }
        if let Some(meter) = self.meter.take() {
            meter.set_answering();
            if let Some(limit) = meter.reached() {
                response = Response::new(limit.status());
            } else if Rc::strong_count(&meter) > 1 {
                // The request's body still exists and may be read further.
                response.body.on_end_first(move || meter.set_answered());
            }
        }
        if let Some(open) = self.open.take() {
            response.body.hold(open);
        }
        match self.exchange.take() {
            Some(Exchange::Http1(exchange)) => exchange.respond(response),
            Some(Exchange::Http2(exchange)) => exchange.respond(response),
            Some(Exchange::Http3(stream, state)) => {
                stream.respond(state.memory.boxed_response(&mut response));
            }
            None => {}
        }
    }

    /// Runs `future` on the worker and sends the response that it returns. If the peer gives up
    /// first, the future is dropped.
    pub fn respond<F: Future<Output = Response> + 'static>(self, future: F) {
        if let Some(Exchange::Http1(exchange)) = &self.exchange {
            let exchange = exchange.clone();
            return exchange.work(self, Box::pin(future));
        }
        // Otherwise the whole future would be moved once more when it is first polled.
        if size_of::<F>() > MOVED_BYTES {
            self.respond_as_it_is(Box::pin(future));
        } else {
            self.respond_as_it_is(future);
        }
    }

    fn respond_as_it_is(mut self, future: impl Future<Output = Response> + 'static) {
        let handle = self.context.handle.clone();
        handle.spawn(async move {
            let mut future = pin!(future);
            let response = std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
                Poll::Ready(response) => Poll::Ready(Some(response)),
                Poll::Pending => self.poll_closed(cx).map(|()| None),
            })
            .await;
            match response {
                Some(response) => self.send_now(response),
                None => self.abandon(),
            }
        });
    }

    /// Like [`Responder::respond`], for a future that is usually ready when it is first polled.
    /// That first poll happens before this returns, so only a future that has to wait becomes a
    /// task, which polls it again.
    ///
    /// If the turn has used up its polls ([`Budget::polls`](crate::Budget::polls)), the first poll
    /// is left to the next turn. Over HTTP/1.1, if a client has sent several requests, a future
    /// that has to wait pauses while the client has not taken the previous response.
    pub fn respond_eagerly(mut self, mut future: impl Future<Output = Response> + Unpin + 'static) {
        if self.context.handle.take_eager_poll() {
            // There is nothing to wake: a future that waits is polled again.
            let mut cx = Context::from_waker(Waker::noop());
            if let Poll::Ready(response) = Pin::new(&mut future).poll(&mut cx) {
                return self.send_now(response);
            }
        }
        self.respond(future);
    }

    /// Ends the exchange without a response. The stream is reset; over HTTP/1.1 the connection is
    /// closed.
    pub fn abort(mut self) {
        self.meter = None;
        self.open = None;
        match self.exchange.take() {
            Some(Exchange::Http1(exchange)) => exchange.abort(),
            Some(Exchange::Http2(exchange)) => exchange.abort(),
            Some(Exchange::Http3(stream, _)) => stream.abort(),
            None => {}
        }
    }

    /// Ends an exchange whose client has left. HTTP/1.1 and HTTP/3 notice that themselves.
    fn abandon(&mut self) {
        if let Some(Exchange::Http2(exchange)) = self.exchange.take() {
            exchange.abandon();
        }
    }

    /// Ready when the peer has given up on the response, so that work for it can stop.
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.exchange {
            Some(Exchange::Http1(exchange)) => exchange.poll_closed(cx),
            Some(Exchange::Http2(exchange)) => exchange.poll_closed(cx),
            Some(Exchange::Http3(stream, _)) => stream.poll_closed(cx),
            None => Poll::Ready(()),
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if self.exchange.is_some() {
            self.send_now(Response::new(StatusCode::INTERNAL_SERVER_ERROR));
        }
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder").finish_non_exhaustive()
    }
}
