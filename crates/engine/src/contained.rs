//! Containment of panics: they end one connection, and not the worker with all others.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::stats::Stats;

/// Why a connection ends whose work has panicked, as its peer is told.
pub(crate) const PANIC_REASON: &str = "internal error";

/// Runs work of one connection. Returns `None` if it panics: the caller counts that in
/// [`Stats::handler_panics`], and drops the connection, whose state may be half changed.
pub(crate) fn contained<R>(work: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Like [`contained`], and counts the panic.
pub(crate) fn contained_and_counted<R>(stats: &Stats, work: impl FnOnce() -> R) -> Option<R> {
    let done = contained(work);
    if done.is_none() {
        stats.handler_panics.add(1);
    }
    done
}
