//! Datagrams of a session that wait: those received for the application, those to send for the network.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Waker};

use bytes::Bytes;

use super::SessionEnd;

/// What the memory of a datagram costs besides its bytes.
const DATAGRAM_COST: usize = 64;

/// Why a datagram was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// It is larger than the path or the peer allows.
    #[error("a datagram of {size} bytes exceeds the {most} that can be sent now")]
    TooLarge {
        /// Bytes of the datagram.
        size: usize,
        /// The most that there may be now.
        most: usize,
    },
    /// The peer takes no datagrams, or has not said yet that it does.
    #[error("the peer takes no datagrams")]
    Unsupported,
    /// The session is over.
    #[error(transparent)]
    Ended(#[from] SessionEnd),
}

/// Datagrams that wait, and what they cost.
#[derive(Default)]
pub(super) struct Datagrams {
    queue: VecDeque<Bytes>,
    cost: usize,
}

impl Datagrams {
    /// Puts one at the end, and drops as many at the front as are too many. Returns how many that are.
    pub(super) fn push(&mut self, datagram: Bytes, most: usize) -> u64 {
        self.cost += datagram.len() + DATAGRAM_COST;
        self.queue.push_back(datagram);
        let mut dropped = 0;
        while self.cost > most && self.pop().is_some() {
            dropped += 1;
        }
        dropped
    }

    pub(super) fn pop(&mut self) -> Option<Bytes> {
        let datagram = self.queue.pop_front()?;
        self.cost -= datagram.len() + DATAGRAM_COST;
        Some(datagram)
    }
}

/// Sends the datagrams of a session, from any thread. Cheap to clone. It does not keep the session from being closed.
#[derive(Clone)]
pub struct DatagramSender(Arc<Shared>);

struct Shared {
    /// The most that those which wait may cost.
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: Datagrams,
    /// Pushed out, and not counted yet.
    dropped: u64,
    room: Room,
    end: Option<SessionEnd>,
    /// Another thread has left something that the session does not know of.
    news: bool,
    session: Option<Waker>,
}

/// The most that a datagram may carry.
#[derive(Clone, Copy, Default)]
enum Room {
    /// The connection has yet to hear of the session.
    #[default]
    Unknown,
    /// The peer takes no datagrams.
    None,
    Bytes(usize),
}

impl State {
    fn push(&mut self, datagram: Bytes, most: usize) -> Result<(), DatagramError> {
        if let Some(end) = &self.end {
            return Err(end.clone().into());
        }
        match self.room {
            Room::None => return Err(DatagramError::Unsupported),
            Room::Bytes(most) if datagram.len() > most => return Err(DatagramError::TooLarge { size: datagram.len(), most }),
            Room::Unknown | Room::Bytes(_) => {}
        }
        self.dropped += self.waiting.push(datagram, most);
        Ok(())
    }
}

impl DatagramSender {
    /// Sends a datagram, which arrives once or not at all. When more wait for the network than
    /// [`Limits::webtransport_datagram_bytes`](crate::Limits::webtransport_datagram_bytes) allows, the oldest is dropped.
    ///
    /// # Errors
    ///
    /// When it is too large, the peer takes no datagrams, or the session is over.
    pub fn send(&self, datagram: impl Into<Bytes>) -> Result<(), DatagramError> {
        let session = {
            let mut state = self.lock();
            state.push(datagram.into(), self.0.most)?;
            state.news = true;
            state.session.take()
        };
        if let Some(session) = session {
            session.wake();
        }
        Ok(())
    }

    /// The most bytes that a datagram can carry now; it changes with the path. `None` if the peer takes no datagrams, or the session has just
    /// begun: what is sent then and turns out to be too large is lost.
    pub fn max_size(&self) -> Option<usize> {
        match self.lock().room {
            Room::Bytes(most) => Some(most),
            Room::Unknown | Room::None => None,
        }
    }

    pub(super) fn new(most: usize) -> Self {
        Self(Arc::new(Shared { most, state: Mutex::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Held around plain changes, which leave the state whole.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a datagram on the session's own thread. It has to be told.
    pub(super) fn push(&self, datagram: Bytes) -> Result<(), DatagramError> {
        self.lock().push(datagram, self.0.most)
    }

    /// Whether another thread has left something since this was asked last. The task is woken by what comes then.
    pub(super) fn take_news(&self, cx: &TaskContext<'_>) -> bool {
        let mut state = self.lock();
        match &mut state.session {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        std::mem::take(&mut state.news)
    }

    pub(super) fn pop(&self) -> Option<Bytes> {
        self.lock().waiting.pop()
    }

    /// How many were pushed out since this was asked last.
    pub(super) fn take_dropped(&self) -> u64 {
        std::mem::take(&mut self.lock().dropped)
    }

    pub(super) fn set_size(&self, size: Option<usize>) {
        self.lock().room = size.map_or(Room::None, Room::Bytes);
    }

    /// Nothing more is sent.
    pub(super) fn end(&self, end: SessionEnd) {
        let mut state = self.lock();
        state.end = Some(end);
        state.waiting = Datagrams::default();
    }
}

impl fmt::Debug for DatagramSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatagramSender").finish_non_exhaustive()
    }
}
