//! Logs the state of a server when it changes.

use std::cell::Cell;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::config::LogLine;
use crate::redis::Address;

/// Least time between two log lines that a server is unreachable.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// What the log says about one server.
pub(super) struct Announcer {
    log: Arc<LogLine>,
    /// When the server became unreachable.
    down_since: Cell<Option<Instant>>,
    logged_down: Cell<Option<Instant>>,
    /// Whether the last log line said that the server is reachable.
    logged_reachable: Cell<Option<bool>>,
    refuses_sessions: Cell<bool>,
}

impl Announcer {
    pub(super) fn new(log: Arc<LogLine>) -> Self {
        Self {
            log,
            down_since: Cell::default(),
            logged_down: Cell::default(),
            logged_reachable: Cell::default(),
            refuses_sessions: Cell::default(),
        }
    }

    pub(super) fn on_reachable(&self, address: &Address, names_its_run: bool) {
        let down_for = self.down_since.take().map(|since| since.elapsed());
        match (self.logged_reachable.replace(Some(true)), down_for) {
            (Some(false), Some(time)) => {
                self.log(&format!("Redis at {address} is reachable again after {time:.1?}"));
            }
            (None, _) => self.log(&format!("TLS sessions are shared through Redis at {address}")),
            _ => return,
        }
        if !names_its_run {
            self.log(&format!(
                "warning: Redis at {address} has no replication ID: its TLS sessions give no early \
                 data"
            ));
        }
    }

    pub(super) fn on_unreachable(&self, name: &dyn Display, reason: &dyn Display) {
        if self.down_since.get().is_none() {
            self.down_since.set(Some(Instant::now()));
        }
        let is_recent = self.logged_down.get().is_some_and(|last| last.elapsed() < LOG_INTERVAL);
        if self.logged_reachable.get() == Some(false) || is_recent {
            return;
        }
        self.logged_down.set(Some(Instant::now()));
        self.logged_reachable.set(Some(false));
        self.log(&format!(
            "warning: Redis at {name} is not reachable: {reason}; clients whose sessions it stores \
             do full handshakes"
        ));
    }

    /// Logs when the server begins or ends to refuse sessions, such as for lack of memory.
    pub(super) fn on_stored(&self, name: impl FnOnce() -> String, refusal: Option<&str>) {
        if self.refuses_sessions.replace(refusal.is_some()) == refusal.is_some() {
            return;
        }
        match refusal {
            Some(error) => self.log(&format!(
                "warning: Redis at {} does not store TLS sessions: {error}; their clients do full \
                 handshakes",
                name()
            )),
            None => self.log(&format!("Redis at {} stores TLS sessions again", name())),
        }
    }

    fn log(&self, line: &str) {
        (self.log)(line);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn announcer() -> (Announcer, Arc<Mutex<Vec<String>>>, Address) {
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let its_lines = lines.clone();
        let log = move |line: &str| its_lines.lock().unwrap().push(line.to_owned());
        (Announcer::new(Arc::new(log)), lines, "redis://:word@a".parse().unwrap())
    }

    #[test]
    fn only_changes_are_logged() {
        let (announcer, lines, address) = announcer();
        announcer.on_reachable(&address, true);
        for _ in 0..3 {
            announcer.on_unreachable(&address, &"refused");
        }
        announcer.on_reachable(&address, true);
        announcer.on_reachable(&address, true);
        let lines = lines.lock().unwrap();
        assert_eq!(lines[0], "TLS sessions are shared through Redis at redis://a:6379");
        assert_eq!(
            lines[1],
            "warning: Redis at redis://a:6379 is not reachable: refused; clients whose sessions it \
             stores do full handshakes"
        );
        assert!(lines[2].starts_with("Redis at redis://a:6379 is reachable again after "));
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn server_that_comes_and_goes_is_logged_once_in_a_while() {
        let (announcer, lines, address) = announcer();
        for _ in 0..10 {
            announcer.on_reachable(&address, true);
            announcer.on_unreachable(&address, &"refused");
        }
        announcer.on_reachable(&address, true);
        // Shared, unreachable, reachable again; more only on a machine that stands still.
        assert_eq!(lines.lock().unwrap().len(), 3);
    }
}
