//! The state of a running server, for its admin API and its signals.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use pronghorn_engine::{Control, Group, Identity, MemoryBudget, Stats};
use pronghorn_gateway::config::{Config, EarlyData, Problem, Server};
use pronghorn_gateway::{Fleet, Gateway};
use serde_json::Value;

use crate::configuration;
use crate::identity;
use crate::json;
use crate::plural::counted;
use crate::serving;

/// A running server.
pub(crate) struct Running {
    pub(crate) file: PathBuf,
    /// Configuration at the start.
    pub(crate) config: Config,
    /// Configuration of the last successful reload.
    pub(crate) reloaded: RefCell<Option<Config>>,
    pub(crate) gateway: Gateway,
    pub(crate) fleet: Option<Fleet>,
    pub(crate) group: Group,
    /// Addresses, each with whether it uses TLS.
    pub(crate) listeners: Vec<(SocketAddr, bool)>,
    pub(crate) memory: MemoryBudget,
    pub(crate) stats: Vec<Arc<Stats>>,
    pub(crate) identity: RefCell<Option<Identity>>,
    pub(crate) control: Control,
    pub(crate) started: SystemTime,
    /// Whether handshakes may wait for signatures.
    pub(crate) has_slow_keys: Cell<bool>,
    pub(crate) reloads: Cell<u64>,
    pub(crate) failed_reloads: Cell<u64>,
}

/// Message for a reload without changes.
pub(crate) const UNCHANGED: &str =
    "the configuration is unchanged; certificates and other referenced files are reloaded";

impl Running {
    /// Reloads the configuration if it is valid, and returns the changes; an invalid one changes
    /// nothing.
    pub(crate) fn reload(&self) -> Result<Value, Vec<Problem>> {
        let hosts = || {
            self.gateway.sites().into_iter().flat_map(|site| site.hosts).collect::<BTreeSet<_>>()
        };
        let before = hosts();
        // Whatever may fail comes first: a failed reload changes nothing.
        let replaced = Config::load(&self.file).and_then(|config| {
            let secrets = match &self.fleet {
                Some(_) => Fleet::read_secrets(&config)?,
                None => None,
            };
            self.gateway.reload(&config)?;
            Ok((config, secrets))
        });
        let replaced = replaced.map(|(config, secrets)| {
            if let (Some(fleet), Some(secrets)) = (&self.fleet, secrets)
                && fleet.set_secrets(secrets, &self.group)
            {
                log_line!("fleet: the secrets have changed");
            }
            config
        });
        let changes = replaced
            .as_ref()
            .map(|config| self.with_present(|before| config.changes_since(before)))
            .unwrap_or_default();
        let config = match replaced {
            Ok(config) => config,
            Err(problems) => {
                self.failed_reloads.set(self.failed_reloads.get() + 1);
                for line in configuration::lines(&problems) {
                    log_line!("{line}");
                }
                log_line!("error: {} is invalid; nothing has changed", self.file.display());
                return Err(problems);
            }
        };
        self.reloads.set(self.reloads.get() + 1);
        self.park_slow_handshakes();
        let now = hosts();
        let restart = self.needs_restart(&config);
        let (added, removed): (Vec<_>, Vec<_>) =
            (now.difference(&before).collect(), before.difference(&now).collect());
        log_line!("serving {} of {}", counted(config.sites.len(), "site"), self.file.display());
        for host in &added {
            log_line!("added: {host}");
        }
        for host in &removed {
            log_line!("removed: {host}");
        }
        for change in &changes {
            log_line!("{change}");
        }
        if changes.is_empty() {
            log_line!("{UNCHANGED}");
        }
        let warnings: Vec<_> = config
            .warnings
            .iter()
            .cloned()
            .chain(self.gateway.warnings())
            .map(|warning| warning.to_string())
            .collect();
        for warning in &warnings {
            log_line!("warning: {warning}");
        }
        for key in &restart {
            log_line!("warning: {key} has changed; restart the server to apply it");
        }
        let switched: Vec<_> =
            self.gateway.sites().iter().filter(|site| site.is_switched()).map(json::site).collect();
        let answer = serde_json::json!({
            "file": self.file.display().to_string(),
            "sites": config.sites.len(),
            "hosts_added": added,
            "hosts_removed": removed,
            "changes": changes,
            "needs_restart": restart,
            "warnings": warnings,
            "switched_by_hand": switched,
        });
        *self.reloaded.borrow_mut() = Some(config);
        Ok(answer)
    }

    /// Calls `look` with the configuration in effect.
    pub(crate) fn with_present<T>(&self, look: impl FnOnce(&Config) -> T) -> T {
        look(self.reloaded.borrow().as_ref().unwrap_or(&self.config))
    }

    /// Reloads certificates, with the configuration in effect.
    pub(crate) fn reread_certificates(&self) {
        match self.with_present(|config| self.gateway.reload(config)) {
            Ok(()) => {
                log_line!("certificates reloaded: a file has changed");
                for warning in self.gateway.warnings() {
                    log_line!("warning: {warning}");
                }
            }
            Err(problems) => {
                for line in configuration::lines(&problems) {
                    log_line!("{line}");
                }
                log_line!(
                    "error: the changed certificates cannot be used; the previous ones stay in \
                        use"
                );
            }
        }
    }

    /// Reopens the access log. Returns whether it is a file.
    pub(crate) fn reopen_log(&self) -> io::Result<bool> {
        let result = self.gateway.reopen_log();
        match &result {
            Ok(true) => log_line!("access log reopened"),
            Ok(false) => {}
            Err(error) => log_line!(
                "error: cannot reopen the access log: {error}; still writing to the open file"
            ),
        }
        result
    }

    pub(crate) fn status(&self) -> Value {
        let uptime = self.started.elapsed().unwrap_or_default();
        let listener = |(address, is_secure): &(SocketAddr, bool)| serde_json::json!({ "address": address.to_string(), "tls": is_secure });
        serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "uptime_seconds": uptime.as_secs(),
            "file": self.file.display().to_string(),
            "workers": self.stats.len(),
            "listeners": self.listeners.iter().map(listener).collect::<Vec<_>>(),
            "reloads": self.reloads.get(),
            "failed_reloads": self.failed_reloads.get(),
            "sites": self.gateway.sites().iter().map(json::site).collect::<Vec<_>>(),
            "upstream_servers": self.gateway.upstream_servers().iter().map(json::upstream_server).collect::<Vec<_>>(),
            "certificates": self.gateway.certificates().iter().map(json::certificate).collect::<Vec<_>>(),
            "counters": serving::totals(&self.stats, self.identity.borrow().as_ref()),
        })
    }

    /// Lets handshakes wait for signatures, if a reload has brought the first key that is on another
    /// machine or in a security module.
    fn park_slow_handshakes(&self) {
        let mut present = self.identity.borrow_mut();
        let Some(present) = present.as_mut().filter(|_| !self.has_slow_keys.get()) else { return };
        if !self.gateway.has_slow_keys() {
            return;
        }
        let Ok(mut new) = identity::of_gateway(&self.gateway, self.fleet.as_ref()) else { return };
        if let Some(sessions) = present.sessions() {
            new = new.with_sessions(sessions.clone());
        }
        if self.control.set_identity(new.clone()).is_ok() {
            *present = new;
            self.has_slow_keys.set(true);
        }
    }

    /// Returns the changed settings that need a restart.
    fn needs_restart(&self, now: &Config) -> Vec<String> {
        let keys = changed(&self.config.server, &now.server)
            .into_iter()
            .map(|key| format!("`{key}` in [server]"));
        let limits = (self.config.limits != now.limits).then(|| "[limits]".to_owned());
        let fleet = [
            ("node", self.config.fleet.node != now.fleet.node),
            ("secrets", self.config.fleet.secrets.is_some() != now.fleet.secrets.is_some()),
            ("sessions", self.config.fleet.sessions != now.fleet.sessions),
        ];
        let fleet = fleet.into_iter().filter(|(_, is_different)| *is_different);
        let fleet = fleet.map(|(key, _)| format!("`{key}` in [fleet]"));
        let admin = (self.config.admin != now.admin).then(|| "[admin]".to_owned());
        let qlog = (self.config.log.qlog != now.log.qlog).then(|| "`qlog` in [log]".to_owned());
        keys.chain(limits).chain(qlog).chain(fleet).chain(admin).collect()
    }
}

/// Returns the changed keys of `[server]` that need a restart.
fn changed(before: &Server, now: &Server) -> Vec<&'static str> {
    [
        ("listen", before.listen != now.listen),
        ("workers", before.workers != now.workers),
        ("congestion", before.congestion != now.congestion),
        ("initial_window", before.initial_window != now.initial_window),
        ("udp_buffer", before.udp_buffer != now.udp_buffer),
        ("proxy_protocol", before.proxy_protocol != now.proxy_protocol),
        ("min_tls", before.min_tls != now.min_tls),
        ("early_data", (before.early_data == EarlyData::Off) != (now.early_data == EarlyData::Off)),
        ("http2_prior_knowledge", before.http2_prior_knowledge != now.http2_prior_knowledge),
        ("name", before.name != now.name),
        ("state_dir", before.state_dir != now.state_dir),
        ("grace", before.grace != now.grace),
    ]
    .into_iter()
    .filter_map(|(key, is_different)| is_different.then_some(key))
    .collect()
}
