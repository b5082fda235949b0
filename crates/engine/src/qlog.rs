//! qlog: events of QUIC connections, one file for each.
//!
//! The format is qlog 0.3 as JSON text sequences (draft-ietf-quic-qlog-main-schema), which qvis and
//! other viewers read. The transport writes packets, losses and recovery metrics; [`Trace`] adds
//! HTTP/3 frames, streams and how the connection ended.
//!
//! Workers never wait for the disk: one thread writes the records. If it cannot keep up, records
//! are dropped and counted.

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
pub(crate) use trace::{Direction, Trace};

/// Maximum number of connections that are traced at the same time, each with an open file. Others
/// get no file.
const OPEN_TRACES: usize = 256;
/// Maximum number of records that wait for the disk: some 300 bytes each, so 5 MiB.
const WAITING_RECORDS: usize = 16 << 10;

/// Writes a qlog file for each QUIC connection into a directory. Cheap to clone. The files are
/// complete once the last clone is dropped.
#[derive(Clone)]
pub struct Qlog {
    shared: Arc<QlogState>,
    rule: Option<Arc<ClientFilter>>,
}

/// Whether the connection of a client gets a file.
type ClientFilter = dyn Fn(IpAddr) -> bool + Send + Sync;

struct QlogState {
    /// `None` once the last user has been dropped.
    records: Option<SyncSender<Message>>,
    thread: Option<JoinHandle<()>>,
    open: Arc<AtomicUsize>,
    ended: Arc<Ended>,
    refused: Arc<WriteFailures>,
    next: AtomicU64,
    dropped: AtomicU64,
    skipped: AtomicU64,
}

/// What could not be written.
#[derive(Default)]
struct WriteFailures {
    connections: AtomicU64,
    tell: OnceLock<Box<ErrorCallback>>,
}

/// Receives log lines about write errors.
type ErrorCallback = dyn Fn(&str) + Send + Sync;

/// Traces whose end did not fit into the queue of records: a worker does not wait, and an end must
/// not be lost.
type Ended = Mutex<Vec<u64>>;

/// A message to the writing thread.
enum Message {
    Begin { trace: u64, name: String, vantage: Vantage },
    Record { trace: u64, bytes: Vec<u8> },
    End { trace: u64 },
}

/// The side from which a connection is seen.
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
    /// Creates the directory if it does not exist, and starts the writing thread.
    ///
    /// # Errors
    ///
    /// If the directory cannot be created or the thread cannot be started.
    pub fn to_directory(folder: &Path) -> io::Result<Self> {
        Self::to_directory_with_limit(folder, usize::MAX)
    }

    /// Like [`Qlog::to_directory`], with a maximum number of files in the directory. A new file
    /// replaces the oldest one, including those of earlier runs.
    ///
    /// # Errors
    ///
    /// Like [`Qlog::to_directory`].
    pub fn to_directory_with_limit(folder: &Path, most_files: usize) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let (records, waiting) = sync_channel(WAITING_RECORDS);
        let open = Arc::<AtomicUsize>::default();
        let ended = Arc::<Ended>::default();
        let refused = Arc::<WriteFailures>::default();
        let files = files::Files::new(
            folder.to_owned(),
            most_files,
            open.clone(),
            ended.clone(),
            refused.clone(),
        )?;
        let thread = std::thread::Builder::new()
            .name("qlog".to_owned())
            .spawn(move || files.run(&waiting))?;
        let (records, thread) = (Some(records), Some(thread));
        let [next, dropped, skipped] = [const { AtomicU64::new(0) }; 3];
        let shared = QlogState { records, thread, open, ended, refused, next, dropped, skipped };
        Ok(Self { shared: Arc::new(shared), rule: None })
    }

    /// Traces only clients whose address `rule` accepts when they connect. Connections to other
    /// servers then have no file. Workers call `rule`, so it must not block.
    #[must_use]
    pub fn for_clients(mut self, rule: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        self.rule = Some(Arc::new(rule));
        self
    }

    /// Sets a function that receives a line when files cannot be written, and when they can be
    /// written again. It runs on the writing thread. Only the first call has an effect.
    pub fn on_write_error(&self, tell: impl Fn(&str) + Send + Sync + 'static) {
        // A second function is dropped, as documented.
        let _ = self.shared.refused.tell.set(Box::new(tell));
    }

    /// Returns the number of connections with an incomplete or missing file because of a write
    /// error, such as a full disk.
    pub fn failed_connections(&self) -> u64 {
        self.shared.refused.connections.load(Ordering::Relaxed)
    }

    /// Returns the number of records that were dropped because the disk could not keep up.
    pub fn dropped_records(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Returns the number of connections that were not traced because too many others were.
    pub fn skipped_connections(&self) -> u64 {
        self.shared.skipped.load(Ordering::Relaxed)
    }

    /// Begins the trace of a connection, named by the original destination connection ID (RFC
    /// 9000).
    pub(crate) fn begin(
        &self,
        now: Instant,
        original_dcid: &str,
        vantage: Vantage,
        remote: IpAddr,
    ) -> Option<Trace> {
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

impl QlogState {
    fn try_send(&self, message: Message) -> bool {
        self.records.as_ref().is_some_and(|records| records.try_send(message).is_ok())
    }
}

impl Drop for QlogState {
    fn drop(&mut self) {
        // Without a sender the thread ends once everything is written. A panic of that thread is
        // ignored.
        self.records = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl fmt::Debug for Qlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Qlog").finish_non_exhaustive()
    }
}

/// Sends the records of one connection to the thread. Dropping it ends the file.
struct Records {
    shared: Arc<QlogState>,
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
            // The thread checks there once it has written all queued records.
            self.shared.ended.lock().unwrap_or_else(PoisonError::into_inner).push(self.trace);
        }
    }
}
