//! The writer of the packet log: assembles rows and writes them, at ordinary priority.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use super::recorder::{Arrival, CHUNK_RECORDS, CHUNKS, Chunk, Fate, Record, Recorder};
use crate::Error;
use crate::packets::description::Kind;
use crate::trace_file::TraceFile;
use crate::way::Way;

pub(super) const HEADER: &str = "arrived_ns,left_ns,way,protocol,near_port,far_port,bytes,payload,fate,queue_bytes,kind,sequence,acknowledgement\n";

/// The writer's thread.
#[derive(Debug)]
pub(crate) struct Writer {
    thread: JoinHandle<Result<TraceFile, Error>>,
}

impl Writer {
    pub(crate) fn start(mut file: TraceFile) -> Result<(Recorder, Self), Error> {
        let (recorder, mut rows) = pair();
        let thread = std::thread::Builder::new()
            .name("link-packets".into())
            .spawn(move || match rows.write_all(file.rows()) {
                Ok(()) => Ok(file),
                Err(error) => Err(file.error(error)),
            })
            .map_err(Error::system("start a thread"))?;
        Ok((recorder, Self { thread }))
    }

    /// Waits for the last row, then gives the file its name. The recorder must have been finished
    /// before.
    pub(crate) fn finish(self) -> Result<(), Error> {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?.finish()
    }
}

/// Returns both ends, with all the memory that the recorder will need.
pub(super) fn pair() -> (Recorder, Rows) {
    let (full, incoming) = mpsc::channel();
    let (giver, emptied) = mpsc::channel();
    let chunk = || Vec::with_capacity(CHUNK_RECORDS);
    for _ in 1..CHUNKS {
        giver.send(chunk()).expect("invariant: the receiver is a few lines above");
    }
    let written = Arc::new(AtomicU64::new(0));
    let recorder = Recorder {
        chunk: chunk(),
        full,
        emptied,
        rows: 0,
        written: Arc::clone(&written),
        unlogged: 0,
        live_since_ns: 0,
    };
    (recorder, Rows { incoming, emptied: giver, pending: VecDeque::new(), written })
}

/// Rows to be written to the file.
pub(super) struct Rows {
    incoming: mpsc::Receiver<Chunk>,
    emptied: mpsc::Sender<Chunk>,
    /// Rows from the first one without a fate.
    pending: VecDeque<Pending>,
    written: Arc<AtomicU64>,
}

struct Pending {
    arrival: Arrival,
    end: Option<(Fate, u64)>,
}

impl Rows {
    /// Writes rows until the recorder is finished. After a failure it continues to read, so that
    /// the recorder never runs out of memory.
    pub(super) fn write_all(&mut self, to: &mut impl Write) -> io::Result<()> {
        let mut result = to.write_all(HEADER.as_bytes());
        while let Ok(mut chunk) = self.incoming.recv() {
            for record in chunk.drain(..) {
                self.handle(&record);
            }
            // The recorder may have finished meanwhile.
            let _ = self.emptied.send(chunk);
            while self.pending.front().is_some_and(|row| row.end.is_some()) {
                self.write_first(to, &mut result);
            }
        }
        while !self.pending.is_empty() {
            self.write_first(to, &mut result);
        }
        result
    }

    fn handle(&mut self, record: &Record) {
        match *record {
            Record::Arrived(arrival) => self.pending.push_back(Pending { arrival, end: None }),
            Record::Ended { row, fate, at_ns } => {
                let first = self.written.load(Ordering::Relaxed);
                if let Some(pending) =
                    row.checked_sub(first).and_then(|at| self.pending.get_mut(at as usize))
                {
                    pending.end = Some((fate, at_ns));
                }
            }
        }
    }

    fn write_first(&mut self, to: &mut impl Write, result: &mut io::Result<()>) {
        let Some(row) = self.pending.pop_front() else {
            return;
        };
        if result.is_ok() {
            *result = row.write(to);
        }
        self.written.fetch_add(1, Ordering::Relaxed);
    }
}

impl Pending {
    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let Arrival { at_ns, queue_bytes, way, bytes, description } = &self.arrival;
        let (fate, ended_ns) = self.end.unwrap_or((Fate::Held, 0));
        let left_ns = (fate == Fate::Delivered).then_some(ended_ns);
        let (way, ports) = match way {
            Way::Up => ("up", description.ports),
            Way::Down => {
                ("down", description.ports.map(|(source, destination)| (destination, source)))
            }
        };
        let (near_port, far_port) = ports.unzip();
        write!(
            to,
            "{at_ns},{},{way},{},{},{},{bytes},{},{},{queue_bytes},{},",
            Cell(left_ns),
            Cell(description.protocol),
            Cell(near_port),
            Cell(far_port),
            Cell(description.payload),
            fate.name(),
            description.kind
        )?;
        match description.kind {
            Kind::Tcp { sequence, acknowledgement, .. } => {
                writeln!(to, "{sequence},{acknowledgement}")
            }
            _ => to.write_all(b",\n"),
        }
    }
}

/// Formats an optional value; empty if `None`.
pub(crate) struct Cell<T>(pub(crate) Option<T>);

impl<T: std::fmt::Display> std::fmt::Display for Cell<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.as_ref().map_or(Ok(()), |value| value.fmt(f))
    }
}
