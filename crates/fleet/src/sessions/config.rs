//! How sessions are stored in Redis.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::redis::{Address, RedisServers, RedisTls, TlsError};

/// Range of [`RedisSessionsConfig::timeout`].
const TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(10);
const PREFIX_BYTES: usize = 128;
const SHORTEST_ANNOUNCE_INTERVAL: Duration = Duration::from_millis(10);

/// Receiver of log lines. A line begins with `warning: ` if it is one. It runs on the store's
/// thread.
pub type LogLine = dyn Fn(&str) + Send + Sync;

/// Configuration of [`RedisSessions`](super::RedisSessions).
#[derive(Clone)]
#[non_exhaustive]
pub struct RedisSessionsConfig {
    /// The servers.
    pub servers: RedisServers,
    /// User of the servers; by default Redis's `default`. One in an address has precedence.
    pub user: Option<String>,
    /// Password of the servers; none by default. One in an address has precedence.
    pub password: Option<String>,
    /// TLS of `rediss://` addresses; by default the system's authorities are trusted.
    pub tls: Option<RedisTls>,
    /// Longest time that a handshake waits for Redis, from 1 ms to 10 s; 20 ms by default.
    pub timeout: Duration,
    /// Number of replicas that have to acknowledge the removal of a session before it gives early
    /// data; 0 by default. See [the module](super) for what it adds.
    pub replicas: u32,
    /// First part of all keys in Redis, by default `pronghorn:session:`. Without braces.
    pub prefix: String,
    /// Time between two writings of the settings that were announced, 60 s by default, and at least
    /// 10 ms. Equal on all servers: an entry that does not change for five times as long is removed.
    pub announce_interval: Duration,
    /// Receives a line when a server becomes reachable or unreachable, and about other servers whose
    /// settings differ; discards it by default.
    pub log: Arc<LogLine>,
}

impl RedisSessionsConfig {
    /// Creates the configuration with its defaults.
    pub fn new(servers: RedisServers) -> Self {
        Self {
            servers,
            user: None,
            password: None,
            tls: None,
            timeout: Duration::from_millis(20),
            replicas: 0,
            prefix: "pronghorn:session:".to_owned(),
            announce_interval: Duration::from_secs(60),
            log: Arc::new(|_| {}),
        }
    }

    /// Checks the settings, without connecting.
    ///
    /// # Errors
    ///
    /// Returns why [`RedisSessions::start`](super::RedisSessions::start) would refuse them.
    pub fn check(&self) -> Result<(), StartError> {
        let addresses = self.servers.addresses();
        if addresses.is_empty() {
            return Err(StartError::NoServer);
        }
        if matches!(self.servers, RedisServers::Cluster(_))
            && addresses.iter().any(|address| address.database != 0)
        {
            return Err(StartError::ClusterDatabase);
        }
        if !TIMEOUTS.contains(&self.timeout) {
            return Err(StartError::Timeout(self.timeout));
        }
        if self.prefix.len() > PREFIX_BYTES || self.prefix.contains(['{', '}']) {
            return Err(StartError::Prefix(self.prefix.clone()));
        }
        Ok(())
    }

    /// Checks the settings and fills in what has no value.
    pub(super) fn checked(mut self) -> Result<Self, StartError> {
        self.check()?;
        self.announce_interval = self.announce_interval.max(SHORTEST_ANNOUNCE_INTERVAL);
        if self.tls.is_none() && self.servers.addresses().iter().any(Address::is_tls) {
            self.tls = Some(RedisTls::new(None, None)?);
        }
        Ok(self)
    }
}

impl fmt::Debug for RedisSessionsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSessionsConfig")
            .field("servers", &self.servers)
            .field("timeout", &self.timeout)
            .field("replicas", &self.replicas)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// Why the store cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration has no address.
    #[error("no address of a Redis server; give at least one")]
    NoServer,
    /// An address of a cluster has a database.
    #[error("a Redis cluster has only the database 0; remove the number from its addresses")]
    ClusterDatabase,
    /// The timeout is out of range.
    #[error("invalid timeout of Redis {0:?}: give a time from 1 ms to 10 s")]
    Timeout(Duration),
    /// The prefix is too long, or would put all keys of a cluster on one node.
    #[error("invalid prefix of keys in Redis `{0}`: at most {PREFIX_BYTES} bytes without braces")]
    Prefix(String),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The system refuses another thread or its descriptors.
    #[error("cannot start the thread of the sessions in Redis: {0}")]
    Thread(#[from] io::Error),
}
