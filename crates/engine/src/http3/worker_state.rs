//! State that the HTTP/3 endpoints of a worker share.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::BytesMut;

use super::memory_pool::MemoryPool;
use crate::gauge::Gauge;

/// Enough for some tens of heads.
const ENCODED_BYTES: usize = 4 << 10;

/// State that the HTTP/3 endpoints of a worker share.
pub(crate) struct WorkerState {
    pub(crate) memory: MemoryPool,
    /// Incomplete request heads.
    pub(super) partial_heads: Gauge,
    /// Memory in which heads are encoded, one slice each. A slice that waits for its peer keeps the
    /// whole [`ENCODED_BYTES`] that it is cut from.
    pub(super) encoded: RefCell<BytesMut>,
}

impl WorkerState {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            memory: MemoryPool::default(),
            partial_heads: Gauge::default(),
            encoded: RefCell::new(BytesMut::with_capacity(ENCODED_BYTES)),
        })
    }
}
