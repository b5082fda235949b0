//! Interim responses that come from behind layers: whatever answers in the middle leaves them here, and who has the client passes them on.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use http::{HeaderMap, StatusCode};
use pronghorn_engine::Responder;

/// Responses that wait. A server that sends more of them before any is passed on says too much at once: the rest is dropped.
const MAX_WAITING: usize = 16;

/// Stands in the extensions of a request on its way through layers, if its client takes interim responses. (Extensions may go to any
/// thread, whatever layers make of that.)
#[derive(Clone, Default)]
pub(crate) struct Informer(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    /// What is said first, once the layers have let the request through.
    hints: Option<HeaderMap>,
    responses: VecDeque<(StatusCode, HeaderMap)>,
    waker: Option<Waker>,
}

impl Informer {
    /// `hints`: the field lines of early hints for the time when the layers have let the request through.
    pub(crate) fn new(hints: Option<HeaderMap>) -> Self {
        Self(Arc::new(Mutex::new(Waiting { hints, ..Waiting::default() })))
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The layers have let the request through.
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
            // A layer may have had it asked by another task.
            let waker = waiting.waker.take();
            drop(waiting);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Passes on what waits, and wakes `waker` when there is more.
    pub(crate) fn pass_on(&self, responder: &mut Responder, waker: &Waker) {
        let responses = {
            let mut waiting = self.waiting();
            waiting.waker.get_or_insert_with(|| waker.clone()).clone_from(waker);
            std::mem::take(&mut waiting.responses)
        };
        for (status, headers) in responses {
            responder.inform(status, &headers);
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
        let hints: HeaderMap = [(http::header::LINK, "</a>".parse().unwrap())].into_iter().collect();
        let informer = Informer::new(Some(hints.clone()));
        informer.let_through();
        informer.let_through();
        informer.inform(StatusCode::PROCESSING, HeaderMap::new());
        let waiting = std::mem::take(&mut informer.waiting().responses);
        assert_eq!(waiting, [(StatusCode::EARLY_HINTS, hints), (StatusCode::PROCESSING, HeaderMap::new())]);
    }

    #[test]
    fn no_more_wait_than_may_and_whoever_waits_is_woken() {
        let (informer, woken) = (Informer::default(), Arc::<Woken>::default());
        informer.waiting().waker = Some(woken.clone().into());
        (0..2 * MAX_WAITING).for_each(|_| informer.inform(StatusCode::PROCESSING, HeaderMap::new()));
        assert_eq!(informer.waiting().responses.len(), MAX_WAITING);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1, "once until it has looked");
    }
}
