//! The handler's side of an exchange.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, StatusCode, Version};

use super::tunnel::{Tunnel, TunnelEnd};
use super::wire_state::{Persistence, WireState, wake};
use crate::context::Context;
use crate::{Body, Responder, Response, Upgrade};

/// Where the handler leaves its response for the connection.
pub(crate) struct Http1Exchange {
    pub(super) version: Version,
    pub(super) wire: Rc<WireState>,
    /// The reader waits for the decision on the upgrade that the request may ask for.
    awaited: bool,
    pub(super) response: RefCell<Option<Response>>,
    pub(super) connection: RefCell<Option<Waker>>,
    pub(super) closed: Cell<bool>,
    pub(super) aborted: Cell<bool>,
    pub(super) handler: RefCell<Option<Waker>>,
    /// The future that makes the response, if any.
    pub(super) work: RefCell<Option<ResponseWork>>,
    /// The upgrade that the request asks for, until it is answered.
    pub(super) offered: RefCell<Option<Box<PendingUpgrade>>>,
    pub(super) granted: RefCell<Option<Box<(PendingUpgrade, Body)>>>,
}

/// A handler's future. The connection polls it, so it needs no task of its own and neither has to
/// wake the other.
pub(super) struct ResponseWork {
    /// It holds the exchange. The connection's side takes the work out when it is dropped.
    responder: Responder,
    response: Pin<Box<dyn Future<Output = Response>>>,
}

/// An upgrade that may be accepted.
pub(super) struct PendingUpgrade {
    upgrade: Upgrade,
    pub(super) tunnel: TunnelEnd,
}

impl Http1Exchange {
    pub(super) fn new(version: Version, wire: Rc<WireState>, awaited: bool) -> Self {
        let (response, connection, closed, aborted, handler, work, offered, granted) =
            Default::default();
        Self {
            version,
            wire,
            awaited,
            response,
            connection,
            closed,
            aborted,
            handler,
            work,
            offered,
            granted,
        }
    }

    /// Sends the response that the future returns, unless the connection ends first.
    pub(crate) fn work(
        &self,
        responder: Responder,
        response: Pin<Box<dyn Future<Output = Response>>>,
    ) {
        if self.closed.get() {
            return;
        }
        *self.work.borrow_mut() = Some(ResponseWork { responder, response });
        wake(&self.connection);
    }

    pub(super) fn poll_work(&self, cx: &mut TaskContext<'_>, context: &Context) {
        let mut place = self.work.borrow_mut();
        let Some(ResponseWork { response, .. }) = &mut *place else { return };
        // Within one poll of the connection, which counts as one poll of the turn, hyper goes on
        // from one received request to the next.
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
            (Ok(Poll::Ready(response)), Some(ResponseWork { responder, .. })) => {
                responder.send(response);
            }
            // The responder is dropped, which answers. Other exchanges are not affected.
            _ => context.stats.handler_panics.add(1),
        }
    }

    pub(crate) fn send_interim(&self, status: StatusCode, headers: &HeaderMap) {
        //= RFC 9110 section 15.2
        //# Since HTTP/1.0 did not define any 1xx status codes, a server MUST NOT send a 1xx response to an HTTP/1.0 client.
        if self.closed.get() || self.version < Version::HTTP_11 {
            return;
        }
        self.wire.send_interim(status, headers);
        wake(&self.connection);
    }

    pub(crate) fn persistence(&self) -> Rc<Persistence> {
        self.wire.persistence()
    }

    pub(super) fn offer(&self, upgrade: Upgrade) -> Rc<Tunnel> {
        let tunnel = TunnelEnd::new();
        let reader = tunnel.reader();
        *self.offered.borrow_mut() = Some(Box::new(PendingUpgrade { upgrade, tunnel }));
        reader
    }

    /// Declines the upgrade, so the next request follows.
    pub(super) fn decline(&self) {
        if self.awaited {
            self.wire.decline_upgrade();
            if let Some(offered) = self.offered.take() {
                offered.tunnel.decline();
            }
        }
    }

    /// Accepts the requested upgrade.
    pub(crate) fn upgrade(&self, headers: HeaderMap, outgoing: Body) {
        let Some(offered) = self.offered.take() else { return };
        if self.closed.get() {
            return;
        }
        let protocol = HeaderValue::from_str(offered.upgrade.protocol())
            .expect("invariant: the protocol came from a field value");
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

    /// Closes the connection without a response.
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
