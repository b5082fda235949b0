//! HTTP/2 towards clients, by h2.

mod bucket;
mod field_blocks;
mod frames;
mod linger;
mod outbox;
mod signals;
mod watch;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body::Body as _;
use pronghorn_h3::Priority;
use tokio::io::{AsyncRead, AsyncWrite};

use self::watch::{Watch, Watched};
use crate::admission::{Admitted, Head, LatestAuthority};
use crate::body::with_room;
use crate::context::{Context, HANDSHAKE_NOTICE, Notice, remove_connection_fields_of_response};
use crate::http1;
use crate::message::{Peer, Protocol};
use crate::progress::Progress;
use crate::runtime::Sleep;
use crate::schedule::priority_field;
use crate::tcp::{Activity, Connected, Ends, ExchangeGuard, Outcome, Watchdog};
use crate::window_budget::ReceiveWindow;
use crate::{Body, Incoming, Request, Responder, Response, Upgrade};

pub(crate) use field_blocks::Checked;
pub(crate) use linger::Http2Server;
use outbox::SMALL_BYTES;
pub(crate) use outbox::{Held, Outbox, Place};

/// Content of one DATA frame: with the frame's head it fills one record of TLS.
const FRAME_BYTES: usize = (16 << 10) - 9;
/// Room that is asked for before a body is: what it may be given at once.
const ASKED_BYTES: usize = 64 << 10;

/// Serves one connection until it ends.
pub(crate) async fn serve<T>(io: T, peer: Connected, alt_svc: Option<HeaderValue>, activity: Rc<Activity>, context: Rc<Context>) -> Outcome
where
    T: AsyncRead + AsyncWrite + Ends + Unpin + 'static,
{
    let limits = &context.config.limits;
    let windows = context.windows.promise(limits, &context.stats);
    let outbox = Outbox::borrowing(context.windows.outbox(limits, context.stats.clone()));
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(limits.concurrent_streams() as u32)
        .initial_window_size(limits.stream_window_bytes() as u32)
        .initial_connection_window_size(windows.receive as u32)
        .max_header_list_size(limits.field_section_bytes() as u32)
        .max_send_buffer_size(outbox.most())
        .enable_connect_protocol()
        .max_pending_accept_reset_streams(limits.resets_before_accept() as usize)
        .max_local_error_reset_streams(Some(limits.stream_errors() as usize));
    let mut watchdog = Watchdog::new(activity.clone(), &context);
    let watch = Watch::new(activity.clone(), outbox.clone(), context.clone());
    let mut window = ReceiveWindow::new(context.handle.now(), windows);
    let io = Watched::new(io, watch.clone());
    let mut handshake = pin!(builder.handshake::<_, Held>(Checked::of_client(io.clone(), limits)));
    let mut notice = Notice::new(&context);
    let handshake = poll_fn(|cx| {
        watch.begin_poll();
        match handshake.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => {
                io.poll_send(cx);
                if notice.poll_after(cx, HANDSHAKE_NOTICE, &context.handle).is_ready() {
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
    let mut latest = LatestAuthority::default();
    let mut finishing = false;
    // Whether exchanges were open when the shutdown began.
    let mut was_busy = false;
    let mut at_fault = false;
    let batch = Rc::<Batch>::default();
    let mut end = Outcome::Done;
    loop {
        let ended = poll_fn(|cx| {
            if !finishing && shutdown.poll(cx).is_ready() {
                finishing = true;
                was_busy = activity.has_exchanges();
                connection.graceful_shutdown();
            }
            watch.begin_poll();
            loop {
                match connection.poll_accept(cx) {
                    Poll::Ready(Some(Ok((request, respond)))) => {
                        // Each call writes what there is to write. What is answered now leaves with the answers to all that have come.
                        watch.hold_back();
                        watch.on_accepted(respond.stream_id().as_u32());
                        let field = priority_field(request.headers()).map(|value| Priority::from_field(&value));
                        if field.is_some() {
                            watch.on_field(respond.stream_id().as_u32());
                        }
                        let exchange = Http2Exchange(Rc::new(Answer {
                            respond: RefCell::new(respond),
                            is_final: Cell::default(),
                            outbox: outbox.clone(),
                            field,
                            watch: watch.clone(),
                            batch: batch.clone(),
                            method: request.method().clone(),
                            alt_svc: alt_svc.clone(),
                            guard: activity.begin_exchange(),
                            context: context.clone(),
                        }));
                        dispatch(request, exchange, peer.now(), &mut latest);
                    }
                    Poll::Ready(last) => {
                        batch.hand_over();
                        return Poll::Ready(Ended::Closed(last.and_then(Result::err)));
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
                return Poll::Ready(Ended::Idle);
            }
            if let Some(size) = window.on_received(context.handle.now(), watch.take_received(), || peer.rtt(), limits, &context.stats) {
                connection.set_target_window_size(size as u32);
            }
            io.poll_send(cx);
            if let Some(code) = watch.fault()
                && !at_fault
            {
                return Poll::Ready(Ended::AtFault(code));
            }
            watchdog.poll(cx).map(|()| Ended::TimedOut)
        })
        .await;
        match ended {
            Ended::Closed(Some(error)) => return outcome(&error),
            Ended::Closed(None) => {
                drop(connection);
                if was_busy {
                    // The peer still sends WINDOW_UPDATE frames for what it reads. The kernel answers those to a closed socket with a reset, and
                    // discards what it has not sent yet.
                    if let Some(io) = io.into_inner() {
                        // Boxed, so that a connection that has not come to its end does not take the room for it.
                        Box::pin(http1::close(io, http1::Rest::Untold, &context)).await;
                    }
                }
                return end;
            }
            Ended::AtFault(code) => {
                connection.abrupt_shutdown(Reason::from(code));
                (finishing, at_fault, end) = (true, true, Outcome::ProtocolError);
                watchdog.restart();
            }
            Ended::Idle => {
                connection.abrupt_shutdown(Reason::NO_ERROR);
                finishing = true;
                watchdog.restart();
            }
            Ended::TimedOut if finishing => return if at_fault { end } else { Outcome::TimedOut },
            Ended::TimedOut => {
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

fn dispatch(request: http::Request<h2::RecvStream>, exchange: Http2Exchange, peer: Peer, latest: &mut LatestAuthority) {
    let (mut head, body) = request.into_parts();
    let context = exchange.0.context.clone();
    context.stats.requests_http2.add(1);
    let upgrade = if head.method == Method::CONNECT { head.extensions.remove::<h2::ext::Protocol>() } else { None };
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
    let mut server = Http2Server { guard: exchange.0.guard.clone(), context: context.clone(), expectation: None };
    match head.admit() {
        Ok(admitted) => {
            latest.note(&admitted.uri, &admitted.headers);
            server.expectation = admitted.expects_continue.then(|| exchange.0.clone());
            let body = Incoming::http2(body, server);
            let Admitted { method, uri, headers, upgrade, .. } = admitted;
            let request = Request { method, uri, headers, peer, upgrade, body };
            context.dispatch(request, Responder::http2(exchange, &context));
        }
        Err(refusal) => {
            context.stats.requests_refused.add(1);
            server.linger(body);
            exchange.respond(Response::new(refusal.status));
        }
    }
}

/// Why a connection ends.
enum Ended {
    /// It is over, or has failed.
    Closed(Option<h2::Error>),
    /// No request is open, and connections at rest are to close.
    Idle,
    TimedOut,
    /// The peer is, and the connection is to be closed with this code.
    AtFault(u32),
}

fn outcome(error: &h2::Error) -> Outcome {
    if error.is_io() || error.reason() == Some(Reason::NO_ERROR) { Outcome::Done } else { Outcome::ProtocolError }
}

/// The stream of a request on which its responses are sent.
pub(crate) struct Answer {
    respond: RefCell<SendResponse<Held>>,
    /// The final response has begun: no interim one may follow.
    is_final: Cell<bool>,
    outbox: Rc<Outbox>,
    /// What the request says of its priority.
    field: Option<Priority>,
    watch: Rc<Watch>,
    batch: Rc<Batch>,
    method: Method,
    alt_svc: Option<HeaderValue>,
    guard: Rc<ExchangeGuard>,
    context: Rc<Context>,
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
pub(crate) struct Http2Exchange(Rc<Answer>);

impl Http2Exchange {
    pub(crate) fn inform(&self, status: StatusCode, headers: HeaderMap) {
        self.0.inform(status, headers);
    }

    pub(crate) fn respond(self, mut response: Response) {
        let Answer { respond, is_final, method, alt_svc, guard, context, .. } = &*self.0;
        guard.set_answered();
        is_final.set(true);
        let has_content = context.prepare(method, alt_svc.as_ref(), &mut response);
        // The library sends no response that has one of them.
        remove_connection_fields_of_response(&mut response.headers);
        let may_wait = response.body.full_size().is_none_or(|size| size > SMALL_BYTES);
        let said = if has_content && may_wait { priority_field(&response.headers) } else { None };
        let mut head = http::Response::new(());
        *head.status_mut() = response.status;
        *head.headers_mut() = response.headers;
        let sent = respond.borrow_mut().send_response(head, !has_content);
        let Ok(stream) = sent else {
            // The peer has reset the stream, or the connection is gone.
            context.stats.requests_aborted.add(1);
            return;
        };
        if has_content {
            self.send_body(stream, response.body, said);
        }
    }

    /// `said`: what the response says of its priority.
    fn send_body(self, stream: SendStream<Held>, body: Body, said: Option<Bytes>) {
        let Answer { watch, batch, .. } = &*self.0;
        if body.full_size().is_some_and(|size| size > SMALL_BYTES) && watch.is_holding_back() {
            let batch = batch.clone();
            batch.0.borrow_mut().push(Content { exchange: self, stream, body, said });
        } else {
            self.hand_over(stream, body, said);
        }
    }

    /// The priority of the response. `said`: what it says of that itself.
    fn priority(&self, stream: u32, said: Option<&Bytes>) -> Priority {
        let Answer { watch, field, .. } = &*self.0;
        let asked = watch.priority(stream, *field);
        said.map_or(asked, |said| asked.overridden_by(said))
    }

    fn hand_over(self, mut stream: SendStream<Held>, mut body: Body, said: Option<Bytes>) {
        let Answer { outbox, context, .. } = &*self.0;
        let id = stream.stream_id().as_u32();
        // At once if it fits into the windows; otherwise it waits outside of the library, which would hold it as long as it takes.
        if let Some(size) = body.full_size() {
            stream.reserve_capacity(size);
            if stream.capacity().min(outbox.room_for(size, || self.priority(id, said.as_ref()))) >= size
                && let Some(bytes) = body.take_full()
            {
                if send_data(&mut stream, outbox, bytes, true).is_err() {
                    context.stats.requests_aborted.add(1);
                }
                return;
            }
        }
        let place = outbox.place(id, self.priority(id, None), said, body.is_tunnel());
        let handle = context.handle.clone();
        handle.spawn(async move {
            let Answer { guard, context, .. } = &*self.0;
            if let Err(reason) = pump(&mut stream, body, &place, Some((guard, context))).await {
                context.stats.requests_aborted.add(1);
                stream.send_reset(reason);
            }
        });
    }

    /// Resets the stream instead of an answer.
    pub(crate) fn abort(self) {
        self.0.is_final.set(true);
        self.0.respond.borrow_mut().send_reset(Reason::INTERNAL_ERROR);
        self.0.context.stats.requests_aborted.add(1);
    }

    /// The peer has gone before it was answered.
    pub(crate) fn abandon(self) {
        self.0.context.stats.requests_aborted.add(1);
    }

    pub(crate) fn poll_closed(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        self.0.respond.borrow_mut().poll_reset(cx).map(drop)
    }
}

/// Content of the responses to requests that came together. It is handed over once all of them were dispatched, the most urgent first.
#[derive(Default)]
struct Batch(RefCell<Vec<Content>>);

struct Content {
    exchange: Http2Exchange,
    stream: SendStream<Held>,
    body: Body,
    said: Option<Bytes>,
}

impl Batch {
    fn hand_over(&self) {
        let mut all = self.0.take();
        if all.len() > 1 {
            // Stable: what is equally urgent goes in the order of the requests.
            all.sort_by_key(|content| {
                let id = content.stream.stream_id().as_u32();
                content.exchange.priority(id, content.said.as_ref()).urgency
            });
        }
        for Content { exchange, stream, body, said } in all.drain(..) {
            exchange.hand_over(stream, body, said);
        }
        // Its memory serves the next ones, unless they have come meanwhile.
        if self.0.borrow().is_empty() {
            self.0.replace(all);
        }
    }
}

/// Moves a body into a stream at the pace that the peer allows.
///
/// `server`: where the body is a response's; its guard is told when it is the peer that is waited for, which may not take for ever.
pub(crate) async fn pump(
    stream: &mut SendStream<Held>,
    body: Body,
    place: &Place,
    server: Option<(&ExchangeGuard, &Context)>,
) -> Result<(), Reason> {
    let outbox = place.outbox();
    // RFC 8441, section 5: what resets a TCP connection is CANCEL here.
    let broken = if body.is_tunnel() { Reason::CANCEL } else { Reason::INTERNAL_ERROR };
    let on_panic = ResetOnPanic(stream, broken);
    let stream = &mut *on_panic.0;
    let mut body = pin!(body);
    let mut patience = server.map(|(_, context)| Patience::new(context));
    loop {
        // What is asked for before there is room for it would be held by every stream. Where the body may end without more content, only it
        // can say so.
        let certain = body.size_hint().exact().map_or(0, |left| usize::try_from(left).unwrap_or(usize::MAX));
        let mut room = None;
        if certain > 0 {
            let most = certain.min(ASKED_BYTES);
            let turn = poll_fn(|cx| poll_turn(stream, &body, place, most, server, &mut patience, broken, cx)).await?;
            // Whole frames, but for the last one.
            room = Some(if turn < certain && turn > FRAME_BYTES { turn - turn % FRAME_BYTES } else { turn });
        }
        let frame = poll_fn(|cx| {
            if let Poll::Ready(reset) = stream.poll_reset(cx) {
                return Poll::Ready(Err(reset.unwrap_or(Reason::CANCEL)));
            }
            let polled = with_room(room.unwrap_or(usize::MAX), || body.as_mut().poll_frame(cx));
            if polled.is_pending() && room.take().is_some() {
                // Others have a use for the window meanwhile.
                stream.reserve_capacity(0);
            }
            polled.map(Ok)
        })
        .await?;
        let frame = match frame {
            None => return send_data(stream, outbox, Bytes::new(), true),
            Some(Err(_)) => return Err(broken),
            Some(Ok(frame)) => frame,
        };
        match frame.into_data() {
            Ok(mut data) => {
                while !data.is_empty() {
                    let most = data.len();
                    // What was given for the body to fill is still there.
                    let capacity = match room.take() {
                        Some(room) => room,
                        None => poll_fn(|cx| poll_turn(stream, &body, place, most, server, &mut patience, broken, cx)).await?,
                    };
                    let mut size = capacity.min(data.len());
                    if size < data.len() && size > FRAME_BYTES {
                        // The rest goes with what follows it.
                        size -= size % FRAME_BYTES;
                    }
                    let chunk = data.split_to(size);
                    if let Some(patience) = &mut patience {
                        patience.on_moved(chunk.len());
                    }
                    let last = data.is_empty() && body.is_end_stream();
                    send_data(stream, outbox, chunk, last)?;
                    if last {
                        return Ok(());
                    }
                }
                if let Some(patience) = &mut patience {
                    patience.progress.on_done();
                }
            }
            Err(frame) => {
                if let Ok(mut trailers) = frame.into_trailers() {
                    remove_connection_fields_of_response(&mut trailers);
                    if trailers.is_empty() {
                        return send_data(stream, outbox, Bytes::new(), true);
                    }
                    return stream.send_trailers(trailers).map_err(|_| Reason::CANCEL);
                }
            }
        }
    }
}

/// Ends a message whose body panics as one whose body fails. The library would say that nobody is interested any more (CANCEL).
struct ResetOnPanic<'a>(&'a mut SendStream<Held>, Reason);

impl Drop for ResetOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.send_reset(self.1);
        }
    }
}

/// How many bytes may be sent now, and whether the peer was waited for too long.
#[expect(clippy::too_many_arguments, reason = "they are the parts of one pump")]
fn poll_turn(
    stream: &mut SendStream<Held>,
    body: &Body,
    place: &Place,
    most: usize,
    server: Option<(&ExchangeGuard, &Context)>,
    patience: &mut Option<Patience<'_>>,
    broken: Reason,
    cx: &mut TaskContext<'_>,
) -> Poll<Result<usize, Reason>> {
    if body.poll_cut(cx).is_ready() {
        return Poll::Ready(Err(broken));
    }
    let capacity = poll_capacity(stream, place, most, cx);
    if let Some((guard, _)) = server {
        guard.set_outbound_waiting(capacity.is_pending());
    }
    match (&capacity, patience) {
        (Poll::Pending, Some(patience)) => {
            // Others go first, as long as something goes: the peer has its time for that.
            let progress = place.progress();
            if std::mem::replace(&mut patience.progressed, progress) != progress {
                patience.rest();
            }
            patience.poll(cx).map(|()| Err(Reason::CANCEL))
        }
        _ => capacity,
    }
}

/// Gives `data` to the library, in frames that go well with TLS. `last`: nothing follows.
fn send_data(stream: &mut SendStream<Held>, outbox: &Rc<Outbox>, mut data: Bytes, last: bool) -> Result<(), Reason> {
    let id = stream.stream_id().as_u32();
    loop {
        let frame = data.split_to(data.len().min(FRAME_BYTES));
        stream.send_data(outbox.hold(id, frame), last && data.is_empty()).map_err(|_| Reason::CANCEL)?;
        if data.is_empty() {
            return Ok(());
        }
    }
}

/// How long a peer may open no window for a response.
struct Patience<'a> {
    progress: Progress,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Since the last bytes, something was waited for.
    waits: bool,
    /// [`Place::progress`] when that was looked at.
    progressed: u64,
    context: &'a Context,
}

impl<'a> Patience<'a> {
    fn new(context: &'a Context) -> Self {
        Self { progress: Progress::new(&context.config.limits), sleep: None, waits: false, progressed: 0, context }
    }

    fn on_moved(&mut self, bytes: usize) {
        self.progress.on_moved(bytes);
        self.sleep = None;
        self.waits = false;
    }

    /// Something else than the peer's window is waited for.
    fn rest(&mut self) {
        self.progress.on_done();
        self.sleep = None;
        self.note_wait();
    }

    fn note_wait(&mut self) {
        if !std::mem::replace(&mut self.waits, true) {
            self.context.stats.send_window_waits.add(1);
        }
    }

    fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        self.note_wait();
        let handle = &self.context.handle;
        self.progress.on_blocked(handle.now());
        let deadline = self.progress.deadline().expect("invariant: it is blocked");
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(handle.timers().sleep_until(deadline)));
        ready!(sleep.as_mut().poll(cx));
        self.progress.count(&self.context.stats);
        Poll::Ready(())
    }
}

/// How many bytes may be sent now, of `most`: what the windows allow, and what the connection may hold. Only the stream whose turn it is asks for the
/// connection's window, because the library gives that to the stream that asks first.
fn poll_capacity(stream: &mut SendStream<Held>, place: &Place, most: usize, cx: &mut TaskContext<'_>) -> Poll<Result<usize, Reason>> {
    if let Poll::Ready(reset) = stream.poll_reset(cx) {
        return Poll::Ready(Err(reset.unwrap_or(Reason::CANCEL)));
    }
    let wanted = most.min(FRAME_BYTES);
    if place.is_blocked() {
        ready!(poll_window(stream, cx))?;
        place.unblock();
    }
    let Poll::Ready(room) = place.poll_turn(wanted, cx) else {
        stream.reserve_capacity(0);
        return Poll::Pending;
    };
    stream.reserve_capacity(most.min(room));
    match poll_window(stream, cx) {
        Poll::Ready(window) => {
            window?;
            place.take();
            Poll::Ready(Ok(stream.capacity().min(room)))
        }
        Poll::Pending if place.has_credit() => {
            stream.reserve_capacity(wanted);
            place.block();
            Poll::Pending
        }
        Poll::Pending => {
            place.keep(wanted, cx);
            Poll::Pending
        }
    }
}

/// Ready when the peer's windows let something through.
fn poll_window(stream: &mut SendStream<Held>, cx: &mut TaskContext<'_>) -> Poll<Result<(), Reason>> {
    // The library tells only of capacity that is new; what was left because there was no room is not.
    while stream.capacity() == 0 {
        if !matches!(ready!(stream.poll_capacity(cx)), Some(Ok(_))) {
            return Poll::Ready(Err(Reason::CANCEL));
        }
    }
    Poll::Ready(Ok(()))
}
