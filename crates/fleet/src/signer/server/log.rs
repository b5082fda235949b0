//! Lines about connections, limited so that a flood of connections is none of lines.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of lines in each second.
const LINES: u32 = 10;

/// Where lines go.
pub(super) struct Log {
    write: Box<dyn Fn(&str) + Send + Sync>,
    window: Mutex<Window>,
}

struct Window {
    began: Instant,
    lines: u32,
    suppressed: u64,
}

impl Log {
    pub(super) fn new(write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let window = Mutex::new(Window { began: Instant::now(), lines: 0, suppressed: 0 });
        Self { write: Box::new(write), window }
    }

    /// Writes a line, unless there were too many in this second. The next line then says how many.
    pub(super) fn line(&self, line: &str) {
        let suppressed = {
            let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
            if window.began.elapsed() >= Duration::from_secs(1) {
                (window.began, window.lines) = (Instant::now(), 0);
            }
            if window.lines >= LINES {
                window.suppressed += 1;
                return;
            }
            window.lines += 1;
            std::mem::take(&mut window.suppressed)
        };
        if suppressed > 0 {
            (self.write)(&format!("{suppressed} lines suppressed"));
        }
        (self.write)(line);
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
    }
}
