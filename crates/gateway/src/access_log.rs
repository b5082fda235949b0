//! One line for each request.

mod format;
mod note;
mod writer;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use http::{HeaderValue, StatusCode};
use pronghorn_engine::{BodyEnd, Request, Response};

use crate::config::LogFormat as Format;
use format::{Ended, Noted};
pub(crate) use note::Note;
pub use writer::LogCounts;
use writer::{Shared, Writer, open};

/// Lines that wait for whoever reads them. More are dropped and counted, because a slow terminal must not stop a worker.
const WAITING_LINES: usize = 16 << 10;

impl Format {
    /// Whether a line has fields of the request.
    fn has_fields(self) -> bool {
        matches!(self, Self::Json | Self::Combined)
    }
}

/// Writes lines on a thread of its own, so that workers never wait for the output. What is wrong with the output is told on standard error.
pub struct AccessLog {
    sender: SyncSender<String>,
    shared: Arc<Shared>,
    format: Format,
    path: Option<PathBuf>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl AccessLog {
    /// Starts to write lines to `output`.
    pub fn new(output: impl Write + Send + 'static) -> Self {
        Self::start(Box::new(output), "its output".to_owned(), Format::Text, Arc::default())
    }

    /// The same to standard error or standard output.
    pub(crate) fn to_standard(is_error: bool, format: Format, counts: Arc<LogCounts>) -> Self {
        let (output, name): (Box<dyn Write + Send>, _) =
            if is_error { (Box::new(io::stderr()), "standard error") } else { (Box::new(io::stdout()), "standard output") };
        Self::start(output, name.to_owned(), format, counts)
    }

    /// The same to the end of a file.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    pub(crate) fn to_file(path: PathBuf, format: Format, counts: Arc<LogCounts>) -> io::Result<Self> {
        let mut log = Self::start(Box::new(open(&path)?), path.display().to_string(), format, counts);
        log.path = Some(path);
        Ok(log)
    }

    fn start(output: Box<dyn Write + Send>, name: String, format: Format, counts: Arc<LogCounts>) -> Self {
        let (sender, receiver) = sync_channel(WAITING_LINES);
        let shared = Arc::new(Shared { counts, ..Shared::default() });
        // Nobody reads standard error any more: there is nowhere to say so.
        let complain = |text: &str| drop(writeln!(io::stderr(), "{text}"));
        let writer = Writer { output, name, shared: shared.clone(), complain };
        let thread = std::thread::Builder::new().name("access-log".to_owned()).spawn(move || writer.run(&receiver));
        // Without its thread the log is full at once, and what is dropped is counted.
        Self { sender, shared, format, path: None, writer: Mutex::new(thread.ok()) }
    }

    /// Opens the file anew, so that one that was moved away can be packed. Whether it is a file that lines go to.
    ///
    /// # Errors
    ///
    /// When it cannot be opened; lines go on to the one that is open.
    pub(crate) fn reopen(&self) -> io::Result<bool> {
        let Some(path) = &self.path else { return Ok(false) };
        *self.shared.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(open(path)?);
        // An empty line wakes the thread; where there is no room for it, it is awake.
        let _ = self.sender.try_send(String::new());
        Ok(true)
    }

    /// Notes a request; the line is written when the response that goes through [`Logged::finish`] has ended.
    pub fn begin(self: &Arc<Self>, request: &Request) -> Box<Logged> {
        Box::new(Logged {
            log: self.clone(),
            noted: Noted::new(request, self.format),
            began: Instant::now(),
            status: None,
            end: BodyEnd { bytes: 0, complete: false },
        })
    }

    /// Waits until all lines are written; there must be no more. For the end of a process, whose workers may have left something that
    /// still holds the log.
    pub(crate) fn finish(&self) {
        self.shared.is_over.store(true, Ordering::Release);
        let _ = self.sender.try_send(String::new());
        if let Some(writer) = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // A panic of the writer has been reported by the thread itself.
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

/// A request whose line is not written yet. Dropped without a response, it has none for the status.
pub struct Logged {
    log: Arc<AccessLog>,
    noted: Noted,
    began: Instant,
    status: Option<StatusCode>,
    end: BodyEnd,
}

impl Logged {
    /// The client has shown a certificate: whom it is for, and its SHA-256.
    pub(crate) fn shown_by(&mut self, names: [HeaderValue; 2]) {
        self.noted.client = Some(names);
    }

    /// Where the line learns of the upstream that is asked, if it has room for that.
    pub(crate) fn note(&mut self) -> Option<Note> {
        (self.log.format == Format::Json).then(|| self.noted.upstream.get_or_insert_default().clone())
    }

    /// The same response, whose end writes the line.
    #[must_use]
    pub fn finish(mut self: Box<Self>, mut response: Response) -> Response {
        self.status = Some(response.status);
        response.body = std::mem::take(&mut response.body).on_end(move |end| {
            // As a whole, so that dropping it here writes the line.
            let mut logged = self;
            logged.end = end;
        });
        response
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        let ended = Ended { status: self.status, end: self.end, took: self.began.elapsed() };
        self.log.write(self.noted.line(&ended, self.log.format));
    }
}
