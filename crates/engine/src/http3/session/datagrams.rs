//! Datagram queues of a session, for the application and for the network.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Waker};

use bytes::Bytes;

use super::end::SessionEnd;

/// Memory overhead of a datagram besides its bytes.
const DATAGRAM_COST: usize = 64;

/// The reason why a datagram was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// The datagram is larger than the path or the peer allows.
    #[error("datagram of {size} bytes is too large: at most {max} can be sent now")]
    TooLarge {
        /// Size of the datagram in bytes.
        size: usize,
        /// Current maximum size in bytes.
        max: usize,
    },
    /// The peer does not support datagrams, or its SETTINGS have not arrived yet.
    #[error("the peer does not support datagrams")]
    Unsupported,
    /// The session is over.
    #[error(transparent)]
    Ended(#[from] SessionEnd),
}

/// Queued datagrams, and their total memory.
#[derive(Default)]
pub(super) struct Datagrams {
    queue: VecDeque<Bytes>,
    cost: usize,
}

impl Datagrams {
    /// Appends a datagram, and drops the oldest ones beyond the limit. Returns the number of
    /// dropped datagrams.
    pub(super) fn push(&mut self, datagram: Bytes, max: usize) -> u64 {
        self.cost += datagram.len() + DATAGRAM_COST;
        self.queue.push_back(datagram);
        let mut dropped = 0;
        while self.cost > max && self.pop().is_some() {
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

/// Sends the datagrams of a session from any thread. Cheap to clone. A sender does not keep the
/// session open.
#[derive(Clone)]
pub struct DatagramSender(Arc<SenderState>);

struct SenderState {
    /// Maximum memory of the queued datagrams.
    max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: Datagrams,
    /// Dropped datagrams that are not counted yet.
    dropped: u64,
    room: MaxPayload,
    end: Option<SessionEnd>,
    /// Another thread has queued a datagram, and the session was not notified yet.
    news: bool,
    session: Option<Waker>,
}

/// Maximum payload of a datagram.
#[derive(Clone, Copy, Default)]
enum MaxPayload {
    /// The connection has not registered the session yet.
    #[default]
    Unknown,
    /// The peer does not support datagrams.
    None,
    Bytes(usize),
}

impl State {
    fn push(&mut self, datagram: Bytes, max: usize) -> Result<(), DatagramError> {
        if let Some(end) = &self.end {
            return Err(end.clone().into());
        }
        match self.room {
            MaxPayload::None => return Err(DatagramError::Unsupported),
            MaxPayload::Bytes(max) if datagram.len() > max => {
                return Err(DatagramError::TooLarge { size: datagram.len(), max });
            }
            MaxPayload::Unknown | MaxPayload::Bytes(_) => {}
        }
        self.dropped += self.waiting.push(datagram, max);
        Ok(())
    }
}

impl DatagramSender {
    /// Sends a datagram, which arrives once or not at all. If the send queue exceeds
    /// [`Limits::webtransport_datagram_bytes`](crate::Limits::webtransport_datagram_bytes), the
    /// oldest datagrams are dropped.
    ///
    /// # Errors
    ///
    /// When the datagram is too large, the peer does not support datagrams, or the session is over.
    pub fn send(&self, datagram: impl Into<Bytes>) -> Result<(), DatagramError> {
        let session = {
            let mut state = self.lock();
            state.push(datagram.into(), self.0.max)?;
            state.news = true;
            state.session.take()
        };
        if let Some(session) = session {
            session.wake();
        }
        Ok(())
    }

    /// Returns the largest datagram that can be sent now, in bytes; it changes with the path.
    /// Returns `None` if the peer does not support datagrams, or the session has just begun; a
    /// datagram sent then is lost if it turns out to be too large.
    pub fn max_size(&self) -> Option<usize> {
        match self.lock().room {
            MaxPayload::Bytes(max) => Some(max),
            MaxPayload::Unknown | MaxPayload::None => None,
        }
    }

    pub(super) fn new(max: usize) -> Self {
        Self(Arc::new(SenderState { max, state: Mutex::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No panic can leave the state inconsistent: each lock covers only simple changes.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a datagram on the session's own thread. The caller has to notify the session.
    pub(super) fn push(&self, datagram: Bytes) -> Result<(), DatagramError> {
        self.lock().push(datagram, self.0.max)
    }

    /// Whether another thread has queued a datagram since the last call. The task is woken by the
    /// next one.
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

    /// Returns the number of datagrams dropped since the last call.
    pub(super) fn take_dropped(&self) -> u64 {
        std::mem::take(&mut self.lock().dropped)
    }

    pub(super) fn set_size(&self, size: Option<usize>) {
        self.lock().room = size.map_or(MaxPayload::None, MaxPayload::Bytes);
    }

    /// Drops the queue, and rejects all further datagrams.
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
