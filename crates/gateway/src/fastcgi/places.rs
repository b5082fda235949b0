//! How many requests of a worker a server has at once, and how many wait for that.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_client::{Error, Phase};
use pronghorn_engine::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::in_time::in_time;

/// The places at one server.
pub(super) struct Places {
    free: Arc<Semaphore>,
    /// One is taken by each request that waits.
    queue: Rc<Semaphore>,
}

/// A place that is taken until it is dropped.
pub(crate) struct Place(#[expect(dead_code, reason = "it is dropped")] OwnedSemaphorePermit);

impl Places {
    pub(super) fn new(count: usize, waiting: usize) -> Self {
        let of = |count: usize| Semaphore::new(count.min(Semaphore::MAX_PERMITS));
        Self { free: Arc::new(of(count)), queue: Rc::new(of(waiting)) }
    }

    /// Takes a place, after those who have waited longer.
    pub(super) async fn take(&self, handle: &Handle, timeout: Duration, name: &str) -> Result<Place, Error> {
        if let Ok(permit) = self.free.clone().try_acquire_owned() {
            return Ok(Place(permit));
        }
        let Ok(_waits) = self.queue.try_acquire() else { return Err(Error::Busy(name.to_owned())) };
        match in_time(handle, timeout, self.free.clone().acquire_owned()).await {
            Some(permit) => Ok(Place(permit.expect("invariant: it is never closed"))),
            None => Err(Error::TimedOut(Phase::Queue)),
        }
    }
}
