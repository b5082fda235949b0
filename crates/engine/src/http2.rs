//! HTTP/2 towards clients, by h2.

mod linger;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body::Body as _;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::admission::Head;
use crate::context::{Context, remove_connection_fields};
use crate::message::{Peer, Protocol};
use crate::tcp::{Activity, Connected, ExchangeGuard, Outcome, Watchdog};
use crate::{Body, Incoming, Request, Responder, Response};

pub(crate) use linger::Http2Server;

/// Serves one connection until it ends.
pub(crate) async fn serve<T>(io: T, peer: Connected, alt_svc: Option<HeaderValue>, activity: Rc<Activity>, context: Rc<Context>) -> Outcome
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let limits = &context.config.transport;
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(limits.concurrent_streams)
        .initial_window_size(u32::try_from(limits.stream_window_bytes).unwrap_or(u32::MAX / 2))
        .initial_connection_window_size(u32::try_from(limits.connection_window_bytes).unwrap_or(u32::MAX / 2))
        .max_header_list_size(context.config.field_section_bytes)
        .max_send_buffer_size(usize::try_from(limits.send_window_bytes).unwrap_or(usize::MAX));
    let mut watchdog = Watchdog::new(activity.clone(), &context);
    let mut handshake = pin!(builder.handshake::<T, Bytes>(io));
    let handshake = poll_fn(|cx| match handshake.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => watchdog.poll(cx).map(|()| None),
    })
    .await;
    let mut connection = match handshake {
        Some(Ok(connection)) => connection,
        Some(Err(error)) => return outcome(&error),
        None => return Outcome::TimedOut,
    };
    let mut shutdown = context.shutdown.subscribe();
    let mut finishing = false;
    let mut end = Outcome::Done;
    loop {
        let accepted = poll_fn(|cx| {
            if !finishing && shutdown.poll(cx).is_ready() {
                finishing = true;
                connection.graceful_shutdown();
            }
            match connection.poll_accept(cx) {
                Poll::Ready(accepted) => Poll::Ready(Ok(accepted)),
                Poll::Pending => watchdog.poll(cx).map(Err),
            }
        })
        .await;
        match accepted {
            Ok(Some(Ok((request, respond)))) => {
                let exchange = Http2Exchange {
                    answer: Rc::new(Answer { respond: RefCell::new(respond), is_final: Cell::default() }),
                    method: request.method().clone(),
                    alt_svc: alt_svc.clone(),
                    guard: activity.begin_exchange(),
                    context: context.clone(),
                };
                dispatch(request, exchange, peer.now());
            }
            Ok(Some(Err(error))) => return outcome(&error),
            Ok(None) => return end,
            Err(()) if finishing => return Outcome::TimedOut,
            Err(()) => {
                // RFC 9113, section 6.8: an endpoint that closes a connection SHOULD first say GOAWAY.
                connection.abrupt_shutdown(Reason::NO_ERROR);
                // What the peer does with it decides whether this ends now or at the next time-out.
                finishing = true;
                end = Outcome::TimedOut;
                watchdog.restart();
            }
        }
    }
}

fn dispatch(request: http::Request<h2::RecvStream>, exchange: Http2Exchange, peer: Peer) {
    let (head, body) = request.into_parts();
    let context = exchange.context.clone();
    context.stats.requests_http2.add(1);
    let head = Head {
        protocol: Protocol::Http2,
        version: head.version,
        secure: peer.secure,
        method: head.method,
        uri: head.uri,
        headers: head.headers,
    };
    let mut server = Http2Server { guard: exchange.guard.clone(), handle: context.handle.clone(), expectation: None };
    match head.admit() {
        Ok(admitted) => {
            server.expectation = admitted.expects_continue.then(|| exchange.answer.clone());
            let body = Incoming::http2(body, Some(server));
            let request = Request { method: admitted.method, uri: admitted.uri, headers: admitted.headers, peer, body };
            context.dispatch(request, Responder::http2(exchange, &context));
        }
        Err(refusal) => {
            context.stats.requests_refused.add(1);
            server.linger(body);
            exchange.respond(Response::new(refusal.status));
        }
    }
}

fn outcome(error: &h2::Error) -> Outcome {
    if error.is_io() || error.reason() == Some(Reason::NO_ERROR) { Outcome::Done } else { Outcome::ProtocolError }
}

/// The stream of a request on which its responses are sent.
pub(crate) struct Answer {
    respond: RefCell<SendResponse<Bytes>>,
    /// The final response has begun: no interim one may follow.
    is_final: Cell<bool>,
}

impl Answer {
    /// Sends an interim response, unless the final one has been sent.
    pub(crate) fn inform(&self, status: StatusCode, headers: HeaderMap) {
        if self.is_final.get() {
            return;
        }
        let mut head = http::Response::new(());
        *head.status_mut() = status;
        *head.headers_mut() = headers;
        // An error says that the stream is gone, which the final response will meet too.
        let _ = self.respond.borrow_mut().send_informational(head);
    }
}

/// A request that waits for its response.
pub(crate) struct Http2Exchange {
    answer: Rc<Answer>,
    method: Method,
    alt_svc: Option<HeaderValue>,
    guard: Rc<ExchangeGuard>,
    context: Rc<Context>,
}

impl Http2Exchange {
    pub(crate) fn inform(&self, status: StatusCode, headers: HeaderMap) {
        self.answer.inform(status, headers);
    }

    pub(crate) fn respond(self, mut response: Response) {
        self.guard.set_answered();
        self.answer.is_final.set(true);
        let has_content = self.context.prepare(&self.method, self.alt_svc.as_ref(), &mut response);
        // The library sends no response that has one of them.
        remove_connection_fields(&mut response.headers);
        let mut head = http::Response::new(());
        *head.status_mut() = response.status;
        *head.headers_mut() = response.headers;
        let sent = self.answer.respond.borrow_mut().send_response(head, !has_content);
        let Ok(stream) = sent else {
            // The peer has reset the stream, or the connection is gone.
            self.context.stats.requests_aborted.add(1);
            return;
        };
        if has_content {
            self.send_body(stream, response.body);
        }
    }

    fn send_body(self, mut stream: SendStream<Bytes>, mut body: Body) {
        if let Some(bytes) = body.take_full() {
            if stream.send_data(bytes, true).is_err() {
                self.context.stats.requests_aborted.add(1);
            }
            return;
        }
        let context = self.context.clone();
        context.handle.spawn(async move {
            let sent = pump(&mut stream, body, Some(&self.guard)).await;
            if let Err(reason) = sent {
                self.context.stats.requests_aborted.add(1);
                stream.send_reset(reason);
            }
        });
    }

    /// The peer has gone before it was answered.
    pub(crate) fn abandon(self) {
        self.context.stats.requests_aborted.add(1);
    }

    pub(crate) fn poll_closed(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        self.answer.respond.borrow_mut().poll_reset(cx).map(drop)
    }
}

/// Moves a body into a stream at the pace that the peer allows.
///
/// `guard`: told when it is the peer that is waited for.
pub(crate) async fn pump(stream: &mut SendStream<Bytes>, body: Body, guard: Option<&ExchangeGuard>) -> Result<(), Reason> {
    let mut body = pin!(body);
    loop {
        let frame = poll_fn(|cx| {
            if let Poll::Ready(reset) = stream.poll_reset(cx) {
                return Poll::Ready(Err(reset.unwrap_or(Reason::CANCEL)));
            }
            body.as_mut().poll_frame(cx).map(Ok)
        })
        .await?;
        let frame = match frame {
            None => return stream.send_data(Bytes::new(), true).map_err(|_| Reason::CANCEL),
            Some(Err(_)) => return Err(Reason::INTERNAL_ERROR),
            Some(Ok(frame)) => frame,
        };
        match frame.into_data() {
            Ok(mut data) => {
                while !data.is_empty() {
                    stream.reserve_capacity(data.len());
                    let capacity = poll_fn(|cx| {
                        let capacity = poll_capacity(stream, cx);
                        if let Some(guard) = guard {
                            guard.set_outbound_waiting(capacity.is_pending());
                        }
                        capacity
                    })
                    .await?;
                    let chunk = data.split_to(capacity.min(data.len()));
                    let last = data.is_empty() && body.is_end_stream();
                    stream.send_data(chunk, last).map_err(|_| Reason::CANCEL)?;
                    if last {
                        return Ok(());
                    }
                }
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    return stream.send_trailers(trailers).map_err(|_| Reason::CANCEL);
                }
            }
        }
    }
}

fn poll_capacity(stream: &mut SendStream<Bytes>, cx: &mut TaskContext<'_>) -> Poll<Result<usize, Reason>> {
    if let Poll::Ready(reset) = stream.poll_reset(cx) {
        return Poll::Ready(Err(reset.unwrap_or(Reason::CANCEL)));
    }
    loop {
        match ready!(stream.poll_capacity(cx)) {
            Some(Ok(0)) => {}
            Some(Ok(capacity)) => return Poll::Ready(Ok(capacity)),
            Some(Err(_)) | None => return Poll::Ready(Err(Reason::CANCEL)),
        }
    }
}
