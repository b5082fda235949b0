//! The thread that writes the files.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, PoisonError};

use super::{Ended, Message, Vantage, WriteFailures};

/// How many connections may have chosen the same ID before a trace is abandoned.
const NAMES: usize = 100;

pub(super) struct Files {
    folder: PathBuf,
    most: usize,
    /// Files in the directory, oldest first, if their number is limited.
    kept: VecDeque<PathBuf>,
    open: Arc<AtomicUsize>,
    ended: Arc<Ended>,
    refused: Arc<WriteFailures>,
    /// Connections that failed to be written since a file was last written successfully.
    lost: u64,
    traces: HashMap<u64, Trace>,
}

struct Trace {
    vantage: Vantage,
    is_first: bool,
    /// Set if the trace began while writing failed. If it is written completely, writing works
    /// again.
    is_proof: bool,
    path: PathBuf,
    /// `None` after a write error: further records are discarded.
    file: Option<BufWriter<File>>,
}

impl Files {
    pub(super) fn new(
        folder: PathBuf,
        most: usize,
        open: Arc<AtomicUsize>,
        ended: Arc<Ended>,
        refused: Arc<WriteFailures>,
    ) -> io::Result<Self> {
        let kept = if most == usize::MAX { VecDeque::new() } else { present(&folder)? };
        Ok(Self { folder, most, kept, open, ended, refused, lost: 0, traces: HashMap::new() })
    }

    /// Runs until all senders are dropped.
    pub(super) fn run(mut self, messages: &Receiver<Message>) {
        loop {
            let message = match messages.try_recv() {
                Ok(message) => message,
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {
                    let ended = std::mem::take(
                        &mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner),
                    );
                    for trace in ended {
                        self.end(trace);
                    }
                    // When idle, the files on disk contain everything that has happened.
                    let flushed = self
                        .traces
                        .values_mut()
                        .filter_map(|trace| trace.write(io::Write::flush).err())
                        .collect();
                    self.on_refused(flushed);
                    match messages.recv() {
                        Ok(message) => message,
                        Err(_) => return,
                    }
                }
            };
            match message {
                Message::Begin { trace, name, vantage } => {
                    let is_proof = self.lost > 0;
                    let begun = match self.create(&name) {
                        Ok((path, file)) => Trace {
                            vantage,
                            is_first: true,
                            is_proof,
                            path,
                            file: Some(BufWriter::new(file)),
                        },
                        Err(error) => {
                            let path = self.folder.clone();
                            self.on_refused(vec![(path.clone(), error)]);
                            Trace { vantage, is_first: true, is_proof, path, file: None }
                        }
                    };
                    self.traces.insert(trace, begun);
                }
                Message::Record { trace, bytes } => {
                    let recorded =
                        self.traces.get_mut(&trace).map_or(Ok(()), |trace| trace.record(&bytes));
                    self.on_refused(recorded.err().into_iter().collect());
                }
                Message::End { trace } => self.end(trace),
            }
        }
    }

    fn end(&mut self, trace: u64) {
        if let Some(mut trace) = self.traces.remove(&trace) {
            match trace.write(io::Write::flush) {
                Ok(()) if trace.is_proof && trace.file.is_some() => self.on_taken(),
                Ok(()) => {}
                Err(refused) => self.on_refused(vec![refused]),
            }
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Reports the first error, and counts the others.
    fn on_refused(&mut self, refused: Vec<(PathBuf, io::Error)>) {
        for (path, error) in refused {
            if self.lost == 0 {
                self.tell(&format!(
                    "warning: qlog: cannot write to {}: {error}; connections have no file, or part \
                        of one, until it can",
                    path.display()
                ));
            }
            self.lost += 1;
            self.refused.connections.fetch_add(1, Ordering::Relaxed);
            // An empty file is of no use, and must not displace others.
            if std::fs::metadata(&path).is_ok_and(|file| file.is_file() && file.len() == 0)
                && std::fs::remove_file(&path).is_ok()
            {
                self.kept.retain(|kept| *kept != path);
            }
        }
    }

    fn on_taken(&mut self) {
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            self.tell(&format!(
                "qlog: files can be written again; {lost} connections have none, or part of one"
            ));
        }
    }

    fn tell(&self, line: &str) {
        if let Some(tell) = self.refused.tell.get() {
            tell(line);
        }
    }

    /// Creates a file without overwriting any: the client chooses the ID, so another connection may
    /// have used it.
    fn create(&mut self, name: &str) -> io::Result<(PathBuf, File)> {
        while self.kept.len() >= self.most.max(1) {
            // Another process may have removed it already.
            let _ = self.kept.pop_front().map(std::fs::remove_file);
        }
        let mut result = Err(io::Error::from(io::ErrorKind::AlreadyExists));
        for number in 0..NAMES {
            let suffix = if number == 0 { String::new() } else { format!("-{number}") };
            let path = self.folder.join(format!("{name}{suffix}.sqlog"));
            result = OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(&path)
                .map(|file| (path.clone(), file));
            if result.is_ok() && self.most < usize::MAX {
                self.kept.push_back(path);
            }
            if !matches!(&result, Err(error) if error.kind() == io::ErrorKind::AlreadyExists) {
                break;
            }
        }
        result
    }
}

/// Returns the files of earlier runs, oldest first.
fn present(folder: &Path) -> io::Result<VecDeque<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "sqlog") {
            found.push((entry.metadata()?.modified()?, path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

impl Trace {
    fn record(&mut self, bytes: &[u8]) -> Result<(), (PathBuf, io::Error)> {
        if std::mem::replace(&mut self.is_first, false)
            && let Some(header) = with_vantage(bytes, self.vantage)
        {
            return self.write(|file| file.write_all(&header));
        }
        self.write(|file| file.write_all(bytes))
    }

    /// Writes to the file. Returns a write error once, with the file's path.
    fn write(
        &mut self,
        write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<(), (PathBuf, io::Error)> {
        let Some(file) = &mut self.file else { return Ok(()) };
        write(file).map_err(|error| {
            // Data in the buffer is not written again.
            drop(self.file.take().map(BufWriter::into_parts));
            (self.path.clone(), error)
        })
    }
}

/// Sets the vantage point in the header of the file, which the transport writes as unknown.
fn with_vantage(header: &[u8], vantage: Vantage) -> Option<Vec<u8>> {
    let text = header.strip_prefix(b"\x1e").unwrap_or(header);
    let mut value: serde_json::Value = serde_json::from_slice(text).ok()?;
    *value.pointer_mut("/trace/vantage_point/type")? = vantage.name().into();
    let mut bytes = vec![0x1e];
    serde_json::to_writer(&mut bytes, &value).ok()?;
    bytes.push(b'\n');
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_files_go_when_there_are_too_many() {
        let folder = std::env::temp_dir().join(format!(
            "pronghorn-qlog-{}-{:x}",
            std::process::id(),
            rand::random::<u64>()
        ));
        std::fs::create_dir_all(&folder).unwrap();
        let files = |most| {
            Files::new(folder.clone(), most, Arc::default(), Arc::default(), Arc::default())
                .unwrap()
        };
        let mut first = files(3);
        for name in ["a", "b", "c", "d"] {
            first.create(name).unwrap();
        }
        let mut second = files(2);
        second.create("e").unwrap();
        std::fs::write(folder.join("other.txt"), "").unwrap();
        let mut names: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        // One of the three earlier files remains. They may all have the same timestamp.
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(
            names.contains(&"e.sqlog".into())
                && names.contains(&"other.txt".into())
                && !names.contains(&"a.sqlog".into()),
            "{names:?}"
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
