//! Callbacks for a readable descriptor.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use crate::js::end_after_panic;

/// A callback for a readable descriptor.
pub(crate) type OnReadable = Rc<dyn Fn()>;

/// Runs a callback of the host, which is C code: a panic must not unwind into it.
pub(crate) fn run_or_abort(action: &dyn Fn()) {
    if catch_unwind(AssertUnwindSafe(action)).is_err() {
        end_after_panic();
    }
}
