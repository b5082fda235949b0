//! TLS sessions that several servers share in Redis (or Valkey), sealed.
//!
//! [`RedisSessions`] is a store for the engine. Workers hand it commands, and a thread of its own
//! does them over a few connections. A handshake waits for at most
//! [`timeout`](RedisSessionsConfig::timeout), whatever Redis does. What cannot be had in time costs
//! the client a full handshake and nothing else. After three lookups in a row without a reply, no
//! handshake waits until the server answers in time again; a check in the background finds out.
//!
//! # What is promised about early data
//!
//! A session is reported as *taken for good* at most once, over all servers that share the store
//! and whatever happens to Redis, with the exceptions below. So one first flight is accepted with
//! early data at most once. It rests on two facts:
//!
//! - `GETDEL` on a primary is atomic, so among the commands that one process of Redis executes,
//!   only one finds a session. A `SET` is never repeated, because the first might have taken
//!   effect.
//! - Each session has a stamp: a hash of the run ID and the replication ID of the primary that it
//!   was sent to. Redis draws the run ID when a process starts, and the replication ID when a
//!   process starts and when a replica is promoted; neither returns. `INFO replication` follows
//!   each removal on the same connection. A session is taken for good only if the stamp from that
//!   reply equals the one inside of the sealed session. As long as both are the same, the process
//!   has been a primary without a break, and its sessions changed by commands alone.
//!
//! So whatever brings a removed session back also changes the stamp: a restart from an older RDB or
//! AOF file, a failover to a replica that missed the removal, a primary that was partitioned and
//! comes back as a replica, a slot of a cluster that moves. Sessions stored before such an event
//! are still found. They resume without early data, and their clients get a ticket with the new
//! stamp, which gives early data again. A primary also draws a replication ID when its first
//! replica connects, and an hour after its last replica has left (`repl-backlog-ttl`); the effect
//! is the same. This does not depend on replicas, acknowledgements or disks, and holds with
//! `replicas = 0`, too. It is the price of a failover: each client loses early data once.
//!
//! [`replicas`](RedisSessionsConfig::replicas) adds a second proof. The removal is followed by
//! `WAIT` on the same connection, which carries no other removals meanwhile, and the session is
//! taken for good only if that many replicas acknowledged. This protects where a server does not
//! tell the truth about its run: behind a proxy that distributes the commands of one connection, or
//! with services that are compatible with Redis and keep their IDs over a failover. It then needs
//! all replicas that may be promoted, and replicas that do not lose their data at the same time: an
//! acknowledged write is in the replica's memory, not on its disk. While too few acknowledge,
//! sessions resume without early data; after three waits in vain the store waits only 1 ms.
//!
//! Not promised:
//!
//! - An attacker who can write to Redis, or an operator who does (`RESTORE`, `COPY`, `DEBUG
//!   RELOAD`, a failed `MIGRATE` that is repeated), may bring a session back in the same run.
//! - A snapshot of a virtual machine that is restored with its memory continues the same run.
//! - TLS lets a client send data again when a lookup has failed. A request whose early data was
//!   not accepted on one server may still be accepted as early data on another, if the first could
//!   not reach Redis (RFC 8446 section 8). Only idempotent requests are safe in early data.
//!
//! # What Redis sees
//!
//! Keys are an HMAC of the session's name, and values are sealed with AES-256-GCM. Keys of both are
//! derived from the current secret of the [`Secrets`]. A dump of Redis
//! contains nothing that resumes or decrypts a connection. A value opens only under its own key in
//! Redis. A lookup tries the keys of all secrets in one round trip, so secrets are rotated without
//! losing sessions.
//!
//! # Clocks
//!
//! Redis removes a session after its lifetime by its own clock. The sealed session also has the
//! time at which it was written, by the writer's clock. A reader refuses sessions that are more
//! than 60 s past their lifetime, or more than 60 s from the future. So servers whose clocks differ
//! by less than a minute share all sessions. No promise about early data depends on a clock.
//!
//! # Servers that are configured differently
//!
//! Servers share sessions only if the settings that sessions are bound to are equal, and find
//! nothing of each other's otherwise. So each server writes these settings to Redis once a minute
//! ([`RedisSessions::announce`]), sealed like a session, and reads those of the others. The log
//! names each difference once, and says once when there is none any more:
//!
//! ```text
//! warning: fleet: edge-2 has limits.idle_timeout = 30s, this server 60s: neither resumes the
//!     QUIC sessions of the other
//! fleet: the settings of edge-2 are those of this server
//! ```
//!
//! It also names servers with other secrets, and another server that has the name of this one. Such
//! a line may also come from someone else who can write to Redis, and has no other effect. The
//! entries are in the hash `nodes` behind the prefix, named after the server, whose name Redis sees.
//! An entry counts when it changes while this server watches, whatever the clocks say, so a
//! difference is logged within two or three minutes, and a server that has ended is no difference.
//! Entries that do not change for five minutes are removed. All this runs over a connection of its
//! own, which is open for a moment, so that no lookup waits for it. If it fails, only the comparison
//! is missing.
//!
//! # What Redis needs
//!
//! Version 6.2, for `GETDEL`. The user needs the commands `AUTH`, `GET`, `GETDEL`, `SET` and
//! `INFO`, `WAIT` with replicas, `SELECT` with a database, and `CLUSTER SLOTS` in a cluster, on the
//! keys with the [prefix](RedisSessionsConfig::prefix). The comparison of settings needs `HSET`,
//! `HGETALL` and `HDEL`; without them one log line says so, and sessions are shared nevertheless.
//! Sessions may be evicted at any time, so `maxmemory-policy volatile-ttl` suits: it keeps secrets in
//! Redis, whose key does not expire. With `noeviction` new sessions are refused when Redis is full. A
//! server at rest sends one command a second, and one question to the Sentinels each 10 s.
//!
//! # Limits
//!
//! | what | limit | beyond it |
//! |---|---|---|
//! | commands that wait or run | 4096 | not done (`shared_sessions_dropped`) |
//! | size of a session | 16 KiB | not stored (`shared_sessions_not_stored`) |
//! | life of a session | 7 days | shortened |
//! | names in one lookup | 8 | not found |
//! | one reply of Redis | 1 MiB | the connection is closed |
//! | servers whose settings are compared | 1024 | not compared |
//! | settings of all servers in Redis | 1 MiB | no server is compared |
//! | settings of a server | 16 KiB | cut; a difference is logged without its name |
//! | log lines about other servers | 16 a minute | a minute later |
//! | primaries of a cluster | 1000 | their slots store nothing |
//!
//! So the sessions in commands use at most 64 MiB, and those of the engine, which are at most 4 KiB
//! each, 16 MiB.

use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use pronghorn_engine::{OnSessions, SessionName, SharedSessions};
use tokio::sync::mpsc;

use crate::secrets::Secrets;

mod announcer;
mod command;
mod config;
mod context;
mod counters;
mod exchange;
mod lane;
mod node;
mod peers;
mod route;
mod runner;
mod sealed;
mod settings;
mod stamp;

pub use crate::redis::{Address, InvalidAddress, RedisServers, RedisTls, TlsError};
pub use config::{LogLine, RedisSessionsConfig, StartError};
pub use counters::Latency;
pub use settings::{Announcement, Effect, Setting};

use command::{Command, Pending, Slot};
use counters::Counters;
use sealed::Keys;
use settings::Own;

/// A store of TLS sessions in Redis. Its thread ends when it is dropped.
pub struct RedisSessions {
    commands: mpsc::UnboundedSender<Command>,
    /// Number of commands that wait or run. It bounds the channel, whose commands are counted.
    running: Arc<AtomicUsize>,
    keys: Arc<RwLock<Arc<Keys>>>,
    counters: Arc<Counters>,
}

impl RedisSessions {
    /// Starts the store. Returns before it is connected: until then, no session is found.
    ///
    /// # Errors
    ///
    /// If a setting is invalid or the thread cannot be started. A server that is not reachable is
    /// no error: the store connects when it is.
    pub fn start(config: RedisSessionsConfig, secrets: &Secrets) -> Result<Arc<Self>, StartError> {
        let config = config.checked()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // Only names of hosts are resolved there.
            .max_blocking_threads(4)
            .build()?;
        let keys = Arc::new(RwLock::new(Arc::new(Keys::new(secrets))));
        let counters = Arc::<Counters>::default();
        let (commands, queue) = mpsc::unbounded_channel();
        let (its_keys, its_counters) = (keys.clone(), counters.clone());
        std::thread::Builder::new()
            .name("redis-sessions".to_owned())
            .spawn(move || runner::run(runtime, config, its_keys, its_counters, queue))?;
        Ok(Arc::new(Self { commands, running: Arc::default(), keys, counters }))
    }

    /// Replaces the secrets. Sessions that were sealed by secrets in neither list are lost.
    pub fn set_secrets(&self, secrets: &Secrets) {
        let keys = Arc::new(Keys::new(secrets));
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    /// Announces the settings that decide whether other servers resume the sessions of this one:
    /// at once, again in each [interval](RedisSessionsConfig::announce_interval), and until the next
    /// call. The log says which settings of other servers differ, see [the module](self).
    pub fn announce(&self, announcement: Announcement) {
        // If the thread has ended, there is nothing to compare.
        let _ = self.commands.send(Command::Announce(Own::new(announcement)));
    }

    /// Returns names and values of the store's counters, and of the gauges
    /// `shared_sessions_servers` and `shared_sessions_servers_reachable`.
    pub fn values(&self) -> Vec<(&'static str, u64)> {
        self.counters.values()
    }

    /// Returns names and descriptions of [`RedisSessions::values`].
    pub fn meanings() -> Vec<(&'static str, String)> {
        Counters::meanings()
    }

    /// Returns how long lookups waited.
    pub fn latency(&self) -> &Latency {
        &self.counters.latency
    }

    fn lookup(&self, names: Vec<SessionName>, removes: bool, done: OnSessions) {
        let slot = Slot::new(&self.running);
        if slot.is_none() {
            self.counters.dropped.add(1);
        }
        let is_full = slot.is_none();
        let pending = Pending::new(names.len(), done, slot);
        // Dropping the lookup answers it: if too many are running, or the thread has ended.
        if !is_full {
            let _ = self.commands.send(Command::Lookup { names, removes, pending });
        }
    }
}

impl SharedSessions for RedisSessions {
    fn put(&self, name: SessionName, value: Vec<u8>, lifetime: Duration) {
        let Some(slot) = Slot::new(&self.running) else {
            self.counters.dropped.add(1);
            return;
        };
        let _ = self.commands.send(Command::Put { name, session: value, lifetime, slot });
    }

    fn take(&self, names: Vec<SessionName>, done: OnSessions) {
        self.lookup(names, true, done);
    }

    fn get(&self, name: SessionName, done: OnSessions) {
        self.lookup(vec![name], false, done);
    }
}

impl fmt::Debug for RedisSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSessions").finish_non_exhaustive()
    }
}
