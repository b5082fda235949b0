//! The content of a response that JavaScript writes piece by piece.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use pronghorn_engine::BodyError;

use crate::addon::{Addon, Event};

/// How many bytes may wait for the protocol before JavaScript is told to stop. What `write` brings beyond it is held all the same.
pub(crate) const HIGH_WATER: usize = 128 << 10;
/// When no more than so many are left it is told to go on.
const LOW_WATER: usize = 32 << 10;

#[derive(Default)]
struct State {
    pieces: VecDeque<Bytes>,
    waiting: usize,
    /// Bytes that the protocol has taken, and all that it will take, if that is known.
    taken: u64,
    expected: Option<u64>,
    /// What goes behind the content.
    trailers: Option<HeaderMap>,
    ended: bool,
    failed: bool,
    /// JavaScript has been told to stop.
    is_full: bool,
    /// The protocol has dropped its end: the peer has gone, or all is sent.
    dropped: bool,
    /// The peer has gone, which JavaScript is about to be told.
    is_lost: bool,
    reader: Option<Waker>,
}

/// JavaScript's end.
pub(crate) struct Pipe(Rc<RefCell<State>>);

/// The protocol's end.
pub(crate) struct PipeBody {
    state: Rc<RefCell<State>>,
    reader: Reader,
}

/// Whose response it is, and who reads it.
pub(crate) struct Reader {
    pub(crate) addon: Rc<Addon>,
    pub(crate) listening: u32,
    pub(crate) remote: SocketAddr,
    pub(crate) slot: u32,
    /// It asked for the head alone, and drops the rest unread.
    pub(crate) is_head: bool,
}

/// `expected`: how many bytes the protocol takes, if that is known.
pub(crate) fn pipe(reader: Reader, expected: Option<u64>) -> (Pipe, PipeBody) {
    let state = Rc::new(RefCell::new(State { expected, ..State::default() }));
    (Pipe(state.clone()), PipeBody { state, reader })
}

impl Pipe {
    /// How many bytes may be added before it is full.
    pub(crate) fn room(&self) -> usize {
        HIGH_WATER.saturating_sub(self.0.borrow().waiting)
    }

    /// Adds a piece. Returns whether there is room for more; if not, an event tells when there is, or that the peer has gone.
    pub(crate) fn push(&self, piece: Bytes) -> bool {
        let mut state = self.0.borrow_mut();
        if state.dropped {
            // Whoever writes as long as there is room would never hear of it.
            return !state.is_lost;
        }
        if !piece.is_empty() {
            state.waiting += piece.len();
            state.pieces.push_back(piece);
        }
        let has_room = state.waiting < HIGH_WATER;
        state.is_full |= !has_room;
        let reader = state.reader.take();
        drop(state);
        wake(reader);
        has_room
    }

    /// Asks for the event although the pipe is not full: a part of what was offered was not taken.
    pub(crate) fn ask_for_room(&self) {
        self.0.borrow_mut().is_full = true;
    }

    pub(crate) fn end(&self) {
        let mut state = self.0.borrow_mut();
        state.ended = true;
        let reader = state.reader.take();
        drop(state);
        wake(reader);
    }

    /// Ends it, with these behind the content.
    pub(crate) fn end_with(&self, trailers: HeaderMap) {
        self.0.borrow_mut().trailers = Some(trailers);
        self.end();
    }

    /// Ends it so that the peer does not take it for complete.
    pub(crate) fn fail(&self) {
        self.0.borrow_mut().failed = true;
        self.end();
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // Nobody writes any more: a protocol that waits for the rest would do so for ever.
        if !self.0.borrow().ended {
            self.fail();
        }
    }
}

/// Wakes a future, if one waits.
pub(crate) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl http_body::Body for PipeBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut state = self.state.borrow_mut();
        if state.failed {
            return Poll::Ready(Some(Err("the handler gave up its response".into())));
        }
        let Some(piece) = state.pieces.pop_front() else {
            if state.ended {
                return Poll::Ready(state.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
            }
            state.reader = Some(cx.waker().clone());
            return Poll::Pending;
        };
        state.waiting -= piece.len();
        state.taken += piece.len() as u64;
        if state.is_full && state.waiting <= LOW_WATER && !state.ended {
            state.is_full = false;
            drop(state);
            let Reader { addon, slot, .. } = &self.reader;
            addon.push(Event::Writable { slot: *slot });
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        let state = self.state.borrow();
        state.ended && !state.failed && state.pieces.is_empty() && state.trailers.is_none()
    }
}

impl Drop for PipeBody {
    fn drop(&mut self) {
        let mut state = self.state.borrow_mut();
        state.dropped = true;
        state.pieces.clear();
        if state.ended {
            return;
        }
        let Reader { addon, listening, remote, slot, is_head } = &self.reader;
        if *is_head {
            // It is complete for the client; what JavaScript writes goes nowhere.
            addon.outlive(*listening, *remote, *slot);
        } else if state.expected.is_none_or(|expected| state.taken < expected) {
            state.is_lost = true;
            addon.push(Event::Aborted { slot: *slot });
        }
    }
}
