//! Connections that this side opens.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use super::StreamError;
use super::outbound::{Outbound, RequestHead};
use super::stream::{EarlyRequest, Stream, WorkQueue};
use crate::TransportStats;
use crate::client::Observer;
use crate::context::Context as WorkerContext;
use crate::runtime::Wakeup;
use crate::tls::TlsSummary;
use crate::transport::{ClientTls, ConnectionKey};
use crate::transport_stats::StatsSink;
use crate::{Body, Incoming};

/// Opens connections from one UDP socket of the worker.
#[derive(Clone)]
pub(crate) struct Client {
    shared: Rc<ClientShared>,
}

struct ClientShared {
    work_queue: Rc<WorkQueue>,
    wakeup: Arc<Wakeup>,
    context: Rc<WorkerContext>,
    connects: RefCell<VecDeque<Connect>>,
    closes: RefCell<VecDeque<ConnectionKey>>,
    /// Connections whose statistics were requested.
    measures: RefCell<VecDeque<Rc<ConnectionState>>>,
}

/// A connection that the driver has yet to open.
pub(super) struct Connect {
    pub(super) remote: SocketAddr,
    pub(super) server_name: String,
    pub(super) tls: ClientTls,
    pub(super) state: Rc<ConnectionState>,
}

/// State that the driver reports to the connection's handle.
#[derive(Default)]
pub(crate) struct ConnectionState {
    pub(super) key: Cell<Option<ConnectionKey>>,
    status: RefCell<Status>,
    wakers: RefCell<Vec<Waker>>,
    gone_away: Cell<bool>,
    stats: StatsSink,
    /// Number of statistics updates, and the tasks that wait for the next.
    measured: Cell<u64>,
    measure_wakers: RefCell<Vec<Waker>>,
}

#[derive(Clone, Debug, Default)]
enum Status {
    #[default]
    Connecting,
    /// Requests may be sent while the handshake goes on.
    Early,
    Connected(Duration, Option<TlsSummary>),
    Closed {
        reason: String,
        /// The connection ended before it was connected.
        early: bool,
    },
}

impl Client {
    pub(super) fn new(work_queue: Rc<WorkQueue>, context: Rc<WorkerContext>) -> Self {
        let wakeup = context.handle.wakeup().clone();
        let shared = ClientShared {
            work_queue,
            wakeup,
            context,
            connects: RefCell::default(),
            closes: RefCell::default(),
            measures: RefCell::default(),
        };
        Self { shared: Rc::new(shared) }
    }

    /// Connects, and waits for the handshake. Returns at once if `tls` allows early data and has a
    /// session for it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    pub(crate) async fn connect(
        &self,
        remote: SocketAddr,
        server_name: &str,
        tls: &ClientTls,
    ) -> Result<ClientConnection, String> {
        let state = Rc::<ConnectionState>::default();
        let connect = Connect {
            remote,
            server_name: server_name.to_owned(),
            tls: tls.clone(),
            state: state.clone(),
        };
        self.shared.connects.borrow_mut().push_back(connect);
        self.shared.wakeup.notify();
        let connection = ClientConnection { state: state.clone(), shared: self.shared.clone() };
        poll_fn(|cx| match &*state.status.borrow() {
            Status::Connecting => {
                state.wakers.borrow_mut().push(cx.waker().clone());
                Poll::Pending
            }
            Status::Early | Status::Connected(..) => Poll::Ready(Ok(())),
            Status::Closed { reason, .. } => Poll::Ready(Err(reason.clone())),
        })
        .await?;
        Ok(connection)
    }

    pub(super) fn next_connect(&self) -> Option<Connect> {
        self.shared.connects.borrow_mut().pop_front()
    }

    pub(super) fn take_closes(&self) -> VecDeque<ConnectionKey> {
        std::mem::take(&mut self.shared.closes.borrow_mut())
    }

    pub(super) fn take_measures(&self) -> VecDeque<Rc<ConnectionState>> {
        std::mem::take(&mut self.shared.measures.borrow_mut())
    }

    pub(super) fn has_work(&self) -> bool {
        let ClientShared { connects, closes, measures, .. } = &*self.shared;
        !connects.borrow().is_empty()
            || !closes.borrow().is_empty()
            || !measures.borrow().is_empty()
    }
}

impl ConnectionState {
    pub(super) fn on_early_data(&self) {
        self.set(Status::Early);
    }

    pub(super) fn on_connected(
        &self,
        key: ConnectionKey,
        handshake: Duration,
        tls: Option<TlsSummary>,
    ) {
        self.key.set(Some(key));
        self.set(Status::Connected(handshake, tls));
    }

    pub(super) fn on_closed(&self, reason: &str) {
        let early = match &*self.status.borrow() {
            Status::Connecting | Status::Early => true,
            Status::Connected(..) => false,
            Status::Closed { .. } => return,
        };
        self.set(Status::Closed { reason: reason.to_owned(), early });
    }

    pub(super) fn on_go_away(&self) {
        self.gone_away.set(true);
    }

    pub(super) fn stats(&self) -> StatsSink {
        self.stats.clone()
    }

    pub(super) fn on_measured(&self) {
        self.measured.set(self.measured.get() + 1);
        let wakers = std::mem::take(&mut *self.measure_wakers.borrow_mut());
        wakers.into_iter().for_each(Waker::wake);
    }

    fn set(&self, status: Status) {
        *self.status.borrow_mut() = status;
        let wakers = std::mem::take(&mut *self.wakers.borrow_mut());
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// An open connection to a server. Dropping it closes the connection.
pub(crate) struct ClientConnection {
    state: Rc<ConnectionState>,
    shared: Rc<ClientShared>,
}

/// Reads a connection's statistics; see [`crate::StatsProbe`].
#[derive(Clone)]
pub(crate) struct StatsProbe {
    state: Rc<ConnectionState>,
    shared: Rc<ClientShared>,
}

impl StatsProbe {
    pub(crate) async fn read(self) -> TransportStats {
        let Self { state, shared } = self;
        let before = state.measured.get();
        shared.measures.borrow_mut().push_back(state.clone());
        shared.wakeup.notify();
        poll_fn(|cx| {
            if state.measured.get() != before {
                return Poll::Ready(state.stats.get());
            }
            state.measure_wakers.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl ClientConnection {
    pub(crate) fn probe(&self) -> StatsProbe {
        StatsProbe { state: self.state.clone(), shared: self.shared.clone() }
    }

    /// Returns the worker's context.
    pub(crate) fn context(&self) -> Rc<WorkerContext> {
        self.shared.context.clone()
    }

    /// Returns the duration of the handshake.
    pub(crate) fn handshake(&self) -> Option<Duration> {
        match *self.state.status.borrow() {
            Status::Connected(handshake, _) => Some(handshake),
            Status::Connecting | Status::Early | Status::Closed { .. } => None,
        }
    }

    /// Returns a summary of the TLS handshake, once it is done.
    pub(crate) fn tls(&self) -> Option<TlsSummary> {
        match *self.state.status.borrow() {
            Status::Connected(_, tls) => tls,
            Status::Connecting | Status::Early | Status::Closed { .. } => None,
        }
    }

    /// Whether requests are sent before the handshake is done.
    pub(crate) fn is_early(&self) -> bool {
        matches!(*self.state.status.borrow(), Status::Early)
    }

    /// Returns why a handshake failed that was not waited for.
    pub(crate) fn handshake_failure(&self) -> Option<String> {
        match &*self.state.status.borrow() {
            Status::Closed { reason, early: true } => Some(reason.clone()),
            _ => None,
        }
    }

    /// Ready when the handshake is done or the connection is gone.
    pub(crate) fn poll_done(&self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_early() {
            return Poll::Ready(());
        }
        self.state.wakers.borrow_mut().push(cx.waker().clone());
        Poll::Pending
    }

    /// Whether requests may still be sent.
    pub(crate) fn is_usable(&self) -> bool {
        !self.state.gone_away.get()
            && matches!(*self.state.status.borrow(), Status::Early | Status::Connected(..))
    }

    /// Sends a request and waits for the head of the response.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request.
    pub(crate) async fn send(
        &self,
        head: RequestHead,
        body: Body,
        spawn: impl FnOnce(Rc<Stream>, Body),
        observer: &mut Observer<'_>,
    ) -> Result<(StatusCode, HeaderMap, Incoming), StreamError> {
        let key = match (&*self.state.status.borrow(), self.state.key.get()) {
            (Status::Early | Status::Connected(..), Some(key)) => key,
            (Status::Closed { reason, .. }, _) => return Err(StreamError::Refused(reason.clone())),
            _ => return Err(StreamError::Refused("not connected".to_owned())),
        };
        let stream =
            Rc::new(Stream::new(key, None, head.method.clone(), self.shared.work_queue.clone()));
        // Dropped with this future, or by the reader of the response: received data is discarded
        // from then on.
        let incoming = Incoming::http3(stream.clone());
        stream.pending_upgrade.replace(head.upgrade.clone());
        let mut body = body;
        match body.take_full() {
            Some(content) if self.is_early() => {
                stream.send_early_request(EarlyRequest { head, content });
            }
            Some(data) => {
                stream.send(Outbound::Request(Box::new(head)));
                if !data.is_empty() {
                    stream.send(Outbound::Data(data));
                }
                stream.send(Outbound::End);
            }
            None => {
                stream.send(Outbound::Request(Box::new(head)));
                spawn(stream.clone(), body);
            }
        }
        let mut was_queued = false;
        let (status, headers) = poll_fn(|cx| {
            let response = stream.poll_response(cx);
            // A connection that ends while the request waits ends the wait.
            let is_queued =
                response.is_pending() && stream.is_waiting.get() && stream.id.get().is_none();
            if let Some(on_queue) = &mut observer.on_queue
                && std::mem::replace(&mut was_queued, is_queued) != is_queued
            {
                on_queue(is_queued);
            }
            while let Some((status, headers)) = stream.next_interim() {
                if let Some(on_interim) = observer.on_interim.as_mut() {
                    on_interim(status, headers);
                }
            }
            response
        })
        .await?;
        Ok((status, headers, incoming))
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        if let Some(key) = self.state.key.get() {
            self.shared.closes.borrow_mut().push_back(key);
            self.shared.wakeup.notify();
        }
    }
}
