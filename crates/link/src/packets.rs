//! The packet log, `--packets FILE`: one row for each packet, in the order in which they reached
//! the link.
//!
//! ```text
//! emulator's thread ── chunks of records ──► writer's thread ──► FILE
//!                   ◄── emptied chunks ────
//! ```
//!
//! The emulator appends small records to preallocated memory and passes on whole chunks: it makes
//! no file system call and never waits. The fate of a packet becomes known later, as a separate
//! record; the writer combines both.

mod description;
mod recorder;
mod writer;

pub use recorder::{Fate, MAX_ROWS_IN_MEMORY};
pub(crate) use recorder::{Recorder, Row};
pub(crate) use writer::{Cell, Writer};

#[cfg(test)]
mod tests;
