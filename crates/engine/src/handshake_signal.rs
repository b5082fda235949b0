//! Notice of the end of a client's handshake, for requests that arrived before it.

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, Waker};

/// Wakes the requests of a connection that wait for the end of its handshake.
#[derive(Debug, Default)]
pub(crate) struct HandshakeSignal {
    /// Whether the handshake was successful, once it has ended.
    ended: Cell<Option<bool>>,
    waiting: RefCell<Vec<Waker>>,
}

impl HandshakeSignal {
    /// Ready when the handshake has ended, with whether it was successful.
    pub(crate) fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<bool> {
        if let Some(successful) = self.ended.get() {
            return Poll::Ready(successful);
        }
        let mut waiting = self.waiting.borrow_mut();
        // A task that is polled for other reasons is listed once.
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Notes the end of the handshake. Only the first call counts.
    pub(crate) fn end(&self, successful: bool) {
        if self.ended.get().is_some() {
            return;
        }
        self.ended.set(Some(successful));
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn task_polled_often_is_woken_once_and_first_end_counts() {
        let (signal, wakes) = (HandshakeSignal::default(), Arc::<Wakes>::default());
        let waker = Waker::from(wakes.clone());
        let mut cx = Context::from_waker(&waker);
        for _ in 0..3 {
            assert_eq!(signal.poll_ended(&mut cx), Poll::Pending);
        }
        signal.end(true);
        signal.end(false);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert_eq!(signal.poll_ended(&mut cx), Poll::Ready(true));
    }
}
