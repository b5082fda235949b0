//! A connection in use, and the content that comes over it.

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
use crate::loan::Loan;
use crate::pool::Shared;
use crate::{Error, Phase};

/// The use of a connection for one request. Dropped before the response's end, it takes an HTTP/1.1 connection with it.
pub(crate) struct Lease {
    connection: Option<Box<Connection>>,
    connections: Rc<Connections>,
    pool: Rc<Shared>,
    reused: bool,
    generation: Option<u64>,
    upload: Upload,
    /// Its number among what is under way, on an HTTP/1.1 connection.
    underway: Option<usize>,
}

/// What was sent with the request.
#[derive(Clone)]
pub(crate) enum Upload {
    /// Nothing has been sent.
    Unused,
    /// No content.
    None,
    /// What is another protocol since, and ends by itself.
    Tunnel,
    /// Content, of which more may be sent than the server has waited for before it answered.
    Some(Option<Loan>),
}

impl Upload {
    /// Since when the server is waited for, `began` at the earliest; `None` while it is whoever produces the request's content.
    pub(crate) fn waits_since(&self, began: Instant) -> Option<Instant> {
        match self {
            Self::Some(Some(loan)) => loan.waits_since(began),
            Self::Some(None) | Self::None | Self::Tunnel | Self::Unused => Some(began),
        }
    }

    /// Waits until all of it is sent, although the response is complete: as long as it moves, whoever else is waited for.
    async fn is_sent(&self, connection: &mut Connection, pool: &Shared) -> bool {
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
                let since = if let Self::Some(Some(loan)) = self { loan.rests_since(began) } else { began };
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
    /// The use of the shared connection of this number. `reused`: whether it has brought a response.
    pub(crate) fn shared(
        connection: Box<Connection>,
        generation: u64,
        reused: bool,
        connections: &Rc<Connections>,
        pool: &Rc<Shared>,
    ) -> Self {
        connections.shared_uses.set(connections.shared_uses.get() + 1);
        let (connections, pool) = (connections.clone(), pool.clone());
        let (generation, upload) = (Some(generation), Upload::Unused);
        Self { connection: Some(connection), connections, pool, reused, generation, upload, underway: None }
    }

    /// The use of an HTTP/1.1 connection, which was used before or not.
    pub(crate) fn exclusive(connection: Box<Connection>, reused: bool, connections: &Rc<Connections>, pool: &Rc<Shared>) -> Self {
        let (connections, pool) = (connections.clone(), pool.clone());
        Self { connection: Some(connection), connections, pool, reused, generation: None, upload: Upload::Unused, underway: None }
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

    /// A request is sent, with content or without.
    pub(crate) fn begin(&mut self, has_content: bool, loan: Option<Loan>) {
        if self.generation.is_none() && loan.is_some() {
            self.underway = Some(self.connections.underway.borrow_mut().begin(self.pool.handle.now(), loan.clone()));
        }
        self.upload = if has_content { Upload::Some(loan) } else { Upload::None };
    }

    /// The head of the response has come, and more will.
    fn answered(&mut self) {
        if self.generation.is_some() || matches!(self.upload, Upload::Tunnel) {
            return;
        }
        let (mut underway, now) = (self.connections.underway.borrow_mut(), self.pool.handle.now());
        match self.underway {
            Some(number) => underway.answered(number, now),
            None => self.underway = Some(underway.begin(now, None)),
        }
    }

    /// The connection goes on in another protocol, and is none of the pool's any more.
    pub(crate) fn upgraded(&mut self) {
        self.upload = Upload::Tunnel;
        self.end();
        if self.generation.is_none() {
            self.connections.part_with_one(&self.pool);
        }
    }

    /// Nothing is under way any more.
    fn end(&mut self) {
        if let Some(number) = self.underway.take() {
            self.connections.underway.borrow_mut().end(number);
        }
    }

    pub(crate) fn upload(&self) -> Upload {
        self.upload.clone()
    }

    /// The response is complete, or nothing was sent: the connection is for the next one.
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
            // It has answered without all of the content, and may go on to read.
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

impl Drop for Lease {
    fn drop(&mut self) {
        // Taken when it was given back.
        let Some(connection) = self.connection.take() else { return };
        self.end();
        if self.generation.is_none() {
            // Dropped, it would go on until the request is sent, for nobody. The directions of a tunnel end one by one.
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
    /// When it began to be waited for.
    began: Option<Instant>,
}

impl Content {
    pub(crate) fn new(incoming: Incoming, lease: Lease, timeout: Option<Duration>) -> Self {
        let mut content = Self { incoming, lease: Some(lease), timeout, patience: None, began: None };
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

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let frame = Pin::new(&mut this.incoming).poll_frame(cx);
        match &frame {
            Poll::Pending => {
                let (Some(lease), Some(timeout)) = (&this.lease, this.timeout) else { return Poll::Pending };
                let handle = &lease.pool.handle;
                let began = *this.began.get_or_insert_with(|| handle.now());
                loop {
                    let patience = this.patience.get_or_insert_with(|| Box::pin(handle.sleep(timeout)));
                    std::task::ready!(patience.as_mut().poll(cx));
                    // What the server waits for itself is not its fault.
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
