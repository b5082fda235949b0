//! A stream of a WebTransport session, as the application and the driver share it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};

use bytes::Bytes;
use pronghorn_h3::{ErrorCode, StreamId};

use super::session::{Work, wake_all};
use super::stream::{COPIED_BYTES, Dirty, INBOUND_BYTES, OUTBOUND_BYTES, cost};
use crate::transport::{ConnectionKey, Dir};

/// Why nothing more comes on a stream of a session, or is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionStreamError {
    /// The peer has reset what it sends.
    #[error("the peer reset the stream{}", code.map_or_else(String::new, |code| format!(" with code {code}")))]
    Reset {
        /// The application's code; `None` if it was the protocol that reset it.
        code: Option<u32>,
    },
    /// The peer wants no more of what is sent.
    #[error("the peer stopped the stream{}", code.map_or_else(String::new, |code| format!(" with code {code}")))]
    Stopped {
        /// The application's code; `None` if it was the protocol that stopped it.
        code: Option<u32>,
    },
    /// This side has ended the stream already.
    #[error("the stream was ended on this side")]
    Closed,
    /// The session is over.
    #[error("the stream's session is over")]
    SessionEnded,
}

/// One stream.
pub(crate) struct SessionStream {
    connection: ConnectionKey,
    session: Option<StreamId>,
    /// Set once the transport has given it a number.
    id: Cell<Option<StreamId>>,
    dir: Dir,
    dirty: Rc<Dirty>,
    queued: Cell<bool>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    inbound: VecDeque<Bytes>,
    inbound_bytes: usize,
    inbound_end: Option<Result<(), SessionStreamError>>,
    reader: Option<Waker>,
    /// The driver has stopped reading because the application does not.
    paused: bool,
    /// Nobody has accepted it yet, so that nothing more of it is read.
    unaccepted: bool,
    /// The application reads no more: what the peer is told.
    stop: Option<ErrorCode>,

    outbound: VecDeque<Bytes>,
    outbound_bytes: usize,
    /// How the application has ended what it sends.
    end: Option<End>,
    /// Nothing more is taken, for this reason.
    send_error: Option<SessionStreamError>,
    writer: Option<Waker>,
    opener: Option<Waker>,
}

/// How what is sent ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Fin,
    Reset(ErrorCode),
}

impl SessionStream {
    pub(super) fn new(connection: ConnectionKey, session: Option<StreamId>, id: Option<StreamId>, dir: Dir, dirty: Rc<Dirty>) -> Self {
        Self { connection, session, id: Cell::new(id), dir, dirty, queued: Cell::default(), state: RefCell::default() }
    }

    // ---- the application's side -------------------------------------------------------------------------------------------

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

    /// The application has it now.
    pub(super) fn accept(self: &Rc<Self>) {
        self.state.borrow_mut().unaccepted = false;
        self.mark_dirty();
    }

    pub(crate) fn poll_read(self: &Rc<Self>, cx: &TaskContext<'_>) -> Poll<Result<Option<Bytes>, SessionStreamError>> {
        let mut state = self.state.borrow_mut();
        if state.stop.is_some() {
            return Poll::Ready(Err(SessionStreamError::Closed));
        }
        if let Some(data) = state.inbound.pop_front() {
            state.inbound_bytes -= cost(&data);
            let resume = state.paused && state.inbound_bytes < INBOUND_BYTES / 2;
            drop(state);
            if resume {
                self.mark_dirty();
            }
            return Poll::Ready(Ok(Some(data)));
        }
        if let Some(end) = state.inbound_end {
            return Poll::Ready(end.map(|()| None));
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Reads no more.
    pub(crate) fn stop(self: &Rc<Self>, code: u32) {
        let mut state = self.state.borrow_mut();
        let is_over = state.inbound_end.is_some();
        state.inbound.clear();
        state.inbound_bytes = 0;
        if state.stop.is_none() {
            state.stop = Some(ErrorCode::from_application(code));
            drop(state);
            if !is_over {
                self.mark_dirty();
            }
        }
    }

    /// Ready when there is room for more to be sent, or there will be none.
    pub(crate) fn poll_capacity(&self, cx: &TaskContext<'_>) -> Poll<Result<(), SessionStreamError>> {
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

    /// Ready with the reason once the peer takes nothing more.
    pub(crate) fn poll_stopped(&self, cx: &TaskContext<'_>) -> Poll<SessionStreamError> {
        let mut state = self.state.borrow_mut();
        if let Some(error) = state.send_error {
            return Poll::Ready(error);
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Queues something to send.
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
            self.mark_dirty();
        }
        Ok(())
    }

    /// What is sent ends after what was written.
    pub(crate) fn finish(self: &Rc<Self>) {
        self.end_sending(End::Fin);
    }

    /// What is sent ends here, and what has not left yet is not sent.
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
            self.mark_dirty();
        }
    }

    pub(super) fn mark_dirty(self: &Rc<Self>) {
        if !self.queued.replace(true) {
            self.dirty.push_work(Work::Stream(self.clone()));
        }
    }

    // ---- the driver's side ------------------------------------------------------------------------------------------------

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

    /// Called when it leaves the queue of work.
    pub(super) fn unqueue(&self) {
        self.queued.set(false);
    }

    pub(super) fn on_opened(&self, id: StreamId) {
        self.id.set(Some(id));
        let opener = self.state.borrow_mut().opener.take();
        wake_all(opener);
    }

    /// Whether the application has given it up before it was opened.
    pub(super) fn is_given_up(&self) -> bool {
        matches!(self.state.borrow().end, Some(End::Reset(_)))
    }

    /// How many more bytes the application's side takes now; notes when that is none.
    pub(super) fn inbound_room(&self) -> usize {
        let mut state = self.state.borrow_mut();
        let room = if state.unaccepted { 0 } else { INBOUND_BYTES.saturating_sub(state.inbound_bytes) };
        state.paused = room == 0;
        room
    }

    /// The peer has opened it, and the application is yet to accept it.
    pub(super) fn await_acceptance(&self) {
        let mut state = self.state.borrow_mut();
        (state.unaccepted, state.paused) = (true, true);
    }

    pub(super) fn is_paused(&self) -> bool {
        self.state.borrow().paused
    }

    /// What the peer has to be told because the application reads no more.
    pub(super) fn stop_asked(&self) -> Option<ErrorCode> {
        self.state.borrow().stop
    }

    pub(super) fn on_data(&self, data: Bytes) {
        let mut state = self.state.borrow_mut();
        if state.stop.is_some() {
            return;
        }
        // A small piece would keep the whole datagram alive that it is cut from.
        let data = if data.len() < COPIED_BYTES { Bytes::copy_from_slice(&data) } else { data };
        state.inbound_bytes += cost(&data);
        state.inbound.push_back(data);
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
            // A reset takes along what was not read, as in QUIC.
            state.inbound.clear();
            state.inbound_bytes = 0;
        }
        state.inbound_end = Some(end);
        let reader = state.reader.take();
        drop(state);
        wake_all(reader);
    }

    /// Moves what was written to `wire`, and says how it ends.
    pub(super) fn take_outbound(&self, wire: &mut VecDeque<Bytes>) -> Option<End> {
        let mut state = self.state.borrow_mut();
        wire.append(&mut state.outbound);
        state.end
    }

    /// `waiting`: bytes that the transport has not taken yet.
    pub(super) fn wrote(&self, waiting: usize) {
        let mut state = self.state.borrow_mut();
        state.outbound_bytes = waiting + state.outbound.iter().map(Bytes::len).sum::<usize>();
        let writer = if state.outbound_bytes < OUTBOUND_BYTES / 2 { state.writer.take() } else { None };
        drop(state);
        wake_all(writer);
    }

    /// Nothing more is sent.
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

    /// The session, or the connection, is gone.
    pub(super) fn on_session_end(&self) {
        self.on_inbound_end(Err(SessionStreamError::SessionEnded));
        self.on_send_end(SessionStreamError::SessionEnded);
    }
}
