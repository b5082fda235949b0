//! A request stream's state, shared by its handler and the driver.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use http_body::{Body as _, Frame};
use pronghorn_h3::{ErrorCode, StreamId};

use super::inbound_buffer::InboundBuffer;
use super::outbound::{
    OUTBOUND_BYTES, Outbound, OutboundQueue, PRESSED_OUTBOUND_BYTES, RequestHead,
};
use super::session::Work;
use crate::memory::{Charge, MemoryPressure, WorkerMemory};
use crate::runtime::Wakeup;
use crate::transport::ConnectionKey;
use crate::window_budget::{WindowPromise, with_overhead};
use crate::{Body, Response, Upgrade};

/// The reason why an HTTP/3 exchange failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The peer reset its side of the stream.
    #[error("the peer reset the stream: {0}")]
    Reset(ErrorCode),
    /// The server did not process the request, so it can be sent again on another connection.
    #[error("the server did not process the request: {0}")]
    Refused(String),
    /// The server does not support extended CONNECT.
    #[error("the server does not support extended CONNECT for {0}")]
    ExtendedConnectUnsupported(Upgrade),
    /// The head of the request violates HTTP/3, or a limit of the server.
    #[error("cannot send the request: {0}")]
    Unsendable(String),
    /// The request's body returned an error.
    #[error("the request body failed before its end")]
    BodyFailed,
    /// The message violates HTTP/3.
    #[error("malformed message: {0}")]
    Malformed(&'static str),
    /// The message exceeds a limit.
    #[error("the message is too large: {0}")]
    TooLarge(&'static str),
    /// The connection ended first.
    #[error("the connection ended: {0}")]
    ConnectionClosed(String),
    /// The connection timed out.
    #[error("the connection timed out: nothing received from the peer")]
    ConnectionLost,
}

/// Streams with work for the driver, and the handle that wakes it.
pub(crate) struct WorkQueue {
    streams: RefCell<VecDeque<Rc<Stream>>>,
    /// WebTransport sessions and their streams with work for the driver.
    work: RefCell<VecDeque<Work>>,
    wakeup: Arc<Wakeup>,
    /// Counts what the streams hold.
    memory: Rc<WorkerMemory>,
}

impl WorkQueue {
    pub(super) fn new(wakeup: Arc<Wakeup>, memory: Rc<WorkerMemory>) -> Rc<Self> {
        Rc::new(Self { streams: RefCell::default(), work: RefCell::default(), wakeup, memory })
    }

    pub(super) fn memory(&self) -> &Rc<WorkerMemory> {
        &self.memory
    }

    pub(super) fn push(&self, stream: Rc<Stream>) {
        self.streams.borrow_mut().push_back(stream);
        self.wakeup.notify();
    }

    pub(super) fn pop(&self) -> Option<Rc<Stream>> {
        self.streams.borrow_mut().pop_front()
    }

    /// Number of queued streams.
    pub(super) fn len(&self) -> usize {
        self.streams.borrow().len()
    }

    pub(super) fn push_work(&self, work: Work) {
        self.work.borrow_mut().push_back(work);
        self.wakeup.notify();
    }

    pub(super) fn pop_work(&self) -> Option<Work> {
        self.work.borrow_mut().pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.streams.borrow().is_empty() && self.work.borrow().is_empty()
    }
}

/// A request sent as early data, kept to be sent again if the server rejects early data.
pub(super) struct EarlyRequest {
    pub(super) head: RequestHead,
    pub(super) content: Bytes,
}

/// A request stream. The driver keeps it until both directions are done; handles may outlive that.
pub(crate) struct Stream {
    pub(super) connection: ConnectionKey,
    /// Set once the transport has assigned a stream ID. A client may have to wait for stream credit
    /// from the peer.
    pub(super) id: Cell<Option<StreamId>>,
    /// Whether the stream is in the connection's queue of requests that wait for stream credit.
    pub(super) is_waiting: Cell<bool>,
    /// The request's method, which decides whether the response may have content.
    pub(super) method: Method,
    /// Whether the client waits for 100 (Continue) before it sends content.
    pub(super) expects_continue: Cell<bool>,
    /// An extended CONNECT of this side, until the server's SETTINGS have arrived.
    pub(super) pending_upgrade: RefCell<Option<Upgrade>>,
    work_queue: Rc<WorkQueue>,
    queued: Cell<bool>,
    early: RefCell<Option<Box<EarlyRequest>>>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    inbound: InboundBuffer,
    trailers: Option<Box<HeaderMap>>,
    inbound_end: Option<Result<(), StreamError>>,
    reader: Option<Waker>,
    /// The application no longer reads: received content is dropped.
    discarding: bool,
    /// The receive window of a connection that has ended, kept until the received content has been
    /// read.
    final_windows: Option<Rc<WindowPromise>>,

    outbound: OutboundQueue,
    outbound_bytes: usize,
    /// Counts them.
    outbound_held: Charge,
    writer: Option<Waker>,
    /// The peer accepts nothing more, or the connection is gone.
    closed: bool,
    closed_waker: Option<Waker>,

    /// Interim responses that were not polled yet.
    interim: VecDeque<(StatusCode, HeaderMap)>,
    response: Option<Result<Box<(StatusCode, HeaderMap)>, StreamError>>,
    response_waker: Option<Waker>,
}

impl Stream {
    pub(super) fn new(
        connection: ConnectionKey,
        id: Option<StreamId>,
        method: Method,
        work_queue: Rc<WorkQueue>,
    ) -> Self {
        Self {
            connection,
            id: Cell::new(id),
            is_waiting: Cell::default(),
            method,
            expects_continue: Cell::default(),
            pending_upgrade: RefCell::default(),
            work_queue,
            queued: Cell::default(),
            early: RefCell::default(),
            state: RefCell::default(),
        }
    }

    /// Drops all state, so that [`Stream::renew`] can reuse the memory.
    pub(super) fn clear(&mut self) {
        let Self {
            method,
            is_waiting,
            expects_continue,
            pending_upgrade,
            queued,
            early,
            state,
            connection: _,
            id: _,
            work_queue: _,
        } = self;
        // An extension method can be long.
        *method = Method::GET;
        is_waiting.set(false);
        expects_continue.set(false);
        queued.set(false);
        *pending_upgrade.get_mut() = None;
        *early.get_mut() = None;
        *state.get_mut() = State::default();
    }

    /// Turns a cleared stream into a new one.
    pub(super) fn renew(
        &mut self,
        connection: ConnectionKey,
        id: StreamId,
        method: Method,
        work_queue: &Rc<WorkQueue>,
    ) {
        self.connection = connection;
        self.id.set(Some(id));
        self.method = method;
        if !Rc::ptr_eq(&self.work_queue, work_queue) {
            self.work_queue = work_queue.clone();
        }
    }

    pub(super) fn work_queue(&self) -> &Rc<WorkQueue> {
        &self.work_queue
    }

    // ---- the application's side

    pub(crate) fn poll_inbound(
        self: &Rc<Self>,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamError>>> {
        let mut state = self.state.borrow_mut();
        let memory = self.work_queue.memory();
        let next = state.inbound.pop(memory);
        if state.inbound.is_empty() {
            state.final_windows = None;
        }
        if let Some(data) = next {
            let resume = state.inbound.should_resume(memory);
            drop(state);
            if resume {
                self.queue_work();
            }
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let Some(trailers) = state.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(*trailers))));
        }
        match state.inbound_end.take() {
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            Some(Ok(())) => {
                state.inbound_end = Some(Ok(()));
                Poll::Ready(None)
            }
            None => {
                state.reader = Some(cx.waker().clone());
                drop(state);
                if self.expects_continue.take() {
                    self.send_interim(StatusCode::CONTINUE, HeaderMap::new());
                }
                Poll::Pending
            }
        }
    }

    pub(crate) fn inbound_is_over(&self) -> bool {
        let state = self.state.borrow();
        state.inbound.is_empty() && state.trailers.is_none() && state.inbound_end == Some(Ok(()))
    }

    /// Whether received content, or a regular end, has not been read yet.
    pub(super) fn has_unread(&self) -> bool {
        let state = self.state.borrow();
        !state.inbound.is_empty() || state.inbound_end == Some(Ok(()))
    }

    pub(crate) fn discard_inbound(self: &Rc<Self>) {
        let mut state = self.state.borrow_mut();
        state.discarding = true;
        state.inbound.clear();
        state.final_windows = None;
        let act = state.inbound_end.is_none();
        drop(state);
        if act {
            self.queue_work();
        }
    }

    pub(crate) fn send_interim(self: &Rc<Self>, status: StatusCode, headers: HeaderMap) {
        self.send(Outbound::Interim(Box::new((status, headers))));
    }

    pub(crate) fn respond(self: &Rc<Self>, response: Box<Response>) {
        self.expects_continue.set(false);
        self.send(Outbound::Response(response));
    }

    /// Resets the stream instead of sending a response.
    pub(crate) fn abort(self: &Rc<Self>) {
        self.expects_continue.set(false);
        self.send(Outbound::Abort(ErrorCode::H3_INTERNAL_ERROR));
    }

    pub(crate) fn poll_closed(&self, cx: &mut TaskContext<'_>) -> Poll<()> {
        let mut state = self.state.borrow_mut();
        if state.closed {
            return Poll::Ready(());
        }
        state.closed_waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Queues an item to send. On a closed stream it is dropped.
    pub(super) fn send(self: &Rc<Self>, what: Outbound) {
        let mut state = self.state.borrow_mut();
        if state.closed {
            return;
        }
        if let Outbound::Data(data) = &what {
            state.outbound_bytes += data.len();
            let bytes = state.outbound_bytes as u64;
            state.outbound_held.set(self.work_queue.memory(), with_overhead(bytes));
        }
        state.outbound.push_back(what);
        drop(state);
        self.queue_work();
    }

    /// Queues a complete request, and keeps a copy for [`Stream::resend_early`].
    pub(super) fn send_early_request(self: &Rc<Self>, request: EarlyRequest) {
        *self.early.borrow_mut() = Some(Box::new(request));
        self.resend_early();
        self.queue_work();
    }

    /// Queues the early request again from its beginning. No response has arrived.
    pub(super) fn resend_early(&self) {
        let early = self.early.borrow();
        let Some(EarlyRequest { head, content }) = early.as_deref() else { return };
        self.id.set(None);
        let mut state = self.state.borrow_mut();
        if state.closed {
            return;
        }
        state.outbound.clear();
        state.outbound.push_back(Outbound::Request(Box::new(head.clone())));
        if !content.is_empty() {
            state.outbound.push_back(Outbound::Data(content.clone()));
        }
        state.outbound.push_back(Outbound::End);
    }

    /// Moves a body into the stream, at the pace of the transport.
    pub(crate) async fn pump(self: Rc<Self>, body: Body) {
        let _guard = AbortOnPanic(&self);
        // RFC 9220, section 3: H3_REQUEST_CANCELLED takes the place of a TCP reset.
        let broken = if body.is_tunnel() {
            ErrorCode::H3_REQUEST_CANCELLED
        } else {
            ErrorCode::H3_INTERNAL_ERROR
        };
        let mut body = pin!(body);
        loop {
            let frame = poll_fn(|cx| match self.poll_capacity(cx) {
                Poll::Ready(Ok(())) => body.as_mut().poll_frame(cx).map(Ok),
                Poll::Ready(Err(())) => Poll::Ready(Err(None)),
                Poll::Pending => body.poll_abort(cx).map(|()| Err(Some(broken))),
            })
            .await;
            match frame {
                Err(None) => return,
                Err(Some(cut)) => return self.send(Outbound::Abort(cut)),
                Ok(None) => return self.send(Outbound::End),
                Ok(Some(Err(_))) => return self.send(Outbound::Abort(broken)),
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.send(Outbound::Data(data)),
                    Err(frame) => {
                        if let Ok(trailers) = frame.into_trailers() {
                            self.send(Outbound::Trailers(Box::new(trailers)));
                        }
                    }
                },
            }
            if body.is_end_stream() {
                return self.send(Outbound::End);
            }
        }
    }

    /// Also wakes when the stream closes while there is capacity, so that a waiting producer is
    /// dropped.
    fn poll_capacity(&self, cx: &mut TaskContext<'_>) -> Poll<Result<(), ()>> {
        let mut state = self.state.borrow_mut();
        if state.closed {
            return Poll::Ready(Err(()));
        }
        state.writer = Some(cx.waker().clone());
        // A request without a stream keeps its body untouched, so that another connection can send
        // it.
        if state.outbound_bytes < self.max_outbound() && self.id.get().is_some() {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    /// Polls for the head of the final response. Client only.
    pub(crate) fn poll_response(
        &self,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Result<(StatusCode, HeaderMap), StreamError>> {
        let mut state = self.state.borrow_mut();
        if let Some(response) = state.response.take() {
            return Poll::Ready(response.map(|head| *head));
        }
        state.response_waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Returns the next interim response that arrived before the last poll of the final one. Client
    /// only.
    pub(crate) fn next_interim(&self) -> Option<(StatusCode, HeaderMap)> {
        self.state.borrow_mut().interim.pop_front()
    }

    /// Queues the stream for the driver.
    pub(super) fn queue_work(self: &Rc<Self>) {
        if !self.queued.replace(true) {
            self.work_queue.push(self.clone());
        }
    }

    // ---- the driver's side

    /// Called when the stream leaves the driver's queue.
    pub(super) fn unqueue(&self) {
        self.queued.set(false);
    }

    pub(super) fn next_outbound(&self) -> Option<Outbound> {
        self.state.borrow_mut().outbound.pop_front()
    }

    /// Returns how many bytes of content a producer may be ahead of the transport.
    fn max_outbound(&self) -> usize {
        if self.work_queue.memory().pressure() >= MemoryPressure::SmallWindows {
            PRESSED_OUTBOUND_BYTES
        } else {
            OUTBOUND_BYTES
        }
    }

    /// Updates the number of bytes that the transport has not accepted yet.
    pub(super) fn wrote(&self, waiting: usize) {
        let mut state = self.state.borrow_mut();
        state.outbound_bytes = waiting;
        if !state.outbound_held.is_none() {
            state.outbound_held.set(self.work_queue.memory(), with_overhead(waiting as u64));
        }
        let writer = if waiting < self.max_outbound() / 2 { state.writer.take() } else { None };
        drop(state);
        wake(writer);
    }

    pub(super) fn is_discarding(&self) -> bool {
        self.state.borrow().discarding
    }

    /// Returns how many more bytes the application accepts now, and records whether that is none.
    pub(super) fn inbound_room(&self) -> usize {
        let mut state = self.state.borrow_mut();
        if state.final_windows.is_some() {
            state.inbound.full_capacity()
        } else {
            state.inbound.capacity(self.work_queue.memory())
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.state.borrow().inbound.is_paused()
    }

    /// Accepts all content that was received before the connection ended, whether the application
    /// reads or not. `windows` is the receive window that covers it.
    pub(super) fn keep_received(&self, windows: Rc<WindowPromise>) {
        self.state.borrow_mut().final_windows = Some(windows);
    }

    pub(super) fn on_data(&self, data: Bytes) {
        let mut state = self.state.borrow_mut();
        if state.discarding {
            return;
        }
        state.inbound.push(data, self.work_queue.memory());
        let reader = state.reader.take();
        drop(state);
        wake(reader);
    }

    pub(super) fn on_trailers(&self, trailers: HeaderMap) {
        self.state.borrow_mut().trailers = Some(Box::new(trailers));
    }

    /// Called at the end of the peer's message, or when no more of it will arrive.
    pub(super) fn on_inbound_end(&self, end: Result<(), StreamError>) {
        let mut state = self.state.borrow_mut();
        if state.inbound_end.is_some() {
            return;
        }
        let mut response_waker = None;
        if let Err(error) = &end
            && state.response.is_none()
        {
            state.response = Some(Err(error.clone()));
            response_waker = state.response_waker.take();
        }
        state.inbound_end = Some(end);
        let reader = state.reader.take();
        drop(state);
        wake(reader);
        wake(response_waker);
    }

    /// HTTP/3 limits the number of interim responses.
    pub(super) fn on_interim(&self, status: StatusCode, headers: HeaderMap) {
        let mut state = self.state.borrow_mut();
        state.interim.push_back((status, headers));
        let waker = state.response_waker.take();
        drop(state);
        wake(waker);
    }

    pub(super) fn on_response(&self, status: StatusCode, headers: HeaderMap) {
        let mut state = self.state.borrow_mut();
        state.response = Some(Ok(Box::new((status, headers))));
        let waker = state.response_waker.take();
        drop(state);
        wake(waker);
    }

    /// Called when the request has to wait for stream credit. Client only.
    pub(super) fn on_queued(&self) {
        wake(self.state.borrow_mut().response_waker.take());
    }

    /// Called when the request has got its stream. Client only.
    pub(super) fn on_opened(&self) {
        let mut state = self.state.borrow_mut();
        let waker = if self.is_waiting.get() { state.response_waker.take() } else { None };
        let writer = state.writer.take();
        drop(state);
        wake(waker);
        wake(writer);
    }

    /// Called when the peer accepts nothing more.
    pub(super) fn on_closed(&self) {
        let mut state = self.state.borrow_mut();
        state.closed = true;
        // Dropped outside of the borrow: dropping a body may call back.
        let outbound = std::mem::take(&mut state.outbound);
        state.outbound_held = Charge::default();
        let wakers = [state.writer.take(), state.closed_waker.take()];
        drop(state);
        drop(outbound);
        wakers.into_iter().for_each(wake);
    }
}

/// Resets the stream of a body that panics, so that the peer does not wait for the rest.
struct AbortOnPanic<'a>(&'a Rc<Stream>);

impl Drop for AbortOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.send(Outbound::Abort(ErrorCode::H3_INTERNAL_ERROR));
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("connection", &self.connection)
            .field("id", &self.id.get())
            .finish_non_exhaustive()
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
