//! HTTP/2 towards clients, by h2.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderValue, Method};
use http_body::Body as _;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::context::Context;
use crate::message::Peer;
use crate::tcp::{Activity, ExchangeGuard, Outcome, Watchdog};
use crate::{Body, Incoming, Request, Responder, Response};

/// Serves one connection until it ends.
pub(crate) async fn serve<T>(io: T, peer: Peer, alt_svc: Option<HeaderValue>, activity: Rc<Activity>, context: Rc<Context>) -> Outcome
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let limits = &context.config.limits;
    let windows = context.windows.promise(limits, &context.stats);
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(limits.concurrent_streams() as u32)
        .initial_window_size(limits.stream_window_bytes() as u32)
        .initial_connection_window_size(windows.receive as u32)
        .max_header_list_size(limits.field_section_bytes() as u32)
        .max_send_buffer_size(windows.send as usize)
        .max_pending_accept_reset_streams(limits.resets_before_accept() as usize)
        .max_local_error_reset_streams(Some(limits.stream_errors() as usize));
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
                    respond,
                    method: request.method().clone(),
                    alt_svc: alt_svc.clone(),
                    guard: activity.begin_exchange(),
                    context: context.clone(),
                };
                dispatch(request, exchange, peer);
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
    let request = Request {
        method: head.method,
        uri: head.uri,
        headers: head.headers,
        peer,
        body: Incoming::http2(body, Some(exchange.guard.clone())),
    };
    context.handler.handle(request, Responder::http2(exchange, context.handle.clone()));
}

fn outcome(error: &h2::Error) -> Outcome {
    if error.is_io() || error.reason() == Some(Reason::NO_ERROR) { Outcome::Done } else { Outcome::ProtocolError }
}

/// A request that waits for its response.
pub(crate) struct Http2Exchange {
    respond: SendResponse<Bytes>,
    method: Method,
    alt_svc: Option<HeaderValue>,
    guard: Rc<ExchangeGuard>,
    context: Rc<Context>,
}

impl Http2Exchange {
    pub(crate) fn respond(mut self, mut response: Response) {
        self.guard.set_answered();
        let has_content = self.context.prepare(&self.method, self.alt_svc.as_ref(), &mut response);
        let mut head = http::Response::new(());
        *head.status_mut() = response.status;
        *head.headers_mut() = response.headers;
        let Ok(stream) = self.respond.send_response(head, !has_content) else {
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
        self.respond.poll_reset(cx).map(drop)
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
