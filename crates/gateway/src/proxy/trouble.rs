//! What goes wrong with upstreams and folders of files, as lines for the operator and as counts.
//!
//! A server that fails does so for each request, and what it says may be what a client made it say. So each upstream has so many lines at
//! once and then one a second, which says how many there would have been; what comes from outside is escaped and cut; and queries, which
//! may have secrets, are left out.

use std::fmt::{self, Display, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use http::{Method, StatusCode, Uri};
use rustc_hash::FxHashMap;

use super::health;
use crate::access_log::Note;

/// Lines of one kind that an upstream may have at once.
const BURST: u64 = 10;
/// Between two lines after that, in milliseconds; so often one more of the burst comes back.
const EVERY: u64 = 1000;
/// How lines of upstreams begin.
const UPSTREAM: &str = "upstream ";
/// What stands in a line of a name, host or path, in bytes.
const MAX_NAME_BYTES: usize = 256;
/// The same of a reason, or of what a server says.
const MAX_TEXT_BYTES: usize = 1024;

/// Whether it took the line.
type OnLine = Box<dyn Fn(String) -> bool + Send + Sync>;

/// Why a request to a server failed, as it is counted.
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
    /// In the order of their declaration, with the names that metrics have.
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

/// A request as lines show it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestLine {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    /// What the access log wants to know of it.
    pub(crate) note: Option<Note>,
}

/// What becomes of a request that failed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Then {
    Answered(StatusCode),
    SentAgain,
    BrokenOff,
}

/// A request that got no answer, or not all of one.
#[derive(Clone, Copy)]
pub(crate) struct Failure<'a> {
    /// `None` where it is counted otherwise.
    pub(crate) cause: Option<Cause>,
    /// The one that was asked, if any was.
    pub(crate) server: Option<&'a dyn Display>,
    pub(crate) asked: &'a RequestLine,
    pub(crate) reason: &'a dyn Display,
    pub(crate) then: Then,
}

/// The troubles of all upstreams and folders: who is told, and how often there were which.
#[derive(Clone, Default)]
pub(crate) struct Troubles(Arc<Shared>);

#[derive(Default)]
struct Shared {
    on_line: OnceLock<OnLine>,
    known: Mutex<Known>,
    failures: [AtomicU64; Cause::NAMES.len()],
}

/// The troubles of each upstream and folder, by its name.
#[derive(Default)]
struct Known {
    by_name: FxHashMap<Arc<str>, Weak<Trouble>>,
    /// At this size those of what is gone are removed.
    most: usize,
}

/// The troubles of one upstream or folder, over all workers.
pub(crate) struct Trouble {
    /// What it is, and its name, as a line begins.
    subject: Arc<str>,
    shared: Arc<Shared>,
    failures: Mutex<Pace>,
    /// Of what servers say themselves: it must not push out why they fail.
    said: Mutex<Pace>,
    /// Whether it is a folder that is not there now, and that was told.
    is_lost: AtomicBool,
}

impl Troubles {
    /// `tell` is called on workers, which it must not hold up. The first one stays.
    pub(crate) fn set(&self, tell: OnLine) {
        let _ = self.0.on_line.set(tell);
    }

    /// Those of the upstream of this name: the same ones as long as somebody has them.
    pub(crate) fn of(&self, upstream: &str) -> Arc<Trouble> {
        self.with_subject(format!("{UPSTREAM}{upstream}"))
    }

    /// The same of a folder of files.
    pub(crate) fn of_folder(&self, folder: &Path) -> Arc<Trouble> {
        self.with_subject(format!("folder {}", folder.display()))
    }

    fn with_subject(&self, subject: String) -> Arc<Trouble> {
        let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(trouble) = known.by_name.get(&*subject).and_then(Weak::upgrade) {
            return trouble;
        }
        if known.by_name.len() >= known.most {
            known.by_name.retain(|_, one| one.strong_count() > 0);
            known.most = 2 * known.by_name.len() + 16;
        }
        let subject = Arc::<str>::from(subject);
        let trouble = Arc::new(Trouble {
            subject: subject.clone(),
            shared: self.0.clone(),
            failures: Mutex::default(),
            said: Mutex::default(),
            is_lost: AtomicBool::default(),
        });
        known.by_name.insert(subject, Arc::downgrade(&trouble));
        trouble
    }

    /// How often there was which [`Cause`], by number.
    pub(super) fn failures(&self) -> [u64; Cause::NAMES.len()] {
        self.0.failures.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Tells how many lines were left out of upstreams that may have one now. Whether there are some that may not yet.
    pub(crate) fn tell_left_out(&self) -> bool {
        let known: Vec<_> =
            self.0.known.lock().unwrap_or_else(PoisonError::into_inner).by_name.values().filter_map(Weak::upgrade).collect();
        let now = health::now();
        // All of them, whichever has more.
        known.iter().filter(|trouble| trouble.tell_left_out(now)).count() > 0
    }
}

impl Trouble {
    /// Counts a failure, and tells why.
    pub(crate) fn failed(&self, failure: Failure<'_>) {
        let Failure { cause, server, asked: RequestLine { method, uri, note }, reason, then } = failure;
        if let Some(cause) = cause {
            self.shared.failures[cause as usize].fetch_add(1, Ordering::Relaxed);
        }
        if let Some(note) = note {
            let mut error = String::new();
            quote(&mut error, MAX_TEXT_BYTES, reason);
            note.failed(error);
        }
        self.tell(&self.failures, health::now(), |line| {
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
            let _ = match then {
                Then::Answered(status) => write!(line, "; answered {}", status.as_u16()),
                Then::SentAgain => line.write_str("; it is sent to another server"),
                Then::BrokenOff => line.write_str("; the response breaks off"),
            };
        });
    }

    /// Tells why a file cannot be read, which has the path below the folder, and how the request is answered.
    pub(crate) fn unreadable(&self, path: &[u8], reason: &dyn Display, status: StatusCode) {
        self.tell(&self.failures, health::now(), |line| {
            line.push_str("cannot read ");
            let path = if path.is_empty() { b"." } else { path };
            quote(line, MAX_NAME_BYTES, &String::from_utf8_lossy(path));
            // Writing to a string cannot fail.
            let _ = write!(line, ": {reason}; answered {}", status.as_u16());
        });
    }

    /// Tells why a folder that was there cannot be opened any more, and how requests are answered: once until it is [found](Self::found).
    pub(crate) fn lost(&self, reason: &dyn Display, status: StatusCode) {
        if !self.is_lost.swap(true, Ordering::Relaxed) {
            self.tell(&self.failures, health::now(), |line| {
                // Writing to a string cannot fail.
                let _ = write!(line, "{reason}; until it is there again, requests are answered {}", status.as_u16());
            });
        }
    }

    /// A folder is there. Many say so, and nearly always it was.
    pub(crate) fn found(&self) {
        if self.is_lost.load(Ordering::Relaxed) {
            self.is_lost.store(false, Ordering::Relaxed);
        }
    }

    /// Tells what a server, or whoever looks after it, has to say: each line of a text that has any.
    pub(crate) fn said(&self, server: &dyn Display, text: &[u8]) {
        for one in text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end).filter(|one| !one.is_empty()) {
            self.tell(&self.said, health::now(), |line| {
                self.name(line, server);
                // More than is told, and no more than it takes to find that out.
                quote(line, MAX_TEXT_BYTES, &String::from_utf8_lossy(&one[..one.len().min(MAX_TEXT_BYTES + 4)]));
            });
        }
    }

    /// Tells a line of which there is no other until what it says is over. Whether it was taken.
    pub(crate) fn once(&self, line: String) -> bool {
        self.shared.on_line.get().is_some_and(|on_line| on_line(line))
    }

    /// `now` in milliseconds. Nothing is written of a line that is left out.
    fn tell(&self, pace: &Mutex<Pace>, now: u64, write: impl FnOnce(&mut String)) {
        let Some(on_line) = self.shared.on_line.get() else { return };
        let Some(left_out) = pace.lock().unwrap_or_else(PoisonError::into_inner).line(now) else { return };
        let mut line = self.beginning();
        write(&mut line);
        if left_out > 0 {
            let _ = write!(line, "; {left_out} more were left out");
        }
        if !on_line(line) {
            pace.lock().unwrap_or_else(PoisonError::into_inner).left_out += left_out + 1;
        }
    }

    fn tell_left_out(&self, now: u64) -> bool {
        let Some(on_line) = self.shared.on_line.get() else { return false };
        let mut waits = false;
        for (pace, what) in [(&self.failures, "failures"), (&self.said, "lines of servers")] {
            let mut pace = pace.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(left_out) = pace.take_left_out(now) {
                let mut line = self.beginning();
                let _ = write!(line, "{left_out} more {what} were left out");
                if !on_line(line) {
                    pace.left_out += left_out;
                }
            }
            waits |= pace.left_out > 0;
        }
        waits
    }

    /// Adds a server, unless its upstream is named by it, as one is that a route has for itself.
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

/// How fast lines may come. Times are milliseconds.
#[derive(Default)]
struct Pace {
    /// When there may be a whole burst again (the generic cell rate algorithm).
    whole_at: u64,
    left_out: u64,
}

impl Pace {
    /// How many were left out since the last line, if there may be one now.
    fn line(&mut self, now: u64) -> Option<u64> {
        let next = self.whole_at.max(now) + EVERY;
        if next > now + BURST * EVERY {
            self.left_out += 1;
            return None;
        }
        self.whole_at = next;
        Some(std::mem::take(&mut self.left_out))
    }

    /// The same for a line that only says that, and only if there is reason to.
    fn take_left_out(&mut self, now: u64) -> Option<u64> {
        let left_out = self.left_out;
        if left_out == 0 {
            return None;
        }
        let may = self.line(now);
        self.left_out = if may.is_some() { 0 } else { left_out };
        may
    }
}

/// Adds what may come from outside: what is not printable is escaped, and what is beyond `room` bytes is left out.
fn quote(line: &mut String, room: usize, text: &dyn Display) {
    let mut quoted = Quoted { end: line.len() + room, line };
    // It ends when there is no more room.
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

    fn told() -> (Troubles, Arc<Mutex<Vec<String>>>) {
        let (troubles, lines) = (Troubles::default(), Arc::<Mutex<Vec<String>>>::default());
        let seen = lines.clone();
        troubles.set(Box::new(move |line| {
            seen.lock().unwrap().push(line);
            true
        }));
        (troubles, lines)
    }

    fn asked(uri: &str) -> RequestLine {
        RequestLine { method: Method::GET, uri: uri.parse().unwrap(), note: None }
    }

    fn failure<'a>(asked: &'a RequestLine, reason: &'a dyn Display) -> Failure<'a> {
        let then = Then::Answered(StatusCode::BAD_GATEWAY);
        Failure { cause: Some(Cause::Connect), server: Some(&"http://10.0.0.1:80"), asked, reason, then }
    }

    #[test]
    fn burst_is_told_and_then_a_line_a_second_that_counts_the_others() {
        let mut pace = Pace::default();
        let mut lines = |times: std::ops::Range<u64>, step: u64| {
            let told = times.step_by(usize::try_from(step).unwrap()).filter_map(|now| pace.line(now).map(|left_out| (now, left_out)));
            told.collect::<Vec<_>>()
        };
        // One each millisecond.
        let first: Vec<_> = (5_000..5_010).map(|now| (now, 0)).collect();
        assert_eq!(lines(5_000..6_000, 1), first, "a burst, and nothing more in its second");
        assert_eq!(lines(6_000..8_500, 1), [(6_000, 990), (7_000, 999), (8_000, 999)]);
        // After a quiet time there is room for a burst again, and no more than that.
        assert_eq!(lines(60_000..60_100, 1).len(), 10);
        assert_eq!(lines(70_099..200_000, 1_000).len(), 130, "who needs no more than one a second loses none");
    }

    #[test]
    fn what_was_left_out_at_the_end_is_told_when_there_is_room() {
        let mut pace = Pace::default();
        assert_eq!(pace.take_left_out(1), None);
        (0..15).for_each(|_| _ = pace.line(1));
        assert_eq!((pace.take_left_out(1_000), pace.left_out), (None, 5));
        assert_eq!((pace.take_left_out(1_001), pace.take_left_out(9_000)), (Some(5), None));
        // A line that only counts takes the place of another one.
        (0..10).for_each(|_| _ = pace.line(9_001));
        assert_eq!(pace.left_out, 2);
    }

    #[test]
    fn upstreams_have_lines_and_paces_of_their_own() {
        let (troubles, lines) = told();
        let [one, other] = ["app", "api"].map(|name| troubles.of(name));
        assert!(Arc::ptr_eq(&one, &troubles.of("app")), "as long as there is one, it is the one");
        let asked = asked("https://a.example/path?token=secret");
        for _ in 0..BURST + 3 {
            one.failed(failure(&asked, &"it is gone"));
        }
        other.failed(failure(&asked, &"it is gone"));
        one.said(&"unix:/run/php.sock", b"PHP message: a\r\n\n  at b\n");
        let told: Vec<String> = std::mem::take(&mut lines.lock().unwrap());
        assert_eq!(told.len() as u64, BURST + 3, "{told:?}");
        assert_eq!(told[0], "upstream app: http://10.0.0.1:80: GET a.example/path?…: it is gone; answered 502");
        assert!(told[BURST as usize].starts_with("upstream api: "), "{told:?}");
        assert_eq!(
            told[told.len() - 2..],
            ["a", "  at b"].map(|text| {
                let text = if text == "a" { "PHP message: a" } else { text };
                format!("upstream app: unix:/run/php.sock: {text}")
            })
        );
        assert_eq!(troubles.failures()[Cause::Connect as usize], BURST + 4, "all are counted");
        drop((one, other));
        for number in 0..100 {
            let _ = troubles.of(&format!("app-{number}"));
        }
        assert!(troubles.0.known.lock().unwrap().by_name.len() <= 17, "those that are gone are removed");
    }

    #[test]
    fn folder_has_lines_of_its_own() {
        let (troubles, lines) = told();
        let folder = troubles.of_folder(Path::new("/srv/app"));
        folder.unreadable(b"sub/a\n.html", &"Permission denied (os error 13)", StatusCode::FORBIDDEN);
        folder.unreadable(b"", &"Permission denied (os error 13)", StatusCode::FORBIDDEN);
        assert_eq!(
            *lines.lock().unwrap(),
            ["sub/a\\n.html", "."]
                .map(|path| format!("folder /srv/app: cannot read {path}: Permission denied (os error 13); answered 403"))
        );
    }

    #[test]
    fn server_that_names_its_upstream_is_named_once() {
        let (troubles, lines) = told();
        let asked = asked("/path");
        troubles.of("http://10.0.0.1:80").failed(failure(&asked, &"x"));
        assert_eq!(*lines.lock().unwrap(), ["upstream http://10.0.0.1:80: GET /path: x; answered 502"]);
    }

    #[test]
    fn nothing_from_outside_ends_a_line_or_makes_it_long() {
        let (troubles, lines) = told();
        let trouble = troubles.of(&"n".repeat(10_000));
        let asked = asked(&format!("http://{}/%0a{}", "h".repeat(2_000), "p".repeat(20_000)));
        let reason = format!("\"it's\" über\u{202e} \u{1b}[31m\r\n\\{}", "r".repeat(100_000));
        trouble.failed(failure(&asked, &reason));
        trouble.said(&"s", &vec![b'\xff'; 100_000]);
        let lines = lines.lock().unwrap();
        let [line, said] = &lines[..] else { panic!("{lines:?}") };
        assert!(line.contains(r#""it's" über\u{202e} \u{1b}[31m\r\n\\rrr"#), "{line}");
        let longest = 5 * (MAX_NAME_BYTES + 3) + MAX_TEXT_BYTES + 3 + 100;
        assert!(line.len() < longest && said.len() < longest, "{} {}", line.len(), said.len());
        assert!(lines.iter().all(|line| !line.contains(char::is_control)), "{lines:?}");
    }

    #[test]
    fn line_that_nobody_takes_is_one_that_is_left_out() {
        let troubles = Troubles::default();
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let seen = lines.clone();
        troubles.set(Box::new(move |line| {
            let mut lines = seen.lock().unwrap();
            lines.push(line);
            lines.len() > 3
        }));
        let (trouble, asked) = (troubles.of("app"), asked("http://a/"));
        (0..3).for_each(|_| trouble.failed(failure(&asked, &"x")));
        assert!(!troubles.tell_left_out(), "nothing waits any more");
        assert_eq!(lines.lock().unwrap()[3], "upstream app: 3 more failures were left out");
    }

    #[test]
    fn each_cause_has_its_name() {
        assert_eq!(Cause::NAMES.len(), Cause::Malformed as usize + 1);
        assert_eq!((Cause::NAMES[Cause::BodyTimeout as usize], Cause::NAMES[Cause::Closed as usize]), ("body_timeout", "closed"));
    }
}
