//! Failures of upstreams and file folders, as log lines for the operator and as counters.
//!
//! A failing server fails for every request, and its output may be controlled by a client. So each
//! upstream has a burst of lines and then one line a second, which includes the number of
//! suppressed lines; external text is escaped and truncated; and queries, which may contain
//! secrets, are omitted.

use std::fmt::{self, Display, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use http::{Method, StatusCode, Uri};
use rustc_hash::FxHashMap;

use crate::access_log::Note;
use crate::clock;

/// Number of lines of one kind that an upstream may log at once.
const BURST: u64 = 10;
/// Interval between lines after that, in milliseconds; the burst also refills at this rate.
const EVERY: u64 = 1000;
/// Start of the lines of upstreams.
const UPSTREAM: &str = "upstream ";
/// Maximum length of a name, host or path in a line, in bytes.
const MAX_NAME_BYTES: usize = 256;
/// Maximum length of a reason, or of a server's output, in bytes.
const MAX_TEXT_BYTES: usize = 1024;

/// Logs a line; returns whether it was accepted.
type OnLine = Box<dyn Fn(String) -> bool + Send + Sync>;

/// Why a request to a server failed, as counted in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Lookup,
    Connect,
    Handshake,
    ConnectTimeout,
    QueueTimeout,
    HeadTimeout,
    BodyTimeout,
    Busy,
    Refused,
    Unsupported,
    Closed,
    Reset,
    Lost,
    HeadTooLarge,
    Malformed,
}

impl Cause {
    /// Names in metrics, in the order of declaration.
    pub(super) const NAMES: [&str; 15] = [
        "lookup",
        "connect",
        "handshake",
        "connect_timeout",
        "queue_timeout",
        "head_timeout",
        "body_timeout",
        "busy",
        "refused",
        "unsupported",
        "closed",
        "reset",
        "lost",
        "head_too_large",
        "malformed",
    ];
}

/// A request as shown in log lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestLine {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    /// Notes for the access log.
    pub(crate) note: Option<Note>,
}

/// What happens to a request after a failure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    Answered(StatusCode),
    Retried,
    CutOff,
}

/// A request without a complete response.
#[derive(Clone, Copy)]
pub(crate) struct Failure<'a> {
    /// Reason in metrics; `None` if the failure is counted elsewhere.
    pub(crate) cause: Option<Cause>,
    /// The server that the request was sent to, if any.
    pub(crate) server: Option<&'a dyn Display>,
    pub(crate) request_line: &'a RequestLine,
    pub(crate) reason: &'a dyn Display,
    pub(crate) outcome: Outcome,
}

/// Failure logs of all upstreams and folders, with the listener and the counters.
#[derive(Clone, Default)]
pub(crate) struct FailureLogs(Arc<LogState>);

#[derive(Default)]
struct LogState {
    on_line: OnceLock<OnLine>,
    known: Mutex<KnownLogs>,
    failures: [AtomicU64; Cause::NAMES.len()],
}

/// Failure logs of each upstream and folder, by name.
#[derive(Default)]
struct KnownLogs {
    by_name: FxHashMap<Arc<str>, Weak<FailureLog>>,
    /// Size at which unused entries are removed.
    most: usize,
}

/// The failure log of one upstream or folder, over all workers.
pub(crate) struct FailureLog {
    /// Kind and name of the subject, as at the start of lines.
    subject: Arc<str>,
    shared: Arc<LogState>,
    failures: Mutex<LineRate>,
    /// Pace of servers' own output, separate so that it does not displace the reasons of failures.
    said: Mutex<LineRate>,
    /// Whether the folder is missing and that was logged.
    is_lost: AtomicBool,
}

impl FailureLogs {
    /// Sets the listener. `tell` is called on workers and must not block. Only the first call has
    /// an effect.
    pub(crate) fn set(&self, tell: OnLine) {
        let _ = self.0.on_line.set(tell);
    }

    /// Returns the failure log of the upstream with this name, shared as long as it is in use.
    pub(crate) fn of(&self, upstream: &str) -> Arc<FailureLog> {
        self.with_subject(format!("{UPSTREAM}{upstream}"))
    }

    /// Returns the failure log of a folder of files.
    pub(crate) fn of_folder(&self, folder: &Path) -> Arc<FailureLog> {
        self.with_subject(format!("folder {}", folder.display()))
    }

    fn with_subject(&self, subject: String) -> Arc<FailureLog> {
        let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failures) = known.by_name.get(&*subject).and_then(Weak::upgrade) {
            return failures;
        }
        if known.by_name.len() >= known.most {
            known.by_name.retain(|_, one| one.strong_count() > 0);
            known.most = 2 * known.by_name.len() + 16;
        }
        let subject = Arc::<str>::from(subject);
        let failures = Arc::new(FailureLog {
            subject: subject.clone(),
            shared: self.0.clone(),
            failures: Mutex::default(),
            said: Mutex::default(),
            is_lost: AtomicBool::default(),
        });
        known.by_name.insert(subject, Arc::downgrade(&failures));
        failures
    }

    /// Returns the number of failures by index of the [`Cause`].
    pub(super) fn failures(&self) -> [u64; Cause::NAMES.len()] {
        self.0.failures.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Logs the number of suppressed lines where the pace allows a line now. Returns whether some
    /// are still pending.
    pub(crate) fn log_suppressed(&self) -> bool {
        let known: Vec<_> = self
            .0
            .known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .by_name
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        let now = clock::now();
        // `count`, so that all are visited.
        known.iter().filter(|failures| failures.log_suppressed(now)).count() > 0
    }
}

impl FailureLog {
    /// Counts and logs a failure.
    pub(crate) fn log_failure(&self, failure: Failure<'_>) {
        let Failure {
            cause,
            server,
            request_line: RequestLine { method, uri, note },
            reason,
            outcome,
        } = failure;
        if let Some(cause) = cause {
            self.shared.failures[cause as usize].fetch_add(1, Ordering::Relaxed);
        }
        if let Some(note) = note {
            let mut error = String::new();
            quote(&mut error, MAX_TEXT_BYTES, reason);
            note.failed(error);
        }
        self.tell(&self.failures, clock::now(), |line| {
            if let Some(server) = server {
                self.name(line, server);
            }
            let query = if uri.query().is_some() { "?…" } else { "" };
            quote(line, MAX_NAME_BYTES, method);
            line.push(' ');
            quote(line, MAX_NAME_BYTES, &uri.host().unwrap_or_default());
            quote(line, MAX_NAME_BYTES, &uri.path());
            line.push_str(query);
            line.push_str(": ");
            quote(line, MAX_TEXT_BYTES, reason);
            // Writing to a string cannot fail.
            let _ = match outcome {
                Outcome::Answered(status) => write!(line, "; answered {}", status.as_u16()),
                Outcome::Retried => line.write_str("; retried on another server"),
                Outcome::CutOff => line.write_str("; response cut off"),
            };
        });
    }

    /// Logs why a file cannot be read, with its path below the folder and the status of the
    /// response.
    pub(crate) fn unreadable(&self, path: &[u8], reason: &dyn Display, status: StatusCode) {
        self.tell(&self.failures, clock::now(), |line| {
            line.push_str("cannot read ");
            let path = if path.is_empty() { b"." } else { path };
            quote(line, MAX_NAME_BYTES, &String::from_utf8_lossy(path));
            // Writing to a string cannot fail.
            let _ = write!(line, ": {reason}; answered {}", status.as_u16());
        });
    }

    /// Logs why a folder cannot be opened any more, and the status of the responses. Logs once
    /// until the folder is [found](Self::found).
    pub(crate) fn folder_lost(&self, reason: &dyn Display, status: StatusCode) {
        if !self.is_lost.swap(true, Ordering::Relaxed) {
            self.tell(&self.failures, clock::now(), |line| {
                // Writing to a string cannot fail.
                let _ = write!(
                    line,
                    "{reason}; until it is back, requests are answered {}",
                    status.as_u16()
                );
            });
        }
    }

    /// Notes that the folder exists. Called often, and nearly always without a change.
    pub(crate) fn folder_found(&self) {
        if self.is_lost.load(Ordering::Relaxed) {
            self.is_lost.store(false, Ordering::Relaxed);
        }
    }

    /// Logs each nonempty line of the output of a server, or of a message about it.
    pub(crate) fn log_output(&self, server: &dyn Display, text: &[u8]) {
        for one in text
            .split(|byte| *byte == b'\n')
            .map(<[u8]>::trim_ascii_end)
            .filter(|one| !one.is_empty())
        {
            self.tell(&self.said, clock::now(), |line| {
                self.name(line, server);
                // Slightly more than the limit, so that truncation is detected.
                quote(
                    line,
                    MAX_TEXT_BYTES,
                    &String::from_utf8_lossy(&one[..one.len().min(MAX_TEXT_BYTES + 4)]),
                );
            });
        }
    }

    /// Logs a line without pacing; the caller logs it once per incident. Returns whether it was
    /// accepted.
    pub(crate) fn log_unpaced(&self, line: String) -> bool {
        self.shared.on_line.get().is_some_and(|on_line| on_line(line))
    }

    /// Logs a line unless the pace suppresses it; then it is not formatted. `now` is in
    /// milliseconds.
    fn tell(&self, pace: &Mutex<LineRate>, now: u64, write: impl FnOnce(&mut String)) {
        let Some(on_line) = self.shared.on_line.get() else { return };
        let Some(suppressed) = pace.lock().unwrap_or_else(PoisonError::into_inner).line(now) else {
            return;
        };
        let mut line = self.beginning();
        write(&mut line);
        if suppressed > 0 {
            let _ = write!(line, "; {suppressed} more suppressed");
        }
        if !on_line(line) {
            pace.lock().unwrap_or_else(PoisonError::into_inner).suppressed += suppressed + 1;
        }
    }

    fn log_suppressed(&self, now: u64) -> bool {
        let Some(on_line) = self.shared.on_line.get() else { return false };
        let mut waits = false;
        for (pace, what) in [(&self.failures, "failures"), (&self.said, "server messages")] {
            let mut pace = pace.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(suppressed) = pace.take_left_out(now) {
                let mut line = self.beginning();
                let _ = write!(line, "{suppressed} more {what} suppressed");
                if !on_line(line) {
                    pace.suppressed += suppressed;
                }
            }
            waits |= pace.suppressed > 0;
        }
        waits
    }

    /// Adds the server's name, unless it is also the name of the upstream, as for upstreams defined
    /// in a route.
    fn name(&self, line: &mut String, server: &dyn Display) {
        let server = server.to_string();
        if self.subject.strip_prefix(UPSTREAM) != Some(&*server) {
            quote(line, MAX_NAME_BYTES, &server);
            line.push_str(": ");
        }
    }

    fn beginning(&self) -> String {
        let mut line = String::new();
        quote(&mut line, MAX_NAME_BYTES, &self.subject);
        line.push_str(": ");
        line
    }
}

/// Rate limit of log lines. Times are milliseconds.
#[derive(Default)]
struct LineRate {
    /// Time at which the whole burst is available again (the generic cell rate algorithm).
    whole_at: u64,
    suppressed: u64,
}

impl LineRate {
    /// Returns the number of lines suppressed since the last one, if a line is allowed now.
    fn line(&mut self, now: u64) -> Option<u64> {
        let next = self.whole_at.max(now) + EVERY;
        if next > now + BURST * EVERY {
            self.suppressed += 1;
            return None;
        }
        self.whole_at = next;
        Some(std::mem::take(&mut self.suppressed))
    }

    /// Returns the number of suppressed lines for a line of its own, if it is not 0 and a line is
    /// allowed now.
    fn take_left_out(&mut self, now: u64) -> Option<u64> {
        let suppressed = self.suppressed;
        if suppressed == 0 {
            return None;
        }
        let may = self.line(now);
        self.suppressed = if may.is_some() { 0 } else { suppressed };
        may
    }
}

/// Adds external text: escapes unprintable characters and truncates at `room` bytes.
fn quote(line: &mut String, room: usize, text: &dyn Display) {
    let mut quoted = Quoted { end: line.len() + room, line };
    // Writing fails once the limit is reached.
    if write!(quoted, "{text}").is_err() {
        line.push('…');
    }
}

struct Quoted<'a> {
    line: &'a mut String,
    end: usize,
}

impl fmt::Write for Quoted<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for one in text.chars() {
            let before = self.line.len();
            match one {
                '"' | '\'' => self.line.push(one),
                _ => self.line.extend(one.escape_debug()),
            }
            if self.line.len() > self.end {
                self.line.truncate(before);
                return Err(fmt::Error);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told() -> (FailureLogs, Arc<Mutex<Vec<String>>>) {
        let (failure_logs, lines) = (FailureLogs::default(), Arc::<Mutex<Vec<String>>>::default());
        let seen = lines.clone();
        failure_logs.set(Box::new(move |line| {
            seen.lock().unwrap().push(line);
            true
        }));
        (failure_logs, lines)
    }

    fn request_line(uri: &str) -> RequestLine {
        RequestLine { method: Method::GET, uri: uri.parse().unwrap(), note: None }
    }

    fn failure<'a>(request_line: &'a RequestLine, reason: &'a dyn Display) -> Failure<'a> {
        let outcome = Outcome::Answered(StatusCode::BAD_GATEWAY);
        Failure {
            cause: Some(Cause::Connect),
            server: Some(&"http://10.0.0.1:80"),
            request_line,
            reason,
            outcome,
        }
    }

    #[test]
    fn burst_is_told_and_then_a_line_a_second_that_counts_the_others() {
        let mut pace = LineRate::default();
        let mut lines = |times: std::ops::Range<u64>, step: u64| {
            let told = times
                .step_by(usize::try_from(step).unwrap())
                .filter_map(|now| pace.line(now).map(|suppressed| (now, suppressed)));
            told.collect::<Vec<_>>()
        };
        // One line per millisecond.
        let first: Vec<_> = (5_000..5_010).map(|now| (now, 0)).collect();
        assert_eq!(lines(5_000..6_000, 1), first, "only the burst in the first second");
        assert_eq!(lines(6_000..8_500, 1), [(6_000, 990), (7_000, 999), (8_000, 999)]);
        // After a quiet time one burst is available again, not more.
        assert_eq!(lines(60_000..60_100, 1).len(), 10);
        assert_eq!(
            lines(70_099..200_000, 1_000).len(),
            130,
            "at one line a second none is suppressed"
        );
    }

    #[test]
    fn what_was_left_out_at_the_end_is_told_when_there_is_room() {
        let mut pace = LineRate::default();
        assert_eq!(pace.take_left_out(1), None);
        (0..15).for_each(|_| _ = pace.line(1));
        assert_eq!((pace.take_left_out(1_000), pace.suppressed), (None, 5));
        assert_eq!((pace.take_left_out(1_001), pace.take_left_out(9_000)), (Some(5), None));
        // A line with only a count uses up the pace like any other.
        (0..10).for_each(|_| _ = pace.line(9_001));
        assert_eq!(pace.suppressed, 2);
    }

    #[test]
    fn upstreams_have_lines_and_paces_of_their_own() {
        let (failure_logs, lines) = told();
        let [one, other] = ["app", "api"].map(|name| failure_logs.of(name));
        assert!(Arc::ptr_eq(&one, &failure_logs.of("app")), "the entry is shared while in use");
        let request_line = request_line("https://a.example/path?token=secret");
        for _ in 0..BURST + 3 {
            one.log_failure(failure(&request_line, &"it is gone"));
        }
        other.log_failure(failure(&request_line, &"it is gone"));
        one.log_output(&"unix:/run/php.sock", b"PHP message: a\r\n\n  at b\n");
        let told: Vec<String> = std::mem::take(&mut lines.lock().unwrap());
        assert_eq!(told.len() as u64, BURST + 3, "{told:?}");
        assert_eq!(
            told[0],
            "upstream app: http://10.0.0.1:80: GET a.example/path?…: it is gone; answered 502"
        );
        assert!(told[BURST as usize].starts_with("upstream api: "), "{told:?}");
        assert_eq!(
            told[told.len() - 2..],
            ["a", "  at b"].map(|text| {
                let text = if text == "a" { "PHP message: a" } else { text };
                format!("upstream app: unix:/run/php.sock: {text}")
            })
        );
        assert_eq!(
            failure_logs.failures()[Cause::Connect as usize],
            BURST + 4,
            "all failures are counted"
        );
        drop((one, other));
        for number in 0..100 {
            let _ = failure_logs.of(&format!("app-{number}"));
        }
        assert!(
            failure_logs.0.known.lock().unwrap().by_name.len() <= 17,
            "unused entries are removed"
        );
    }

    #[test]
    fn folder_has_lines_of_its_own() {
        let (failure_logs, lines) = told();
        let folder = failure_logs.of_folder(Path::new("/srv/app"));
        folder.unreadable(
            b"sub/a\n.html",
            &"Permission denied (os error 13)",
            StatusCode::FORBIDDEN,
        );
        folder.unreadable(b"", &"Permission denied (os error 13)", StatusCode::FORBIDDEN);
        assert_eq!(
            *lines.lock().unwrap(),
            ["sub/a\\n.html", "."].map(|path| format!(
                "folder /srv/app: cannot read {path}: Permission denied (os error 13); answered \
                    403"
            ))
        );
    }

    #[test]
    fn server_that_names_its_upstream_is_named_once() {
        let (failure_logs, lines) = told();
        let request_line = request_line("/path");
        failure_logs.of("http://10.0.0.1:80").log_failure(failure(&request_line, &"x"));
        assert_eq!(
            *lines.lock().unwrap(),
            ["upstream http://10.0.0.1:80: GET /path: x; answered 502"]
        );
    }

    #[test]
    fn nothing_from_outside_ends_a_line_or_makes_it_long() {
        let (failure_logs, lines) = told();
        let failures = failure_logs.of(&"n".repeat(10_000));
        let request_line =
            request_line(&format!("http://{}/%0a{}", "h".repeat(2_000), "p".repeat(20_000)));
        let reason = format!("\"it's\" über\u{202e} \u{1b}[31m\r\n\\{}", "r".repeat(100_000));
        failures.log_failure(failure(&request_line, &reason));
        failures.log_output(&"s", &vec![b'\xff'; 100_000]);
        let lines = lines.lock().unwrap();
        let [line, said] = &lines[..] else { panic!("{lines:?}") };
        assert!(line.contains(r#""it's" über\u{202e} \u{1b}[31m\r\n\\rrr"#), "{line}");
        let longest = 5 * (MAX_NAME_BYTES + 3) + MAX_TEXT_BYTES + 3 + 100;
        assert!(line.len() < longest && said.len() < longest, "{} {}", line.len(), said.len());
        assert!(lines.iter().all(|line| !line.contains(char::is_control)), "{lines:?}");
    }

    #[test]
    fn line_that_nobody_takes_is_one_that_is_left_out() {
        let failure_logs = FailureLogs::default();
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let seen = lines.clone();
        failure_logs.set(Box::new(move |line| {
            let mut lines = seen.lock().unwrap();
            lines.push(line);
            lines.len() > 3
        }));
        let (failures, request_line) = (failure_logs.of("app"), request_line("http://a/"));
        (0..3).for_each(|_| failures.log_failure(failure(&request_line, &"x")));
        assert!(!failure_logs.log_suppressed(), "no count is pending");
        assert_eq!(lines.lock().unwrap()[3], "upstream app: 3 more failures suppressed");
    }

    #[test]
    fn each_cause_has_its_name() {
        assert_eq!(Cause::NAMES.len(), Cause::Malformed as usize + 1);
        assert_eq!(
            (Cause::NAMES[Cause::BodyTimeout as usize], Cause::NAMES[Cause::Closed as usize]),
            ("body_timeout", "closed")
        );
    }
}
