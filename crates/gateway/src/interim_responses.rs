//! Interim responses through layers: the innermost service queues them here, and the task that
//! holds the client's responder forwards them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use http::{HeaderMap, StatusCode};
use pronghorn_engine::Responder;

/// Maximum number of queued responses. Further ones are dropped until the queue is forwarded.
const MAX_WAITING: usize = 16;

/// Queue of interim responses, stored in the extensions of a request through layers if its client
/// accepts interim responses. (Extensions must be `Send`, even if layers stay on one thread.)
#[derive(Clone, Default)]
pub(crate) struct InterimQueue(Arc<Mutex<QueuedResponses>>);

#[derive(Default)]
struct QueuedResponses {
    /// Early hints, sent first, once the layers have passed the request.
    hints: Option<HeaderMap>,
    responses: VecDeque<(StatusCode, HeaderMap)>,
    waker: Option<Waker>,
}

impl InterimQueue {
    /// `hints` is the field lines of early hints, sent once the layers have passed the request.
    pub(crate) fn new(hints: Option<HeaderMap>) -> Self {
        Self(Arc::new(Mutex::new(QueuedResponses { hints, ..QueuedResponses::default() })))
    }

    fn waiting(&self) -> MutexGuard<'_, QueuedResponses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the layers have passed the request, and queues the early hints.
    pub(crate) fn let_through(&self) {
        let hints = self.waiting().hints.take();
        if let Some(hints) = hints {
            self.inform(StatusCode::EARLY_HINTS, hints);
        }
    }

    pub(crate) fn inform(&self, status: StatusCode, headers: HeaderMap) {
        let mut waiting = self.waiting();
        if waiting.responses.len() < MAX_WAITING {
            waiting.responses.push_back((status, headers));
            // A layer may have polled the service from another task.
            let waker = waiting.waker.take();
            drop(waiting);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Forwards the queued responses, and registers `waker` for further ones.
    pub(crate) fn pass_on(&self, responder: &mut Responder, waker: &Waker) {
        let responses = {
            let mut waiting = self.waiting();
            waiting.waker.get_or_insert_with(|| waker.clone()).clone_from(waker);
            std::mem::take(&mut waiting.responses)
        };
        for (status, headers) in responses {
            responder.send_interim(status, &headers);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn hints_are_first_and_said_once() {
        let hints: HeaderMap =
            [(http::header::LINK, "</a>".parse().unwrap())].into_iter().collect();
        let interim = InterimQueue::new(Some(hints.clone()));
        interim.let_through();
        interim.let_through();
        interim.inform(StatusCode::PROCESSING, HeaderMap::new());
        let waiting = std::mem::take(&mut interim.waiting().responses);
        assert_eq!(
            waiting,
            [(StatusCode::EARLY_HINTS, hints), (StatusCode::PROCESSING, HeaderMap::new())]
        );
    }

    #[test]
    fn no_more_wait_than_may_and_whoever_waits_is_woken() {
        let (interim, woken) = (InterimQueue::default(), Arc::<Woken>::default());
        interim.waiting().waker = Some(woken.clone().into());
        (0..2 * MAX_WAITING).for_each(|_| interim.inform(StatusCode::PROCESSING, HeaderMap::new()));
        assert_eq!(interim.waiting().responses.len(), MAX_WAITING);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1, "woken once until it is polled");
    }
}
