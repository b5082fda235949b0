//! Limits on the resources that a peer may use. One table generates the typed settings, their
//! command-line names and the documentation.

mod table;
mod value;

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

pub use table::Limits;
pub use value::Unit;

use crate::memory::MemoryBudget;
use crate::stats::{Counter, Stats};

/// Memory per TLS session besides its own bytes: entries in two maps, and its name in both.
pub(crate) const SESSION_ENTRY_BYTES: usize = 320;
/// Maximum size of a TLS session, which holds a secret and a server name: a client cannot make the
/// server keep larger ones.
pub(crate) const TLS_SESSION_BYTES: usize = 4 << 10;
/// Maximum memory of a TLS session, including its 32-byte name.
pub(crate) const LARGEST_SESSION_BYTES: u64 =
    (SESSION_ENTRY_BYTES + 2 * 32 + TLS_SESSION_BYTES) as u64;
/// Window bytes that every connection gets, even when the window budget is spent: enough to proceed
/// slowly.
pub(crate) const SMALLEST_WINDOW: u64 = 64 << 10;
/// The same while memory is short: some packets for each round trip.
pub(crate) const PRESSED_WINDOW: u64 = 16 << 10;
/// Bytes that a connection may buffer for sending even when the send budget is spent. Over QUIC
/// this is all of them. Over TCP it is the kernel's buffer, which is not counted, plus as much
/// again in front of it with TLS and the next chunk of the body.
pub(crate) const SMALLEST_SEND_WINDOW: u64 = 256 << 10;
/// Bytes that an HTTP/2 connection buffers for sending. The kernel's buffer, which grows with the
/// path, holds the rest.
pub(crate) const HTTP2_SEND_BYTES: u64 = 128 << 10;
/// The part of it that a connection may use even when the budget is spent: two frames.
pub(crate) const SMALLEST_HTTP2_SEND_BYTES: u64 = 32 << 10;
/// Bytes that the kernel accepts on a TCP connection ahead of what it has sent. They go out while
/// the worker is busy with other connections.
pub(crate) const TCP_UNSENT_BYTES: u32 = 128 << 10;
/// The same on a slow path, where a larger backlog would delay more urgent data for too long.
pub(crate) const SMALLEST_TCP_UNSENT_BYTES: u32 = 16 << 10;
/// Bytes that a connection uses besides its buffers: transport state, TLS, a task. An estimate on
/// the safe side.
const CONNECTION_BYTES: u64 = 48 << 10;
/// Bytes that the transport retains for each request that was open at the same time, so that later
/// requests reuse them.
const STREAM_BYTES: u64 = 512;
/// Bytes that a WebTransport session uses besides its streams and datagrams.
const SESSION_BYTES: u64 = 4 << 10;
/// Bytes that the engine buffers per direction of a WebTransport stream, beyond the transport's
/// windows.
const SESSION_STREAM_BYTES: u64 = 64 << 10;
/// Bytes that a handshake uses: its buffers and the certificate in flight.
pub(crate) const HANDSHAKE_BYTES: u64 = 64 << 10;
/// Bytes of stack that a thread for a slow signature uses.
const SIGNING_THREAD_BYTES: u64 = 128 << 10;
/// Bytes that an exchange uses besides its head: 64 KiB of body chunks in each direction.
const EXCHANGE_BYTES: u64 = 128 << 10;
/// Bytes buffered behind a head that waits for the header table: data read together with it.
const BLOCKED_STREAM_BYTES: u64 = 64 << 10;
/// Bytes of a queued datagram.
const DATAGRAM_BYTES: u64 = 1_500;
/// Bytes of a used token and its entry in the log.
const USED_TOKEN_BYTES: u64 = 64;

/// What a limit applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All workers of a group together.
    Group,
    /// One worker.
    Worker,
    /// One client address: an IPv4 address, or the /64 of an IPv6 address.
    Client,
    /// One connection.
    Connection,
    /// One request.
    Request,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Group => "all workers",
            Self::Worker => "worker",
            Self::Client => "client address",
            Self::Connection => "connection",
            Self::Request => "request",
        })
    }
}

/// One row of the table: all facts about a limit that are known at run time.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Name, also used on the command line.
    pub name: &'static str,
    /// Description of what it bounds.
    pub what: &'static str,
    /// Description of what happens when it is reached.
    pub acts: &'static str,
    /// What it applies to.
    pub scope: Scope,
    /// Unit of the value. Times are in milliseconds.
    pub unit: Unit,
    /// Default value, safe on the open internet.
    pub default: u64,
    /// Smallest accepted value.
    pub min: u64,
    /// Largest accepted value.
    pub max: u64,
    /// Name of the counter that grows when the limit is reached.
    pub counter: &'static str,
    count: fn(&Stats) -> &Counter,
    read: fn(&Limits) -> u64,
    write: fn(&mut Limits, u64),
    memory: fn(&Limits) -> u64,
}

impl Limit {
    /// Returns the limit's value in `limits`, in [`Limit::unit`].
    pub fn value(&self, limits: &Limits) -> u64 {
        (self.read)(limits)
    }

    /// Returns the limit's counter.
    pub fn counter_in<'a>(&self, stats: &'a Stats) -> &'a Counter {
        (self.count)(stats)
    }

    /// Returns the maximum memory that the limit allows per scope, in bytes, or 0 if it bounds time
    /// or work and no memory is allocated for it.
    pub fn worst_case_bytes(&self, limits: &Limits) -> u64 {
        (self.memory)(limits)
    }

    fn check(&self, value: u64) -> Result<u64, LimitError> {
        if (self.min..=self.max).contains(&value) {
            Ok(value)
        } else {
            Err(LimitError::OutOfRange { limit: self.name, value })
        }
    }
}

impl fmt::Debug for LimitError {
    /// Prints the message, since `main` prints the `Debug` form of an error that it returns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An error from setting a limit.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The limit's name is unknown.
    #[error("unknown limit {name:?}{}", nearest.map(|nearest| format!("; did you mean {nearest}?")).unwrap_or_default())]
    Unknown {
        /// Name that was given.
        name: String,
        /// Most similar limit name.
        nearest: Option<&'static str>,
    },
    /// The value does not parse in the limit's unit.
    #[error("{limit} expects {}, not {text:?}", row(limit).unit.hint())]
    Malformed {
        /// Name of the limit.
        limit: &'static str,
        /// Value that was given.
        text: String,
    },
    /// The value is out of range.
    #[error("{limit} must be between {} and {}, not {}", row(limit).unit.write(row(limit).min), row(limit).unit.write(row(limit).max),
        row(limit).unit.write(*value))]
    OutOfRange {
        /// Name of the limit.
        limit: &'static str,
        /// Value that was given, in the limit's unit.
        value: u64,
    },
}

fn row(name: &str) -> &'static Limit {
    Limits::table()
        .iter()
        .find(|limit| limit.name == name)
        .expect("invariant: errors name limits of the table")
}

impl Limits {
    /// Returns the size of the memory budget: [`Limits::memory`], or its default for this process.
    pub fn memory_bytes(&self) -> u64 {
        static DEFAULT: OnceLock<u64> = OnceLock::new();
        match self.memory() {
            0 => *DEFAULT.get_or_init(MemoryBudget::default_bytes),
            bytes => bytes,
        }
    }

    /// Returns the limit with this name.
    ///
    /// # Errors
    ///
    /// Returns an error if the name is unknown; the error suggests the most similar name.
    pub fn find(name: &str) -> Result<&'static Limit, LimitError> {
        if let Some(limit) = Self::table().iter().find(|limit| limit.name == name) {
            return Ok(limit);
        }
        let distance = |limit: &&Limit| strsim::damerau_levenshtein(limit.name, name);
        let nearest = Self::table()
            .iter()
            .min_by_key(distance)
            .filter(|limit| distance(limit) <= limit.name.len() / 2);
        Err(LimitError::Unknown { name: name.to_owned(), nearest: nearest.map(|limit| limit.name) })
    }

    /// Returns these limits with the named one set to the value in `text`: a number, with the unit
    /// `ms`, `s`, `m` or `h` for a time and optionally `KiB`, `MiB` or `GiB` for bytes.
    ///
    /// ```
    /// # use pronghorn_engine::Limits;
    /// let limits = Limits::default().with_named("idle_timeout", "2m")?;
    /// assert_eq!(limits.idle_timeout().as_secs(), 120);
    /// # Ok::<(), pronghorn_engine::LimitError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the limit is unknown or the value is invalid.
    pub fn with_named(mut self, name: &str, text: &str) -> Result<Self, LimitError> {
        let limit = Self::find(name)?;
        let value = limit
            .unit
            .read(text)
            .ok_or_else(|| LimitError::Malformed { limit: limit.name, text: text.to_owned() })?;
        (limit.write)(&mut self, limit.check(value)?);
        Ok(self)
    }

    /// Returns the maximum memory, in bytes, that peers can make `workers` workers allocate within
    /// the limits. It assumes that all of them use their maximum at the same moment: every
    /// connection open, its windows full, a head half sent on it, and as many requests open as
    /// allowed.
    ///
    /// Memory that a handler allocates is not included. WebTransport, where enabled, adds to this:
    /// see its rows of the table.
    pub fn worst_case_bytes(&self, workers: usize) -> u64 {
        let workers = workers as u64;
        let times = u64::saturating_mul;
        let windows = times(workers, self.window_budget_bytes())
            .saturating_add(times(self.connections(), SMALLEST_WINDOW));
        [
            times(times(workers, self.open_handshakes()).min(self.connections()), HANDSHAKE_BYTES),
            // Over TCP each connection may be in the middle of one head.
            times(self.connections(), CONNECTION_BYTES + self.field_section_bytes()),
            times(self.connections(), times(self.concurrent_streams(), STREAM_BYTES)),
            windows.min(times(self.connections(), self.connection_window_bytes())),
            // Only a connection with a request fills its window for sending.
            times(
                self.connections().min(times(workers, self.open_requests())),
                self.send_window_bytes().min(SMALLEST_SEND_WINDOW),
            ),
            times(workers, self.send_budget_bytes()),
            times(times(workers, self.partial_heads()), self.field_section_bytes()),
            times(
                times(workers, self.partial_heads())
                    .min(times(self.connections(), self.qpack_blocked_streams())),
                BLOCKED_STREAM_BYTES,
            ),
            times(
                self.connections(),
                2 * self.qpack_table_bytes() + 3 * self.qpack_encoder_table_bytes(),
            ),
            times(
                times(workers, self.open_requests()),
                self.field_section_bytes() + EXCHANGE_BYTES,
            ),
            times(workers, (self.waiting_answers() + self.waiting_strays()) * DATAGRAM_BYTES),
            times(self.used_tokens(), USED_TOKEN_BYTES),
            times(self.sessions(), LARGEST_SESSION_BYTES).min(self.session_bytes()),
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_within_their_ranges() {
        let limits = Limits::default();
        for limit in Limits::table() {
            assert_eq!(limit.check(limit.default), Ok(limit.default), "{}", limit.name);
            assert_eq!(limit.value(&limits), limit.default, "{}", limit.name);
        }
    }

    #[test]
    fn every_limit_has_a_counter_of_its_own() {
        let stats = Stats::default();
        let mut counters: Vec<_> = Limits::table()
            .iter()
            .map(|limit| std::ptr::from_ref(limit.counter_in(&stats)) as usize)
            .collect();
        counters.sort_unstable();
        counters.dedup();
        assert_eq!(counters.len(), Limits::table().len());
        let names: Vec<_> = stats.values().into_iter().map(|(name, _)| name).collect();
        assert!(Limits::table().iter().all(|limit| names.contains(&limit.counter)));
    }

    #[test]
    fn value_out_of_range_is_refused_at_its_setter() {
        let error = Limits::default().with_idle_timeout(Duration::from_millis(1)).unwrap_err();
        assert_eq!(error, LimitError::OutOfRange { limit: "idle_timeout", value: 1 });
        assert_eq!(error.to_string(), "idle_timeout must be between 100ms and 1h, not 1ms");
        assert!(Limits::default().with_concurrent_streams(0).is_err());
    }

    #[test]
    fn named_limit_is_set_in_its_unit() {
        let limits = Limits::default().with_named("field_section_bytes", "8KiB").unwrap();
        assert_eq!(limits.field_section_bytes(), 8 << 10);
        let limits = limits.with_named("connections", "7").unwrap();
        assert_eq!((limits.connections(), limits.field_section_bytes()), (7, 8 << 10));
    }

    #[test]
    fn misspelt_name_is_answered_with_the_nearest() {
        let error = Limits::default().with_named("idle_timout", "2s").unwrap_err();
        assert_eq!(error.to_string(), "unknown limit \"idle_timout\"; did you mean idle_timeout?");
        let error = Limits::default().with_named("x", "2s").unwrap_err();
        assert_eq!(error.to_string(), "unknown limit \"x\"");
    }

    #[test]
    fn value_of_another_unit_is_malformed() {
        for (name, text) in [
            ("connections", "5s"),
            ("idle_timeout", "64KiB"),
            ("idle_timeout", "30"),
            ("field_section_bytes", ""),
        ] {
            let error = Limits::default().with_named(name, text).unwrap_err();
            assert!(matches!(error, LimitError::Malformed { .. }), "{name}={text}: {error}");
        }
    }

    #[test]
    fn lower_limits_lower_the_worst_case() {
        let default = Limits::default();
        let fewer = Limits::default().with_connections(1_000).unwrap();
        assert!(fewer.worst_case_bytes(2) < default.worst_case_bytes(2) / 2);
        let thrifty = fewer
            .clone()
            .with_open_requests(100)
            .unwrap()
            .with_window_budget_bytes(64 << 20)
            .unwrap();
        assert!(thrifty.worst_case_bytes(2) < fewer.worst_case_bytes(2) / 4);
        let forgetful = default.clone().with_session_bytes(0).unwrap();
        assert_eq!(default.worst_case_bytes(2) - forgetful.worst_case_bytes(2), 64 << 20);
    }
}
