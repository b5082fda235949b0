//! One line for each request.

use std::fmt::Write as _;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};

use http::{Method, StatusCode, Uri};
use pronghorn_engine::{BodyEnd, Protocol, Request, Response};

/// Lines that wait for whoever reads them. More are dropped and counted, because a slow terminal must not stop a worker.
const WAITING_LINES: usize = 16 << 10;

/// Writes lines on a thread of its own, so that workers never wait for the output.
///
/// A line has time, client, protocol, method, target, status, bytes of content and duration, and ends in `aborted` when the response
/// was not handed over whole.
pub struct AccessLog {
    sender: Option<SyncSender<String>>,
    dropped: Arc<AtomicU64>,
    writer: Option<JoinHandle<()>>,
}

impl AccessLog {
    /// Starts to write lines to `output`.
    pub fn new(output: impl Write + Send + 'static) -> Self {
        let (sender, receiver) = sync_channel(WAITING_LINES);
        let dropped = Arc::<AtomicU64>::default();
        let writer = std::thread::Builder::new().name("access-log".to_owned()).spawn({
            let dropped = dropped.clone();
            move || write_lines(output, &receiver, &dropped)
        });
        // Without its thread the log is full at once, and what is dropped is counted.
        Self { sender: Some(sender), dropped, writer: writer.ok() }
    }

    /// Notes a request; the line is written when the response that goes through [`Logged::finish`] has ended.
    pub fn begin(self: &Arc<Self>, request: &Request) -> Logged {
        Logged {
            log: self.clone(),
            method: request.method.clone(),
            uri: request.uri.clone(),
            remote: request.peer.remote,
            protocol: request.peer.protocol,
            began: Instant::now(),
            status: None,
            end: BodyEnd { bytes: 0, complete: false },
        }
    }

    fn write(&self, line: String) {
        let sent = self.sender.as_ref().is_some_and(|sender| sender.try_send(line).is_ok());
        if !sent {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for AccessLog {
    /// Waits until all lines are written.
    fn drop(&mut self) {
        self.sender = None;
        if let Some(writer) = self.writer.take() {
            // A panic of the writer has been reported by the thread itself.
            let _ = writer.join();
        }
    }
}

fn write_lines(mut output: impl Write, lines: &Receiver<String>, dropped: &AtomicU64) {
    const BATCH_BYTES: usize = 64 << 10;
    let mut batch = String::new();
    while let Ok(line) = lines.recv() {
        batch.push_str(&line);
        while batch.len() < BATCH_BYTES
            && let Ok(line) = lines.try_recv()
        {
            batch.push_str(&line);
        }
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            // Writing to a string cannot fail.
            let _ = writeln!(batch, "access log: {lost} lines dropped, the output is too slow");
        }
        // Nobody reads any more: there is nowhere to say so.
        let _ = output.write_all(batch.as_bytes()).and_then(|()| output.flush());
        batch.clear();
    }
}

/// A request whose line is not written yet. Dropped without a response, it writes `-` for the status.
pub struct Logged {
    log: Arc<AccessLog>,
    method: Method,
    uri: Uri,
    remote: SocketAddr,
    protocol: Protocol,
    began: Instant,
    status: Option<StatusCode>,
    end: BodyEnd,
}

impl Logged {
    /// The same response, whose end writes the line.
    #[must_use]
    pub fn finish(mut self, mut response: Response) -> Response {
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
        let time = humantime::format_rfc3339_millis(SystemTime::now());
        let Self { remote, protocol, .. } = self;
        let target = self.uri.path_and_query().map_or("-", |target| target.as_str());
        let (method, bytes) = (&self.method, self.end.bytes);
        let status = self.status.as_ref().map_or("-", StatusCode::as_str);
        let milliseconds = self.began.elapsed().as_secs_f64() * 1e3;
        let aborted = if self.end.complete { "" } else { " aborted" };
        self.log.write(format!("{time} {remote} {protocol} {method} {target} {status} {bytes} {milliseconds:.3}ms{aborted}\n"));
    }
}
