//! Serves one connection, on top of h2.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use h2::Reason;
use http::{HeaderValue, Method};
use pronghorn_h3::Priority;
use tokio::io::{AsyncRead, AsyncWrite};

use super::exchange::{BodyBatch, Http2Exchange, ResponseStream};
use super::field_blocks::CheckedFieldBlocks;
use super::frame_watch::{FrameWatch, WatchedIo};
use super::linger::Http2BodyLink;
use super::send_buffer::{BufferedBytes, SendBuffer};
use crate::admission::{Admitted, AuthorityCache, Head};
use crate::dispatch::Dispatcher;
use crate::handshake_signal::HandshakeSignal;
use crate::http1::{PeerExpectation, close};
use crate::message::{Peer, Protocol};
use crate::schedule::priority_field;
use crate::shutdown::{HANDSHAKE_SHUTDOWN_DELAY, ShutdownNotice};
use crate::tcp::{Activity, Connected, Outcome, PeerEnd, Watchdog};
use crate::window_budget::ReceiveWindow;
use crate::{Incoming, Request, Responder, Response, Upgrade};

/// Serves one connection until it ends.
pub(crate) async fn serve<T>(
    io: T,
    peer: Connected,
    alt_svc: Option<HeaderValue>,
    activity: Rc<Activity>,
    dispatcher: Rc<Dispatcher>,
) -> Outcome
where
    T: AsyncRead + AsyncWrite + PeerEnd + Unpin + 'static,
{
    let context = dispatcher.context.clone();
    let limits = &context.config.limits;
    let windows = context.windows.promise(limits, &context.stats);
    let send_buffer =
        SendBuffer::borrowing(context.windows.send_buffer(limits, context.stats.clone()));
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(limits.concurrent_streams() as u32)
        .initial_window_size(limits.stream_window_bytes() as u32)
        .initial_connection_window_size(windows.receive as u32)
        .max_header_list_size(limits.field_section_bytes() as u32)
        .max_send_buffer_size(send_buffer.max_bytes())
        .enable_connect_protocol()
        .max_pending_accept_reset_streams(limits.resets_before_accept() as usize)
        .max_local_error_reset_streams(Some(limits.stream_errors() as usize));
    let mut watchdog = Watchdog::new(activity.clone(), &context);
    let watch = FrameWatch::new(activity.clone(), send_buffer.clone(), context.clone());
    let mut window = ReceiveWindow::new(context.handle.now(), windows);
    let io = WatchedIo::new(io, watch.clone());
    let mut handshake = pin!(
        builder.handshake::<_, BufferedBytes>(CheckedFieldBlocks::of_client(io.clone(), limits))
    );
    let mut notice = ShutdownNotice::new(&context.shutdown);
    let handshake = poll_fn(|cx| {
        watch.begin_poll();
        match handshake.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => {
                io.poll_send(cx);
                if notice.poll_after(cx, HANDSHAKE_SHUTDOWN_DELAY, &context.handle).is_ready() {
                    return Poll::Ready(None);
                }
                watchdog.poll(cx).map(|()| None)
            }
        }
    })
    .await;
    drop(notice);
    let mut connection = match handshake {
        Some(Ok(connection)) => connection,
        Some(Err(error)) => return outcome(&error),
        None => return Outcome::TimedOut,
    };
    let mut shutdown = context.shutdown.subscribe();
    let mut latest = AuthorityCache::default();
    let mut finishing = false;
    // Whether exchanges were open when the shutdown began.
    let mut was_busy = false;
    let mut at_fault = false;
    let batch = Rc::<BodyBatch>::default();
    let mut end = Outcome::Done;
    loop {
        let ended = poll_fn(|cx| {
            if !finishing && shutdown.poll(cx).is_ready() {
                finishing = true;
                was_busy = activity.has_exchanges();
                connection.graceful_shutdown();
            }
            watch.begin_poll();
            // Before the library returns what was read to the peer's window.
            if let Some(size) = window.shrink(watch.unread(), limits, &context.stats) {
                connection.set_target_window_size(size as u32);
            }
            loop {
                match connection.poll_accept(cx) {
                    Poll::Ready(Some(Ok((request, respond)))) => {
                        // Each call of `poll_accept` writes pending frames. Responses made now
                        // leave together with those to all requests that have arrived.
                        watch.hold_back();
                        watch.on_accepted(respond.stream_id().as_u32());
                        let field = priority_field(request.headers())
                            .map(|value| Priority::from_field(&value));
                        if field.is_some() {
                            watch.on_field(respond.stream_id().as_u32());
                        }
                        let exchange = Http2Exchange(Rc::new(ResponseStream {
                            respond: RefCell::new(respond),
                            is_final: Cell::default(),
                            send_buffer: send_buffer.clone(),
                            field,
                            watch: watch.clone(),
                            batch: batch.clone(),
                            method: request.method().clone(),
                            alt_svc: alt_svc.clone(),
                            guard: activity.begin_exchange(),
                            context: context.clone(),
                        }));
                        dispatch(request, exchange, peer.now(), &mut latest, &dispatcher);
                    }
                    Poll::Ready(last) => {
                        batch.hand_over();
                        return Poll::Ready(ConnectionEnd::Closed(last.and_then(Result::err)));
                    }
                    Poll::Pending => {
                        batch.hand_over();
                        if !watch.let_out() {
                            break;
                        }
                    }
                }
            }
            if activity.is_to_close() && !finishing {
                return Poll::Ready(ConnectionEnd::Idle);
            }
            if let Some(size) = window.on_received(
                context.handle.now(),
                watch.take_received(),
                || peer.rtt(),
                limits,
                &context.stats,
            ) {
                connection.set_target_window_size(size as u32);
            }
            io.poll_send(cx);
            if let Some(code) = watch.fault()
                && !at_fault
            {
                return Poll::Ready(ConnectionEnd::AtFault(code));
            }
            watchdog.poll(cx).map(|()| ConnectionEnd::TimedOut)
        })
        .await;
        match ended {
            ConnectionEnd::Closed(Some(error)) => return outcome(&error),
            ConnectionEnd::Closed(None) => {
                drop(connection);
                if was_busy {
                    // The peer still sends WINDOW_UPDATE frames for what it reads. The kernel
                    // answers those to a closed socket with a reset, and discards what it has not
                    // sent yet.
                    if let Some(io) = io.into_inner() {
                        // Boxed, so that an open connection does not reserve space for it.
                        Box::pin(close(io, PeerExpectation::MoreRequests, &context)).await;
                    }
                }
                return end;
            }
            ConnectionEnd::AtFault(code) => {
                connection.abrupt_shutdown(Reason::from(code));
                (finishing, at_fault, end) = (true, true, Outcome::ProtocolError);
                watchdog.restart();
            }
            ConnectionEnd::Idle => {
                connection.abrupt_shutdown(Reason::NO_ERROR);
                finishing = true;
                watchdog.restart();
            }
            ConnectionEnd::TimedOut if finishing => {
                return if at_fault { end } else { Outcome::TimedOut };
            }
            ConnectionEnd::TimedOut => {
                // RFC 9113, section 6.8: an endpoint that closes a connection SHOULD first send
                // GOAWAY.
                connection.abrupt_shutdown(Reason::NO_ERROR);
                // The peer's reaction decides whether this ends now or at the next timeout.
                finishing = true;
                end = Outcome::TimedOut;
                watchdog.restart();
            }
        }
    }
}

fn dispatch(
    request: http::Request<h2::RecvStream>,
    exchange: Http2Exchange,
    (peer, early): (Peer, Option<Rc<HandshakeSignal>>),
    latest: &mut AuthorityCache,
    dispatcher: &Dispatcher,
) {
    let (mut head, mut body) = request.into_parts();
    let context = dispatcher.context.clone();
    context.stats.requests_http2.add(1);
    let upgrade = if head.method == Method::CONNECT {
        head.extensions.remove::<h2::ext::Protocol>()
    } else {
        None
    };
    let upgrade = upgrade.map(|protocol| Upgrade::new(protocol.as_str()));
    let head = Head {
        protocol: Protocol::Http2,
        version: head.version,
        secure: peer.secure,
        method: head.method,
        uri: head.uri,
        headers: head.headers,
        upgrade,
        latest: latest.named(),
    };
    let mut server = Http2BodyLink {
        guard: exchange.0.guard.clone(),
        context: context.clone(),
        expectation: None,
        watch: exchange.0.watch.clone(),
        stream: body.stream_id().as_u32(),
    };
    if !body.is_end_stream() {
        server.watch.begin_content(server.stream, body.flow_control().used_capacity() as u64);
    }
    match head.admit() {
        Ok(admitted) => {
            latest.note(&admitted.uri, &admitted.headers);
            server.expectation = admitted.expects_continue.then(|| exchange.0.clone());
            let body = Incoming::http2(body, server);
            let Admitted { method, uri, headers, upgrade, .. } = admitted;
            let request = Request { method, uri, headers, peer, upgrade, body };
            let responder = Responder::http2(exchange, &context).with_handshake(early);
            dispatcher.dispatch(request, responder);
        }
        Err(refusal) => {
            context.stats.requests_refused.add(1);
            server.linger(body);
            exchange.respond(Response::new(refusal.status));
        }
    }
}

/// Why a connection ends.
enum ConnectionEnd {
    /// The connection has ended or failed.
    Closed(Option<h2::Error>),
    /// No request is open, and idle connections are to close.
    Idle,
    TimedOut,
    /// The peer is at fault. The connection is to be closed with this code.
    AtFault(u32),
}

fn outcome(error: &h2::Error) -> Outcome {
    if error.is_io() || error.reason() == Some(Reason::NO_ERROR) {
        Outcome::Done
    } else {
        Outcome::ProtocolError
    }
}
