//! One request's stream, as its handler and the driver share it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri};
use http_body::{Body as _, Frame};
use pronghorn_h3::{ErrorCode, StreamId};

use super::session::Work;
use crate::runtime::Wakeup;
use crate::transport::ConnectionKey;
use crate::window_budget::Windows;
use crate::{Body, Response, Upgrade};

/// Bytes of content held for an application that does not read: the transport's windows hold back what is more.
pub(super) const INBOUND_BYTES: usize = 64 << 10;
/// Bytes of content that a producer may be ahead of the transport.
pub(super) const OUTBOUND_BYTES: usize = 64 << 10;

/// Pieces below this size are copied out of their datagrams.
pub(super) const COPIED_BYTES: usize = 1 << 10;
/// What the memory of a piece costs besides its bytes.
const PIECE_BYTES: usize = 64;

pub(super) fn cost(data: &Bytes) -> usize {
    data.len() + PIECE_BYTES
}

/// Why an exchange over HTTP/3 failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The peer reset its side of the stream.
    #[error("the peer reset the stream: {0}")]
    Reset(ErrorCode),
    /// The server has not taken the request: it can be sent again on another connection.
    #[error("the peer did not take the request: {0}")]
    Refused(String),
    /// The server does not offer extended CONNECT.
    #[error("the peer offers no upgrade to {0}")]
    NotOffered(Upgrade),
    /// The head of the request breaks a rule of HTTP/3, or a limit of the server's.
    #[error("the request cannot be sent: {0}")]
    Unsendable(String),
    /// Whoever produces the content of the request failed.
    #[error("the content of the request broke off")]
    Broken,
    /// The message broke a rule of HTTP/3.
    #[error("malformed message: {0}")]
    Malformed(&'static str),
    /// The message passes a limit.
    #[error("the message is too large: {0}")]
    TooLarge(&'static str),
    /// The connection ended first.
    #[error("the connection ended: {0}")]
    ConnectionClosed(String),
    /// The peer was not heard from any more.
    #[error("the connection ended: nothing heard from the peer in time")]
    ConnectionLost,
}

/// Streams on which a handle did something for the driver to carry out, and the way to wake the driver.
pub(crate) struct Dirty {
    streams: RefCell<VecDeque<Rc<Stream>>>,
    /// The same of WebTransport sessions and their streams.
    work: RefCell<VecDeque<Work>>,
    wakeup: Arc<Wakeup>,
}

impl Dirty {
    pub(super) fn new(wakeup: Arc<Wakeup>) -> Rc<Self> {
        Rc::new(Self { streams: RefCell::default(), work: RefCell::default(), wakeup })
    }

    pub(super) fn push(&self, stream: Rc<Stream>) {
        self.streams.borrow_mut().push_back(stream);
        self.wakeup.notify();
    }

    pub(super) fn pop(&self) -> Option<Rc<Stream>> {
        self.streams.borrow_mut().pop_front()
    }

    /// How many streams there are.
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

/// What the application wants sent, in order. What is large has a place of its own, since these are moved several times.
pub(super) enum Outbound {
    Request(Box<RequestHead>),
    Interim(Box<(StatusCode, HeaderMap)>),
    Response(Box<Response>),
    Data(Bytes),
    Trailers(Box<HeaderMap>),
    End,
    Abort(ErrorCode),
}

impl Outbound {
    /// Whether what follows is another protocol.
    pub(super) fn begins_tunnel(&self) -> bool {
        match self {
            Self::Request(head) => head.upgrade.is_some(),
            Self::Response(response) => response.body.is_tunnel(),
            _ => false,
        }
    }
}

/// The head of a request that this side sends.
#[derive(Clone)]
pub(crate) struct RequestHead {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    /// For an extended CONNECT, which [`RequestHead::method`] then is not looked at.
    pub(crate) upgrade: Option<Upgrade>,
}

/// A request that was sent in early data, to be sent again if the server refuses it.
pub(super) struct EarlyRequest {
    pub(super) head: RequestHead,
    pub(super) content: Bytes,
}

/// A request stream. The driver holds it until both directions are done; handles may outlive that.
pub(crate) struct Stream {
    pub(super) connection: ConnectionKey,
    /// Set once the transport has given the stream a number; for a client that may wait for the peer's permission.
    pub(super) id: Cell<Option<StreamId>>,
    /// It is in the connection's queue of requests that wait for a stream.
    pub(super) is_waiting: Cell<bool>,
    /// The request's method, which decides whether the response may have content.
    pub(super) method: Method,
    /// The client waits for 100 (Continue) before it sends content.
    pub(super) expects_continue: Cell<bool>,
    /// An extended CONNECT of this side, until the server has said whether it offers that.
    pub(super) asks: RefCell<Option<Upgrade>>,
    dirty: Rc<Dirty>,
    queued: Cell<bool>,
    early: RefCell<Option<Box<EarlyRequest>>>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    inbound: VecDeque<Bytes>,
    inbound_bytes: usize,
    trailers: Option<Box<HeaderMap>>,
    inbound_end: Option<Result<(), StreamError>>,
    reader: Option<Waker>,
    /// Nobody reads: what comes is thrown away.
    discarding: bool,
    /// The driver has stopped reading because the application does not.
    paused: bool,
    /// The connection has ended, and all that had come is here: what is promised for that, until it has been read.
    rest: Option<Rc<Windows>>,

    outbound: Queue,
    outbound_bytes: usize,
    writer: Option<Waker>,
    /// The peer takes nothing more, or the connection is gone.
    closed: bool,
    closed_waker: Option<Waker>,

    /// Interim responses that were not fetched yet.
    interim: VecDeque<(StatusCode, HeaderMap)>,
    response: Option<Result<Box<(StatusCode, HeaderMap)>, StreamError>>,
    response_waker: Option<Waker>,
}

/// A queue that allocates nothing for its first item and the end behind it: most have no other.
#[derive(Default)]
struct Queue {
    first: Option<Outbound>,
    rest: VecDeque<Outbound>,
    /// [`Outbound::End`] is last.
    ends: bool,
}

impl Queue {
    fn push_back(&mut self, item: Outbound) {
        if self.ends {
            self.ends = false;
            self.rest.push_back(Outbound::End);
        }
        // What is in `first` is before the rest.
        match item {
            Outbound::End => self.ends = true,
            item if self.first.is_none() && self.rest.is_empty() => self.first = Some(item),
            item => self.rest.push_back(item),
        }
    }

    fn pop_front(&mut self) -> Option<Outbound> {
        let item = self.first.take().or_else(|| self.rest.pop_front());
        item.or_else(|| std::mem::take(&mut self.ends).then_some(Outbound::End))
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Stream {
    pub(super) fn new(connection: ConnectionKey, id: Option<StreamId>, method: Method, dirty: Rc<Dirty>) -> Self {
        Self {
            connection,
            id: Cell::new(id),
            is_waiting: Cell::default(),
            method,
            expects_continue: Cell::default(),
            asks: RefCell::default(),
            dirty,
            queued: Cell::default(),
            early: RefCell::default(),
            state: RefCell::default(),
        }
    }

    /// Drops all that it holds, for [`Stream::renew`].
    pub(super) fn clear(&mut self) {
        let Self { method, is_waiting, expects_continue, asks, queued, early, state, connection: _, id: _, dirty: _ } = self;
        // One that is not registered can be long.
        *method = Method::GET;
        is_waiting.set(false);
        expects_continue.set(false);
        queued.set(false);
        *asks.get_mut() = None;
        *early.get_mut() = None;
        *state.get_mut() = State::default();
    }

    /// Makes a new stream of one that was cleared.
    pub(super) fn renew(&mut self, connection: ConnectionKey, id: StreamId, method: Method, dirty: &Rc<Dirty>) {
        self.connection = connection;
        self.id.set(Some(id));
        self.method = method;
        if !Rc::ptr_eq(&self.dirty, dirty) {
            self.dirty = dirty.clone();
        }
    }

    pub(super) fn dirty(&self) -> &Rc<Dirty> {
        &self.dirty
    }

    // ---- the application's side -------------------------------------------------------------------------------------------

    pub(crate) fn poll_inbound(self: &Rc<Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Result<Frame<Bytes>, StreamError>>> {
        let mut state = self.state.borrow_mut();
        let next = state.inbound.pop_front();
        if state.inbound.is_empty() {
            state.rest = None;
        }
        if let Some(data) = next {
            state.inbound_bytes -= cost(&data);
            let resume = state.paused && state.inbound_bytes < INBOUND_BYTES / 2;
            drop(state);
            if resume {
                self.mark_dirty();
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
                    self.inform(StatusCode::CONTINUE, HeaderMap::new());
                }
                Poll::Pending
            }
        }
    }

    pub(crate) fn inbound_is_over(&self) -> bool {
        let state = self.state.borrow();
        state.inbound.is_empty() && state.trailers.is_none() && state.inbound_end == Some(Ok(()))
    }

    /// Whether content waits for its reader, or its end does that the peer has given it.
    pub(super) fn has_unread(&self) -> bool {
        let state = self.state.borrow();
        !state.inbound.is_empty() || state.inbound_end == Some(Ok(()))
    }

    pub(crate) fn discard_inbound(self: &Rc<Self>) {
        let mut state = self.state.borrow_mut();
        state.discarding = true;
        state.inbound.clear();
        state.inbound_bytes = 0;
        state.rest = None;
        let act = state.inbound_end.is_none();
        drop(state);
        if act {
            self.mark_dirty();
        }
    }

    pub(crate) fn inform(self: &Rc<Self>, status: StatusCode, headers: HeaderMap) {
        self.send(Outbound::Interim(Box::new((status, headers))));
    }

    pub(crate) fn respond(self: &Rc<Self>, response: Box<Response>) {
        self.expects_continue.set(false);
        self.send(Outbound::Response(response));
    }

    /// Resets the stream instead of an answer.
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

    /// Queues something to send. On a closed stream it is dropped: nobody is left to get it.
    pub(super) fn send(self: &Rc<Self>, what: Outbound) {
        let mut state = self.state.borrow_mut();
        if state.closed {
            return;
        }
        if let Outbound::Data(data) = &what {
            state.outbound_bytes += data.len();
        }
        state.outbound.push_back(what);
        drop(state);
        self.mark_dirty();
    }

    /// Queues a whole request, and keeps a copy for [`Stream::send_again`].
    pub(super) fn send_early(self: &Rc<Self>, request: EarlyRequest) {
        *self.early.borrow_mut() = Some(Box::new(request));
        self.send_again();
        self.mark_dirty();
    }

    /// Queues the request from its beginning. Nothing of a response has come.
    pub(super) fn send_again(&self) {
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

    /// Moves a body into the stream at the pace that the transport allows.
    pub(crate) async fn pump(self: Rc<Self>, body: Body) {
        let _guard = AbortOnPanic(&self);
        // RFC 9220, section 3: what resets a TCP connection is H3_REQUEST_CANCELLED here.
        let broken = if body.is_tunnel() { ErrorCode::H3_REQUEST_CANCELLED } else { ErrorCode::H3_INTERNAL_ERROR };
        let mut body = pin!(body);
        loop {
            let frame = poll_fn(|cx| match self.poll_capacity(cx) {
                Poll::Ready(Ok(())) => body.as_mut().poll_frame(cx).map(Ok),
                Poll::Ready(Err(())) => Poll::Ready(Err(None)),
                Poll::Pending => body.poll_cut(cx).map(|()| Err(Some(broken))),
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

    /// Also wakes when the stream closes while there is capacity, so that a producer that waits is dropped.
    fn poll_capacity(&self, cx: &mut TaskContext<'_>) -> Poll<Result<(), ()>> {
        let mut state = self.state.borrow_mut();
        if state.closed {
            return Poll::Ready(Err(()));
        }
        state.writer = Some(cx.waker().clone());
        // What was not begun has its content whole, for another connection.
        if state.outbound_bytes < OUTBOUND_BYTES && self.id.get().is_some() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// The client's side: the final response's head.
    pub(crate) fn poll_response(&self, cx: &mut TaskContext<'_>) -> Poll<Result<(StatusCode, HeaderMap), StreamError>> {
        let mut state = self.state.borrow_mut();
        if let Some(response) = state.response.take() {
            return Poll::Ready(response.map(|head| *head));
        }
        state.response_waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The client's side: the next interim response, of those that came before the last poll of the final one.
    pub(crate) fn next_interim(&self) -> Option<(StatusCode, HeaderMap)> {
        self.state.borrow_mut().interim.pop_front()
    }

    /// Has the driver look at the stream.
    pub(super) fn mark_dirty(self: &Rc<Self>) {
        if !self.queued.replace(true) {
            self.dirty.push(self.clone());
        }
    }

    // ---- the driver's side ------------------------------------------------------------------------------------------------

    /// Called when the stream leaves the queue of dirty ones.
    pub(super) fn unqueue(&self) {
        self.queued.set(false);
    }

    pub(super) fn next_outbound(&self) -> Option<Outbound> {
        self.state.borrow_mut().outbound.pop_front()
    }

    /// `waiting`: bytes that the transport has not taken yet.
    pub(super) fn wrote(&self, waiting: usize) {
        let mut state = self.state.borrow_mut();
        state.outbound_bytes = waiting;
        let writer = if waiting < OUTBOUND_BYTES / 2 { state.writer.take() } else { None };
        drop(state);
        wake(writer);
    }

    pub(super) fn is_discarding(&self) -> bool {
        self.state.borrow().discarding
    }

    /// How many more bytes the application's side takes now; notes when that is none.
    pub(super) fn inbound_room(&self) -> usize {
        let mut state = self.state.borrow_mut();
        let room = if state.rest.is_some() { INBOUND_BYTES } else { INBOUND_BYTES.saturating_sub(state.inbound_bytes) };
        state.paused = room == 0;
        room
    }

    pub(super) fn is_paused(&self) -> bool {
        self.state.borrow().paused
    }

    /// The connection has ended: what has come is taken whether the application reads or not. `windows`: what is promised for that.
    pub(super) fn take_rest(&self, windows: Rc<Windows>) {
        self.state.borrow_mut().rest = Some(windows);
    }

    pub(super) fn on_data(&self, data: Bytes) {
        let mut state = self.state.borrow_mut();
        if state.discarding {
            return;
        }
        // A small piece would keep the whole datagram alive that it is cut from.
        let data = if data.len() < COPIED_BYTES { Bytes::copy_from_slice(&data) } else { data };
        state.inbound_bytes += cost(&data);
        state.inbound.push_back(data);
        let reader = state.reader.take();
        drop(state);
        wake(reader);
    }

    pub(super) fn on_trailers(&self, trailers: HeaderMap) {
        self.state.borrow_mut().trailers = Some(Box::new(trailers));
    }

    /// The peer's message has ended, or there will be no more of it.
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

    /// HTTP/3 limits how many there can be.
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

    /// The client's side: the request waits for the peer's permission.
    pub(super) fn on_queued(&self) {
        wake(self.state.borrow_mut().response_waker.take());
    }

    /// The client's side: the request has its stream.
    pub(super) fn on_opened(&self) {
        let mut state = self.state.borrow_mut();
        let waker = if self.is_waiting.get() { state.response_waker.take() } else { None };
        let writer = state.writer.take();
        drop(state);
        wake(waker);
        wake(writer);
    }

    /// The peer takes nothing more.
    pub(super) fn on_closed(&self) {
        let mut state = self.state.borrow_mut();
        state.closed = true;
        // Dropped outside of the borrow: a body's end may call back.
        let outbound = std::mem::take(&mut state.outbound);
        let wakers = [state.writer.take(), state.closed_waker.take()];
        drop(state);
        drop(outbound);
        wakers.into_iter().for_each(wake);
    }
}

/// Ends a message whose body has panicked, so that the peer does not wait for the rest.
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
        f.debug_struct("Stream").field("connection", &self.connection).field("id", &self.id.get()).finish_non_exhaustive()
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_keeps_its_order_around_ends() {
        let name = |item: Outbound| match item {
            Outbound::Data(data) => String::from_utf8_lossy(&data).into_owned(),
            Outbound::End => "end".to_owned(),
            Outbound::Abort(_) => "abort".to_owned(),
            _ => "else".to_owned(),
        };
        let data = |text: &'static str| Outbound::Data(Bytes::from_static(text.as_bytes()));
        let mut queue = Queue::default();
        let mut popped = Vec::new();
        queue.push_back(data("a"));
        queue.push_back(Outbound::End);
        popped.extend(queue.pop_front().map(name));
        queue.push_back(Outbound::Abort(ErrorCode::H3_INTERNAL_ERROR));
        queue.push_back(data("b"));
        queue.push_back(Outbound::End);
        popped.extend(std::iter::from_fn(|| queue.pop_front()).map(name));
        assert_eq!(popped, ["a", "end", "abort", "b", "end"]);
        assert!(queue.rest.is_empty() && queue.pop_front().is_none());
    }
}
