//! The access log: one line per request.

mod format;
mod note;
mod writer;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};

use http::{HeaderValue, StatusCode};
use pronghorn_engine::{BodyEnd, Request, Response};

use crate::config::LogFormat as Format;
use format::{RequestRecord, ResponseRecord};
pub(crate) use note::Note;
pub use writer::LogCounts;
use writer::{LogState, Writer, open};

/// Maximum number of queued lines. Further ones are dropped and counted, because a slow output must
/// not stop a worker.
const WAITING_LINES: usize = 16 << 10;

impl Format {
    /// Returns whether a line contains header fields of the request.
    fn has_fields(self) -> bool {
        matches!(self, Self::Json | Self::Combined)
    }
}

/// An access log. A separate thread writes the lines, so that workers never wait for the output.
/// Errors of the output are reported on standard error.
pub struct AccessLog {
    sender: SyncSender<String>,
    shared: Arc<LogState>,
    format: Format,
    path: Option<PathBuf>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl AccessLog {
    /// Creates a log that writes to `output`.
    pub fn new(output: impl Write + Send + 'static) -> Self {
        Self::start(Box::new(output), "its output".to_owned(), Format::Text, Arc::default())
    }

    /// Creates a log that writes to standard error or standard output.
    pub(crate) fn to_standard(is_error: bool, format: Format, counts: Arc<LogCounts>) -> Self {
        let (output, name): (Box<dyn Write + Send>, _) = if is_error {
            (Box::new(io::stderr()), "standard error")
        } else {
            (Box::new(io::stdout()), "standard output")
        };
        Self::start(output, name.to_owned(), format, counts)
    }

    /// Creates a log that appends to a file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be opened.
    pub(crate) fn to_file(
        path: PathBuf,
        format: Format,
        counts: Arc<LogCounts>,
    ) -> io::Result<Self> {
        let mut log =
            Self::start(Box::new(open(&path)?), path.display().to_string(), format, counts);
        log.path = Some(path);
        Ok(log)
    }

    fn start(
        output: Box<dyn Write + Send>,
        name: String,
        format: Format,
        counts: Arc<LogCounts>,
    ) -> Self {
        let (sender, receiver) = sync_channel(WAITING_LINES);
        let shared = Arc::new(LogState { counts, ..LogState::default() });
        // If standard error is closed, the error cannot be reported.
        let report = |text: &str| {
            let time = humantime::format_rfc3339_millis(SystemTime::now());
            drop(writeln!(io::stderr(), "{time} {text}"));
        };
        let writer = Writer { output, name, shared: shared.clone(), report };
        let thread = std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || writer.run(&receiver));
        // Without its thread the queue is full at once, and dropped lines are counted.
        Self { sender, shared, format, path: None, writer: Mutex::new(thread.ok()) }
    }

    /// Reopens the file, so that a file that was moved away can be compressed. Returns whether the
    /// log writes to a file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be opened; the log continues with the open one.
    pub(crate) fn reopen(&self) -> io::Result<bool> {
        let Some(path) = &self.path else { return Ok(false) };
        *self.shared.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(open(path)?);
        // An empty line wakes the thread; if the queue is full, the thread is awake.
        let _ = self.sender.try_send(String::new());
        Ok(true)
    }

    /// Records a request; its line is written when the response passed to [`Logged::finish`] has
    /// ended.
    pub fn begin(self: &Arc<Self>, request: &Request) -> Box<Logged> {
        Box::new(Logged {
            log: self.clone(),
            noted: RequestRecord::new(request, self.format),
            began: Instant::now(),
            status: None,
            end: BodyEnd { bytes: 0, complete: false },
        })
    }

    /// Waits until all lines are written; no lines may follow. For the end of a process, whose
    /// workers may have leaked references to the log.
    pub(crate) fn finish(&self) {
        self.shared.is_over.store(true, Ordering::Release);
        let _ = self.sender.try_send(String::new());
        if let Some(writer) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // The thread itself has reported a panic.
            let _ = writer.join();
        }
    }

    fn write(&self, line: String) {
        if self.sender.try_send(line).is_err() {
            self.shared.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for AccessLog {
    /// Waits until all lines are written.
    fn drop(&mut self) {
        self.finish();
    }
}

/// A request whose line is not written yet. If dropped without a response, the line has no status.
pub struct Logged {
    log: Arc<AccessLog>,
    noted: RequestRecord,
    began: Instant,
    status: Option<StatusCode>,
    end: BodyEnd,
}

impl Logged {
    /// Records the client certificate: its subject and its SHA-256.
    pub(crate) fn set_client_certificate(&mut self, names: [HeaderValue; 2]) {
        self.noted.client = Some(names);
    }

    /// Returns the note in which the upstream is recorded, if the format includes it.
    pub(crate) fn note(&mut self) -> Option<Note> {
        (self.log.format == Format::Json)
            .then(|| self.noted.upstream.get_or_insert_default().clone())
    }

    /// Returns the response with a body whose end writes the line.
    #[must_use]
    pub fn finish(mut self: Box<Self>, mut response: Response) -> Response {
        self.status = Some(response.status);
        response.body = std::mem::take(&mut response.body).on_end(move |end| {
            // Moves the whole value in, so that dropping it here writes the line.
            let mut logged = self;
            logged.end = end;
        });
        response
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        let ended =
            ResponseRecord { status: self.status, end: self.end, took: self.began.elapsed() };
        self.log.write(self.noted.line(&ended, self.log.format));
    }
}
