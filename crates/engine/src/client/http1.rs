//! An HTTP/1.1 connection to a server, between those who use it and the task that drives it.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::bell::Bell;
use super::interim::Ear;
use super::upgrade::Http1Upgrade;
use crate::http1::{Ended, run_tunnel};
use crate::runtime::Handle;
use crate::{Body, BodyError};

/// The content of a request in the hands of the library, which has room for it in 32 places of each connection and moves it from hand to hand.
pub(super) struct Content(Option<Box<Body>>);

impl From<Body> for Content {
    fn from(body: Body) -> Self {
        Self((body.full_size() != Some(0)).then(|| Box::new(body)))
    }
}

impl http_body::Body for Content {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.0.as_mut().map_or(Poll::Ready(None), |body| Pin::new(&mut **body).poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or(SizeHint::with_exact(0), http_body::Body::size_hint)
    }
}

/// What the owner of a connection, its response and its task share.
#[derive(Default)]
pub(crate) struct Link {
    /// Its owner has said that it ends.
    is_aborted: Cell<bool>,
    /// Whoever had the response has dropped it before its end.
    is_dropped: Cell<bool>,
    /// Content of the request is there that was not handed over.
    is_uploading: Rc<Cell<bool>>,
    /// Wakes the connection's task, once that runs.
    bell: RefCell<Option<Arc<Bell>>>,
    /// Where interim responses come in, once somebody has listened.
    ear: OnceCell<Ear>,
}

impl Link {
    pub(super) fn ear(&self) -> &Ear {
        self.ear.get_or_init(Ear::new)
    }

    /// A request begins, with this content.
    pub(super) fn begin(&self, body: &mut Body) {
        self.is_dropped.set(false);
        if body.full_size().is_none() {
            self.is_uploading.set(true);
            let is_uploading = self.is_uploading.clone();
            body.when_over(move || is_uploading.set(false));
        }
    }

    pub(super) fn abort(&self) {
        self.is_aborted.set(true);
        self.wake();
    }

    /// Nobody wants the rest of the response.
    pub(crate) fn on_response_dropped(&self) {
        self.is_dropped.set(true);
        // The library would look at it when something comes from the server.
        self.wake();
    }

    fn wake(&self) {
        if let Some(bell) = &*self.bell.borrow() {
            bell.ring();
        }
    }

    /// What the library is to wake, if it is not `known` already.
    fn waker(&self, known: &mut Option<Waker>, cx: &Context<'_>) {
        let is_known = self.bell.borrow().as_ref().is_some_and(|bell| bell.is_of(cx.waker()));
        if !is_known || known.is_none() {
            let bell = Bell::new(cx.waker());
            *known = Some(Waker::from(bell.clone()));
            *self.bell.borrow_mut() = Some(bell);
        }
    }

    /// Fetches a piece of a response. The library wakes the connection's task for the next one then, which after the last there is none of.
    pub(crate) fn poll_frame(
        &self,
        body: &mut hyper::body::Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let bell = self.bell.borrow();
        let held = bell.as_ref().map(|bell| bell.hold());
        let frame = Pin::new(&mut *body).poll_frame(cx);
        if let Some(held) = held
            && !body.is_end_stream()
        {
            held.let_ring();
        }
        frame
    }

    /// Whether what is on its way is for nobody. When no more is sent, the rest of a response that is there already may be thrown away
    /// instead, and the connection used again.
    fn is_given_up(&self) -> bool {
        self.is_aborted.get() || (self.is_dropped.get() && self.is_uploading.get())
    }
}

/// Carries a connection to its end, through an upgrade if there is one. `patience`: for how long the server may take no byte of the end.
pub(super) async fn drive<T>(
    connection: http1::Connection<TokioIo<T>, Content>,
    upgrade: &Http1Upgrade,
    link: &Link,
    handle: &Handle,
    patience: Duration,
) where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let mut driven = pin!(drive_to_end(connection, upgrade, link, handle, patience));
    let mut waker = None;
    poll_fn(|cx| {
        link.waker(&mut waker, cx);
        // First: it may find that there is no more to do.
        let ended = driven.as_mut().poll(&mut Context::from_waker(waker.as_ref().unwrap_or(cx.waker())));
        if ended.is_pending() && link.is_given_up() { Poll::Ready(()) } else { ended }
    })
    .await;
}

async fn drive_to_end<T>(
    mut connection: http1::Connection<TokioIo<T>, Content>,
    upgrade: &Http1Upgrade,
    link: &Link,
    handle: &Handle,
    patience: Duration,
) where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    // What goes wrong there reaches the requests on the connection.
    let ended = poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
    let http1::Parts { io, read_buf, .. } = connection.into_parts();
    let mut io = io.into_inner();
    if ended.is_ok()
        && let Some((end, body)) = poll_fn(|cx| upgrade.poll_granted(cx)).await
        && run_tunnel(&mut io, read_buf, end, body).await == Ended::Aborted
    {
        return;
    }
    let mut sleep = pin!(handle.sleep(patience));
    poll_fn(|cx| match Pin::new(&mut io).poll_shutdown(cx) {
        // The server has gone already when this fails.
        Poll::Ready(_) => Poll::Ready(()),
        Poll::Pending if link.is_dropped.get() => Poll::Ready(()),
        Poll::Pending => sleep.as_mut().poll(cx),
    })
    .await;
}
