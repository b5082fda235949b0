//! What every connection of a worker shares.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use http::header::{ALT_SVC, CONNECTION, CONTENT_LENGTH, DATE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body::Body as _;
use rand::SeedableRng;
use rand::rngs::StdRng;
use slab::Slab;

use crate::config::EarlyData;
use crate::dispatch::Gauge;
use crate::runtime::Handle;
use crate::seats::Seats;
use crate::stats::Stats;
use crate::window_budget::WindowBudget;
use crate::{Config, Handler, Peer, Request, Responder, Response};

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
    /// Heads over HTTP/3 that are not complete.
    pub(crate) partial_heads: Gauge,
    /// Where connections draw their random numbers; a simulation puts its own here.
    pub(crate) rng: RefCell<StdRng>,
    date: Date,
}

impl Context {
    pub(crate) fn new(handle: Handle, config: Config, handler: Rc<dyn Handler>, stats: Arc<Stats>, seats: Arc<Seats>) -> Rc<Self> {
        let date = Date::new(handle.now());
        let rng = RefCell::new(StdRng::from_rng(&mut rand::rng()));
        Rc::new(Self {
            handle,
            config,
            handler,
            stats,
            shutdown: Rc::default(),
            seats,
            windows: Rc::default(),
            open_requests: Gauge::default(),
            partial_heads: Gauge::default(),
            rng,
            date,
        })
    }

    /// Gives a request to the handler, unless it came too early. When that panics, the request is answered 500 and the worker goes on.
    pub(crate) fn give(&self, request: Request, responder: Responder) {
        if self.is_too_early(&request.method, &request.peer) {
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
    fn is_too_early(&self, method: &Method, peer: &Peer) -> bool {
        if !peer.early_data {
            return false;
        }
        //= RFC 9114 section 10.9
        //# The anti-replay mitigations in [HTTP-REPLAY] MUST be applied when using HTTP/3 with 0-RTT.
        let refused = self.config.early_data != EarlyData::All && !method.is_safe();
        let counter = if refused { &self.stats.requests_too_early } else { &self.stats.requests_early };
        counter.add(1);
        refused
    }

    /// Completes a response's head, drops content that must not be sent, and holds the rest to its announced length.
    ///
    /// Returns whether content may follow.
    pub(crate) fn prepare(&self, method: &Method, alt_svc: Option<&HeaderValue>, response: &mut Response) -> bool {
        // Over HTTP/3 as well: it renews what the client remembers. Chromium that is forced to HTTP/3 was seen to hold a page's
        // requests back about twice as long without it; that it then takes the server for one without priorities is a guess.
        if let Some(alt_svc) = alt_svc {
            response.headers.entry(ALT_SVC).or_insert_with(|| alt_svc.clone());
        }
        response.headers.entry(DATE).or_insert_with(|| self.date.value(self.handle.now()));
        if response.status.is_informational() {
            // A final response has a final status; another one would leave the client waiting.
            response.status = StatusCode::INTERNAL_SERVER_ERROR;
        }
        let status = response.status;
        // Answers with one of these are few, and one look at each name costs less than these in the map.
        let delimits = |name: &HeaderName| matches!(name.as_str(), "transfer-encoding" | "content-length" | "trailer");
        let is_delimited = response.headers.keys().any(delimits);
        if is_delimited {
            // How content is delimited is for the protocol to say.
            response.headers.remove(TRANSFER_ENCODING);
        }
        // RFC 9110, section 6.4.1.
        let never_has_content = status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
        let without_content = never_has_content || method == Method::HEAD;
        let size = response.body.size_hint().exact();
        if is_delimited {
            self.complete_length(response, size, without_content);
        }
        if status == StatusCode::NO_CONTENT {
            //= RFC 9110 section 8.6
            //# A server MUST NOT send a Content-Length header field in any response with a status code of 1xx (Informational) or 204 (No
            //# Content).
            response.headers.remove(CONTENT_LENGTH);
        } else if !(never_has_content || is_delimited && delimits_itself(&response.headers))
            && let Some(size) = size
        {
            response.headers.insert(CONTENT_LENGTH, decimal(size));
        }
        if without_content {
            response.body.discard();
        }
        // No bytes of content may still be followed by trailers, or by a failure.
        !without_content && !response.body.is_end_stream()
    }

    /// Makes `content-length` and the content agree: the one is corrected where the size is known, the other is held to it where not.
    /// Over HTTP/1.1 a client would take what is too much for the next response, or the next response for what is missing.
    fn complete_length(&self, response: &mut Response, size: Option<u64>, without_content: bool) {
        let mut lines = response.headers.get_all(CONTENT_LENGTH).iter();
        let Some(first) = lines.next() else { return };
        let announced =
            first.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit())).and_then(|text| text.parse().ok());
        let announced: Option<u64> = announced.filter(|_| lines.next().is_none());
        match (announced, size) {
            // HEAD and 304 announce what is not there.
            (Some(_), _) if without_content => {}
            (Some(announced), Some(size)) if announced == size => {}
            (Some(announced), None) => response.body.expect_bytes(announced),
            _ => {
                self.stats.content_lengths_corrected.add(1);
                response.headers.remove(CONTENT_LENGTH);
            }
        }
    }
}

/// A number as a field's value, in as many bytes as it has.
fn decimal(mut number: u64) -> HeaderValue {
    let mut digits = [0; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return HeaderValue::from_bytes(&digits[first..]).expect("invariant: digits are visible ASCII");
        }
    }
}

/// Whether a length says nothing or has no place. Over HTTP/1.1 content of a known length has none for trailers.
fn delimits_itself(headers: &HeaderMap) -> bool {
    headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRAILER)
}

/// Takes out what concerns one connection of HTTP/1.1 only (RFC 9110, section 7.6.1).
pub(crate) fn remove_connection_fields(headers: &mut HeaderMap) {
    let concerns_connection =
        |name: &HeaderName| matches!(name.as_str(), "connection" | "transfer-encoding" | "upgrade" | "keep-alive" | "proxy-connection");
    // One look at each name, instead of one for each of these in the map.
    if !headers.keys().any(concerns_connection) {
        return;
    }
    for name in [CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    for name in ["keep-alive", "proxy-connection"] {
        headers.remove(name);
    }
}

/// The `date` field's value, made once a second.
struct Date {
    value: RefCell<HeaderValue>,
    stale_at: Cell<Instant>,
}

impl Date {
    fn new(now: Instant) -> Self {
        let date = Self { value: RefCell::new(HeaderValue::from_static("")), stale_at: Cell::new(now) };
        date.refresh(now);
        date
    }

    fn value(&self, now: Instant) -> HeaderValue {
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
        *self.value.borrow_mut() = HeaderValue::from_str(&text).expect("invariant: a date is visible ASCII");
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

    pub(crate) fn subscribe(self: &Rc<Self>) -> ShutdownSignal {
        ShutdownSignal { shutdown: self.clone(), key: None }
    }
}

/// One connection's ear for [`Shutdown`].
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
        let mut waiting = self.shutdown.waiting.borrow_mut();
        match self.key {
            Some(key) => waiting[key].clone_from(cx.waker()),
            None => self.key = Some(waiting.insert(cx.waker().clone())),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_full() {
        for number in [0, 9, 10, 1_048_576, u64::MAX] {
            assert_eq!(decimal(number), number.to_string());
        }
    }
}
