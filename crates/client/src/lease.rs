//! A connection in use, and the content that comes over it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use pronghorn_engine::{BodyError, Connection, Incoming, Sleep};

use crate::connections::Connections;
use crate::pool::Shared;
use crate::{Error, Phase};

/// The use of a connection for one request. Dropped before the response's end, it takes an HTTP/1.1 connection with it.
pub(crate) struct Lease {
    connection: Option<Connection>,
    connections: Rc<Connections>,
    pool: Rc<Shared>,
    reused: bool,
    generation: Option<u64>,
}

impl Lease {
    /// The use of the shared connection of this number.
    pub(crate) fn shared(connection: Connection, generation: u64, connections: &Rc<Connections>, pool: &Rc<Shared>) -> Self {
        connections.shared_uses.set(connections.shared_uses.get() + 1);
        let (connections, pool) = (connections.clone(), pool.clone());
        Self { connection: Some(connection), connections, pool, reused: true, generation: Some(generation) }
    }

    /// The use of an HTTP/1.1 connection, which was used before or not.
    pub(crate) fn exclusive(connection: Connection, reused: bool, connections: &Rc<Connections>, pool: &Rc<Shared>) -> Self {
        let (connections, pool) = (connections.clone(), pool.clone());
        Self { connection: Some(connection), connections, pool, reused, generation: None }
    }

    /// Of a shared connection.
    pub(crate) fn generation(&self) -> Option<u64> {
        self.generation
    }

    /// Whether the connection was there before the request, so that its server may have closed it meanwhile.
    pub(crate) fn is_reused(&self) -> bool {
        self.reused
    }

    pub(crate) fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("invariant: it is taken only by what consumes the lease")
    }

    pub(crate) fn connections(&self) -> &Rc<Connections> {
        &self.connections
    }

    /// The exchange is over: the connection is for the next one.
    fn complete(mut self) {
        if self.generation.is_none() {
            let connection = self.connection.take();
            self.connections.give_back(connection, self.pool.handle.now());
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Taken when it was given back.
        let Some(connection) = self.connection.take() else { return };
        let now = self.pool.handle.now();
        drop(connection);
        if self.generation.is_none() {
            self.connections.give_back(None, now);
        } else {
            self.connections.shared_uses.set(self.connections.shared_uses.get() - 1);
            self.connections.touch(now);
        }
    }
}

/// The content of a response.
///
/// Nothing is read ahead of whoever polls it beyond a small window. Dropping it before its end cancels the request.
pub struct Content {
    incoming: Incoming,
    /// Given back at the end.
    lease: Option<Lease>,
    /// Between two pieces; tunnels have none.
    timeout: Option<Duration>,
    patience: Option<Pin<Box<Sleep>>>,
}

impl Content {
    pub(crate) fn new(incoming: Incoming, lease: Lease, timeout: Option<Duration>) -> Self {
        let mut content = Self { incoming, lease: Some(lease), timeout, patience: None };
        if content.incoming.is_end_stream() {
            content.complete();
        }
        content
    }

    fn complete(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.complete();
        }
    }
}

impl http_body::Body for Content {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let frame = Pin::new(&mut this.incoming).poll_frame(cx);
        match &frame {
            Poll::Pending => {
                let (Some(lease), Some(timeout)) = (&this.lease, this.timeout) else { return Poll::Pending };
                let patience = this.patience.get_or_insert_with(|| Box::pin(lease.pool.handle.sleep(timeout)));
                std::task::ready!(patience.as_mut().poll(cx));
                this.incoming_is_given_up();
                return Poll::Ready(Some(Err(Error::TimedOut(Phase::Body).into())));
            }
            Poll::Ready(Some(Err(_))) => this.lease = None,
            Poll::Ready(None) => this.complete(),
            Poll::Ready(Some(Ok(_))) if this.incoming.is_end_stream() => this.complete(),
            Poll::Ready(Some(Ok(_))) => {}
        }
        this.patience = None;
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Content {
    fn incoming_is_given_up(&mut self) {
        self.patience = None;
        self.lease = None;
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content").finish_non_exhaustive()
    }
}
