//! An HTTP/1.1 connection to a server, between those who use it and the task that drives it.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::interim::Ear;
use super::upgrade::Http1Upgrade;
use crate::Body;
use crate::http1::{Ended, run_tunnel};
use crate::runtime::Handle;

/// What the owner of a connection, its response and its task share.
#[derive(Default)]
pub(crate) struct Link {
    /// Its owner has said that it ends.
    is_aborted: Cell<bool>,
    /// Whoever had the response has dropped it before its end.
    is_dropped: Cell<bool>,
    /// Content of the request is there that was not handed over.
    is_uploading: Rc<Cell<bool>>,
    driver: RefCell<Option<Waker>>,
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
        let driver = self.driver.take();
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    fn register(&self, cx: &Context<'_>) {
        let mut driver = self.driver.borrow_mut();
        if driver.as_ref().is_none_or(|driver| !driver.will_wake(cx.waker())) {
            *driver = Some(cx.waker().clone());
        }
    }

    /// Whether what is on its way is for nobody. When no more is sent, the rest of a response that is there already may be thrown away
    /// instead, and the connection used again.
    fn is_given_up(&self) -> bool {
        self.is_aborted.get() || (self.is_dropped.get() && self.is_uploading.get())
    }
}

/// Carries a connection to its end, through an upgrade if there is one. `patience`: for how long the server may take no byte of the end.
pub(super) async fn drive<T>(
    connection: http1::Connection<TokioIo<T>, Body>,
    upgrade: &Http1Upgrade,
    link: &Link,
    handle: &Handle,
    patience: Duration,
) where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let mut driven = pin!(drive_to_end(connection, upgrade, link, handle, patience));
    poll_fn(|cx| {
        link.register(cx);
        // First: it may find that there is no more to do.
        let ended = driven.as_mut().poll(cx);
        if ended.is_pending() && link.is_given_up() { Poll::Ready(()) } else { ended }
    })
    .await;
}

async fn drive_to_end<T>(
    mut connection: http1::Connection<TokioIo<T>, Body>,
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
