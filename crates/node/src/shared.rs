//! Memory that JavaScript and this side share, so that a batch of events and of answers crosses with one call.
//!
//! Only one side runs at a time: they are on one thread.

#![expect(unsafe_code, reason = "the memory belongs to ArrayBuffers of JavaScript")]

use std::cell::Cell;

use crate::js::{Env, Failure, Kept, Value};

/// Events that go to JavaScript in one call, and numbers of each.
pub(crate) const EVENTS: usize = 1024;
pub(crate) const EVENT_NUMBERS: usize = 4;
/// Numbers in which JavaScript writes its answers; the first says how many there are.
pub(crate) const ANSWER_NUMBERS: usize = 16 << 10;
/// Bytes that the answers refer to.
pub(crate) const ANSWER_BYTES: usize = 256 << 10;

pub(crate) struct Shared {
    events: *mut i32,
    answers: *mut i32,
    bytes: *mut u8,
    _kept: [Kept; 3],
    /// Answers are being read: JavaScript must not run.
    reading: Cell<bool>,
}

impl Shared {
    /// Makes the buffers, as properties of `exports`.
    pub(crate) fn new(env: Env, exports: Value) -> Result<Self, Failure> {
        let make = |name, size| {
            let (value, kept, data) = env.shared_buffer(size)?;
            env.set(exports, name, value)?;
            Ok::<_, Failure>((kept, data))
        };
        // And the slot of the request whose handler runs.
        let (events_kept, events) = make("events", (EVENTS * EVENT_NUMBERS + 1) * 4)?;
        let (answers_kept, answers) = make("answers", ANSWER_NUMBERS * 4)?;
        let (bytes_kept, bytes) = make("bytes", ANSWER_BYTES)?;
        let kept = [events_kept, answers_kept, bytes_kept];
        let shared = Self { events: events.cast(), answers: answers.cast(), bytes, _kept: kept, reading: Cell::new(false) };
        shared.clear_current();
        Ok(shared)
    }

    /// Writes event number `index`.
    pub(crate) fn write_event(&self, index: usize, event: [i32; EVENT_NUMBERS]) {
        assert!(index < EVENTS, "invariant: no more than there is room for");
        // SAFETY: the buffer has room for `EVENTS`, is aligned as V8 aligns all ArrayBuffers (8 bytes at least), is kept by its
        // reference, and is not detached by the package's JavaScript, which alone has it.
        unsafe { self.events.cast::<[i32; EVENT_NUMBERS]>().add(index).write(event) };
    }

    /// The slot of the request whose handler runs, which JavaScript writes behind the events.
    pub(crate) fn current(&self) -> Option<u32> {
        // SAFETY: as above; the buffer has one more number.
        u32::try_from(unsafe { *self.events.add(EVENTS * EVENT_NUMBERS) }).ok()
    }

    /// No handler runs.
    pub(crate) fn clear_current(&self) {
        // SAFETY: as above.
        unsafe { *self.events.add(EVENTS * EVENT_NUMBERS) = -1 };
    }

    /// Hands the answers to `read`, numbers and bytes, if there are any, and empties them.
    ///
    /// `read` must not call JavaScript, which could write more; a call inside of a call finds nothing.
    pub(crate) fn take_answers(&self, read: impl FnOnce(&[i32], &[u8])) {
        if self.reading.replace(true) {
            return;
        }
        // SAFETY: as above; the number read is held to the buffer's size. Nobody writes while the slices live, because no JavaScript
        // runs: `reading` keeps a second reader out.
        unsafe {
            let length = usize::try_from(*self.answers).unwrap_or(0).min(ANSWER_NUMBERS);
            if length > 1 {
                let numbers = std::slice::from_raw_parts(self.answers.add(1), length - 1);
                let bytes = std::slice::from_raw_parts(self.bytes, ANSWER_BYTES);
                read(numbers, bytes);
            }
            *self.answers = 1;
        }
        self.reading.set(false);
    }
}
