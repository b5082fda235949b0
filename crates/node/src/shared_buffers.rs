//! Memory shared with JavaScript, so that a batch of events and its responses take one call.
//!
//! Only one side runs at a time, because both are on one thread.

#![expect(unsafe_code, reason = "the memory belongs to ArrayBuffers of JavaScript")]

use std::cell::Cell;

use crate::js::{Env, Failure, Persistent, Value};

/// Maximum number of events in one call to JavaScript.
pub(crate) const EVENTS: usize = 1024;
/// Numbers per event.
pub(crate) const EVENT_NUMBERS: usize = 4;
/// Capacity for the numbers of JavaScript's responses. The first number is their count.
pub(crate) const ANSWER_NUMBERS: usize = 16 << 10;
/// Capacity for the bytes of JavaScript's responses.
pub(crate) const ANSWER_BYTES: usize = 256 << 10;

/// The shared buffers of an environment.
pub(crate) struct SharedBuffers {
    events: *mut i32,
    answers: *mut i32,
    bytes: *mut u8,
    _kept: [Persistent; 3],
    /// Whether responses are being read. JavaScript must not run meanwhile.
    reading: Cell<bool>,
}

impl SharedBuffers {
    /// Creates the buffers, as properties of `exports`.
    pub(crate) fn new(env: Env, exports: Value) -> Result<Self, Failure> {
        let make = |name, size| {
            let (value, kept, data) = env.shared_buffer(size)?;
            env.set(exports, name, value)?;
            Ok::<_, Failure>((kept, data))
        };
        // One more number: the slot of the request whose handler runs.
        let (events_kept, events) = make("events", (EVENTS * EVENT_NUMBERS + 1) * 4)?;
        let (answers_kept, answers) = make("answers", ANSWER_NUMBERS * 4)?;
        let (bytes_kept, bytes) = make("bytes", ANSWER_BYTES)?;
        let kept = [events_kept, answers_kept, bytes_kept];
        let shared = Self {
            events: events.cast(),
            answers: answers.cast(),
            bytes,
            _kept: kept,
            reading: Cell::new(false),
        };
        shared.clear_current();
        Ok(shared)
    }

    /// Writes event number `index`.
    pub(crate) fn write_event(&self, index: usize, event: [i32; EVENT_NUMBERS]) {
        assert!(index < EVENTS, "invariant: the event fits into the buffer");
        // SAFETY: the buffer has room for `EVENTS`, is aligned as V8 aligns all ArrayBuffers (8
        // bytes at least), is kept by its reference, and is not detached by the package's
        // JavaScript, which alone has it.
        unsafe { self.events.cast::<[i32; EVENT_NUMBERS]>().add(index).write(event) };
    }

    /// Returns the slot of the request whose handler runs, which JavaScript writes after the
    /// events.
    pub(crate) fn current(&self) -> Option<u32> {
        // SAFETY: as above; the buffer has one more number.
        u32::try_from(unsafe { *self.events.add(EVENTS * EVENT_NUMBERS) }).ok()
    }

    /// Notes that no handler runs.
    pub(crate) fn clear_current(&self) {
        // SAFETY: as above.
        unsafe { *self.events.add(EVENTS * EVENT_NUMBERS) = -1 };
    }

    /// Passes the responses to `read`, numbers and bytes, if there are any, and clears them.
    ///
    /// `read` must not call JavaScript, which could write more. A nested call finds nothing.
    pub(crate) fn take_answers(&self, read: impl FnOnce(&[i32], &[u8])) {
        if self.reading.replace(true) {
            return;
        }
        // SAFETY: as above; the length read is limited to the buffer's size. The slices are not
        // written to while they live, because no JavaScript runs; `reading` excludes a second
        // reader.
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
