//! The thread that writes lines, which alone waits for the output.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that are written at once, when there are so many.
const BATCH_BYTES: usize = 64 << 10;

/// What became of lines, since the process was started.
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
    /// Lines handed to the output.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Lines dropped because the output was too slow.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Lines lost because the output refused them, as a full disk does.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

/// What the thread shares with those who have lines.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) counts: Arc<LogCounts>,
    /// The file to go on with, once it was opened again.
    pub(super) next: Mutex<Option<File>>,
    /// There are no more lines than those that wait.
    pub(super) is_over: AtomicBool,
}

pub(super) struct Writer<C> {
    pub(super) output: Box<dyn Write + Send>,
    /// What it is called when something is wrong with it.
    pub(super) name: String,
    pub(super) shared: Arc<Shared>,
    /// Hears, a line each, what is wrong with the output.
    pub(super) complain: C,
}

/// Opens the file of a log, whose lines come after those that are there.
pub(super) fn open(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).open(path)
}

impl<C: FnMut(&str)> Writer<C> {
    fn next(&self, lines: &Receiver<String>) -> Option<String> {
        if self.shared.is_over.load(Ordering::Acquire) { lines.try_recv().ok() } else { lines.recv().ok() }
    }

    /// Until nobody is left who could have a line.
    pub(super) fn run(mut self, lines: &Receiver<String>) {
        let mut batch = String::new();
        let (mut told_dropped, mut lost) = (self.shared.counts.dropped(), 0);
        // The output ends within a line.
        let mut is_torn = false;
        while let Some(line) = self.next(lines) {
            if let Some(file) = self.shared.next.lock().unwrap_or_else(PoisonError::into_inner).take() {
                self.output = Box::new(file);
                is_torn = false;
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
            if is_torn {
                batch.insert(0, '\n');
            }
            match write_as_much(&mut self.output, batch.as_bytes()) {
                Ok(()) => {
                    is_torn = false;
                    self.shared.counts.written.fetch_add(count, Ordering::Relaxed);
                    if lost > 0 {
                        (self.complain)(&format!("access log: {} can be written again; {lost} lines are lost", self.name));
                        lost = 0;
                    }
                }
                Err((written, error)) => {
                    let ends = batch.as_bytes()[..written].split(|byte| *byte == b'\n').skip(1).count() as u64;
                    let whole = ends.saturating_sub(u64::from(is_torn));
                    is_torn = if written == 0 { is_torn } else { batch.as_bytes()[written - 1] != b'\n' };
                    if lost == 0 {
                        (self.complain)(&format!(
                            "warning: access log: cannot write to {}: {error}; lines are lost until it can",
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
                (self.complain)(&format!("warning: access log: {lines} lines dropped, because {} is too slow", self.name));
                told_dropped = dropped;
            }
        }
        if lost > 0 {
            (self.complain)(&format!("warning: access log: {lost} lines are lost"));
        }
    }
}

/// Writes all, or says how much was written before it failed.
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

    /// Takes so many bytes, then fails so many times.
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
        let (shared, told) = (Arc::<Shared>::default(), Mutex::new(Vec::new()));
        let output = Box::new(Full { room: 9, refusals: 2, taken: taken.clone() });
        let complain = |text: &str| told.lock().unwrap().push(text.to_owned());
        let writer = Writer { output, name: "it".to_owned(), shared: shared.clone(), complain };
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
        assert_eq!((shared.counts.written(), shared.counts.failed(), shared.counts.dropped()), (3, 2, 0));
        let told = told.into_inner().unwrap();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("cannot write to it") && told[1].contains("can be written again; 2 lines are lost"), "{told:?}");
    }
}
