//! What a running server shares with others: secrets, and TLS sessions in Redis.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::digest;
use pronghorn_engine::{Group, Identity, Limits, Secret};
use pronghorn_fleet::secrets::{Secrets, SecretsError, derive};
use pronghorn_fleet::sessions::{
    Announcement, Effect, Latency, RedisServers, RedisSessions, RedisSessionsConfig, RedisTls,
    Setting, StartError,
};

use crate::config::{
    Config, EarlyData, Fault, FleetSessions, Location, MinTls, Problem, SecretsSource,
};

/// Name of the key with the secrets in Redis, behind the prefix of the sessions.
const SECRETS_KEY: &str = "secrets";
/// The part of [`binding`] that a release decides.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a running server shares with others.
pub struct Fleet {
    node: String,
    /// Names this machine where its secrets are used: never that of another one by chance.
    identity: String,
    secrets: Mutex<Secrets>,
    sessions: Option<Arc<RedisSessions>>,
    /// Hash of the settings that decide whether a session may be resumed.
    binding: [u8; 32],
    /// What other servers learn about this one. A reload changes none of these settings.
    announcement: Announcement,
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
                .inspect(|sessions| sessions.announce(announcement(config)))
                .map_err(|error| start_problem(config, error))
        });
        Ok(Some(Self {
            node: node(config),
            identity: config.fleet.node.clone().unwrap_or_else(|| own_name(&machine())),
            secrets: Mutex::new(secrets),
            sessions: sessions.transpose()?,
            binding: binding(config),
            announcement: announcement(config),
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
        let sessions = sessions.map_or(Ok(()), |sessions| {
            settings(config, sessions)?.check().map_err(|error| start_problem(config, error))
        });
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
            // Servers that have removed the old secrets cannot open what they sealed.
            sessions.announce(self.announcement.clone());
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
        let fault = match &error {
            SecretsError::File { source, .. } => Fault::from(source),
            _ => Fault::Malformed,
        };
        let problem = config.problem(&location("secrets"), error).with_fault(fault);
        vec![match config.fleet.secrets {
            Some(SecretsSource::Redis) => problem,
            _ => problem.with_hint("give each server the same file, readable by its user alone"),
        }]
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
        settings.tls = Some(tls.map_err(|error| {
            let fault = error.io_error().map_or(Fault::Malformed, Fault::from);
            let problems = sessions_problem(config, "trust", error);
            problems.into_iter().map(|problem| problem.with_fault(fault)).collect::<Vec<_>>()
        })?);
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
    format!("{:032x}", u128::from_be_bytes(derive::<16>(machine, "name of the server")))
}

fn start_problem(config: &Config, error: StartError) -> Vec<Problem> {
    let key = match &error {
        StartError::NoServer | StartError::ClusterDatabase => "redis",
        StartError::Timeout(_) => "timeout",
        StartError::Prefix(_) => "prefix",
        _ => "sessions",
    };
    sessions_problem(config, key, error)
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
    let text = format!("pronghorn gateway {VERSION} TLS {}", min_tls(config.server.min_tls));
    let hash = digest::digest(&digest::SHA256, text.as_bytes());
    *hash.as_ref().first_chunk().expect("invariant: SHA-256 has 32 bytes")
}

fn min_tls(version: MinTls) -> &'static str {
    match version {
        MinTls::Tls12 => "1.2",
        MinTls::Tls13 => "1.3",
    }
}

/// Returns what decides whether other servers resume the sessions of this one: all that is in
/// [`binding`], the limits, which the engine adds for QUIC, and whether early data is accepted.
fn announcement(config: &Config) -> Announcement {
    // Another policy decides about requests, not about sessions.
    let early_data = if config.server.early_data == EarlyData::Off { "off" } else { "on" };
    let of_server = [
        ("min_tls", min_tls(config.server.min_tls), min_tls(MinTls::Tls12), Effect::Sessions),
        ("early_data", early_data, "on", Effect::EarlyData),
    ];
    let of_server = of_server.map(|(name, value, default, effect)| Setting {
        name: format!("server.{name}"),
        value: value.to_owned(),
        default: default.to_owned(),
        effect,
    });
    let limits = Limits::table().iter().map(|limit| Setting {
        name: format!("limits.{}", limit.name),
        value: limit.unit.write(limit.value(&config.limits)),
        default: limit.unit.write(limit.default),
        effect: Effect::QuicSessions,
    });
    Announcement {
        node: node(config),
        version: VERSION.to_owned(),
        settings: of_server.into_iter().chain(limits).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn config(settings: &str) -> Config {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pronghorn.toml");
        let site = "[[sites]]\nhosts = [\"a\"]\n[[sites.routes]]\nrespond = \"x\"\n";
        std::fs::write(&file, format!("{settings}\n{site}")).unwrap();
        Config::load_with(&file, &|_| None).unwrap()
    }

    /// Returns the settings that differ from their defaults.
    fn changed(config: &Config) -> Vec<(String, String, Effect)> {
        let settings = announcement(config).settings.into_iter();
        let changed = settings.filter(|setting| setting.value != setting.default);
        changed.map(|setting| (setting.name, setting.value, setting.effect)).collect()
    }

    const LISTEN: &str = "[server]\nlisten = [\"http://127.0.0.1:0\"]";

    #[test]
    fn default_settings_are_announced_as_defaults() {
        let config = config(LISTEN);
        assert_eq!(changed(&config), []);
        let announced = announcement(&config);
        assert_eq!(announced.version, env!("CARGO_PKG_VERSION"));
        let names: BTreeSet<_> = announced.settings.iter().map(|setting| &setting.name).collect();
        assert_eq!(names.len(), Limits::table().len() + 2);
    }

    #[test]
    fn settings_that_sessions_are_bound_to_are_announced_with_their_effect() {
        let text = format!(
            "{LISTEN}\nmin_tls = \"1.3\"\nearly_data = \"off\"\nhttp3 = false\nworkers = 3\n\
             [limits]\nidle_timeout = \"45s\"\nstream_window_bytes = \"1MiB\"\n\
             [fleet]\nnode = \"edge-1\"\n"
        );
        let config = config(&text);
        let expected = [
            ("server.min_tls", "1.3", Effect::Sessions),
            ("server.early_data", "off", Effect::EarlyData),
            ("limits.idle_timeout", "45s", Effect::QuicSessions),
            ("limits.stream_window_bytes", "1 MiB", Effect::QuicSessions),
        ];
        let expected = expected.map(|(name, value, effect)| (name.into(), value.into(), effect));
        assert_eq!(changed(&config), expected);
        assert_eq!(announcement(&config).node, "edge-1");
    }

    #[test]
    fn early_data_policies_that_accept_it_are_not_told_apart() {
        for policy in ["safe", "hold", "all"] {
            let config = config(&format!("{LISTEN}\nearly_data = \"{policy}\""));
            assert_eq!(changed(&config), [], "{policy}");
        }
    }

    #[test]
    fn binding_differs_when_an_announced_setting_of_tls_does() {
        let tls13 = config(&format!("{LISTEN}\nmin_tls = \"1.3\""));
        assert_ne!(binding(&config(LISTEN)), binding(&tls13));
        let limits = config(&format!("{LISTEN}\n[limits]\nidle_timeout = \"45s\""));
        assert_eq!(binding(&config(LISTEN)), binding(&limits), "the engine adds the limits");
    }
}
