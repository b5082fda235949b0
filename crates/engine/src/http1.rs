//! HTTP/1.1 towards clients, by hyper.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker, ready};

use bytes::Bytes;
use http::{HeaderValue, Method};
use http_body::{Frame, SizeHint};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::context::Context;
use crate::message::Peer;
use crate::runtime::HyperTimer;
use crate::tcp::{Activity, ExchangeGuard, Outcome, Watchdog};
use crate::{Body, BodyError, Incoming, Request, Responder, Response};

/// Serves one connection until it ends.
pub(crate) async fn serve<T>(io: T, peer: Peer, alt_svc: Option<HeaderValue>, activity: Rc<Activity>, context: Rc<Context>) -> Outcome
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let service = Requests { peer, alt_svc, activity: activity.clone(), context: context.clone() };
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(HyperTimer(context.handle.timers().clone()))
            // Runs between requests too, so it is the idle timeout as well.
            .header_read_timeout(context.config.idle_timeout)
            .max_header_size(context.config.field_section_bytes as usize)
            .half_close(false)
            .serve_connection(TokioIo::new(io), service)
    );
    let mut watchdog = Watchdog::new(activity, &context);
    let mut shutdown = context.shutdown.subscribe();
    let mut finishing = false;
    std::future::poll_fn(|cx| {
        if !finishing && shutdown.poll(cx).is_ready() {
            finishing = true;
            connection.as_mut().graceful_shutdown();
        }
        match connection.as_mut().poll(cx) {
            Poll::Ready(Err(error)) if error.is_timeout() => Poll::Ready(Outcome::TimedOut),
            Poll::Ready(Err(error)) if error.is_parse() || error.is_user() => Poll::Ready(Outcome::ProtocolError),
            // Other errors say that the peer left, in mid-message or between two.
            Poll::Ready(_) => Poll::Ready(Outcome::Done),
            Poll::Pending => watchdog.poll(cx).map(|()| Outcome::TimedOut),
        }
    })
    .await
}

struct Requests {
    peer: Peer,
    alt_svc: Option<HeaderValue>,
    activity: Rc<Activity>,
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
        let answer = Answer {
            exchange: exchange.clone(),
            method: head.method.clone(),
            alt_svc: self.alt_svc.clone(),
            guard: Some(self.activity.begin_exchange()),
            context: self.context.clone(),
        };
        let request = Request { method: head.method, uri: head.uri, headers: head.headers, peer: self.peer, body: Incoming::http1(body) };
        self.context.handler.handle(request, Responder::http1(exchange, self.context.handle.clone()));
        answer
    }
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
    guard: Option<ExchangeGuard>,
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
        let mut answer = hyper::Response::new(GuardedBody { body: response.body, _guard: this.guard.take() });
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
    _guard: Option<ExchangeGuard>,
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
        self.body.size_hint()
    }
}
