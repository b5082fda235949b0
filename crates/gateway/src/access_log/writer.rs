//! The thread that writes lines.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

/// Size at which a batch of lines is written.
const BATCH_BYTES: usize = 64 << 10;

/// Counts of access log lines since the start of the process.
#[derive(Debug, Default)]
pub struct LogCounts {
    /// Lines handed to the output.
    pub(super) written: AtomicU64,
    /// Lines dropped because the output was too slow.
    pub(super) dropped: AtomicU64,
    /// Lines lost because the output refused them.
    pub(super) failed: AtomicU64,
}

impl LogCounts {
    /// Returns the number of lines handed to the output.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Returns the number of lines dropped because the output was too slow.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Returns the number of lines lost because the output failed, such as on a full disk.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

/// State shared by the thread and the senders of lines.
#[derive(Default)]
pub(super) struct LogState {
    pub(super) counts: Arc<LogCounts>,
    /// Reopened file to continue with.
    pub(super) next: Mutex<Option<File>>,
    /// Whether no further lines will be sent.
    pub(super) is_over: AtomicBool,
}

pub(super) struct Writer<C> {
    pub(super) output: Box<dyn Write + Send>,
    /// Name of the output, for error messages.
    pub(super) name: String,
    pub(super) shared: Arc<LogState>,
    /// Reports errors of the output, one line each.
    pub(super) report: C,
}

/// Opens a log file for appending.
pub(super) fn open(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).open(path)
}

impl<C: FnMut(&str)> Writer<C> {
    fn next(&self, lines: &Receiver<String>) -> Option<String> {
        if self.shared.is_over.load(Ordering::Acquire) {
            lines.try_recv().ok()
        } else {
            lines.recv().ok()
        }
    }

    /// Writes lines until there are no senders left.
    pub(super) fn run(mut self, lines: &Receiver<String>) {
        let mut batch = String::new();
        let (mut told_dropped, mut lost) = (self.shared.counts.dropped(), 0);
        // Whether the output ends in the middle of a line.
        let mut ends_mid_line = false;
        while let Some(line) = self.next(lines) {
            if let Some(file) =
                self.shared.next.lock().unwrap_or_else(PoisonError::into_inner).take()
            {
                self.output = Box::new(file);
                ends_mid_line = false;
            }
            let mut count = u64::from(!line.is_empty());
            batch.push_str(&line);
            while batch.len() < BATCH_BYTES
                && let Ok(line) = lines.try_recv()
            {
                count += u64::from(!line.is_empty());
                batch.push_str(&line);
            }
            if count == 0 {
                continue;
            }
            if ends_mid_line {
                batch.insert(0, '\n');
            }
            match write_as_much(&mut self.output, batch.as_bytes()) {
                Ok(()) => {
                    ends_mid_line = false;
                    self.shared.counts.written.fetch_add(count, Ordering::Relaxed);
                    if lost > 0 {
                        (self.report)(&format!(
                            "access log: writing to {} works again; {lost} lines were lost",
                            self.name
                        ));
                        lost = 0;
                    }
                }
                Err((written, error)) => {
                    let ends =
                        batch.as_bytes()[..written].split(|byte| *byte == b'\n').skip(1).count()
                            as u64;
                    let whole = ends.saturating_sub(u64::from(ends_mid_line));
                    ends_mid_line = if written == 0 {
                        ends_mid_line
                    } else {
                        batch.as_bytes()[written - 1] != b'\n'
                    };
                    if lost == 0 {
                        (self.report)(&format!(
                            "warning: access log: cannot write to {}: {error}; lines are lost \
                                until it works again",
                            self.name
                        ));
                    }
                    lost += count - whole;
                    self.shared.counts.written.fetch_add(whole, Ordering::Relaxed);
                    self.shared.counts.failed.fetch_add(count - whole, Ordering::Relaxed);
                }
            }
            batch.clear();
            let dropped = self.shared.counts.dropped();
            if dropped > told_dropped {
                let lines = dropped - told_dropped;
                (self.report)(&format!(
                    "warning: access log: {lines} lines dropped, because {} is too slow",
                    self.name
                ));
                told_dropped = dropped;
            }
        }
        if lost > 0 {
            (self.report)(&format!("warning: access log: {lost} lines were lost"));
        }
    }
}

/// Writes all bytes, or returns how many were written before the error.
fn write_as_much(output: &mut dyn Write, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while written < bytes.len() {
        match output.write(&bytes[written..]) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((written, error)),
        }
    }
    output.flush().map_err(|error| (written, error))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    /// An output that accepts a number of bytes, then fails a number of times.
    struct Full {
        room: usize,
        refusals: usize,
        taken: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.room == 0 && self.refusals > 0 {
                self.refusals -= 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            let count = if self.room == 0 { bytes.len() } else { bytes.len().min(self.room) };
            self.room = self.room.saturating_sub(count);
            self.taken.lock().unwrap().extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn full_disk_is_told_once_and_cuts_no_later_line() {
        let taken = Arc::<Mutex<Vec<u8>>>::default();
        let (shared, told) = (Arc::<LogState>::default(), Mutex::new(Vec::new()));
        let output = Box::new(Full { room: 9, refusals: 2, taken: taken.clone() });
        let report = |text: &str| told.lock().unwrap().push(text.to_owned());
        let writer = Writer { output, name: "it".to_owned(), shared: shared.clone(), report };
        let long = format!("{}\n", "b".repeat(BATCH_BYTES));
        let (sender, receiver) = sync_channel(8);
        for line in ["one\n", &long, &long, &long, "end\n"] {
            sender.send(line.to_owned()).unwrap();
        }
        drop(sender);
        writer.run(&receiver);
        let text = String::from_utf8(taken.lock().unwrap().clone()).unwrap();
        let lines: Vec<_> = text.lines().map(|line| &line[..line.len().min(5)]).collect();
        assert_eq!(lines, ["one", "bbbbb", "bbbbb", "end"], "one is cut, one is lost");
        assert_eq!(text.lines().nth(1).map(str::len), Some(5));
        assert_eq!(
            (shared.counts.written(), shared.counts.failed(), shared.counts.dropped()),
            (3, 2, 0)
        );
        let told = told.into_inner().unwrap();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].contains("cannot write to it")
                && told[1].contains("works again; 2 lines were lost"),
            "{told:?}"
        );
    }
}
