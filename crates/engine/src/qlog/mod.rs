//! qlog: what happens on a QUIC connection, in a file of its own.
//!
//! The format is qlog 0.3 as JSON text sequences (draft-ietf-quic-qlog-main-schema), which qvis and other viewers read. The transport
//! writes packets, losses and recovery metrics; [`Trace`] adds HTTP/3 frames, streams and how the connection ended.
//!
//! Workers never wait for the disk: records go to one thread, and are dropped and counted when it cannot follow.

mod files;
mod trace;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

pub(crate) use qlog::events::quic::{StreamSide, StreamState};
pub(crate) use trace::{Trace, Way};

/// Connections that are traced at the same time; each holds a file open. Others go without.
const OPEN_TRACES: usize = 256;
/// Records that wait for the disk: some 300 bytes each, so 5 MiB.
const WAITING_RECORDS: usize = 16 << 10;

/// A folder in which each QUIC connection gets a qlog file. Cheap to clone; the last one gone, the files are complete.
#[derive(Clone)]
pub struct Qlog {
    shared: Arc<Shared>,
    rule: Option<Arc<Rule>>,
}

/// Whether the connection of a client gets a file.
type Rule = dyn Fn(IpAddr) -> bool + Send + Sync;

struct Shared {
    /// `None` once the last user is gone.
    records: Option<SyncSender<Message>>,
    thread: Option<JoinHandle<()>>,
    open: Arc<AtomicUsize>,
    ended: Arc<Ended>,
    refused: Arc<Refused>,
    next: AtomicU64,
    dropped: AtomicU64,
    skipped: AtomicU64,
}

/// What the disk did not take.
#[derive(Default)]
struct Refused {
    connections: AtomicU64,
    tell: OnceLock<Box<Tell>>,
}

/// Where lines about the disk go.
type Tell = dyn Fn(&str) + Send + Sync;

/// Traces whose end found no room among the records: a worker does not wait, and an end must not be lost.
type Ended = Mutex<Vec<u64>>;

/// What the thread is told.
enum Message {
    Begin { trace: u64, name: String, vantage: Vantage },
    Record { trace: u64, bytes: Vec<u8> },
    End { trace: u64 },
}

/// From where a connection is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vantage {
    Client,
    Server,
}

impl Vantage {
    const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

impl Qlog {
    /// Makes the folder if it is not there, and starts the thread that writes.
    ///
    /// # Errors
    ///
    /// When the folder cannot be made or the thread not started.
    pub fn to_folder(folder: &Path) -> io::Result<Self> {
        Self::to_folder_of(folder, usize::MAX)
    }

    /// The same, with as many files in the folder at the most: for one more, the oldest goes, also those of earlier runs.
    ///
    /// # Errors
    ///
    /// As for [`Qlog::to_folder`].
    pub fn to_folder_of(folder: &Path, most_files: usize) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let (records, waiting) = sync_channel(WAITING_RECORDS);
        let open = Arc::<AtomicUsize>::default();
        let ended = Arc::<Ended>::default();
        let refused = Arc::<Refused>::default();
        let files = files::Files::new(folder.to_owned(), most_files, open.clone(), ended.clone(), refused.clone())?;
        let thread = std::thread::Builder::new().name("qlog".to_owned()).spawn(move || files.run(&waiting))?;
        let (records, thread) = (Some(records), Some(thread));
        let [next, dropped, skipped] = [const { AtomicU64::new(0) }; 3];
        let shared = Shared { records, thread, open, ended, refused, next, dropped, skipped };
        Ok(Self { shared: Arc::new(shared), rule: None })
    }

    /// The same for clients only that `rule` chooses by their address, when they begin a connection; connections to other servers have no
    /// file then. Workers ask it, so it must not wait.
    #[must_use]
    pub fn for_clients(mut self, rule: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        self.rule = Some(Arc::new(rule));
        self
    }

    /// Hears, in a line each, when files cannot be written and when they can again, on the thread that writes them. The first to ask
    /// hears, and nobody else.
    pub fn on_trouble(&self, tell: impl Fn(&str) + Send + Sync + 'static) {
        // A second one is dropped, as is said above.
        let _ = self.shared.refused.tell.set(Box::new(tell));
    }

    /// Connections that have no file, or part of one, because the disk refused it, as a full one does.
    pub fn refused_connections(&self) -> u64 {
        self.shared.refused.connections.load(Ordering::Relaxed)
    }

    /// Records that were dropped because the disk did not follow.
    pub fn dropped_records(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Connections that were not traced because too many others were.
    pub fn skipped_connections(&self) -> u64 {
        self.shared.skipped.load(Ordering::Relaxed)
    }

    /// Begins the trace of a connection, with the destination connection ID that its client chose first, as RFC 9000 names it.
    pub(crate) fn begin(&self, now: Instant, original_dcid: &str, vantage: Vantage, remote: IpAddr) -> Option<Trace> {
        let shared = &self.shared;
        if self.rule.as_ref().is_some_and(|rule| vantage == Vantage::Client || !rule(remote)) {
            return None;
        }
        if shared.open.fetch_add(1, Ordering::Relaxed) >= OPEN_TRACES {
            shared.open.fetch_sub(1, Ordering::Relaxed);
            shared.skipped.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let trace = shared.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("{original_dcid}_{}", vantage.name());
        if !shared.try_send(Message::Begin { trace, name, vantage }) {
            shared.open.fetch_sub(1, Ordering::Relaxed);
            shared.skipped.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Trace::begin(Records { shared: shared.clone(), trace }, now)
    }
}

impl Shared {
    fn try_send(&self, message: Message) -> bool {
        self.records.as_ref().is_some_and(|records| records.try_send(message).is_ok())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Without a sender the thread ends when all is written; a panic of its own is of no use to anybody here.
        self.records = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl fmt::Debug for Qlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Qlog").finish_non_exhaustive()
    }
}

/// The way of one connection's records to the thread. Its end ends the file.
struct Records {
    shared: Arc<Shared>,
    trace: u64,
}

impl Records {
    fn send(&self, bytes: Vec<u8>) {
        if !self.shared.try_send(Message::Record { trace: self.trace, bytes }) {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        if !self.shared.try_send(Message::End { trace: self.trace }) {
            // The thread looks there once it has written what waits.
            self.shared.ended.lock().unwrap_or_else(PoisonError::into_inner).push(self.trace);
        }
    }
}
