//! HTTP/1.1 towards clients, by hyper.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::TRAILER;
use http::{HeaderValue, Method, StatusCode, Uri};
use http_body::{Body as _, Frame, SizeHint};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::context::Context;
use crate::runtime::HyperTimer;
use crate::tcp::{Activity, Connected, ExchangeGuard, HeadClock, Outcome, Watchdog};
use crate::{Body, BodyError, Incoming, Request, Responder, Response};

/// How long a client may go on sending after an answer that came before its request's end.
const LINGER: Duration = Duration::from_secs(5);
const LINGER_BUFFER: usize = 16 << 10;

/// Serves one connection until it ends.
pub(crate) async fn serve<T>(io: T, peer: Connected, alt_svc: Option<HeaderValue>, activity: Rc<Activity>, context: Rc<Context>) -> Outcome
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let unread = Rc::<Cell<bool>>::default();
    let service = Requests { peer, alt_svc, activity: activity.clone(), unread: unread.clone(), context: context.clone() };
    let mut connection = http1::Builder::new()
        .timer(HyperTimer(context.handle.timers().clone()))
        // Runs between requests too, so it is the idle timeout as well.
        .header_read_timeout(context.config.limits.idle_timeout())
        .max_header_size(context.config.limits.field_section_bytes() as usize)
        .max_headers(context.config.limits.field_lines() as usize)
        .half_close(false)
        .serve_connection(TokioIo::new(HeadClock::new(io, activity.clone(), context.handle.clone())), service);
    let mut watchdog = Watchdog::new(activity.clone(), &context);
    let mut shutdown = context.shutdown.subscribe();
    let mut finishing = false;
    let outcome = poll_fn(|cx| {
        if !finishing && shutdown.poll(cx).is_ready() {
            finishing = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
        match connection.poll_without_shutdown(cx) {
            Poll::Ready(Err(error)) if error.is_timeout() => {
                context.stats.idle_timeouts.add(1);
                Poll::Ready(Outcome::TimedOut)
            }
            Poll::Ready(Err(error)) if error.is_parse_too_large() => {
                count_large_head(&activity, &context);
                Poll::Ready(Outcome::ProtocolError)
            }
            Poll::Ready(Err(error)) if error.is_parse() || error.is_user() => Poll::Ready(Outcome::ProtocolError),
            // Other errors say that the peer left, in mid-message or between two.
            Poll::Ready(_) => Poll::Ready(Outcome::Done),
            Poll::Pending => watchdog.poll(cx).map(|()| Outcome::TimedOut),
        }
    })
    .await;
    close(connection.into_parts().io.into_inner(), unread.get(), &context).await;
    outcome
}

/// The library has answered 431 or 414 by itself.
fn count_large_head(activity: &Activity, context: &Context) {
    let bytes = activity.head().map_or(0, |(_, bytes)| bytes as u64);
    let too_long = bytes >= context.config.limits.field_section_bytes();
    let counter = if too_long { &context.stats.heads_too_large } else { &context.stats.heads_too_many_lines };
    counter.add(1);
    context.stats.requests_refused.add(1);
}

/// Closes the connection, in stages when the peer is still sending.
///
/// RFC 9112, section 9.6: closed at once, what arrives then would make the system reset the connection, and the reset may
/// overtake the last response.
async fn close<T: AsyncRead + AsyncWrite + Unpin>(mut io: T, unread: bool, context: &Context) {
    let mut patience = context.handle.sleep(LINGER);
    let mut is_shut_down = false;
    poll_fn(|cx| {
        if Pin::new(&mut patience).poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if !is_shut_down {
            // The peer has gone already when this fails.
            is_shut_down = ready!(Pin::new(&mut io).poll_shutdown(cx)).is_ok();
            if !is_shut_down || !unread {
                return Poll::Ready(());
            }
        }
        let mut storage = [MaybeUninit::uninit(); LINGER_BUFFER];
        let mut buffer = ReadBuf::uninit(&mut storage);
        let read = ready!(Pin::new(&mut io).poll_read(cx, &mut buffer));
        if read.is_err() || buffer.filled().is_empty() {
            return Poll::Ready(());
        }
        // One piece a poll, so that a fast sender does not hold the worker.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

struct Requests {
    peer: Connected,
    alt_svc: Option<HeaderValue>,
    activity: Rc<Activity>,
    /// Set when a request's content was given up before its end.
    unread: Rc<Cell<bool>>,
    context: Rc<Context>,
}

impl Service<hyper::Request<hyper::body::Incoming>> for Requests {
    type Response = hyper::Response<GuardedBody>;
    type Error = std::convert::Infallible;
    type Future = Answer;

    fn call(&self, request: hyper::Request<hyper::body::Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        self.context.stats.requests_http1.add(1);
        let exchange = Rc::new(Http1Exchange::default());
        let guard = self.activity.begin_exchange();
        let answer = Answer {
            exchange: exchange.clone(),
            method: head.method.clone(),
            alt_svc: self.alt_svc.clone(),
            guard: Some(guard.clone()),
            context: self.context.clone(),
        };
        let body = Incoming::http1(body, Some(Http1Server { unread: self.unread.clone(), guard }));
        if !is_target(&head.method, &head.uri) {
            self.context.stats.requests_refused.add(1);
            exchange.respond(Response::new(StatusCode::BAD_REQUEST));
            return answer;
        }
        let peer = self.peer.now();
        if self.context.is_too_early(&head.method, &peer) {
            exchange.respond(Response::new(StatusCode::TOO_EARLY));
            return answer;
        }
        let request = Request { method: head.method, uri: head.uri, headers: head.headers, peer, body };
        self.context.dispatch(request, Responder::http1(exchange, self.context.handle.clone()));
        answer
    }
}

/// Whether the target has a form that its method allows (RFC 9112, section 3.2): the library also takes a host for a path.
fn is_target(method: &Method, uri: &Uri) -> bool {
    match uri.path_and_query() {
        None => method == Method::CONNECT,
        Some(target) => target.as_str().starts_with('/') || (target == "*" && method == Method::OPTIONS),
    }
}

/// What the content of a request tells its connection.
pub(crate) struct Http1Server {
    /// Set when the content is given up before its end.
    pub(crate) unread: Rc<Cell<bool>>,
    pub(crate) guard: Rc<ExchangeGuard>,
}

/// Where the handler leaves its response for the connection.
#[derive(Default)]
pub(crate) struct Http1Exchange {
    response: RefCell<Option<Response>>,
    connection: RefCell<Option<Waker>>,
    closed: Cell<bool>,
    handler: RefCell<Option<Waker>>,
}

impl Http1Exchange {
    pub(crate) fn respond(&self, response: Response) {
        if self.closed.get() {
            return;
        }
        *self.response.borrow_mut() = Some(response);
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

fn wake(waiting: &RefCell<Option<Waker>>) {
    let waker = waiting.borrow_mut().take();
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The connection's side of an exchange.
struct Answer {
    exchange: Rc<Http1Exchange>,
    method: Method,
    alt_svc: Option<HeaderValue>,
    guard: Option<Rc<ExchangeGuard>>,
    context: Rc<Context>,
}

impl Future for Answer {
    type Output = Result<hyper::Response<GuardedBody>, std::convert::Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(mut response) = this.exchange.response.borrow_mut().take() else {
            *this.exchange.connection.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        };
        this.context.prepare(&this.method, this.alt_svc.as_ref(), &mut response);
        if let Some(guard) = &this.guard {
            guard.set_answered();
        }
        let body = GuardedBody {
            body: response.body,
            is_chunked: response.headers.contains_key(TRAILER),
            context: this.context.clone(),
            _guard: this.guard.take(),
        };
        let mut answer = hyper::Response::new(body);
        *answer.status_mut() = response.status;
        *answer.headers_mut() = response.headers;
        Poll::Ready(Ok(answer))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.exchange.closed.set(true);
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
