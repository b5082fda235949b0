//! The connection's side of an exchange.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH};
use http::{HeaderValue, Method, Version};
use http_body::{Body as _, Frame, SizeHint};
use hyper::ext::ReasonPhrase;

use super::exchange::{Http1Exchange, PendingUpgrade};
use super::tunnel::TunnelEnd;
use super::wire_state::wake;
use crate::context::Context;
use crate::memory::{Charge, WorkerMemory};
use crate::tcp::ExchangeGuard;
use crate::{Body, BodyError};

/// An upgrade whose response is being sent.
pub(super) struct AcceptedUpgrade {
    pub(super) tunnel: TunnelEnd,
    pub(super) outgoing: Body,
    /// The exchange lasts as long as the tunnel.
    pub(super) guard: Option<Rc<ExchangeGuard>>,
}

/// The handler aborted the exchange, and with it the connection.
#[derive(Debug, thiserror::Error)]
#[error("the handler aborted the exchange")]
pub(super) struct Aborted;

/// The connection's side of an exchange.
pub(super) struct ResponseFuture {
    pub(super) exchange: Rc<Http1Exchange>,
    pub(super) method: Method,
    pub(super) alt_svc: Option<HeaderValue>,
    pub(super) guard: Option<Rc<ExchangeGuard>>,
    pub(super) granted: Rc<RefCell<Option<AcceptedUpgrade>>>,
    pub(super) context: Rc<Context>,
}

impl Future for ResponseFuture {
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
            let (PendingUpgrade { tunnel, .. }, outgoing) = *granted;
            *this.granted.borrow_mut() =
                Some(AcceptedUpgrade { tunnel, outgoing, guard: this.guard.take() });
            false
        } else {
            if this.context.shutdown.has_begun() {
                // A request that came after the shutdown began: the client has not been told that
                // it is the last one on the connection.
                response.headers.append(CONNECTION, HeaderValue::from_static("close"));
            }
            let has_trailer =
                this.context.prepare_for_http1(&this.method, this.alt_svc.as_ref(), &mut response);
            let has_length = response.headers.contains_key(CONTENT_LENGTH)
                || (response.body.size_hint().exact().is_some() && !has_trailer);
            if this.exchange.version < Version::HTTP_11
                && !has_length
                && !response.body.is_end_stream()
            {
                // HTTP/1.0 has no chunked coding, so the end of the connection is the end of this
                // content. A client that was promised a persistent connection would wait for more.
                response.headers.insert(CONNECTION, HeaderValue::from_static("close"));
            } else if this.exchange.wire.must_close() {
                // hyper looks for the rest of the content when it writes the response head, and
                // would close without telling the client.
                response.headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            has_trailer
        };
        // A body in memory may be shared with other responses.
        let response_is_shared = response.body.full_size().is_some();
        let body = GuardedBody {
            body: response.body,
            is_chunked: has_trailer,
            pieces: if response_is_shared { None } else { Some(HeldPieces::default()) },
            context: this.context.clone(),
            _guard: this.guard.take(),
        };
        let mut answer = hyper::Response::new(body);
        if this.exchange.version < Version::HTTP_11
            && response.headers.get(CONNECTION).is_some_and(|options| options == "close")
        {
            // Otherwise hyper adds `connection: keep-alive` if the client asked for it.
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

impl Drop for ResponseFuture {
    fn drop(&mut self) {
        self.exchange.closed.set(true);
        // Dropped while nothing is borrowed, since it holds the exchange.
        let work = self.exchange.work.take();
        drop(work);
        self.exchange.offered.take();
        if self.guard.is_some() {
            self.context.stats.requests_aborted.add(1);
        }
        wake(&self.exchange.handler);
    }
}

/// The latest pieces of a response, which the client has not accepted yet: hyper takes the next one
/// while it still writes the one before it.
#[derive(Default)]
struct HeldPieces {
    latest: u64,
    held: Charge,
}

impl HeldPieces {
    fn add(&mut self, memory: &Rc<WorkerMemory>, bytes: usize) {
        let before = std::mem::replace(&mut self.latest, bytes as u64);
        self.held.set(memory, before + self.latest);
    }
}

/// A response's body that keeps its exchange counted until it is dropped.
pub(super) struct GuardedBody {
    body: Body,
    /// Trailers follow, so the length must not be announced even if it is known.
    is_chunked: bool,
    /// The pieces that hyper buffers, if they are counted.
    pieces: Option<HeldPieces>,
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

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let GuardedBody { pieces, context, .. } = &mut *self;
        if let (Some(pieces), Some(Ok(frame))) = (pieces, &frame) {
            pieces.add(&context.memory, frame.data_ref().map_or(0, Bytes::len));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_chunked { SizeHint::default() } else { self.body.size_hint() }
    }
}
