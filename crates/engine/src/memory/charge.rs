//! Bytes of one holder.

use std::rc::Rc;

use super::worker_memory::{WorkerMemory, current_memory};

/// Smallest change that is counted. Content that is passed on at once mostly stays below it, so
/// counting it costs a comparison.
const GRAIN: u64 = 4 << 10;

/// The bytes that one connection or stream holds, as counted in its worker's memory until dropped.
#[derive(Default)]
pub(crate) struct Charge {
    memory: Option<Rc<WorkerMemory>>,
    bytes: u64,
}

impl Charge {
    /// Counts this many bytes from now on, in whole grains.
    pub(crate) fn set(&mut self, memory: &Rc<WorkerMemory>, bytes: u64) {
        let rounded = bytes & !(GRAIN - 1);
        if rounded != self.bytes {
            memory.add(rounded);
            memory.subtract(std::mem::replace(&mut self.bytes, rounded));
            if self.memory.is_none() {
                self.memory = Some(memory.clone());
            }
        }
    }
}

impl Charge {
    /// Like [`Charge::set`], in the memory of the worker that runs on this thread.
    pub(crate) fn set_here(&mut self, bytes: u64) {
        if let Some(memory) = self.memory.clone().or_else(current_memory) {
            self.set(&memory, bytes);
        }
    }

    /// Returns the bytes counted.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether nothing was ever counted.
    pub(crate) fn is_none(&self) -> bool {
        self.memory.is_none()
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(memory) = &self.memory {
            memory.subtract(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charge_follows_its_holder_in_grains_and_ends_with_it() {
        let memory = Rc::new(WorkerMemory::default());
        let (mut one, mut other) = (Charge::default(), Charge::default());
        one.set(&memory, GRAIN - 1);
        assert_eq!(memory.held(), 0);
        one.set(&memory, 3 * GRAIN + 1);
        other.set(&memory, GRAIN);
        assert_eq!(memory.held(), 4 * GRAIN);
        one.set(&memory, GRAIN);
        assert_eq!(memory.held(), 2 * GRAIN);
        drop(one);
        assert_eq!(memory.held(), GRAIN);
        drop(other);
        assert_eq!(memory.held(), 0);
    }
}
