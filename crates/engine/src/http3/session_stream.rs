//! A WebTransport stream's state, shared by the application and the driver.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};

use bytes::Bytes;
use pronghorn_h3::{ErrorCode, StreamId};

use super::inbound_buffer::InboundBuffer;
use super::outbound::OUTBOUND_BYTES;
use super::session::{Work, wake_all};
use super::stream::WorkQueue;
use crate::transport::{ConnectionKey, Dir};

/// The reason why a session's stream delivers or accepts no more data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionStreamError {
    /// The peer has reset its sending side.
    #[error("the peer reset the stream{}", code.map_or_else(String::new, |code| format!(" with code {code}")))]
    Reset {
        /// The application's error code; `None` if the protocol layer reset the stream.
        code: Option<u32>,
    },
    /// The peer has asked to stop sending.
    #[error("the peer stopped the stream{}", code.map_or_else(String::new, |code| format!(" with code {code}")))]
    Stopped {
        /// The application's error code; `None` if the protocol layer stopped the stream.
        code: Option<u32>,
    },
    /// This side has already ended the stream.
    #[error("the stream was closed locally")]
    Closed,
    /// The session is over.
    #[error("the stream's session has ended")]
    SessionEnded,
}

/// A stream of a WebTransport session.
pub(crate) struct SessionStream {
    connection: ConnectionKey,
    session: Option<StreamId>,
    /// Set once the transport has assigned a stream ID.
    id: Cell<Option<StreamId>>,
    dir: Dir,
    work_queue: Rc<WorkQueue>,
    queued: Cell<bool>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    inbound: InboundBuffer,
    inbound_end: Option<Result<(), SessionStreamError>>,
    reader: Option<Waker>,
    /// The application has not accepted the stream yet, so nothing more is read.
    unaccepted: bool,
    /// Error code for STOP_SENDING, once the application stops reading.
    stop: Option<ErrorCode>,

    outbound: VecDeque<Bytes>,
    outbound_bytes: usize,
    /// How the application has ended its sending side.
    end: Option<End>,
    /// Reason for which no more data is accepted for sending.
    send_error: Option<SessionStreamError>,
    writer: Option<Waker>,
    opener: Option<Waker>,
}

/// The end of the sending side.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Fin,
    Reset(ErrorCode),
}

impl SessionStream {
    pub(super) fn new(
        connection: ConnectionKey,
        session: Option<StreamId>,
        id: Option<StreamId>,
        dir: Dir,
        work_queue: Rc<WorkQueue>,
    ) -> Self {
        Self {
            connection,
            session,
            id: Cell::new(id),
            dir,
            work_queue,
            queued: Cell::default(),
            state: RefCell::default(),
        }
    }

    // ---- the application's side

    /// Ready when the transport has opened the stream.
    pub(crate) fn poll_opened(&self, cx: &TaskContext<'_>) -> Poll<Result<(), SessionStreamError>> {
        let mut state = self.state.borrow_mut();
        match (state.send_error, self.id.get()) {
            (Some(error), _) => Poll::Ready(Err(error)),
            (None, Some(_)) => Poll::Ready(Ok(())),
            (None, None) => {
                state.opener = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Called when the application accepts the stream.
    pub(super) fn accept(self: &Rc<Self>) {
        self.state.borrow_mut().unaccepted = false;
        self.queue_work();
    }

    pub(crate) fn poll_read(
        self: &Rc<Self>,
        cx: &TaskContext<'_>,
    ) -> Poll<Result<Option<Bytes>, SessionStreamError>> {
        let mut state = self.state.borrow_mut();
        if state.stop.is_some() {
            return Poll::Ready(Err(SessionStreamError::Closed));
        }
        let memory = self.work_queue.memory();
        if let Some(data) = state.inbound.pop(memory) {
            let resume = state.inbound.should_resume(memory);
            drop(state);
            if resume {
                self.queue_work();
            }
            return Poll::Ready(Ok(Some(data)));
        }
        if let Some(end) = state.inbound_end {
            return Poll::Ready(end.map(|()| None));
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Stops reading.
    pub(crate) fn stop(self: &Rc<Self>, code: u32) {
        let mut state = self.state.borrow_mut();
        let is_over = state.inbound_end.is_some();
        state.inbound.clear();
        if state.stop.is_none() {
            state.stop = Some(ErrorCode::from_application(code));
            drop(state);
            if !is_over {
                self.queue_work();
            }
        }
    }

    /// Ready when the send buffer has space, or the stream accepts no more data.
    pub(crate) fn poll_capacity(
        &self,
        cx: &TaskContext<'_>,
    ) -> Poll<Result<(), SessionStreamError>> {
        let mut state = self.state.borrow_mut();
        if let Some(error) = state.send_error {
            return Poll::Ready(Err(error));
        }
        if state.end.is_some() {
            return Poll::Ready(Err(SessionStreamError::Closed));
        }
        if state.outbound_bytes < OUTBOUND_BYTES {
            return Poll::Ready(Ok(()));
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Ready with the reason once the peer accepts no more data.
    pub(crate) fn poll_stopped(&self, cx: &TaskContext<'_>) -> Poll<SessionStreamError> {
        let mut state = self.state.borrow_mut();
        if let Some(error) = state.send_error {
            return Poll::Ready(error);
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Queues data to send.
    pub(crate) fn write(self: &Rc<Self>, data: Bytes) -> Result<(), SessionStreamError> {
        let mut state = self.state.borrow_mut();
        if let Some(error) = state.send_error {
            return Err(error);
        }
        if state.end.is_some() {
            return Err(SessionStreamError::Closed);
        }
        if !data.is_empty() {
            state.outbound_bytes += data.len();
            state.outbound.push_back(data);
            drop(state);
            self.queue_work();
        }
        Ok(())
    }

    /// Ends the sending side after the data written so far.
    pub(crate) fn finish(self: &Rc<Self>) {
        self.end_sending(End::Fin);
    }

    /// Resets the sending side. Data that has not left yet is dropped.
    pub(crate) fn reset(self: &Rc<Self>, code: u32) {
        self.end_sending(End::Reset(ErrorCode::from_application(code)));
    }

    fn end_sending(self: &Rc<Self>, end: End) {
        let mut state = self.state.borrow_mut();
        if state.end.is_none() && state.send_error.is_none() {
            state.end = Some(end);
            if matches!(end, End::Reset(_)) {
                state.outbound.clear();
            }
            drop(state);
            self.queue_work();
        }
    }

    pub(super) fn queue_work(self: &Rc<Self>) {
        if !self.queued.replace(true) {
            self.work_queue.push_work(Work::Stream(self.clone()));
        }
    }

    // ---- the driver's side

    pub(super) fn connection(&self) -> ConnectionKey {
        self.connection
    }

    pub(super) fn session(&self) -> Option<StreamId> {
        self.session
    }

    pub(super) fn id(&self) -> Option<StreamId> {
        self.id.get()
    }

    pub(super) fn dir(&self) -> Dir {
        self.dir
    }

    /// Called when the stream leaves the driver's queue.
    pub(super) fn unqueue(&self) {
        self.queued.set(false);
    }

    pub(super) fn on_opened(&self, id: StreamId) {
        self.id.set(Some(id));
        let opener = self.state.borrow_mut().opener.take();
        wake_all(opener);
    }

    /// Whether the application has reset the stream before it was opened.
    pub(super) fn is_abandoned(&self) -> bool {
        matches!(self.state.borrow().end, Some(End::Reset(_)))
    }

    /// Returns how many more bytes the application accepts now, and records whether that is none.
    pub(super) fn inbound_room(&self) -> usize {
        let mut state = self.state.borrow_mut();
        if state.unaccepted {
            state.inbound.pause();
            return 0;
        }
        state.inbound.capacity(self.work_queue.memory())
    }

    /// Marks a stream that the peer has opened, until the application accepts it.
    pub(super) fn await_acceptance(&self) {
        let mut state = self.state.borrow_mut();
        state.unaccepted = true;
        state.inbound.pause();
    }

    pub(super) fn is_paused(&self) -> bool {
        self.state.borrow().inbound.is_paused()
    }

    /// Returns the error code for STOP_SENDING once the application has stopped reading.
    pub(super) fn stop_code(&self) -> Option<ErrorCode> {
        self.state.borrow().stop
    }

    pub(super) fn on_data(&self, data: Bytes) {
        let mut state = self.state.borrow_mut();
        if state.stop.is_some() {
            return;
        }
        state.inbound.push(data, self.work_queue.memory());
        let reader = state.reader.take();
        drop(state);
        wake_all(reader);
    }

    pub(super) fn on_inbound_end(&self, end: Result<(), SessionStreamError>) {
        let mut state = self.state.borrow_mut();
        if state.inbound_end.is_some() {
            return;
        }
        if end.is_err() {
            // A reset drops unread data, as in QUIC.
            state.inbound.clear();
        }
        state.inbound_end = Some(end);
        let reader = state.reader.take();
        drop(state);
        wake_all(reader);
    }

    /// Moves written data to `wire`, and returns how the sending side ends.
    pub(super) fn take_outbound(&self, wire: &mut VecDeque<Bytes>) -> Option<End> {
        let mut state = self.state.borrow_mut();
        wire.append(&mut state.outbound);
        state.end
    }

    /// Updates the send buffer, given the number of bytes that the transport has not accepted yet.
    pub(super) fn wrote(&self, waiting: usize) {
        let mut state = self.state.borrow_mut();
        state.outbound_bytes = waiting + state.outbound.iter().map(Bytes::len).sum::<usize>();
        let writer =
            if state.outbound_bytes < OUTBOUND_BYTES / 2 { state.writer.take() } else { None };
        drop(state);
        wake_all(writer);
    }

    /// Rejects all further data.
    pub(super) fn on_send_end(&self, error: SessionStreamError) {
        let mut state = self.state.borrow_mut();
        if state.send_error.is_some() {
            return;
        }
        state.send_error = Some(error);
        state.outbound.clear();
        state.outbound_bytes = 0;
        let wakers = [state.writer.take(), state.opener.take()];
        drop(state);
        wake_all(wakers.into_iter().flatten());
    }

    /// Called when the session or the connection is gone.
    pub(super) fn on_session_end(&self) {
        self.on_inbound_end(Err(SessionStreamError::SessionEnded));
        self.on_send_end(SessionStreamError::SessionEnded);
    }
}
