//! HTTP/1.1 towards clients, by hyper.

mod chunked;
mod corked;
mod head;
mod shared;
mod tunnel;
mod wire;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Version};
use http_body::{Body as _, Frame, SizeHint};
use hyper::ext::ReasonPhrase;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(crate) use self::chunked::Chunked;
pub(crate) use self::head::Malformed;
pub(crate) use self::shared::Persistence;
use self::shared::{Shared, wake};
use self::wire::Wire;
use crate::admission::{Head, LatestAuthority};
use crate::context::{Context, DRAIN_NOTICE, Notice};
use crate::message::Protocol;
use crate::tcp::{Activity, Connected, Ends, ExchangeGuard, HeadClock, Outcome, Watchdog};
use crate::{Body, BodyError, Incoming, Request, Responder, Response, Upgrade};
pub(crate) use tunnel::{Ended, Tunnel, TunnelEnd, run as run_tunnel};

/// How long a client may go on sending after an answer that came before its request's end.
const LINGER: Duration = Duration::from_secs(5);
/// The same for a client that goes on sending.
const LINGER_IN_ALL: Duration = Duration::from_secs(30);
/// A client that is silent for so long has sent all that it wants to.
const PAUSE: Duration = Duration::from_secs(1);
const LINGER_BUFFER: usize = 16 << 10;
/// From how many bytes on that wait to be written the library takes no more. It reads no more than that ahead, either, so that a head has to fit.
const HELD_BYTES: usize = 64 << 10;
/// What is read with the largest head.
const HEAD_MARGIN: usize = 16 << 10;

/// Lines of a head that the library has room for on its stack. For more, the allocator is asked for as much as the largest head may need, for
/// each head.
const FEW_LINES: u64 = 100;

/// Serves one connection until it ends.
pub(crate) async fn serve<T>(io: T, peer: Connected, alt_svc: Option<HeaderValue>, activity: Rc<Activity>, context: Rc<Context>) -> Outcome
where
    T: AsyncRead + AsyncWrite + Ends + Unpin + 'static,
{
    let granted = Rc::<RefCell<Option<Granted>>>::default();
    let head_bytes = context.config.limits.field_section_bytes() as usize;
    let (wire, shared) = Wire::new(HeadClock::new(io, activity.clone(), context.handle.clone()), head_bytes);
    let service = Requests {
        peer,
        alt_svc,
        activity: activity.clone(),
        wire: shared.clone(),
        granted: granted.clone(),
        latest: RefCell::default(),
        context: context.clone(),
    };
    let mut has_room = context.config.limits.field_lines() <= FEW_LINES;
    shared.set_room(if has_room { usize::MAX } else { FEW_LINES as usize });
    let mut connection = library(&context, has_room).serve_connection(TokioIo::new(wire.handle()), service);
    let mut watchdog = Watchdog::new(activity.clone(), &context);
    let mut shutdown = Notice::new(&context);
    let (mut finishing, mut is_cut_off) = (false, false);
    let outcome = loop {
        let outcome = poll_fn(|cx| {
            shared.begin_poll(context.handle.phase());
            let is_last = activity.has_exchanges() && shutdown.poll_begun(cx).is_ready();
            if !finishing && (is_last || shared.poll_last(cx).is_ready()) {
                finishing = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            // With its shutdown, which is the wire's to make of what it will: without, the library is done before all that it holds is written,
            // where it has stopped reading.
            let mut polled = Pin::new(&mut connection).poll(cx);
            // Now nothing is left to read, and no head has begun, so that no request is lost by it.
            let is_idle = polled.is_pending() && !activity.has_exchanges() && activity.head().is_none();
            if is_idle && !finishing && (activity.is_to_close() || shutdown.poll_after(cx, DRAIN_NOTICE, &context.handle).is_ready()) {
                finishing = true;
                Pin::new(&mut connection).graceful_shutdown();
                polled = Pin::new(&mut connection).poll(cx);
            }
            if shared.begins_to_hold() {
                context.handle.wake_at_end(shared.clone(), cx.waker());
            }
            match polled {
                Poll::Ready(Err(error)) if error.is_parse_too_large() => {
                    count_large_head(&activity, &context);
                    Poll::Ready(Some(Outcome::ProtocolError))
                }
                Poll::Ready(Err(error)) if error.is_parse() => {
                    context.stats.requests_refused.add(1);
                    Poll::Ready(Some(Outcome::ProtocolError))
                }
                Poll::Ready(_) if shared.has_refused() => {
                    context.stats.requests_refused.add(1);
                    Poll::Ready(Some(Outcome::ProtocolError))
                }
                Poll::Ready(Err(error)) if error.is_user() && !gave_up(&error) => {
                    // The application has failed in the middle of an answer, which is no fault of the peer's.
                    is_cut_off = true;
                    Poll::Ready(Some(Outcome::Done))
                }
                // Other errors say that the peer left, in mid-message or between two.
                Poll::Ready(_) => Poll::Ready(Some(Outcome::Done)),
                Poll::Pending if shared.keeps_content() || (shared.wants_room() && !activity.has_exchanges()) => Poll::Ready(None),
                Poll::Pending if activity.has_exchanges() && wire.poll_end(cx).is_ready() => {
                    if shared.is_asked_in(context.handle.turn()) {
                        // Handlers that collect are asked at the end of the turn, and a client that ends with its request still hears the answer.
                        context.handle.defer(cx.waker());
                        return Poll::Pending;
                    }
                    Poll::Ready(Some(Outcome::Done))
                }
                Poll::Pending => {
                    if shared.wants_room() {
                        shared.wait_for_content(cx);
                    }
                    watchdog.poll(cx).map(|()| Some(Outcome::TimedOut))
                }
            }
        })
        .await;
        if let Some(outcome) = outcome {
            break outcome;
        }
        // A connection of the library's has the same room for each head, so another one takes over. It serves the rest.
        let parts = connection.into_parts();
        wire.give_back(&parts.read_buf);
        if !shared.take_over() {
            has_room = true;
            shared.set_room(usize::MAX);
        }
        connection = library(&context, has_room).serve_connection(parts.io, parts.service);
        finishing = false;
    };
    let parts = connection.into_parts();
    drop(parts.io);
    let (mut io, rest, mut corked) = wire.into_parts();
    if !corked.is_empty() {
        // What these answers were held back for does not come any more. A peer that is gone, or takes nothing, misses nothing.
        poll_fn(|cx| if corked.poll_write(&mut io, cx).is_ready() { Poll::Ready(()) } else { watchdog.poll(cx) }).await;
    }
    let Some(granted) = granted.take().filter(|_| outcome == Outcome::Done) else {
        // Whoever has sent what is no request may go on to send its content, and nobody expects that an answer breaks off.
        let rest = if outcome == Outcome::ProtocolError || is_cut_off { Rest::Untold } else { shared.rest() };
        // Boxed, so that a connection that has not come to its end does not take the room for it.
        Box::pin(close(io, rest, &context)).await;
        return outcome;
    };
    // Boxed, so that a connection without one does not take the room for it.
    let outcome = Box::pin(tunnel(&mut io, parts.read_buf, rest, granted, &mut watchdog)).await;
    match outcome {
        Ok(ended) => {
            if ended != Ended::Aborted {
                Box::pin(close(io, if ended == Ended::Unread { Rest::Untold } else { Rest::Nothing }, &context)).await;
            }
            Outcome::Done
        }
        Err(outcome) => outcome,
    }
}

/// `has_room`: for heads of as many lines as may be; otherwise for [`FEW_LINES`].
fn library(context: &Context, has_room: bool) -> http1::Builder {
    let limits = &context.config.limits;
    let mut library = http1::Builder::new();
    // The watchdog's clocks are the connection's, and cost no timer for each request. That a client leaves before it has its answer is seen by
    // `Wire::poll_end`.
    library.header_read_timeout(None).max_header_size(limits.field_section_bytes() as usize).half_close(true);
    library.max_buf_size(HELD_BYTES.max(limits.field_section_bytes() as usize + HEAD_MARGIN));
    if has_room && limits.field_lines() != FEW_LINES {
        library.max_headers(limits.field_lines() as usize);
    }
    library
}

/// Runs the other protocol; `first` and `then` were read already. Requests' time-outs are over: only a peer that takes nothing is given up.
async fn tunnel<T>(io: &mut T, first: Bytes, then: Bytes, granted: Granted, watchdog: &mut Watchdog) -> Result<Ended, Outcome>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let Granted { tunnel, outgoing, guard: _guard } = granted;
    let early = if first.is_empty() { then } else { [first, then].concat().into() };
    let mut running = pin!(run_tunnel(io, early, tunnel, outgoing));
    poll_fn(|cx| match running.as_mut().poll(cx) {
        Poll::Ready(ended) => Poll::Ready(Ok(ended)),
        Poll::Pending => watchdog.poll(cx).map(|()| Err(Outcome::TimedOut)),
    })
    .await
}

fn gave_up(error: &hyper::Error) -> bool {
    std::error::Error::source(error).is_some_and(<dyn std::error::Error>::is::<Aborted>)
}

/// The library has answered 431 or 414 by itself.
fn count_large_head(activity: &Activity, context: &Context) {
    let bytes = activity.head().map_or(0, |(_, bytes)| bytes as u64);
    let too_long = bytes >= context.config.limits.field_section_bytes();
    let counter = if too_long { &context.stats.heads_too_large } else { &context.stats.heads_too_many_lines };
    counter.add(1);
    context.stats.requests_refused.add(1);
}

/// What a peer may still send when its connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    Nothing,
    /// It has no reason to expect that the connection ends.
    Untold,
    /// The last response has said so.
    Told,
}

/// Closes the connection, in stages when the peer may still be sending.
///
/// RFC 9112, section 9.6: closed at once, what arrives then would make the system reset the connection, and the reset may
/// overtake the last response. A peer that knows is left to send what it has begun with before the end of the other direction comes: many read no
/// response before they have sent their request, and some (Python's asyncio over TLS) cannot send any more after that end.
///
/// Where the peer still takes what was written, it is not left before it has all of that.
pub(crate) async fn close<T: AsyncRead + AsyncWrite + Ends + Unpin>(mut io: T, rest: Rest, context: &Context) {
    let handle = &context.handle;
    let is_told = rest == Rest::Told;
    let mut in_all = handle.sleep(if is_told { LINGER_IN_ALL } else { LINGER });
    let mut pause = handle.sleep(PAUSE);
    let mut shutdown = context.shutdown.subscribe();
    let (mut is_half, mut is_shut_down, mut is_over) = (!is_told, false, rest == Rest::Nothing);
    let (mut untaken, mut taken_at) = (u64::MAX, handle.now());
    poll_fn(|cx| {
        if Pin::new(&mut in_all).poll(cx).is_ready() {
            let before = std::mem::replace(&mut untaken, io.untaken());
            if untaken < before {
                taken_at = handle.now();
            }
            // A slow reader's system asks for more when there is room for much.
            if is_half && untaken > 0 && handle.now().saturating_duration_since(taken_at) < LINGER_IN_ALL {
                in_all = handle.sleep(LINGER);
                cx.waker().wake_by_ref();
            } else {
                // Its own direction ends in any case.
                (is_half, is_over) = (true, true);
            }
        }
        if !is_half && (Pin::new(&mut pause).poll(cx).is_ready() || shutdown.poll(cx).is_ready()) {
            is_half = true;
            in_all = handle.sleep(LINGER);
            cx.waker().wake_by_ref();
        }
        loop {
            if is_half && !is_shut_down {
                let ended = Pin::new(&mut io).poll_shutdown(cx);
                // The peer takes no more, or has gone already when this fails.
                if is_over && ended.is_pending() && Pin::new(&mut in_all).poll(cx).is_ready() {
                    return Poll::Ready(());
                }
                is_shut_down = ready!(ended).is_ok();
                is_over |= !is_shut_down;
            }
            if is_over {
                return Poll::Ready(());
            }
            let mut storage = [MaybeUninit::uninit(); LINGER_BUFFER];
            let mut buffer = ReadBuf::uninit(&mut storage);
            let read = ready!(Pin::new(&mut io).poll_read(cx, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                // It has ended, and may wait for the end of the other direction.
                (is_half, is_over) = (true, true);
                continue;
            }
            pause = handle.sleep(PAUSE);
            // One piece a poll, so that a fast sender does not hold the worker.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
    })
    .await;
}

struct Requests {
    peer: Connected,
    alt_svc: Option<HeaderValue>,
    activity: Rc<Activity>,
    wire: Rc<Shared>,
    /// Where an upgrade is left for the connection.
    granted: Rc<RefCell<Option<Granted>>>,
    latest: RefCell<LatestAuthority>,
    context: Rc<Context>,
}

/// An upgrade whose response is on its way.
struct Granted {
    tunnel: TunnelEnd,
    outgoing: Body,
    /// The exchange lasts as long as the tunnel.
    guard: Option<Rc<ExchangeGuard>>,
}

impl Service<hyper::Request<hyper::body::Incoming>> for Requests {
    type Response = hyper::Response<GuardedBody>;
    type Error = Aborted;
    type Future = Answer;

    fn call(&self, request: hyper::Request<hyper::body::Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        self.context.stats.requests_http1.add(1);
        let awaited = self.wire.on_request(self.context.handle.turn());
        let exchange = Rc::new(Http1Exchange::new(head.version, self.wire.clone(), awaited));
        let guard = self.activity.begin_exchange();
        let content = (!body.is_end_stream()).then(|| Http1Server {
            wire: self.wire.clone(),
            number: self.wire.requests.get(),
            guard: guard.clone(),
            has_begun: false,
        });
        let answer = Answer {
            exchange: exchange.clone(),
            method: head.method.clone(),
            alt_svc: self.alt_svc.clone(),
            guard: Some(guard),
            granted: self.granted.clone(),
            context: self.context.clone(),
        };
        let peer = self.peer.now();
        let mut latest = self.latest.borrow_mut();
        let mut head = Head {
            protocol: Protocol::Http1,
            version: head.version,
            secure: peer.secure,
            method: head.method,
            uri: head.uri,
            headers: head.headers,
            upgrade: None,
            latest: latest.named(),
        };
        // RFC 9112, section 3.3: HTTP/1.0 has no need to say whom a request is for, and health checks do not; the connection stands in for it.
        if head.version < Version::HTTP_11 && head.uri.authority().is_none() && !head.headers.contains_key(HOST) {
            let host = self.peer.authority().and_then(|host| HeaderValue::try_from(host).ok());
            head.headers.extend(host.map(|host| (HOST, host)));
        }
        match head.admit_in_place() {
            Ok(_) => {
                let Head { method, uri, headers, upgrade, .. } = head;
                latest.note(&uri, &headers);
                drop(latest);
                let upgrade = upgrade.filter(|_| awaited);
                let body = if let Some(upgrade) = &upgrade {
                    Incoming::tunnel(exchange.offer(upgrade.clone()))
                } else {
                    exchange.decline();
                    content.map_or_else(Incoming::empty, |content| Incoming::http1(body, content))
                };
                let request = Request { method, uri, headers, peer, upgrade, body };
                self.context.dispatch(request, Responder::http1(exchange, &self.context));
            }
            Err(refusal) => {
                self.context.stats.requests_refused.add(1);
                if let Some(content) = content {
                    content.give_up();
                }
                // What is wrong with one head is a reason not to trust where the next one begins.
                exchange.respond(Response::new(refusal.status).with_header(CONNECTION, HeaderValue::from_static("close")));
            }
        }
        answer
    }
}

/// What the content of a request tells its connection, until its end or as long as somebody holds it.
pub(crate) struct Http1Server {
    wire: Rc<Shared>,
    /// The request's, among those of the connection.
    number: u32,
    guard: Rc<ExchangeGuard>,
    /// The handler has read of it, or has tried to.
    has_begun: bool,
}

impl Http1Server {
    /// The handler reads, and perhaps waits for more.
    pub(crate) fn on_read(&mut self, is_waiting: bool) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.wire.begin_content();
        }
        self.guard.set_inbound_waiting(is_waiting);
    }

    /// Whether all of it has come, although the library says otherwise.
    pub(crate) fn is_complete(&self) -> bool {
        self.wire.is_complete(self.number)
    }

    /// Nobody reads on, though it goes on.
    pub(crate) fn give_up(&self) {
        self.wire.give_up_content(self.number);
    }
}

impl Drop for Http1Server {
    fn drop(&mut self) {
        self.guard.set_inbound_waiting(false);
        if self.has_begun {
            self.wire.end_content();
        }
        self.wire.release_content();
    }
}

/// Where the handler leaves its response for the connection.
pub(crate) struct Http1Exchange {
    version: Version,
    wire: Rc<Shared>,
    /// The reader waits for what becomes of the upgrade that the request may ask for.
    awaited: bool,
    response: RefCell<Option<Response>>,
    connection: RefCell<Option<Waker>>,
    closed: Cell<bool>,
    aborted: Cell<bool>,
    handler: RefCell<Option<Waker>>,
    /// What makes the response, if that takes time.
    work: RefCell<Option<Work>>,
    /// Where the request asks for an upgrade, until it is answered.
    offered: RefCell<Option<Box<Offered>>>,
    granted: RefCell<Option<Box<(Offered, Body)>>>,
}

/// A future of the handler. The connection polls it, so that it takes no task of its own, and none has to wake the other.
struct Work {
    /// It holds the exchange; the connection's side takes the work out when it goes.
    responder: Responder,
    response: Pin<Box<dyn Future<Output = Response>>>,
}

/// An upgrade that may be granted.
struct Offered {
    upgrade: Upgrade,
    tunnel: TunnelEnd,
}

impl Http1Exchange {
    fn new(version: Version, wire: Rc<Shared>, awaited: bool) -> Self {
        let (response, connection, closed, aborted, handler, work, offered, granted) = Default::default();
        Self { version, wire, awaited, response, connection, closed, aborted, handler, work, offered, granted }
    }

    /// Sends what `response` comes to, unless the connection ends first.
    pub(crate) fn work(&self, responder: Responder, response: Pin<Box<dyn Future<Output = Response>>>) {
        if self.closed.get() {
            return;
        }
        *self.work.borrow_mut() = Some(Work { responder, response });
        wake(&self.connection);
    }

    fn poll_work(&self, cx: &mut TaskContext<'_>, context: &Context) {
        let mut place = self.work.borrow_mut();
        let Some(Work { response, .. }) = &mut *place else { return };
        // The library goes from one request that has come to the next within one poll of the connection, which is one of the turn's.
        if !self.wire.begin_work() && !context.handle.take_eager_poll() {
            return context.handle.defer(cx.waker());
        }
        let polled = catch_unwind(AssertUnwindSafe(|| response.as_mut().poll(cx)));
        if matches!(polled, Ok(Poll::Pending)) {
            return;
        }
        let done = place.take();
        drop(place);
        match (polled, done) {
            (Ok(Poll::Ready(response)), Some(Work { responder, .. })) => responder.send(response),
            // It is dropped, which answers; other exchanges have nothing to do with that.
            _ => context.stats.handler_panics.add(1),
        }
    }

    pub(crate) fn inform(&self, status: StatusCode, headers: &HeaderMap) {
        //= RFC 9110 section 15.2
        //# Since HTTP/1.0 did not define any 1xx status codes, a server MUST NOT send a 1xx response to an HTTP/1.0 client.
        if self.closed.get() || self.version < Version::HTTP_11 {
            return;
        }
        self.wire.inform(status, headers);
        wake(&self.connection);
    }

    pub(crate) fn persistence(&self) -> Rc<Persistence> {
        self.wire.persistence()
    }

    fn offer(&self, upgrade: Upgrade) -> Rc<Tunnel> {
        let tunnel = TunnelEnd::new();
        let reader = tunnel.reader();
        *self.offered.borrow_mut() = Some(Box::new(Offered { upgrade, tunnel }));
        reader
    }

    /// What follows the request is the next request.
    fn decline(&self) {
        if self.awaited {
            self.wire.decline_upgrade();
            if let Some(offered) = self.offered.take() {
                offered.tunnel.decline();
            }
        }
    }

    /// Grants the upgrade that was asked for.
    pub(crate) fn upgrade(&self, headers: HeaderMap, outgoing: Body) {
        let Some(offered) = self.offered.take() else { return };
        if self.closed.get() {
            return;
        }
        let protocol = HeaderValue::from_str(offered.upgrade.protocol()).expect("invariant: it was the value of a field");
        *self.granted.borrow_mut() = Some(Box::new((*offered, outgoing)));
        let mut response = Response::new(StatusCode::SWITCHING_PROTOCOLS);
        response.headers = headers;
        response.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        response.headers.insert(UPGRADE, protocol);
        *self.response.borrow_mut() = Some(response);
        wake(&self.connection);
    }

    pub(crate) fn respond(&self, response: Response) {
        if self.closed.get() {
            return;
        }
        self.decline();
        *self.response.borrow_mut() = Some(response);
        wake(&self.connection);
    }

    /// Closes the connection instead of an answer.
    pub(crate) fn abort(&self) {
        self.aborted.set(true);
        wake(&self.connection);
    }

    pub(crate) fn poll_closed(&self, cx: &mut TaskContext<'_>) -> Poll<()> {
        if self.closed.get() {
            return Poll::Ready(());
        }
        *self.handler.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// The handler gave up the exchange, and with it the connection.
#[derive(Debug, thiserror::Error)]
#[error("the handler gave up the exchange")]
struct Aborted;

/// The connection's side of an exchange.
struct Answer {
    exchange: Rc<Http1Exchange>,
    method: Method,
    alt_svc: Option<HeaderValue>,
    guard: Option<Rc<ExchangeGuard>>,
    granted: Rc<RefCell<Option<Granted>>>,
    context: Rc<Context>,
}

impl Future for Answer {
    type Output = Result<hyper::Response<GuardedBody>, Aborted>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.exchange.poll_work(cx, &this.context);
        let may_begin = this.exchange.wire.poll_informed(cx).is_ready();
        if may_begin && this.exchange.aborted.get() {
            return Poll::Ready(Err(Aborted));
        }
        let response = if may_begin { this.exchange.response.borrow_mut().take() } else { None };
        let Some(mut response) = response else {
            *this.exchange.connection.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        };
        this.exchange.wire.on_answer();
        if let Some(guard) = &this.guard {
            guard.set_answered();
        }
        let has_trailer = if let Some(granted) = this.exchange.granted.take() {
            let (Offered { tunnel, .. }, outgoing) = *granted;
            *this.granted.borrow_mut() = Some(Granted { tunnel, outgoing, guard: this.guard.take() });
            false
        } else {
            if this.context.shutdown.has_begun() {
                // The connection has not been told that it is the last one, if its request came since.
                response.headers.append(CONNECTION, HeaderValue::from_static("close"));
            }
            let has_trailer = this.context.prepare_for_http1(&this.method, this.alt_svc.as_ref(), &mut response);
            let has_length = response.headers.contains_key(CONTENT_LENGTH) || (response.body.size_hint().exact().is_some() && !has_trailer);
            if this.exchange.version < Version::HTTP_11 && !has_length && !response.body.is_end_stream() {
                // There are no chunks in HTTP/1.0, so that the end of the connection is the end of this content. A client that was promised
                // that the connection stays would wait for the end of the content.
                response.headers.insert(CONNECTION, HeaderValue::from_static("close"));
            } else if this.exchange.wire.must_close() {
                // The library looks for the rest of the content when the head of the answer is written, and would close without a word.
                response.headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            has_trailer
        };
        let body = GuardedBody { body: response.body, is_chunked: has_trailer, context: this.context.clone(), _guard: this.guard.take() };
        let mut answer = hyper::Response::new(body);
        if this.exchange.version < Version::HTTP_11 && response.headers.get(CONNECTION).is_some_and(|options| options == "close") {
            // Else the library adds that the connection is kept, if the client has asked for that.
            *answer.version_mut() = Version::HTTP_10;
        }
        *answer.status_mut() = response.status;
        if response.status.canonical_reason().is_none() {
            answer.extensions_mut().insert(ReasonPhrase::from_static(b""));
        }
        *answer.headers_mut() = response.headers;
        Poll::Ready(Ok(answer))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.exchange.closed.set(true);
        // Dropped where nothing is borrowed, since it holds the exchange.
        let work = self.exchange.work.take();
        drop(work);
        self.exchange.offered.take();
        if self.guard.is_some() {
            self.context.stats.requests_aborted.add(1);
        }
        wake(&self.exchange.handler);
    }
}

/// A response's body that keeps its exchange counted as long as it lasts.
struct GuardedBody {
    body: Body,
    /// Trailers follow, so the length must not be announced even if it is known.
    is_chunked: bool,
    context: Rc<Context>,
    _guard: Option<Rc<ExchangeGuard>>,
}

impl Drop for GuardedBody {
    fn drop(&mut self) {
        if !self.body.is_end_stream() {
            self.context.stats.requests_aborted.add(1);
        }
    }
}

impl http_body::Body for GuardedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(ready!(Pin::new(&mut self.body).poll_frame(cx)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_chunked { SizeHint::default() } else { self.body.size_hint() }
    }
}
