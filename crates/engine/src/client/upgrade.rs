//! Requests that ask for an upgrade.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use h2::{Ping, PingPong};
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Method, Request, Response};

use super::Error;
use crate::{Body, Upgrade};

/// Returns the head of an HTTP/1.1 request for `upgrade`, and the body to send once it is accepted.
pub(super) fn for_http1(
    request: Request<Body>,
    upgrade: &Upgrade,
) -> Result<(Request<Body>, Body), Error> {
    let (mut head, mut body) = request.into_parts();
    body.set_tunnel();
    head.method = Method::GET;
    head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    let protocol = HeaderValue::from_str(upgrade.protocol())
        .map_err(|error| Error::Exchange(error.to_string()))?;
    head.headers.insert(UPGRADE, protocol);
    let mut asking = Request::from_parts(head, Body::empty());
    super::for_http1(&mut asking);
    Ok((asking, body))
}

/// Whether the server switches to the requested protocol.
pub(super) fn is_granted<B>(response: &Response<B>, upgrade: &Upgrade) -> bool {
    let named = response.headers().get(UPGRADE).map(HeaderValue::as_bytes);
    named.is_some_and(|named| named.eq_ignore_ascii_case(upgrade.protocol().as_bytes()))
}

/// Whether an HTTP/2 server supports extended CONNECT. The server announces it in its SETTINGS,
/// which come before its response to a PING.
pub(super) struct ExtendedConnectSupport {
    asked: Cell<bool>,
    /// The response to the PING has arrived, or the connection has ended.
    settled: Cell<bool>,
    driver: RefCell<Option<Waker>>,
    waiting: RefCell<Vec<Waker>>,
}

impl ExtendedConnectSupport {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self {
            asked: Cell::default(),
            settled: Cell::default(),
            driver: RefCell::default(),
            waiting: RefCell::default(),
        })
    }

    /// Waits until it is known.
    pub(super) async fn wait(&self, is_offered: impl Fn() -> bool) -> bool {
        if !is_offered() && !self.asked.replace(true) {
            let driver = self.driver.take();
            if let Some(driver) = driver {
                driver.wake();
            }
        }
        poll_fn(|cx| {
            if is_offered() || self.settled.get() {
                return Poll::Ready(is_offered());
            }
            self.waiting.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Drives the connection, and sends a PING when a request waits.
    pub(super) async fn drive(&self, mut ping: Option<PingPong>, connection: impl Future) {
        let mut connection = pin!(connection);
        let mut is_sent = false;
        poll_fn(|cx| {
            self.poll_ping(&mut ping, &mut is_sent, cx);
            let ended = Pin::as_mut(&mut connection).poll(cx);
            if ended.is_ready() {
                self.settle();
            }
            ended.map(drop)
        })
        .await;
    }

    fn poll_ping(&self, ping: &mut Option<PingPong>, is_sent: &mut bool, cx: &mut Context<'_>) {
        if self.settled.get() {
            return;
        }
        if !self.asked.get() {
            let mut driver = self.driver.borrow_mut();
            if !driver.as_ref().is_some_and(|driver| driver.will_wake(cx.waker())) {
                *driver = Some(cx.waker().clone());
            }
            return;
        }
        let Some(ping) = ping else { return self.settle() };
        if !std::mem::replace(is_sent, true) && ping.send_ping(Ping::opaque()).is_err() {
            return self.settle();
        }
        if ping.poll_pong(cx).is_ready() {
            self.settle();
        }
    }

    fn settle(&self) {
        self.settled.set(true);
        let waiting = self.waiting.take();
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Turns the request into an extended CONNECT for HTTP/2.
pub(super) fn for_http2(mut request: Request<Body>, upgrade: &Upgrade) -> Request<Body> {
    *request.method_mut() = Method::CONNECT;
    request.extensions_mut().insert(h2::ext::Protocol::from(upgrade.protocol()));
    request.body_mut().set_tunnel();
    request
}
