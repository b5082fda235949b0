//! Resumable sessions of a server: one store for all workers and both transports, from which each
//! session is taken once.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::server::StoresServerSessions;

use crate::limits::{LARGEST_SESSION_BYTES, Limits, SESSION_ENTRY_BYTES, TLS_SESSION_BYTES};
use crate::stats::Stats;

/// Shards with a lock each, so that workers rarely contend.
const SHARDS: u64 = 64;
/// Minimum number of sessions per shard,
const SESSIONS_PER_SHARD: u64 = 256;
/// and minimum bytes, enough for that many of the largest.
const BYTES_PER_SHARD: u64 = SESSIONS_PER_SHARD * LARGEST_SESSION_BYTES;

/// A store of server-side TLS sessions (the ticket is only a name), shared by the workers that may
/// resume them.
///
/// A TLS 1.3 session is handed out once. A client that presents its ticket again, as a replayed
/// first flight does, gets a full handshake, without early data. When the store is full, the oldest
/// sessions are evicted. Outcomes are counted in the [`Stats`] of the worker that stored or looked
/// up the session.
#[derive(Debug)]
pub struct Sessions {
    shards: Box<[Mutex<Shard>]>,
    /// Maximum number of sessions in a shard, and of their bytes.
    max_entries: usize,
    max_bytes: usize,
    lifetime: Duration,
}

#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<Box<[u8]>, Entry, rustc_hash::FxBuildHasher>,
    /// Names by age. All sessions have the same lifetime, so the oldest also expires first.
    by_age: BTreeMap<u64, Box<[u8]>>,
    next: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    scope: Scope,
    value: Box<[u8]>,
    expires: Instant,
    age: u64,
}

impl Entry {
    fn bytes(&self, name: &[u8]) -> usize {
        SESSION_ENTRY_BYTES + 2 * name.len() + self.value.len()
    }
}

impl Shard {
    fn remove(&mut self, name: &[u8]) -> Option<Entry> {
        let entry = self.entries.remove(name)?;
        self.by_age.remove(&entry.age);
        self.bytes -= entry.bytes(name);
        Some(entry)
    }

    fn oldest(&self) -> Option<(&[u8], &Entry)> {
        let name = self.by_age.first_key_value()?.1;
        Some((name, &self.entries[name]))
    }
}

/// Scope of a session: it is resumed only with the same certificate, transport and settings.
pub(crate) type Scope = [u8; 16];

impl Sessions {
    /// Creates an empty store with the limits [`Limits::sessions`], [`Limits::session_bytes`] and
    /// [`Limits::session_lifetime`].
    pub fn new(limits: &Limits) -> Arc<Self> {
        let shards = (limits.sessions() / SESSIONS_PER_SHARD)
            .min(limits.session_bytes() / BYTES_PER_SHARD)
            .clamp(1, SHARDS);
        let share = |whole: u64| usize::try_from(whole / shards).unwrap_or(usize::MAX);
        let (max_entries, max_bytes) = (share(limits.sessions()), share(limits.session_bytes()));
        Arc::new(Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            max_entries,
            max_bytes,
            lifetime: limits.session_lifetime(),
        })
    }

    /// Returns names and values of the store's current gauges.
    pub fn values(&self) -> Vec<(&'static str, u64)> {
        let (mut held, mut bytes) = (0, 0);
        for shard in &self.shards {
            let shard = lock(shard);
            held += shard.entries.len() as u64;
            bytes += shard.bytes as u64;
        }
        vec![("sessions_held", held), ("sessions_bytes", bytes)]
    }

    /// Returns the store as seen by the TLS of one worker, which counts in `stats`.
    pub(crate) fn view(self: &Arc<Self>, scope: Scope, stats: &Arc<Stats>) -> Arc<ScopedSessions> {
        Arc::new(ScopedSessions { sessions: self.clone(), scope, stats: stats.clone() })
    }

    fn shard(&self, name: &[u8]) -> &Mutex<Shard> {
        // Names are random. A name invented by a client is in no shard anyway.
        let number = name.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        &self.shards[(number % self.shards.len() as u64) as usize]
    }

    fn put(&self, now: Instant, scope: Scope, name: &[u8], value: Vec<u8>, stats: &Stats) -> bool {
        let mut shard = lock(self.shard(name));
        shard.remove(name);
        let age = shard.next;
        let too_large = value.len() > TLS_SESSION_BYTES;
        let entry = Entry { scope, value: value.into(), expires: now + self.lifetime, age };
        let bytes = entry.bytes(name);
        if self.max_entries == 0 || too_large || bytes > self.max_bytes {
            (if self.max_entries == 0 {
                &stats.sessions_evicted
            } else {
                &stats.sessions_evicted_for_bytes
            })
            .add(1);
            return false;
        }
        while let Some((oldest, entry)) = shard.oldest() {
            let counter = if entry.expires <= now {
                &stats.sessions_expired
            } else if shard.entries.len() >= self.max_entries {
                &stats.sessions_evicted
            } else if shard.bytes + bytes > self.max_bytes {
                &stats.sessions_evicted_for_bytes
            } else {
                break;
            };
            let oldest = oldest.to_owned();
            shard.remove(&oldest);
            counter.add(1);
        }
        shard.next += 1;
        shard.bytes += bytes;
        shard.by_age.insert(age, name.into());
        shard.entries.insert(name.into(), entry);
        stats.sessions_stored.add(1);
        true
    }

    /// With `keep`, the session stays in the store: TLS 1.2 uses a session on several connections,
    /// and has no early data.
    fn find(
        &self,
        now: Instant,
        scope: Scope,
        name: &[u8],
        keep: bool,
        stats: &Stats,
    ) -> Option<Vec<u8>> {
        let mut shard = lock(self.shard(name));
        let found = shard
            .entries
            .get(name)
            .filter(|entry| entry.scope == scope)
            .map(|entry| entry.expires <= now);
        let value = match found {
            Some(false) if keep => shard.entries.get(name).map(|entry| entry.value.to_vec()),
            Some(false) => shard.remove(name).map(|entry| entry.value.into()),
            Some(true) => {
                shard.remove(name);
                stats.sessions_expired.add(1);
                None
            }
            None => None,
        };
        (if value.is_some() { &stats.sessions_taken } else { &stats.sessions_unknown }).add(1);
        value
    }
}

fn lock(shard: &Mutex<Shard>) -> std::sync::MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The sessions of one scope.
#[derive(Debug)]
pub(crate) struct ScopedSessions {
    sessions: Arc<Sessions>,
    scope: Scope,
    stats: Arc<Stats>,
}

impl StoresServerSessions for ScopedSessions {
    fn put(&self, name: Vec<u8>, value: Vec<u8>) -> bool {
        self.sessions.put(Instant::now(), self.scope, &name, value, &self.stats)
    }

    fn get(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.sessions.find(Instant::now(), self.scope, name, true, &self.stats)
    }

    fn take(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.sessions.find(Instant::now(), self.scope, name, false, &self.stats)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Scope = [1; 16];
    const ELSEWHERE: Scope = [2; 16];

    fn name(number: u32) -> [u8; 32] {
        let mut name = [0; 32];
        name[..4].copy_from_slice(&number.wrapping_mul(0x9e37_79b9).to_be_bytes());
        name[4..8].copy_from_slice(&number.to_be_bytes());
        name
    }

    fn value(sessions: &Sessions, wanted: &str) -> u64 {
        sessions.values().into_iter().find(|(name, _)| *name == wanted).unwrap().1
    }

    fn store(
        set: impl FnOnce(Limits) -> Result<Limits, crate::LimitError>,
    ) -> (Arc<Sessions>, Stats, Instant) {
        (Sessions::new(&set(Limits::default()).unwrap()), Stats::default(), Instant::now())
    }

    #[test]
    fn session_is_taken_once() {
        let (sessions, stats, now) = store(Ok);
        assert!(sessions.put(now, HERE, &name(1), vec![7; 100], &stats));
        assert_eq!(sessions.find(now, HERE, &name(1), true, &stats), Some(vec![7; 100]));
        assert_eq!(sessions.find(now, HERE, &name(1), false, &stats), Some(vec![7; 100]));
        assert_eq!(sessions.find(now, HERE, &name(1), false, &stats), None);
        assert_eq!((value(&sessions, "sessions_held"), value(&sessions, "sessions_bytes")), (0, 0));
    }

    //= RFC 9114 section 7.2.4.2
    //# If 0-RTT data is accepted by the server, its SETTINGS frame MUST NOT reduce any limits or alter any values that
    //# might be violated by the client with its 0-RTT data.
    //= RFC 9114 section 7.2.4.2
    //# If the server cannot determine that the settings remembered by a client are compatible with its current settings, it
    //# MUST NOT accept 0-RTT data.
    #[test]
    fn session_of_another_scope_stays_in_store() {
        let (sessions, stats, now) = store(Ok);
        sessions.put(now, HERE, &name(1), vec![7], &stats);
        assert_eq!(sessions.find(now, ELSEWHERE, &name(1), false, &stats), None);
        assert_eq!(sessions.find(now, HERE, &name(1), false, &stats), Some(vec![7]));
    }

    #[test]
    fn session_expires() {
        let (sessions, stats, now) = store(Ok);
        sessions.put(now, HERE, &name(1), vec![7], &stats);
        let almost = now + Duration::from_secs(24 * 60 * 60 - 1);
        assert_eq!(sessions.find(almost, HERE, &name(1), true, &stats), Some(vec![7]));
        assert_eq!(
            sessions.find(almost + Duration::from_secs(1), HERE, &name(1), true, &stats),
            None
        );
        assert_eq!((value(&sessions, "sessions_held"), stats.sessions_expired.value()), (0, 1));
    }

    #[test]
    fn shorter_lifetime_is_kept_to_and_makes_room_first() {
        let minute = Duration::from_secs(60);
        let (sessions, stats, now) =
            store(|limits| limits.with_session_lifetime(minute)?.with_sessions(100));
        for number in 0..100 {
            sessions.put(now, HERE, &name(number), vec![7], &stats);
        }
        let almost = now + Duration::from_millis(59_999);
        assert_eq!(sessions.find(almost, HERE, &name(1), true, &stats), Some(vec![7]));
        assert_eq!(sessions.find(now + minute, HERE, &name(1), true, &stats), None);
        assert!(sessions.put(now + minute, HERE, &name(200), vec![7], &stats));
        assert_eq!((stats.sessions_expired.value(), stats.sessions_evicted.value()), (100, 0));
    }

    #[test]
    fn oldest_sessions_make_room_when_there_are_too_many() {
        let (sessions, stats, now) = store(|limits| limits.with_sessions(100));
        for number in 0..150 {
            assert!(sessions.put(now, HERE, &name(number), vec![7], &stats));
        }
        assert_eq!((value(&sessions, "sessions_held"), stats.sessions_evicted.value()), (100, 50));
        assert_eq!(sessions.find(now, HERE, &name(49), false, &stats), None);
        assert_eq!(sessions.find(now, HERE, &name(50), false, &stats), Some(vec![7]));
    }

    #[test]
    fn session_bytes_are_bounded() {
        let (sessions, stats, now) = store(|limits| limits.with_session_bytes(1 << 20));
        for number in 0..10_000 {
            assert!(sessions.put(now, HERE, &name(number), vec![7; 1 << 10], &stats));
        }
        assert!(value(&sessions, "sessions_bytes") <= 1 << 20);
        assert!(value(&sessions, "sessions_held") > 400);
        assert_eq!(
            value(&sessions, "sessions_held") + stats.sessions_evicted_for_bytes.value(),
            10_000
        );
        assert!(!sessions.put(now, HERE, &name(0), vec![7; TLS_SESSION_BYTES + 1], &stats));
    }

    #[test]
    fn few_bytes_hold_as_many_sessions_as_fit() {
        let (sessions, stats, now) = store(|limits| limits.with_session_bytes(16 << 10));
        for number in 0..100 {
            assert!(sessions.put(now, HERE, &name(number), vec![7; 640], &stats));
        }
        assert_eq!(
            (value(&sessions, "sessions_held"), stats.sessions_evicted_for_bytes.value()),
            (16, 84)
        );
    }

    #[test]
    fn store_without_room_keeps_nothing_and_counts() {
        let (sessions, stats, now) = store(|limits| limits.with_sessions(0));
        assert!(!sessions.put(now, HERE, &name(1), vec![7], &stats));
        assert_eq!((value(&sessions, "sessions_held"), stats.sessions_evicted.value()), (0, 1));
        let (sessions, stats, now) = store(|limits| limits.with_session_bytes(0));
        assert!(!sessions.put(now, HERE, &name(1), vec![7], &stats));
        assert_eq!(
            (value(&sessions, "sessions_held"), stats.sessions_evicted_for_bytes.value()),
            (0, 1)
        );
    }

    #[test]
    fn many_threads_take_each_session_once() {
        let (sessions, stats, now) = store(Ok);
        for number in 0..1_000 {
            sessions.put(now, HERE, &name(number), vec![7], &stats);
        }
        let takers: Vec<_> = (0..4)
            .map(|_| {
                let (sessions, stats) = (sessions.clone(), Stats::default());
                std::thread::spawn(move || {
                    (0..1_000)
                        .filter(|number| {
                            sessions.find(now, HERE, &name(*number), false, &stats).is_some()
                        })
                        .count()
                })
            })
            .collect();
        let taken: usize = takers
            .into_iter()
            .map(|worker_for_first_packet| worker_for_first_packet.join().unwrap())
            .sum();
        assert_eq!(taken, 1_000);
    }
}
