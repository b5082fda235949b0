//! Whether a response is compressed.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// The decision whether to compress a response; [`TAKEN`] occupies a slot.
#[derive(Clone, Default)]
pub(super) struct Decision(pub(super) Arc<AtomicUsize>);

pub(super) const TAKEN: usize = 1;
/// All slots were occupied; the response is not compressed.
pub(super) const FULL: usize = 2;
