//! A value that one thread sets and others wait for.

use std::future::poll_fn;
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};

/// A value that is set once; later values are ignored.
#[derive(Debug)]
pub(crate) struct Signal<T> {
    state: Mutex<(Option<T>, Vec<Waker>)>,
}

impl<T> Default for Signal<T> {
    fn default() -> Self {
        Self { state: Mutex::new((None, Vec::new())) }
    }
}

impl<T: Copy> Signal<T> {
    pub(crate) fn set(&self, value: T) {
        let wakers = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.0.get_or_insert(value);
            std::mem::take(&mut state.1)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn value(&self) -> Option<T> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits for the value. Meant for a few waiters, each of which waits once.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub(crate) async fn wait(&self) -> T {
        poll_fn(|cx| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(value) = state.0 {
                return Poll::Ready(value);
            }
            if !state.1.iter().any(|waker| waker.will_wake(cx.waker())) {
                state.1.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}
