//! The capsules sent on a session's CONNECT stream.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context as TaskContext, Poll, Waker};

use bytes::Bytes;
use http_body::Frame;
use pronghorn_h3::ErrorCode;

use super::{Session, wake_all};

/// Queue of capsules for the CONNECT stream.
#[derive(Clone, Default)]
pub(crate) struct CapsuleQueue(pub(super) Rc<RefCell<QueuedCapsules>>);

#[derive(Default)]
pub(super) struct QueuedCapsules {
    queue: VecDeque<Bytes>,
    /// No capsule follows.
    is_over: bool,
    /// The body is dropped: the request was refused or reset, or the connection is gone.
    pub(super) is_lost: bool,
    sender: Option<Waker>,
    pub(super) session: Weak<Session>,
}

impl CapsuleQueue {
    pub(super) fn push(&self, capsule: Bytes) {
        let mut queued = self.0.borrow_mut();
        if queued.is_over {
            return;
        }
        queued.queue.push_back(capsule);
        let sender = queued.sender.take();
        drop(queued);
        wake_all(sender);
    }

    pub(super) fn end(&self) {
        let mut queued = self.0.borrow_mut();
        queued.is_over = true;
        let sender = queued.sender.take();
        drop(queued);
        wake_all(sender);
    }

    /// Returns the outgoing body of the CONNECT stream.
    pub(crate) fn content(&self) -> Capsules {
        Capsules(self.clone())
    }
}

/// The outgoing body of the CONNECT stream.
pub(crate) struct Capsules(CapsuleQueue);

impl http_body::Body for Capsules {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut queued = self.0.0.borrow_mut();
        if let Some(capsule) = queued.queue.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(capsule))));
        }
        if queued.is_over {
            return Poll::Ready(None);
        }
        queued.sender = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Capsules {
    fn drop(&mut self) {
        let mut queued = self.0.0.borrow_mut();
        queued.is_lost = true;
        let session = queued.session.upgrade();
        drop(queued);
        if let Some(session) = session {
            session.lose(ErrorCode::H3_REQUEST_CANCELLED.to_string());
        }
    }
}
