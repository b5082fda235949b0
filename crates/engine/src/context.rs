//! What every connection of a worker shares.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker, ready};
use std::time::{Duration, Instant, SystemTime};

use bytes::BytesMut;
use http::header::{ALT_SVC, CONTENT_LENGTH, DATE, SERVER, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body::Body as _;
use rand::SeedableRng;
use rand::rngs::StdRng;
use slab::Slab;

use crate::config::EarlyData;
use crate::dispatch::Gauge;
use crate::http3::Spares;
use crate::runtime::{Handle, Sleep};
use crate::seats::Seats;
use crate::shared_fields::{Present, announced};
use crate::stats::Stats;
use crate::tcp::Activity;
use crate::window_budget::WindowBudget;
use crate::{Config, Handler, Request, Responder, Response};

pub(crate) struct Context {
    pub(crate) handle: Handle,
    pub(crate) config: Config,
    pub(crate) handler: Rc<dyn Handler>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) shutdown: Rc<Shutdown>,
    pub(crate) seats: Arc<Seats>,
    pub(crate) windows: Rc<WindowBudget>,
    /// Requests that have not been answered to their end.
    pub(crate) open_requests: Gauge,
    /// Upgrades that were granted and go on.
    pub(crate) open_tunnels: Gauge,
    /// Heads over HTTP/3 that are not complete.
    pub(crate) partial_heads: Gauge,
    /// Connections over TCP, each with the key of its task.
    pub(crate) tcp_connections: RefCell<Slab<(Rc<Activity>, usize)>>,
    /// Where connections draw their random numbers; a simulation puts its own here.
    pub(crate) rng: RefCell<StdRng>,
    /// Memory in which heads over HTTP/3 are encoded, a piece for each. A piece that waits for its peer keeps all of the
    /// [`ENCODED_BYTES`] that it is cut from.
    pub(crate) encoded: RefCell<BytesMut>,
    pub(crate) spares: Spares,
    pub(crate) date: Date,
}

/// Enough for some tens of heads.
const ENCODED_BYTES: usize = 4 << 10;

/// What a response needs besides the lines that its handler gave it.
pub(crate) struct Added<'a> {
    pub(crate) alt_svc: Option<&'a HeaderValue>,
    pub(crate) server: Option<&'a HeaderValue>,
    pub(crate) date: Option<Rc<HeaderValue>>,
    pub(crate) content_length: Option<u64>,
    /// Content may follow.
    pub(crate) has_content: bool,
    /// The handler gave a line with a priority (RFC 9218).
    pub(crate) has_priority: bool,
    /// It announced trailers.
    has_trailer: bool,
}

impl Added<'_> {
    fn insert_into(self, headers: &mut HeaderMap) {
        let Added { alt_svc, server, date, content_length, .. } = self;
        let mut digits = itoa::Buffer::new();
        let length =
            content_length.map(|length| HeaderValue::from_str(digits.format(length)).expect("invariant: digits are visible ASCII"));
        for (name, value) in
            [(SERVER, server.cloned()), (ALT_SVC, alt_svc.cloned()), (DATE, date.map(Rc::unwrap_or_clone)), (CONTENT_LENGTH, length)]
        {
            if let Some(value) = value {
                headers.insert(name, value);
            }
        }
    }
}

impl Context {
    pub(crate) fn new(handle: Handle, config: Config, handler: Rc<dyn Handler>, stats: Arc<Stats>, seats: Arc<Seats>) -> Rc<Self> {
        let date = Date::new(handle.now());
        let open_requests = Gauge::shown(&stats, |stats| &stats.requests_open);
        let open_tunnels = Gauge::shown(&stats, |stats| &stats.tunnels_open);
        let rng = RefCell::new(StdRng::from_rng(&mut rand::rng()));
        Rc::new(Self {
            handle,
            config,
            handler,
            stats,
            shutdown: Rc::default(),
            seats,
            windows: Rc::default(),
            open_requests,
            open_tunnels,
            partial_heads: Gauge::default(),
            tcp_connections: RefCell::default(),
            rng,
            encoded: RefCell::new(BytesMut::with_capacity(ENCODED_BYTES)),
            spares: Spares::default(),
            date,
        })
    }

    /// Gives a request to the handler, unless it came too early. When that panics, the request is answered 500 and the worker goes on.
    pub(crate) fn give(&self, request: Request, responder: Responder) {
        if self.is_too_early(&request) {
            // The content goes unread.
            return responder.send(Response::new(StatusCode::TOO_EARLY));
        }
        // The handler may leave its own state half changed; that is for it to know. What it got from here is dropped, which answers.
        let handled = catch_unwind(AssertUnwindSafe(|| self.handler.handle(request, responder)));
        if handled.is_err() {
            self.stats.handler_panics.add(1);
        }
    }

    /// Whether a request must not be answered before the handshake is done; counts those that came before it.
    fn is_too_early(&self, request: &Request) -> bool {
        if !request.peer.early_data {
            return false;
        }
        //= RFC 9114 section 10.9
        //# The anti-replay mitigations in [HTTP-REPLAY] MUST be applied when using HTTP/3 with 0-RTT.
        // What comes through a tunnel is sent again with the request.
        let is_safe = request.method.is_safe() && request.upgrade.is_none();
        let refused = self.config.early_data != EarlyData::All && !is_safe;
        let counter = if refused { &self.stats.requests_too_early } else { &self.stats.requests_early };
        counter.add(1);
        refused
    }

    /// Completes a response's head, drops content that must not be sent, and holds the rest to its announced length.
    ///
    /// Returns whether content may follow.
    pub(crate) fn prepare(&self, method: &Method, alt_svc: Option<&HeaderValue>, response: &mut Response) -> bool {
        response.fields_mut();
        let added = self.complete(method, alt_svc, response);
        let has_content = added.has_content;
        added.insert_into(&mut response.headers);
        has_content
    }

    /// The same for HTTP/1.1, whose library writes the date, and the length of content that there is, straight into its buffer.
    ///
    /// Returns whether trailers are announced.
    pub(crate) fn prepare_for_http1(&self, method: &Method, alt_svc: Option<&HeaderValue>, response: &mut Response) -> bool {
        response.fields_mut();
        let mut added = self.complete(method, alt_svc, response);
        added.date = None;
        added.content_length = added.content_length.filter(|_| !added.has_content);
        let (has_trailer, has_content) = (added.has_trailer, added.has_content);
        added.insert_into(&mut response.headers);
        if has_trailer && has_content {
            // Content of an announced length has no place for trailers, as over HTTP/2 and HTTP/3. It is held to that length all the same.
            response.headers.remove(CONTENT_LENGTH);
        }
        has_trailer
    }

    /// The same, with the missing lines in what it returns. Shared lines stay shared if they are all there is and none of them has to go.
    pub(crate) fn complete<'a>(&'a self, method: &Method, alt_svc: Option<&'a HeaderValue>, response: &mut Response) -> Added<'a> {
        if !response.headers.is_empty() {
            response.fields_mut();
        }
        let present = response.shared.as_ref().map_or_else(|| Present::of(&response.headers), |shared| shared.present());
        if response.status.is_informational() {
            // A final response has a final status; another one would leave the client waiting.
            response.status = StatusCode::INTERNAL_SERVER_ERROR;
        }
        let status = response.status;
        if present.transfer_encoding {
            // How content is delimited is for the protocol to say.
            response.fields_mut().remove(TRANSFER_ENCODING);
        }
        // RFC 9110, section 6.4.1.
        let never_has_content = status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
        let without_content = never_has_content || method == Method::HEAD;
        let size = response.body.size_hint().exact();
        let mut has_length = present.content_length && self.keeps_length(response, size, without_content);
        if status == StatusCode::NO_CONTENT && has_length {
            //= RFC 9110 section 8.6
            //# A server MUST NOT send a Content-Length header field in any response with a status code of 1xx (Informational) or 204 (No
            //# Content).
            response.fields_mut().remove(CONTENT_LENGTH);
            has_length = false;
        }
        // Over HTTP/1.1 content of a known length has no place for trailers. And nothing in answer to HEAD says nothing of the answer to GET.
        let is_unknown = |size: &u64| *size == 0 && without_content;
        let content_length = size.filter(|size| !never_has_content && !has_length && !present.trailer && !is_unknown(size));
        if without_content {
            response.body.discard();
        }
        Added {
            // Over HTTP/3 as well: it renews what the client remembers. Chromium that is forced to HTTP/3 was seen to hold a page's
            // requests back about twice as long without it; that it then takes the server for one without priorities is a guess.
            alt_svc: alt_svc.filter(|_| !present.alt_svc),
            server: self.config.server.as_ref().filter(|_| !present.server),
            date: (!present.date).then(|| self.date.value(self.handle.now())),
            content_length,
            // No bytes of content may still be followed by trailers, or by a failure.
            has_content: !without_content && !response.body.is_end_stream(),
            has_priority: present.priority,
            has_trailer: present.trailer,
        }
    }

    /// Makes `content-length` and the content agree: the one is corrected where the size is known, the other is held to it where not.
    /// Over HTTP/1.1 a client would take what is too much for the next response, or the next response for what is missing.
    ///
    /// Returns whether the line stays.
    fn keeps_length(&self, response: &mut Response, size: Option<u64>, without_content: bool) -> bool {
        let announced = response.shared.as_ref().map_or_else(|| announced(&response.headers), |shared| shared.announced());
        match (announced, size) {
            // HEAD and 304 announce what is not there.
            (Some(_), _) if without_content => {}
            (Some(announced), Some(size)) if announced == size => {}
            (Some(announced), None) => response.body.expect_bytes(announced),
            _ => {
                self.stats.content_lengths_corrected.add(1);
                response.fields_mut().remove(CONTENT_LENGTH);
                return false;
            }
        }
        true
    }
}

/// Takes out what concerns one connection of HTTP/1.1 only (RFC 9110, section 7.6.1). Of `te` a request keeps what is left of it.
pub(crate) fn remove_connection_fields(headers: &mut HeaderMap) {
    remove_any(headers, |name| matches!(name.as_str(), "connection" | "transfer-encoding" | "upgrade" | "keep-alive" | "proxy-connection"));
}

/// The same of a response or of trailers, where `te` has no place whatever it says: it would make the message malformed (RFC 9113, section 8.2.2).
pub(crate) fn remove_connection_fields_of_response(headers: &mut HeaderMap) {
    remove_any(headers, |name| {
        matches!(name.as_str(), "connection" | "transfer-encoding" | "upgrade" | "keep-alive" | "proxy-connection" | "te")
    });
}

fn remove_any(headers: &mut HeaderMap, is_removed: impl Fn(&HeaderName) -> bool) {
    // One look at each name, instead of one for each of these in the map.
    while let Some(name) = headers.keys().find(|name| is_removed(name)).cloned() {
        headers.remove(name);
    }
}

/// The `date` field's value, made once a second.
pub(crate) struct Date {
    /// Shared without an atomic count, since each response has it.
    value: RefCell<Rc<HeaderValue>>,
    stale_at: Cell<Instant>,
}

impl Date {
    fn new(now: Instant) -> Self {
        let date = Self { value: RefCell::new(Rc::new(HeaderValue::from_static(""))), stale_at: Cell::new(now) };
        date.refresh(now);
        date
    }

    /// The same for ever, so that two runs of a simulation send the same bytes.
    #[cfg(test)]
    pub(crate) fn pin(&self, now: Instant) {
        *self.value.borrow_mut() = Rc::new(HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT"));
        self.stale_at.set(now + Duration::from_secs(1 << 32));
    }

    pub(crate) fn value(&self, now: Instant) -> Rc<HeaderValue> {
        if now >= self.stale_at.get() {
            self.refresh(now);
        }
        self.value.borrow().clone()
    }

    fn refresh(&self, now: Instant) {
        let wall = SystemTime::now();
        let past_second = wall.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
        let left = Duration::from_secs(1).saturating_sub(Duration::from_nanos(past_second.into()));
        self.stale_at.set(now + left);
        let text = httpdate::fmt_http_date(wall);
        *self.value.borrow_mut() = Rc::new(HeaderValue::from_str(&text).expect("invariant: a date is visible ASCII"));
    }
}

/// Tells the worker's connections to finish.
#[derive(Default)]
pub(crate) struct Shutdown {
    begun: Cell<bool>,
    waiting: RefCell<Slab<Waker>>,
}

impl Shutdown {
    pub(crate) fn begin(&self) {
        self.begun.set(true);
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        for (_, waker) in waiting {
            waker.wake();
        }
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.get()
    }

    /// Has all connections look whether there is something for them to do.
    pub(crate) fn rouse(&self) {
        self.waiting.borrow().iter().for_each(|(_, waker)| waker.wake_by_ref());
    }

    pub(crate) fn subscribe(self: &Rc<Self>) -> ShutdownSignal {
        ShutdownSignal { shutdown: self.clone(), key: None }
    }
}

/// How long connections that have not had a request when the worker begins to end may still bring one: it can be on its way, and its
/// client knows of no reason to send it elsewhere.
pub(crate) const DRAIN_NOTICE: Duration = Duration::from_millis(250);

/// How long handshakes may still take then.
pub(crate) const HANDSHAKE_NOTICE: Duration = Duration::from_secs(2);

/// A connection's subscription to [`Shutdown`] that goes off some time after it. Small, since each connection at rest has one.
pub(crate) struct Notice {
    signal: ShutdownSignal,
    sleep: Option<Box<Sleep>>,
}

impl Notice {
    pub(crate) fn new(context: &Context) -> Self {
        Self { signal: context.shutdown.subscribe(), sleep: None }
    }

    /// Ready once the shutdown has begun.
    pub(crate) fn poll_begun(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        self.signal.poll(cx)
    }

    /// Ready once so much time has passed after that. A connection that is made later has all of it.
    pub(crate) fn poll_after(&mut self, cx: &mut TaskContext<'_>, lasting: Duration, handle: &Handle) -> Poll<()> {
        ready!(self.poll_begun(cx));
        let sleep = self.sleep.get_or_insert_with(|| Box::new(handle.sleep(lasting)));
        Pin::new(&mut **sleep).poll(cx)
    }
}

/// A connection's subscription to [`Shutdown`].
pub(crate) struct ShutdownSignal {
    shutdown: Rc<Shutdown>,
    key: Option<usize>,
}

impl ShutdownSignal {
    pub(crate) fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        if self.shutdown.begun.get() {
            self.key = None;
            return Poll::Ready(());
        }
        // A connection is one task all its life, which is then known already.
        if self.key.is_none() {
            self.key = Some(self.shutdown.waiting.borrow_mut().insert(cx.waker().clone()));
        }
        Poll::Pending
    }
}

impl Drop for ShutdownSignal {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.shutdown.waiting.borrow_mut().try_remove(key);
        }
    }
}
