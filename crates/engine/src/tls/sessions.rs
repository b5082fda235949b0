//! Sessions that clients may resume: one store for all workers and both transports, from which each is taken once.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::server::StoresServerSessions;

/// What a session costs besides its own bytes: its place in two maps, and its name in both.
const ENTRY_BYTES: usize = 320;
/// A session holds a secret and a server name. What is larger than this is not one that a client may make us keep.
const SESSION_BYTES: usize = 4 << 10;
/// Parts with a lock each, so that workers hardly ever meet.
const SHARDS: usize = 64;
/// Fewer sessions than this are not worth a part of their own.
const SESSIONS_PER_SHARD: usize = 256;

/// What a store of sessions may hold.
#[derive(Clone, Debug)]
pub struct SessionLimits {
    /// Sessions. A full handshake leaves two, so that a client may open two connections next time. Default 100,000.
    pub sessions: usize,
    /// Bytes of them, names and the store's own maps included. Default 64 MiB.
    pub bytes: usize,
    /// How long a session may be resumed. Default, and the most that clients are told of, 24 hours.
    pub lifetime: Duration,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self { sessions: 100_000, bytes: 64 << 20, lifetime: Duration::from_secs(24 * 60 * 60) }
    }
}

/// A store of TLS sessions that are on the server's side (the ticket is only a name), shared by whoever may resume them.
///
/// A session of TLS 1.3 is handed out once: who shows its ticket again, as a replayed first flight does, gets a full handshake,
/// in which early data has no place. What does not fit any more pushes out the oldest.
pub struct Sessions {
    shards: Box<[Mutex<Shard>]>,
    limits: SessionLimits,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    stored: AtomicU64,
    resumed: AtomicU64,
    unknown: AtomicU64,
    expired: AtomicU64,
    evicted: AtomicU64,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<Box<[u8]>, Entry, rustc_hash::FxBuildHasher>,
    /// The names by age. All live equally long, so that the oldest is also the first to expire.
    by_age: BTreeMap<u64, Box<[u8]>>,
    next: u64,
    bytes: usize,
}

struct Entry {
    scope: Scope,
    value: Box<[u8]>,
    expires: Instant,
    age: u64,
}

impl Entry {
    fn bytes(&self, name: &[u8]) -> usize {
        ENTRY_BYTES + 2 * name.len() + self.value.len()
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

/// Who may resume a session: the same certificate, transport and settings as when it was made.
pub(crate) type Scope = [u8; 16];

impl Sessions {
    /// An empty store.
    pub fn new(limits: SessionLimits) -> Arc<Self> {
        let shards = (limits.sessions / SESSIONS_PER_SHARD).clamp(1, SHARDS);
        let shards = (0..shards).map(|_| Mutex::default()).collect();
        Arc::new(Self { shards, limits, counters: Counters::default() })
    }

    /// Names and values of the counters: what is held, and what has come of it.
    pub fn values(&self) -> Vec<(&'static str, u64)> {
        let (mut held, mut bytes) = (0, 0);
        for shard in &self.shards {
            let shard = lock(shard);
            held += shard.entries.len() as u64;
            bytes += shard.bytes as u64;
        }
        let Counters { stored, resumed, unknown, expired, evicted } = &self.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            ("sessions_held", held),
            ("sessions_bytes", bytes),
            ("sessions_stored", read(stored)),
            ("sessions_taken", read(resumed)),
            ("sessions_unknown", read(unknown)),
            ("sessions_expired", read(expired)),
            ("sessions_evicted", read(evicted)),
        ]
    }

    /// The store as one server's TLS sees it.
    pub(crate) fn view(self: &Arc<Self>, scope: Scope) -> Arc<View> {
        Arc::new(View { sessions: self.clone(), scope })
    }

    fn shard(&self, name: &[u8]) -> &Mutex<Shard> {
        // Names are random, and those that clients make up find nothing in whichever shard.
        let number = name.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        &self.shards[(number % self.shards.len() as u64) as usize]
    }

    fn put(&self, now: Instant, scope: Scope, name: &[u8], value: Vec<u8>) -> bool {
        if value.len() > SESSION_BYTES {
            return false;
        }
        let (most, most_bytes) = (self.limits.sessions / self.shards.len(), self.limits.bytes / self.shards.len());
        let mut shard = lock(self.shard(name));
        shard.remove(name);
        let age = shard.next;
        let entry = Entry { scope, value: value.into(), expires: now + self.limits.lifetime, age };
        let bytes = entry.bytes(name);
        if most == 0 || bytes > most_bytes {
            return false;
        }
        while let Some((oldest, entry)) = shard.oldest() {
            let expired = entry.expires <= now;
            if !expired && shard.entries.len() < most && shard.bytes + bytes <= most_bytes {
                break;
            }
            let oldest = oldest.to_owned();
            shard.remove(&oldest);
            count(if expired { &self.counters.expired } else { &self.counters.evicted });
        }
        shard.next += 1;
        shard.bytes += bytes;
        shard.by_age.insert(age, name.into());
        shard.entries.insert(name.into(), entry);
        count(&self.counters.stored);
        true
    }

    /// `keep`: TLS 1.2 names a session again on each connection, and knows no early data.
    fn find(&self, now: Instant, scope: Scope, name: &[u8], keep: bool) -> Option<Vec<u8>> {
        let mut shard = lock(self.shard(name));
        let found = shard.entries.get(name).filter(|entry| entry.scope == scope).map(|entry| entry.expires <= now);
        let value = match found {
            Some(false) if keep => shard.entries.get(name).map(|entry| entry.value.to_vec()),
            Some(false) => shard.remove(name).map(|entry| entry.value.into()),
            Some(true) => {
                shard.remove(name);
                count(&self.counters.expired);
                None
            }
            None => None,
        };
        count(if value.is_some() { &self.counters.resumed } else { &self.counters.unknown });
        value
    }
}

fn lock(shard: &Mutex<Shard>) -> std::sync::MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// The sessions of one scope.
#[derive(Debug)]
pub(crate) struct View {
    sessions: Arc<Sessions>,
    scope: Scope,
}

impl StoresServerSessions for View {
    fn put(&self, name: Vec<u8>, value: Vec<u8>) -> bool {
        self.sessions.put(Instant::now(), self.scope, &name, value)
    }

    fn get(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.sessions.find(Instant::now(), self.scope, name, true)
    }

    fn take(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.sessions.find(Instant::now(), self.scope, name, false)
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

    #[test]
    fn session_is_taken_once() {
        let (sessions, now) = (Sessions::new(SessionLimits::default()), Instant::now());
        assert!(sessions.put(now, HERE, &name(1), vec![7; 100]));
        assert_eq!(sessions.find(now, HERE, &name(1), true), Some(vec![7; 100]));
        assert_eq!(sessions.find(now, HERE, &name(1), false), Some(vec![7; 100]));
        assert_eq!(sessions.find(now, HERE, &name(1), false), None);
        assert_eq!((value(&sessions, "sessions_held"), value(&sessions, "sessions_bytes")), (0, 0));
    }

    //= RFC 9114 section 7.2.4.2
    //# If 0-RTT data is accepted by the server, its SETTINGS frame MUST NOT reduce any limits or alter any values that
    //# might be violated by the client with its 0-RTT data.
    //= RFC 9114 section 7.2.4.2
    //# If the server cannot determine that the settings remembered by a client are compatible with its current settings, it
    //# MUST NOT accept 0-RTT data.
    #[test]
    fn session_of_another_scope_is_neither_found_nor_spent() {
        let (sessions, now) = (Sessions::new(SessionLimits::default()), Instant::now());
        sessions.put(now, HERE, &name(1), vec![7]);
        assert_eq!(sessions.find(now, ELSEWHERE, &name(1), false), None);
        assert_eq!(sessions.find(now, HERE, &name(1), false), Some(vec![7]));
    }

    #[test]
    fn session_expires() {
        let (sessions, now) = (Sessions::new(SessionLimits::default()), Instant::now());
        sessions.put(now, HERE, &name(1), vec![7]);
        let almost = now + Duration::from_secs(24 * 60 * 60 - 1);
        assert_eq!(sessions.find(almost, HERE, &name(1), true), Some(vec![7]));
        assert_eq!(sessions.find(almost + Duration::from_secs(1), HERE, &name(1), true), None);
        assert_eq!((value(&sessions, "sessions_held"), value(&sessions, "sessions_expired")), (0, 1));
    }

    #[test]
    fn oldest_sessions_make_room_when_there_are_too_many() {
        let sessions = Sessions::new(SessionLimits { sessions: 100, ..SessionLimits::default() });
        let now = Instant::now();
        for number in 0..150 {
            assert!(sessions.put(now, HERE, &name(number), vec![7]));
        }
        assert_eq!((value(&sessions, "sessions_held"), value(&sessions, "sessions_evicted")), (100, 50));
        assert_eq!(sessions.find(now, HERE, &name(49), false), None);
        assert_eq!(sessions.find(now, HERE, &name(50), false), Some(vec![7]));
    }

    #[test]
    fn bytes_are_bounded_however_large_sessions_are() {
        let limits = SessionLimits { sessions: 100_000, bytes: 1 << 20, ..SessionLimits::default() };
        let (sessions, now) = (Sessions::new(limits), Instant::now());
        for number in 0..10_000 {
            assert!(sessions.put(now, HERE, &name(number), vec![7; 1 << 10]));
        }
        assert!(value(&sessions, "sessions_bytes") <= 1 << 20);
        assert!(value(&sessions, "sessions_held") > 400);
        assert!(!sessions.put(now, HERE, &name(0), vec![7; SESSION_BYTES + 1]));
    }

    #[test]
    fn many_threads_take_each_session_once() {
        let (sessions, now) = (Sessions::new(SessionLimits::default()), Instant::now());
        for number in 0..1_000 {
            sessions.put(now, HERE, &name(number), vec![7]);
        }
        let takers: Vec<_> = (0..4)
            .map(|_| {
                let sessions = sessions.clone();
                std::thread::spawn(move || (0..1_000).filter(|number| sessions.find(now, HERE, &name(*number), false).is_some()).count())
            })
            .collect();
        let taken: usize = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
        assert_eq!(taken, 1_000);
    }
}
