//! The content of a streamed response, from JavaScript to the engine.

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

use crate::events::{Event, Events};

/// Number of buffered bytes at which JavaScript is told to stop. Chunks beyond it are buffered in
/// any case.
pub(crate) const HIGH_WATER: usize = 128 << 10;
/// Number of buffered bytes at which JavaScript is told to continue.
const LOW_WATER: usize = 32 << 10;

#[derive(Default)]
struct State {
    pieces: VecDeque<Bytes>,
    waiting: usize,
    /// Number of bytes that the protocol has taken.
    taken: u64,
    /// Number of bytes that the protocol will take, if known.
    expected: Option<u64>,
    /// Trailers after the content.
    trailers: Option<HeaderMap>,
    ended: bool,
    failed: bool,
    /// JavaScript has been told to stop.
    is_full: bool,
    /// The protocol has dropped its end: the peer has left, or everything was sent.
    dropped: bool,
    /// The peer has left, and JavaScript's event is pending.
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

/// The exchange and client of a response.
pub(crate) struct Reader {
    pub(crate) events: Rc<dyn Events>,
    pub(crate) listener: u32,
    pub(crate) remote: SocketAddr,
    pub(crate) slot: u32,
    /// Whether it is a HEAD request, whose content is dropped unread.
    pub(crate) is_head: bool,
}

/// Creates a pipe. `expected`: number of bytes that the protocol takes, if known.
pub(crate) fn pipe(reader: Reader, expected: Option<u64>) -> (Pipe, PipeBody) {
    let state = Rc::new(RefCell::new(State { expected, ..State::default() }));
    (Pipe(state.clone()), PipeBody { state, reader })
}

impl Pipe {
    /// Returns the number of bytes that can be added before the pipe is full.
    pub(crate) fn room(&self) -> usize {
        HIGH_WATER.saturating_sub(self.0.borrow().waiting)
    }

    /// Adds a piece. Returns whether there is capacity for more; if not, an event follows when
    /// there is, or when the peer has left.
    pub(crate) fn push(&self, piece: Bytes) -> bool {
        let mut state = self.0.borrow_mut();
        if state.dropped {
            // `false` for a lost peer stops programs that write in a loop.
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

    /// Requests the event although the pipe is not full, because a part of a chunk was not
    /// accepted.
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

    /// Ends the content with trailers.
    pub(crate) fn end_with(&self, trailers: HeaderMap) {
        self.0.borrow_mut().trailers = Some(trailers);
        self.end();
    }

    /// Ends the content as incomplete, so that the peer notices.
    pub(crate) fn fail(&self) {
        self.0.borrow_mut().failed = true;
        self.end();
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // The protocol would wait for the rest forever.
        if !self.0.borrow().ended {
            self.fail();
        }
    }
}

/// Wakes a waiting future, if any.
pub(crate) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl http_body::Body for PipeBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut state = self.state.borrow_mut();
        if state.failed {
            return Poll::Ready(Some(Err("the handler aborted its response".into())));
        }
        let Some(piece) = state.pieces.pop_front() else {
            if state.ended {
                return Poll::Ready(
                    state.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))),
                );
            }
            state.reader = Some(cx.waker().clone());
            return Poll::Pending;
        };
        state.waiting -= piece.len();
        state.taken += piece.len() as u64;
        if state.is_full && state.waiting <= LOW_WATER && !state.ended {
            state.is_full = false;
            drop(state);
            let Reader { events, slot, .. } = &self.reader;
            events.push(Event::Writable { slot: *slot });
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
        let Reader { events, listener, remote, slot, is_head } = &self.reader;
        if *is_head {
            // The response is complete for the client. Further writes are discarded.
            events.track_head_response(*listener, *remote, *slot);
        } else if state.expected.is_none_or(|expected| state.taken < expected) {
            state.is_lost = true;
            events.push(Event::Aborted { slot: *slot });
        }
    }
}
