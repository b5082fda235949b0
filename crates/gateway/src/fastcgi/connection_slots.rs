//! Limits of a worker's concurrent requests to a server, and of the requests that wait.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use pronghorn_client::{Error, Phase};
use pronghorn_engine::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::timeout::in_time;

/// The connection slots of one server.
pub(super) struct ConnectionSlots {
    free: Arc<Semaphore>,
    /// One permit for each waiting request.
    queue: Rc<Semaphore>,
}

/// A connection slot, freed on drop.
pub(crate) struct ConnectionSlot(
    #[expect(dead_code, reason = "frees the slot on drop")] OwnedSemaphorePermit,
);

impl ConnectionSlots {
    pub(super) fn new(count: usize, waiting: usize) -> Self {
        let of = |count: usize| Semaphore::new(count.min(Semaphore::MAX_PERMITS));
        Self { free: Arc::new(of(count)), queue: Rc::new(of(waiting)) }
    }

    /// Takes a slot, in first-come order.
    pub(super) async fn take(
        &self,
        handle: &Handle,
        timeout: Duration,
        name: &str,
    ) -> Result<ConnectionSlot, Error> {
        if let Ok(permit) = self.free.clone().try_acquire_owned() {
            return Ok(ConnectionSlot(permit));
        }
        let Ok(_waits) = self.queue.try_acquire() else { return Err(Error::Busy(name.to_owned())) };
        match in_time(handle, timeout, self.free.clone().acquire_owned()).await {
            Some(permit) => Ok(ConnectionSlot(permit.expect("invariant: it is never closed"))),
            None => Err(Error::TimedOut(Phase::Queue)),
        }
    }
}
