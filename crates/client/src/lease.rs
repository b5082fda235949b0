//! A connection in use, and the response body received on it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use pronghorn_engine::{BodyError, Connection, Incoming, Sleep};

use crate::connections::Connections;
use crate::pool::state::PoolState;
use crate::queue::Served;
use crate::upload::UploadProgress;
use crate::{Error, Phase};

/// The use of a connection for one request. Dropping it before the response's end closes an
/// HTTP/1.1 connection.
pub(crate) struct Lease {
    connection: Option<Box<Connection>>,
    connections: Rc<Connections>,
    pool: Rc<PoolState>,
    reused: bool,
    generation: Option<u64>,
    upload: Upload,
    /// Number of the exchange in [`Exchanges`](crate::exchanges::Exchanges), on an HTTP/1.1
    /// connection.
    exchange: Option<usize>,
}

/// State of the request body.
#[derive(Clone)]
pub(crate) enum Upload {
    /// No request was sent.
    Unused,
    /// The request has no body.
    None,
    /// Upgraded to another protocol; each direction ends by itself.
    Tunnel,
    /// A body that the client may still be sending after the server has responded.
    Some(Option<UploadProgress>),
}

impl Upload {
    /// Returns since when the client has waited for the server, not before `began`. `None` while it
    /// waits for the producer of the request body.
    pub(crate) fn waits_since(&self, began: Instant) -> Option<Instant> {
        match self {
            Self::Some(Some(progress)) => progress.waits_since(began),
            Self::Some(None) | Self::None | Self::Tunnel | Self::Unused => Some(began),
        }
    }

    /// Waits until the request body has been sent, although the response is complete. Gives up when
    /// no data has moved for `body_timeout`, whichever side caused it.
    async fn is_sent(&self, connection: &mut Connection, pool: &PoolState) -> bool {
        let (handle, timeout) = (&pool.handle, pool.options.body_timeout);
        let began = handle.now();
        let mut ready = pin!(connection.ready());
        let mut sleep = Box::pin(handle.sleep(timeout));
        poll_fn(|cx| {
            if let Poll::Ready(ready) = ready.as_mut().poll(cx) {
                return Poll::Ready(ready.is_ok());
            }
            loop {
                ready!(sleep.as_mut().poll(cx));
                let since = if let Self::Some(Some(progress)) = self {
                    progress.last_progress(began)
                } else {
                    began
                };
                let left = (since + timeout).saturating_duration_since(handle.now());
                if left.is_zero() {
                    return Poll::Ready(false);
                }
                sleep = Box::pin(handle.sleep(left));
            }
        })
        .await
    }
}

impl Lease {
    /// Leases the shared connection of this number. `reused`: whether it has received a response.
    pub(crate) fn shared(
        connection: Box<Connection>,
        generation: u64,
        reused: bool,
        connections: &Rc<Connections>,
        pool: &Rc<PoolState>,
    ) -> Self {
        connections.shared_uses.set(connections.shared_uses.get() + 1);
        let (connections, pool) = (connections.clone(), pool.clone());
        let (generation, upload) = (Some(generation), Upload::Unused);
        Self {
            connection: Some(connection),
            connections,
            pool,
            reused,
            generation,
            upload,
            exchange: None,
        }
    }

    /// Leases an HTTP/1.1 connection. `used`: whether a request was sent on it before.
    pub(crate) fn exclusive(
        connection: Box<Connection>,
        reused: bool,
        connections: &Rc<Connections>,
        pool: &Rc<PoolState>,
    ) -> Self {
        let (connections, pool) = (connections.clone(), pool.clone());
        Self {
            connection: Some(connection),
            connections,
            pool,
            reused,
            generation: None,
            upload: Upload::Unused,
            exchange: None,
        }
    }

    /// Returns the number of the shared connection, if it is one.
    pub(crate) fn generation(&self) -> Option<u64> {
        self.generation
    }

    /// Returns whether the connection was open before the request, so that the server may have
    /// closed it meanwhile.
    pub(crate) fn is_reused(&self) -> bool {
        self.reused
    }

    pub(crate) fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("invariant: it is taken only by what consumes the lease")
    }

    pub(crate) fn connections(&self) -> &Rc<Connections> {
        &self.connections
    }

    /// Records that a request is sent, with or without a body.
    pub(crate) fn begin(&mut self, has_content: bool, progress: Option<UploadProgress>) {
        if self.generation.is_none() && progress.is_some() {
            self.exchange = Some(
                self.connections
                    .exchanges
                    .borrow_mut()
                    .begin(self.pool.handle.now(), progress.clone()),
            );
        }
        self.upload = if has_content { Upload::Some(progress) } else { Upload::None };
    }

    /// Records that the response head was received and a body follows.
    fn answered(&mut self) {
        if self.generation.is_some() || matches!(self.upload, Upload::Tunnel) {
            return;
        }
        let (mut exchanges, now) =
            (self.connections.exchanges.borrow_mut(), self.pool.handle.now());
        match self.exchange {
            Some(number) => exchanges.answered(number, now),
            None => self.exchange = Some(exchanges.begin(now, None)),
        }
    }

    /// Removes the connection from the pool: it was upgraded to another protocol.
    pub(crate) fn upgraded(&mut self) {
        self.upload = Upload::Tunnel;
        self.end();
        if self.generation.is_none() {
            self.connections.remove_upgraded(&self.pool);
        }
    }

    /// Records that the exchange is over.
    fn end(&mut self) {
        if let Some(number) = self.exchange.take() {
            self.connections.exchanges.borrow_mut().end(number);
        }
    }

    pub(crate) fn upload(&self) -> Upload {
        self.upload.clone()
    }

    /// Returns the connection to the pool: the response is complete, or no request was sent.
    pub(crate) fn complete(mut self) {
        if self.generation.is_some() || matches!(self.upload, Upload::Tunnel) {
            return;
        }
        let Some(mut connection) = self.connection.take() else { return };
        let (connections, pool) = (self.connections.clone(), self.pool.clone());
        let used = self.reused || !matches!(self.upload, Upload::Unused);
        if connection.is_ready() || !connection.is_usable() {
            self.end();
            return connections.give_back(Some(connection), used, &pool);
        }
        let (handle, upload) = (pool.handle.clone(), self.upload.clone());
        handle.spawn(async move {
            // The server has responded before reading the whole body, and may continue to read it.
            let is_sent = upload.is_sent(&mut connection, &pool).await;
            self.end();
            if is_sent {
                return connections.give_back(Some(connection), used, &pool);
            }
            connection.abort();
            connections.give_back(None, used, &pool);
        });
    }
}

impl Served for Lease {
    fn put_back(self) {
        self.complete();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // `None` if it was returned already.
        let Some(connection) = self.connection.take() else { return };
        self.end();
        if self.generation.is_none() {
            // Cancel the request; otherwise the connection would continue to send it. The two
            // directions of a tunnel end independently.
            match self.upload {
                Upload::Tunnel => return drop(connection),
                Upload::Unused | Upload::None | Upload::Some(_) => connection.abort(),
            }
            self.connections.give_back(None, false, &self.pool);
        } else {
            drop(connection);
            self.connections.shared_uses.set(self.connections.shared_uses.get() - 1);
            self.connections.touch(self.pool.handle.now());
        }
    }
}

/// A response body.
///
/// Only a small window is read ahead of the reader. Dropping the body before its end cancels the
/// request.
pub struct Content {
    incoming: Incoming,
    /// Returned at the end of the body.
    lease: Option<Lease>,
    /// Maximum time between two pieces; tunnels have none.
    timeout: Option<Duration>,
    patience: Option<Pin<Box<Sleep>>>,
    /// When the reader began to wait.
    began: Option<Instant>,
}

impl Content {
    pub(crate) fn new(incoming: Incoming, lease: Lease, timeout: Option<Duration>) -> Self {
        let mut content =
            Self { incoming, lease: Some(lease), timeout, patience: None, began: None };
        if content.incoming.is_end_stream() {
            content.complete();
        } else if let Some(lease) = &mut content.lease {
            lease.answered();
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

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let frame = Pin::new(&mut this.incoming).poll_frame(cx);
        match &frame {
            Poll::Pending => {
                let (Some(lease), Some(timeout)) = (&this.lease, this.timeout) else {
                    return Poll::Pending;
                };
                let handle = &lease.pool.handle;
                let began = *this.began.get_or_insert_with(|| handle.now());
                loop {
                    let patience =
                        this.patience.get_or_insert_with(|| Box::pin(handle.sleep(timeout)));
                    std::task::ready!(patience.as_mut().poll(cx));
                    // Time in which the server waits for the request body does not count against
                    // it.
                    let since = lease.upload.waits_since(began).unwrap_or_else(|| handle.now());
                    let left = (since + timeout).saturating_duration_since(handle.now());
                    if left.is_zero() {
                        break;
                    }
                    this.patience = Some(Box::pin(handle.sleep(left)));
                }
                this.incoming_is_given_up();
                return Poll::Ready(Some(Err(Error::TimedOut(Phase::Body).into())));
            }
            Poll::Ready(Some(Err(_))) => this.lease = None,
            Poll::Ready(None) => this.complete(),
            Poll::Ready(Some(Ok(_))) if this.incoming.is_end_stream() => this.complete(),
            Poll::Ready(Some(Ok(_))) => {}
        }
        (this.patience, this.began) = (None, None);
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
