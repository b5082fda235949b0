//! The run queue.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use async_task::Runnable;

use super::Wakeup;

/// Runs futures on the worker's thread. Wakers may come from any thread.
#[derive(Clone)]
pub(crate) struct Executor {
    queue: Arc<Queue>,
}

struct Queue {
    ready: Mutex<VecDeque<Runnable>>,
    wakeup: Arc<Wakeup>,
}

impl Executor {
    pub(crate) fn new(wakeup: Arc<Wakeup>) -> Self {
        Self { queue: Arc::new(Queue { ready: Mutex::new(VecDeque::new()), wakeup }) }
    }

    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        // Weak: tasks hold their schedule function, and a queue that holds tasks must not keep itself alive.
        let queue = Arc::downgrade(&self.queue);
        let schedule = move |runnable: Runnable| {
            if let Some(queue) = queue.upgrade() {
                queue.lock().push_back(runnable);
                queue.wakeup.notify();
            } else {
                // The worker is gone. Dropping the task here would drop its future on a foreign thread.
                std::mem::forget(runnable);
            }
        };
        let (runnable, task) = async_task::spawn_local(future, schedule);
        runnable.schedule();
        task.detach();
    }

    /// Polls at most `budget` tasks and returns how many were polled.
    pub(crate) fn run(&self, budget: usize) -> usize {
        for polled in 0..budget {
            let Some(runnable) = self.queue.lock().pop_front() else { return polled };
            runnable.run();
        }
        budget
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.queue.lock().is_empty()
    }
}

impl Queue {
    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Runnable>> {
        // The lock is only held around a push or a pop, which leave the queue whole even if they panic.
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
