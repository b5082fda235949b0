//! The other servers whose settings are in Redis, and what the log says about them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use super::settings::{Effect, Entry, Own};

/// Servers that are compared. The entries of more are neither compared nor removed.
pub(super) const PEERS: usize = 1024;
/// Longest name of an entry in bytes: a node, a slash and an instance.
pub(super) const FIELD_BYTES: usize = 300;
/// Log lines about other servers for each comparison. The rest follows after the next.
const LINES: usize = 16;
/// Intervals without a change after which an entry is removed.
const STALE_INTERVALS: u32 = 5;
/// Changes of an entry that show that its server runs at the same time as this one, and is not one
/// that has just ended.
const CHANGES_OF_NAMESAKE: u32 = 2;

/// What this server knows about the others.
///
/// An entry counts when it changes while this server watches: then its server runs. So no clock
/// decides it, and the entry that a server leaves behind at a restart is no difference.
#[derive(Default)]
pub(super) struct Peers {
    /// By the names of the entries.
    seen: HashMap<String, Seen>,
    /// What was logged about each node.
    logged: BTreeMap<String, HashSet<String>>,
}

/// One entry in one reading.
pub(super) struct Reading {
    field: String,
    mark: Mark,
    differences: Vec<String>,
}

/// One entry over time.
struct Seen {
    mark: Mark,
    changes: u32,
    changed_at: Instant,
    differences: Vec<String>,
}

/// Tells one state of an entry from another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// When it was written. An older entry that is written again is no change.
    Written(u64),
    /// Hash of an entry that no secret opens.
    Unopened(u64),
}

impl Mark {
    fn is_change_from(self, earlier: Self) -> bool {
        match (earlier, self) {
            (Self::Written(earlier), Self::Written(now)) => now > earlier,
            (earlier, now) => earlier != now,
        }
    }
}

/// What follows from one reading of all entries.
pub(super) struct Comparison {
    pub(super) lines: Vec<String>,
    /// Names of entries whose servers do not run any more.
    pub(super) stale: Vec<String>,
}

impl Peers {
    /// Compares the entries of other servers with this one.
    pub(super) fn compare(
        &mut self,
        own: &Own,
        readings: impl IntoIterator<Item = Reading>,
        now: Instant,
        interval: Duration,
    ) -> Comparison {
        let mut seen = HashMap::new();
        for Reading { field, mark, differences } in readings.into_iter().take(PEERS) {
            let earlier = self.seen.remove(&field);
            seen.insert(field, Seen::new(earlier, mark, differences, now));
        }
        let stale = interval * STALE_INTERVALS;
        let is_stale = |seen: &Seen| now.duration_since(seen.changed_at) >= stale;
        let stale = seen.extract_if(|_, seen| is_stale(seen)).map(|(field, _)| field).collect();
        self.seen = seen;
        Comparison { lines: self.log(own, now, interval), stale }
    }

    /// Returns what to log.
    fn log(&mut self, own: &Own, now: Instant, interval: Duration) -> Vec<String> {
        let mut lines = Vec::new();
        // Two missed changes are too many: the server may have been started again meanwhile.
        let recent = interval * 5 / 2;
        let mut nodes: BTreeMap<&str, Option<Vec<&str>>> = BTreeMap::new();
        for (field, seen) in &self.seen {
            let node = node(field);
            let differences = nodes.entry(node).or_default();
            let is_recent = now.duration_since(seen.changed_at) < recent;
            if node == own.node() {
                if is_recent && seen.changes >= CHANGES_OF_NAMESAKE {
                    *differences = Some(vec![NAMESAKE]);
                }
            } else if is_recent && seen.changes > 0 {
                let differences = differences.get_or_insert_default();
                differences.extend(seen.differences.iter().map(String::as_str));
            }
        }
        self.logged.retain(|node, _| nodes.contains_key(&**node));
        for (node, differences) in nodes {
            // Nothing is known at present: what was logged stays.
            let Some(differences) = differences else { continue };
            let logged = self.logged.entry(node.to_owned()).or_default();
            let had_differences = !logged.is_empty();
            logged.retain(|difference| differences.contains(&&**difference));
            for difference in &differences {
                if lines.len() < LINES && logged.insert((*difference).to_owned()) {
                    lines.push(match *difference {
                        NAMESAKE => format!(
                            "warning: fleet: another server has the name {node} too: give each \
                             its own `node`"
                        ),
                        difference => format!("warning: fleet: {node} {difference}"),
                    });
                }
            }
            if had_differences && differences.is_empty() {
                // Without the limit, because each follows a warning.
                lines.push(format!("fleet: the settings of {node} are those of this server"));
            }
        }
        self.logged.retain(|_, logged| !logged.is_empty());
        lines
    }
}

/// Stands for the difference of a server that has the name of this one.
const NAMESAKE: &str = "";

impl Reading {
    /// Reads an entry: its name, its bytes, and what they contain unless no secret opens them.
    pub(super) fn new(own: &Own, field: String, value: &[u8], entry: Option<&Entry>) -> Self {
        let Some(entry) = entry else {
            let mut hasher = DefaultHasher::new();
            value.hash(&mut hasher);
            let difference = format!("has other secrets than this server: {}", Effect::Sessions);
            return Self {
                field,
                mark: Mark::Unopened(hasher.finish()),
                differences: vec![difference],
            };
        };
        let differences = own.differences(entry);
        Self { field, mark: Mark::Written(entry.written), differences }
    }
}

impl Seen {
    fn new(earlier: Option<Self>, mark: Mark, differences: Vec<String>, now: Instant) -> Self {
        let changes = match earlier {
            // The settings of this server may have changed.
            Some(seen) if mark == seen.mark => return Self { differences, ..seen },
            Some(seen) if !mark.is_change_from(seen.mark) => return seen,
            Some(seen) => seen.changes.saturating_add(1),
            None => 0,
        };
        Self { mark, changes, changed_at: now, differences }
    }
}

/// Returns the node that an entry belongs to.
fn node(field: &str) -> &str {
    field.rsplit_once('/').map_or(field, |(node, _)| node)
}

#[cfg(test)]
mod tests {
    use super::super::settings::{Announcement, Setting};
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// A fleet as one of its servers sees it.
    struct Fleet {
        peers: Peers,
        own: Own,
        start: Instant,
        minutes: u32,
    }

    fn server(node: &str, idle: &str) -> Own {
        let setting = Setting {
            name: "idle".to_owned(),
            value: idle.to_owned(),
            default: "30s".to_owned(),
            effect: Effect::QuicSessions,
        };
        let (node, version) = (node.to_owned(), "1".to_owned());
        Own::new(Announcement { node, version, settings: vec![setting] })
    }

    fn differs(node: &str, theirs: &str) -> String {
        format!(
            "warning: fleet: {node} has idle = {theirs}, this server 60s: neither resumes the QUIC \
             sessions of the other"
        )
    }

    fn alike(node: &str) -> String {
        format!("fleet: the settings of {node} are those of this server")
    }

    impl Fleet {
        fn new() -> Self {
            let own = server("edge-1", "60s");
            Self { peers: Peers::default(), own, start: Instant::now(), minutes: 0 }
        }

        /// Compares a minute later. Each entry is its name, its time and a setting; without the
        /// setting, it cannot be opened.
        fn compare(&mut self, entries: &[(&str, u64, Option<&str>)]) -> Comparison {
            self.minutes += 1;
            let now = self.start + MINUTE * self.minutes;
            let readings = entries.iter().map(|(field, written, idle)| {
                let entry = idle.map(|idle| server("", idle).encode(*written));
                let entry = entry.map(|entry| Entry::decode(&entry).unwrap());
                let value = written.to_be_bytes();
                Reading::new(&self.own, (*field).to_owned(), &value, entry.as_ref())
            });
            self.peers.compare(&self.own, readings, now, MINUTE)
        }

        fn lines(&mut self, entries: &[(&str, u64, Option<&str>)]) -> Vec<String> {
            self.compare(entries).lines
        }
    }

    #[test]
    fn difference_is_logged_once_and_once_when_it_is_gone() {
        let mut fleet = Fleet::new();
        assert!(fleet.lines(&[("edge-2/a", 1, Some("30s"))]).is_empty(), "it may have ended");
        assert_eq!(fleet.lines(&[("edge-2/a", 2, Some("30s"))]), [differs("edge-2", "30s")]);
        for written in 3..9 {
            assert!(fleet.lines(&[("edge-2/a", written, Some("30s"))]).is_empty());
        }
        assert_eq!(fleet.lines(&[("edge-2/a", 9, Some("9s"))]), [differs("edge-2", "9s")]);
        assert_eq!(fleet.lines(&[("edge-2/a", 10, Some("60s"))]), [alike("edge-2")]);
        assert!(fleet.lines(&[("edge-2/a", 11, Some("60s"))]).is_empty());
        assert_eq!(fleet.lines(&[("edge-2/a", 12, Some("9s"))]), [differs("edge-2", "9s")]);
    }

    #[test]
    fn entry_that_a_restart_left_behind_is_no_difference_and_is_removed() {
        let mut fleet = Fleet::new();
        for written in 1..5 {
            let comparison = fleet
                .compare(&[("edge-2/old", 1, Some("30s")), ("edge-2/new", written, Some("60s"))]);
            assert!(comparison.lines.is_empty() && comparison.stale.is_empty());
        }
        fleet.compare(&[("edge-2/old", 1, Some("30s")), ("edge-2/new", 5, Some("60s"))]);
        let last = fleet.compare(&[("edge-2/old", 1, Some("30s")), ("edge-2/new", 6, Some("60s"))]);
        assert_eq!(last.stale, ["edge-2/old"]);
    }

    #[test]
    fn restart_with_other_settings_ends_the_difference() {
        let mut fleet = Fleet::new();
        fleet.lines(&[("edge-2/a", 1, Some("30s"))]);
        assert_eq!(fleet.lines(&[("edge-2/a", 2, Some("30s"))]).len(), 1);
        let mut lines = Vec::new();
        for written in 3..8 {
            lines.extend(
                fleet.lines(&[("edge-2/a", 2, Some("30s")), ("edge-2/b", written, Some("60s"))]),
            );
        }
        assert_eq!(lines, [alike("edge-2")]);
    }

    #[test]
    fn server_that_ended_is_forgotten_without_a_line() {
        let mut fleet = Fleet::new();
        fleet.lines(&[("edge-2/a", 1, Some("30s"))]);
        assert_eq!(fleet.lines(&[("edge-2/a", 2, Some("30s"))]).len(), 1);
        let stale: Vec<_> =
            (0..5).map(|_| fleet.compare(&[("edge-2/a", 2, Some("30s"))]).stale.len()).collect();
        assert_eq!(stale, [0, 0, 0, 0, 1]);
        assert!(fleet.lines(&[]).is_empty() && fleet.peers.logged.is_empty());
    }

    #[test]
    fn older_entry_that_is_written_again_does_not_count() {
        let mut fleet = Fleet::new();
        fleet.lines(&[("edge-2/a", 5, Some("60s"))]);
        fleet.lines(&[("edge-2/a", 6, Some("60s"))]);
        for written in [4, 5, 4] {
            assert!(fleet.lines(&[("edge-2/a", written, Some("30s"))]).is_empty());
        }
        assert_eq!(fleet.compare(&[("edge-2/a", 5, Some("30s"))]).stale.len(), 0);
        assert_eq!(fleet.compare(&[("edge-2/a", 4, Some("30s"))]).stale, ["edge-2/a"]);
    }

    #[test]
    fn namesake_is_logged_when_it_runs_at_the_same_time() {
        let mut fleet = Fleet::new();
        for written in [1, 2] {
            assert!(
                fleet.lines(&[("edge-1/b", written, Some("60s"))]).is_empty(),
                "may have ended"
            );
        }
        assert_eq!(
            fleet.lines(&[("edge-1/b", 3, Some("60s"))]),
            ["warning: fleet: another server has the name edge-1 too: give each its own `node`"]
        );
        assert!(fleet.lines(&[("edge-1/b", 4, Some("60s"))]).is_empty());
    }

    #[test]
    fn entry_that_no_secret_opens_is_a_difference() {
        let mut fleet = Fleet::new();
        fleet.lines(&[("edge-2/a", 1, None)]);
        let lines = fleet.lines(&[("edge-2/a", 2, None)]);
        assert!(lines[0].starts_with("warning: fleet: edge-2 has other secrets"), "{lines:?}");
        assert_eq!(fleet.lines(&[("edge-2/a", 3, Some("60s"))]), [alike("edge-2")]);
    }

    #[test]
    fn lines_and_servers_are_bounded() {
        let mut fleet = Fleet::new();
        let names: Vec<_> = (0..PEERS + 10).map(|number| format!("n{number}/a")).collect();
        let at = |written| -> Vec<(&str, u64, Option<&str>)> {
            names.iter().map(|name| (&**name, written, Some("30s"))).collect()
        };
        fleet.lines(&at(1));
        let mut logged = 0;
        for written in 2..2 + PEERS.div_ceil(LINES) as u64 + 2 {
            let lines = fleet.lines(&at(written));
            assert!(lines.len() <= LINES);
            logged += lines.len();
        }
        assert_eq!(logged, PEERS);
        assert_eq!(fleet.peers.seen.len(), PEERS);
    }
}
