//! What answers requests.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use http::header::{CONTENT_LENGTH, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::context::Context as WorkerContext;
use crate::dispatch::Counted;
use crate::http1::{Http1Exchange, Persistence};
use crate::http2::Http2Exchange;
use crate::http3::Stream;
use crate::meter::Meter;
use crate::runtime::Handle;
use crate::{Body, Request, Response, Worker};

/// A future of more bytes has an allocation of its own, in which it stays.
const MOVED_BYTES: usize = 256;

/// Answers the requests of a worker, on the worker's thread.
///
/// An answer that is at hand is given at once through the [`Responder`] and costs no future. What takes time goes into
/// [`Responder::respond`], or the responder is kept and used later. What would block goes to another thread.
pub trait Handler: 'static {
    /// Called by [`Workers`](crate::Workers) before the worker listens, inside of its runtime: for what the handler needs of the worker,
    /// such as a [`Connector`](crate::Connector).
    ///
    /// # Errors
    ///
    /// What keeps the handler from answering; the workers then end with it.
    fn start(&self, worker: &mut Worker) -> io::Result<()> {
        let _ = worker;
        Ok(())
    }

    /// Called for each request once its head is there.
    fn handle(&self, request: Request, responder: Responder);

    /// Called when the requests that are there have been given, or some of many, and before anything is sent. A handler for which it is
    /// dear to begin collects them until then; what is answered here leaves with the same turn.
    fn settle(&self) {}

    /// Called when a client has opened a connection, before its handshake.
    fn on_opened(&self, remote: SocketAddr) {
        let _ = remote;
    }

    /// Called when a connection has ended.
    fn on_closed(&self, remote: SocketAddr) {
        let _ = remote;
    }
}

impl<F: Fn(Request, Responder) + 'static> Handler for F {
    fn handle(&self, request: Request, responder: Responder) {
        self(request, responder);
    }
}

/// Whether a connection over HTTP/1.1 goes on after a response.
#[derive(Clone)]
pub struct KeepAlive(Option<Rc<Persistence>>);

impl KeepAlive {
    /// Closes the connection when the response is complete, as `connection: close` does in a head. HTTP/2 and HTTP/3 have no such thing.
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

/// Sends the response of one request. Dropped unused, it answers 500; so a handler that panics does.
pub struct Responder {
    exchange: Option<Exchange>,
    context: Rc<WorkerContext>,
    interim_responses: u64,
    open: Option<Counted>,
    /// Of the request's content, if it has any.
    meter: Option<Rc<Meter>>,
    /// The request asks for another protocol.
    may_upgrade: bool,
    /// To the client any success says that a tunnel begins.
    asks_for_tunnel: bool,
}

enum Exchange {
    Http1(Rc<Http1Exchange>),
    Http2(Http2Exchange),
    Http3(Rc<Stream>),
}

impl Responder {
    pub(crate) fn http1(exchange: Rc<Http1Exchange>, context: &Rc<WorkerContext>) -> Self {
        Self::new(Exchange::Http1(exchange), context)
    }

    pub(crate) fn http2(exchange: Http2Exchange, context: &Rc<WorkerContext>) -> Self {
        Self::new(Exchange::Http2(exchange), context)
    }

    pub(crate) fn http3(stream: Rc<Stream>, context: &Rc<WorkerContext>) -> Self {
        Self::new(Exchange::Http3(stream), context)
    }

    fn new(exchange: Exchange, context: &Rc<WorkerContext>) -> Self {
        Self {
            exchange: Some(exchange),
            context: context.clone(),
            interim_responses: 0,
            open: None,
            meter: None,
            may_upgrade: false,
            asks_for_tunnel: false,
        }
    }

    /// Keeps `open` as long as the response lasts, and answers what `meter` says if the content was cut off.
    /// `may_upgrade`: whether the request asks for another protocol. `is_connect`: whether its method is CONNECT.
    pub(crate) fn accompany(&mut self, open: Counted, meter: Option<Rc<Meter>>, may_upgrade: bool, is_connect: bool) {
        (self.may_upgrade, self.asks_for_tunnel) = (may_upgrade, is_connect);
        self.open = Some(open);
        self.meter = meter;
    }

    pub(crate) fn context(&self) -> &Rc<WorkerContext> {
        &self.context
    }

    /// The worker that the request is on.
    pub fn handle(&self) -> &Handle {
        &self.context.handle
    }

    /// Sends an interim response, such as 103 (Early Hints) with `link` fields; the final one follows by [`Responder::send`] or
    /// [`Responder::respond`].
    ///
    /// Nothing is sent for a status that is not interim, for 101, which HTTP/2 and 3 do not have, to HTTP/1.0 clients, and beyond
    /// [`crate::Limits::interim_responses`]. 100 (Continue) needs no call: it is sent when the content of a request that waits for it is first read.
    pub fn inform(&mut self, status: StatusCode, headers: &HeaderMap) {
        if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
            return;
        }
        if self.interim_responses >= self.context.config.limits.interim_responses() {
            self.context.stats.interim_responses_dropped.add(1);
            return;
        }
        self.interim_responses += 1;
        let mut headers = headers.clone();
        crate::context::remove_connection_fields_of_response(&mut headers);
        headers.remove(http::header::CONTENT_LENGTH);
        match &self.exchange {
            Some(Exchange::Http1(exchange)) => exchange.inform(status, &headers),
            Some(Exchange::Http2(exchange)) => exchange.inform(status, headers),
            Some(Exchange::Http3(stream)) => stream.inform(status, headers),
            None => {}
        }
    }

    /// What ends the connection with this response also when its head has gone.
    pub fn keep_alive(&self) -> KeepAlive {
        match &self.exchange {
            Some(Exchange::Http1(exchange)) => KeepAlive(Some(exchange.persistence())),
            _ => KeepAlive(None),
        }
    }

    /// Sends the response. A success in answer to CONNECT, which would say that a tunnel begins, is sent as 501: [`Responder::upgrade`] grants one.
    pub fn send(mut self, response: Response) {
        self.send_now(response);
    }

    /// Grants what [`Request::upgrade`] asks for: 101 over HTTP/1.1, 200 over HTTP/2 and HTTP/3, with these `headers`.
    ///
    /// From here on the request's `body` brings what the peer sends, and `outgoing` is what is sent, in both directions at once and without
    /// the limits of content: neither a time-out nor a size applies, other than that a peer that takes nothing is given up. The end of either
    /// body is the end of that direction. An error of `outgoing` ends the stream, or over HTTP/1.1 the connection, in the middle; so does the
    /// end of `outgoing` when the request's body was dropped. What comes after the body was dropped is held back or forgotten.
    ///
    /// Answered instead are a request that asks for nothing with 500, and with 503 one above [`crate::Limits::open_tunnels`].
    pub fn upgrade(mut self, mut headers: HeaderMap, outgoing: impl Into<Body>) {
        if !self.may_upgrade {
            return self.send_now(Response::new(StatusCode::INTERNAL_SERVER_ERROR));
        }
        let Some(open) = self.context.open_tunnels.add(self.context.config.limits.open_tunnels()) else {
            self.context.stats.tunnels_refused.add(1);
            let busy = Response::new(StatusCode::SERVICE_UNAVAILABLE);
            return self.send_now(busy.with_header(RETRY_AFTER, HeaderValue::from_static("1")));
        };
        self.context.stats.tunnels_opened.add(1);
        self.asks_for_tunnel = false;
        // It does not count as a request any more.
        self.open = Some(open);
        crate::context::remove_connection_fields_of_response(&mut headers);
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
            // None was granted. What the handler has answered is about a resource that nobody has asked for.
            response = Response::new(StatusCode::NOT_IMPLEMENTED);
        }
        if let Some(meter) = self.meter.take() {
            meter.set_answering();
            if let Some(limit) = meter.reached() {
                response = Response::new(limit.status());
            } else if Rc::strong_count(&meter) > 1 {
                // Somebody has the request's content, and may read on.
                response.body.when_over(move || meter.set_answered());
            }
        }
        if let Some(open) = self.open.take() {
            response.body.hold(open);
        }
        match self.exchange.take() {
            Some(Exchange::Http1(exchange)) => exchange.respond(response),
            Some(Exchange::Http2(exchange)) => exchange.respond(response),
            Some(Exchange::Http3(stream)) => stream.respond(self.context.spares.place(&mut response)),
            None => {}
        }
    }

    /// Runs `future` on the worker and sends what it returns. When the peer gives up first, the future is dropped.
    pub fn respond<F: Future<Output = Response> + 'static>(self, future: F) {
        if let Some(Exchange::Http1(exchange)) = &self.exchange {
            let exchange = exchange.clone();
            return exchange.work(self, Box::pin(future));
        }
        // Otherwise it would be moved as a whole once more when it is first polled.
        if size_of::<F>() > MOVED_BYTES { self.respond_as_it_is(Box::pin(future)) } else { self.respond_as_it_is(future) }
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

    /// The same for a future that is mostly ready when it is first polled. That is done before this returns, so that only one that has to
    /// wait becomes a task, which polls it anew.
    ///
    /// A turn that has done its share ([`Budget::polls`](crate::Budget::polls)) leaves the first poll to the next one. Over HTTP/1.1 what
    /// has to wait rests while a client that has sent several requests has not taken the response before.
    pub fn respond_eagerly(mut self, mut future: impl Future<Output = Response> + Unpin + 'static) {
        if self.context.handle.take_eager_poll() {
            // Nobody is to be woken: one that waits is polled again.
            let mut cx = Context::from_waker(Waker::noop());
            if let Poll::Ready(response) = Pin::new(&mut future).poll(&mut cx) {
                return self.send_now(response);
            }
        }
        self.respond(future);
    }

    /// Ends the exchange without a response: the stream is reset, over HTTP/1.1 the connection is closed.
    pub fn abort(mut self) {
        self.meter = None;
        self.open = None;
        match self.exchange.take() {
            Some(Exchange::Http1(exchange)) => exchange.abort(),
            Some(Exchange::Http2(exchange)) => exchange.abort(),
            Some(Exchange::Http3(stream)) => stream.abort(),
            None => {}
        }
    }

    /// There is nobody to answer. HTTP/1.1 and HTTP/3 have noticed that themselves.
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
            Some(Exchange::Http3(stream)) => stream.poll_closed(cx),
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
