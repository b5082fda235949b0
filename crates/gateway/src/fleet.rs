//! What a running server shares with others: secrets, and TLS sessions in Redis.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::digest;
use pronghorn_engine::{Group, Identity, Secret};
use pronghorn_fleet::secrets::{Secrets, derive};
use pronghorn_fleet::sessions::{
    Latency, RedisServers, RedisSessions, RedisSessionsConfig, RedisTls,
};

use crate::config::{Config, FleetSessions, Location, MinTls, Problem, SecretsSource};

/// Name of the key with the secrets in Redis, behind the prefix of the sessions.
const SECRETS_KEY: &str = "secrets";

/// What a running server shares with others.
pub struct Fleet {
    node: String,
    /// Names this machine where its secrets are used: never that of another one by chance.
    identity: String,
    secrets: Mutex<Secrets>,
    sessions: Option<Arc<RedisSessions>>,
    /// Hash of the settings that decide whether a session may be resumed.
    binding: [u8; 32],
}

impl Fleet {
    /// Reads the secrets and connects to Redis, as the table `[fleet]` says; `None` if the server
    /// shares nothing. A Redis that is not reachable is no error, unless it has the secrets.
    /// `machine` is a secret that no other server has; log lines go to `log`.
    ///
    /// # Errors
    ///
    /// Returns the settings that cannot be used.
    pub fn start(
        config: &Config,
        machine: impl FnOnce() -> Secret,
        log: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Option<Self>, Vec<Problem>> {
        let Some(secrets) = read_secrets(config)? else { return Ok(None) };
        let sessions = config.fleet.sessions.as_ref().map(|sessions| {
            let mut settings = settings(config, sessions)?;
            settings.log = Arc::new(log);
            RedisSessions::start(settings, &secrets)
                .map_err(|error| sessions_problem(config, "sessions", error))
        });
        Ok(Some(Self {
            node: node(config),
            identity: config.fleet.node.clone().unwrap_or_else(|| own_name(&machine())),
            secrets: Mutex::new(secrets),
            sessions: sessions.transpose()?,
            binding: binding(config),
        }))
    }

    /// Checks the files that the table `[fleet]` names.
    pub(crate) fn check(config: &Config) -> Vec<Problem> {
        let file = match &config.fleet.secrets {
            Some(SecretsSource::File(_)) => read_secrets(config).map(drop),
            // Redis is not asked: a configuration is checked on other machines too.
            _ => Ok(()),
        };
        let sessions = config.fleet.sessions.as_ref();
        let sessions = sessions.map_or(Ok(()), |sessions| settings(config, sessions).map(drop));
        [file, sessions].into_iter().filter_map(Result::err).flatten().collect()
    }

    /// Creates the group of this server's workers, whose keys come from the shared secrets.
    pub fn group(&self, workers: usize) -> Group {
        let secrets = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        Group::with_secrets(workers, secrets.current(), &secrets.all()[1..], &self.identity)
    }

    /// Shares the sessions of an identity, if the configuration says so.
    pub fn share(&self, identity: Identity) -> Identity {
        match &self.sessions {
            Some(sessions) => identity.with_shared_sessions(sessions.clone(), self.binding),
            None => identity,
        }
    }

    /// Reads the secrets again; `None` if there are none.
    ///
    /// # Errors
    ///
    /// Returns why they cannot be used.
    pub fn read_secrets(config: &Config) -> Result<Option<Secrets>, Vec<Problem>> {
        read_secrets(config)
    }

    /// Uses other secrets from now on. Returns whether they have changed.
    pub fn set_secrets(&self, secrets: Secrets, group: &Group) -> bool {
        let mut present = self.secrets.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = |secrets: &Secrets| -> Vec<[u8; 32]> {
            secrets.all().iter().map(|secret| *secret.as_bytes()).collect()
        };
        if bytes(&present) == bytes(&secrets) {
            return false;
        }
        group.set_token_secrets(secrets.current(), &secrets.all()[1..]);
        if let Some(sessions) = &self.sessions {
            sessions.set_secrets(&secrets);
        }
        *present = secrets;
        true
    }

    /// Returns the name of this server.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Returns the counters of the shared sessions; none if they are not shared.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.sessions.as_ref().map(|sessions| sessions.values()).unwrap_or_default()
    }

    /// Returns names and descriptions of the counters, in their order.
    pub fn meanings() -> Vec<(&'static str, String)> {
        RedisSessions::meanings()
    }

    /// Returns how long handshakes waited for shared sessions.
    pub fn latency(&self) -> Option<&Latency> {
        self.sessions.as_ref().map(|sessions| sessions.latency())
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("node", &self.node).finish_non_exhaustive()
    }
}

fn location(key: &'static str) -> Location {
    Location { file: 0, path: vec!["fleet".into(), key.into()] }
}

fn read_secrets(config: &Config) -> Result<Option<Secrets>, Vec<Problem>> {
    let read = match &config.fleet.secrets {
        None => return Ok(None),
        Some(SecretsSource::File(file)) => {
            Secrets::from_file(&config.path(&location("secrets"), file))
        }
        Some(SecretsSource::Redis) => {
            let Some(sessions) = &config.fleet.sessions else { return Ok(None) };
            let settings = settings(config, sessions)?;
            let key = format!("{}{SECRETS_KEY}", settings.prefix);
            let RedisSessionsConfig { servers, user, password, tls, .. } = settings;
            Secrets::from_redis(&servers, user, password, tls, &key)
        }
    };
    read.map(Some).map_err(|error| {
        let problem = config.problem(&location("secrets"), error);
        vec![problem.with_hint("give each server the same file, readable by its user alone")]
    })
}

fn settings(
    config: &Config,
    sessions: &FleetSessions,
) -> Result<RedisSessionsConfig, Vec<Problem>> {
    let addresses = sessions.redis.iter().map(|address| address.0.clone()).collect();
    let servers = match &sessions.sentinel {
        Some(primary) => RedisServers::Sentinel { sentinels: addresses, primary: primary.clone() },
        None if sessions.cluster => RedisServers::Cluster(addresses),
        None => RedisServers::Single(addresses),
    };
    let mut settings = RedisSessionsConfig::new(servers);
    settings.user.clone_from(&sessions.user);
    settings.password = sessions.password.as_ref().map(|password| password.reveal().to_owned());
    if let Some(trust) = &sessions.trust {
        let path = config.path(&location("sessions"), trust);
        let tls = RedisTls::new(Some(&path), None);
        settings.tls = Some(tls.map_err(|error| sessions_problem(config, "trust", error))?);
    }
    settings.timeout = sessions.timeout.0;
    settings.replicas = sessions.replicas;
    settings.prefix.clone_from(&sessions.prefix);
    Ok(settings)
}

fn sessions_problem(config: &Config, key: &'static str, error: impl fmt::Display) -> Vec<Problem> {
    let at = location("sessions");
    let at = if key == "sessions" { at } else { at.key(key) };
    vec![config.problem(&at, error)]
}

/// Returns a name that no other server has.
fn own_name(machine: &Secret) -> String {
    derive::<16>(machine, "name of the server").iter().map(|byte| format!("{byte:02x}")).collect()
}

fn node(config: &Config) -> String {
    config.fleet.node.clone().unwrap_or_else(|| {
        let file = std::fs::read_to_string(Path::new("/proc/sys/kernel/hostname"));
        file.map(|name| name.trim().to_owned()).unwrap_or_default()
    })
}

/// Returns the hash of the settings that decide whether a session may be resumed.
///
/// The certificate is not among them: each server may have its own, and clients resume only with
/// the name that the session was made for. What a client certificate allows is decided for each
/// request. Versions may differ in the settings that clients remember.
fn binding(config: &Config) -> [u8; 32] {
    let min_tls = if config.server.min_tls == MinTls::Tls13 { "1.3" } else { "1.2" };
    let text = format!("pronghorn gateway {} TLS {min_tls}", env!("CARGO_PKG_VERSION"));
    let hash = digest::digest(&digest::SHA256, text.as_bytes());
    *hash.as_ref().first_chunk().expect("invariant: SHA-256 has 32 bytes")
}
