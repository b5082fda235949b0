//! A server of a configuration file, as its admin API and its signals see it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use pronghorn_engine::{Identity, Stats};
use pronghorn_gateway::Gateway;
use pronghorn_gateway::config::{Config, Problem, Server};
use serde_json::{Value, json};

use crate::answers;
use crate::configuration;
use crate::counted::counted;
use crate::serving;

/// What runs.
pub(crate) struct Running {
    pub(crate) file: PathBuf,
    /// What it was started with.
    pub(crate) config: Config,
    /// What it was made to serve since, if it was.
    pub(crate) reloaded: RefCell<Option<Config>>,
    pub(crate) gateway: Gateway,
    /// Each with whether TLS is spoken there.
    pub(crate) listeners: Vec<(SocketAddr, bool)>,
    pub(crate) stats: Vec<Arc<Stats>>,
    pub(crate) identity: Option<Identity>,
    pub(crate) started: SystemTime,
    pub(crate) reloads: Cell<u64>,
    pub(crate) failed_reloads: Cell<u64>,
}

/// Of a reload that finds what was there before.
pub(crate) const UNCHANGED: &str = "the files say what they said before; certificates and what else they name is read again";

impl Running {
    /// Serves by what the file says now, if it is right, and says what that has changed; a wrong one changes nothing.
    pub(crate) fn reload(&self) -> Result<Value, Vec<Problem>> {
        let hosts = || self.gateway.sites().into_iter().flat_map(|site| site.hosts).collect::<BTreeSet<_>>();
        let before = hosts();
        let replaced = Config::load(&self.file).and_then(|config| self.gateway.reload(&config).map(|()| config));
        let changes = replaced.as_ref().map(|config| self.with_present(|before| config.changes_since(before))).unwrap_or_default();
        let config = match replaced {
            Ok(config) => config,
            Err(problems) => {
                self.failed_reloads.set(self.failed_reloads.get() + 1);
                for line in configuration::lines(&problems) {
                    tell_now!("{line}");
                }
                tell_now!("error: {} is wrong; nothing has changed", self.file.display());
                return Err(problems);
            }
        };
        self.reloads.set(self.reloads.get() + 1);
        let now = hosts();
        let restart = self.needs_restart(&config);
        let (added, removed): (Vec<_>, Vec<_>) = (now.difference(&before).collect(), before.difference(&now).collect());
        tell_now!("serving {} of {}", counted(config.sites.len(), "site"), self.file.display());
        for host in &added {
            tell_now!("added: {host}");
        }
        for host in &removed {
            tell_now!("removed: {host}");
        }
        for change in &changes {
            tell_now!("{change}");
        }
        if changes.is_empty() {
            tell_now!("{UNCHANGED}");
        }
        let warnings: Vec<_> = config.warnings.iter().cloned().chain(self.gateway.warnings()).map(|warning| warning.to_string()).collect();
        for warning in &warnings {
            tell_now!("warning: {warning}");
        }
        for key in &restart {
            tell_now!("warning: {key} has changed, which takes a restart");
        }
        let switched: Vec<_> = self.gateway.sites().iter().filter(|site| site.is_switched()).map(answers::site).collect();
        let answer = json!({
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

    /// What is served.
    pub(crate) fn with_present<T>(&self, look: impl FnOnce(&Config) -> T) -> T {
        look(self.reloaded.borrow().as_ref().unwrap_or(&self.config))
    }

    /// Reads certificates again, by the configuration that is there.
    pub(crate) fn reread_certificates(&self) {
        match self.with_present(|config| self.gateway.reload(config)) {
            Ok(()) => {
                tell_now!("certificates are read anew: a file has changed");
                for warning in self.gateway.warnings() {
                    tell_now!("warning: {warning}");
                }
            }
            Err(problems) => {
                for line in configuration::lines(&problems) {
                    tell_now!("{line}");
                }
                tell_now!("error: the certificates that have changed cannot be used; those from before stay");
            }
        }
    }

    /// Opens the access log anew. Whether lines go to a file.
    pub(crate) fn reopen_log(&self) -> io::Result<bool> {
        let result = self.gateway.reopen_log();
        match &result {
            Ok(true) => tell_now!("the access log is opened anew"),
            Ok(false) => {}
            Err(error) => tell_now!("error: the access log cannot be opened anew: {error}; lines go on to the file that is open"),
        }
        result
    }

    pub(crate) fn status(&self) -> Value {
        let uptime = self.started.elapsed().unwrap_or_default();
        let listener = |(address, is_secure): &(SocketAddr, bool)| json!({ "address": address.to_string(), "tls": is_secure });
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "uptime_seconds": uptime.as_secs(),
            "file": self.file.display().to_string(),
            "workers": self.stats.len(),
            "listeners": self.listeners.iter().map(listener).collect::<Vec<_>>(),
            "reloads": self.reloads.get(),
            "failed_reloads": self.failed_reloads.get(),
            "sites": self.gateway.sites().iter().map(answers::site).collect::<Vec<_>>(),
            "upstream_servers": self.gateway.upstream_servers().iter().map(answers::upstream_server).collect::<Vec<_>>(),
            "certificates": self.gateway.certificates().iter().map(answers::certificate).collect::<Vec<_>>(),
            "counters": serving::totals(&self.stats, self.identity.as_ref()),
        })
    }

    /// What is different from the configuration that it was started with, and cannot be changed while it runs.
    fn needs_restart(&self, now: &Config) -> Vec<String> {
        let keys = changed(&self.config.server, &now.server).into_iter().map(|key| format!("`{key}` in [server]"));
        let limits = (self.config.limits != now.limits).then(|| "[limits]".to_owned());
        let admin = (self.config.admin != now.admin).then(|| "[admin]".to_owned());
        let qlog = (self.config.log.qlog != now.log.qlog).then(|| "`qlog` in [log]".to_owned());
        keys.chain(limits).chain(qlog).chain(admin).collect()
    }
}

/// What of `[server]` is different and cannot be changed while it runs.
fn changed(before: &Server, now: &Server) -> Vec<&'static str> {
    [
        ("listen", before.listen != now.listen),
        ("workers", before.workers != now.workers),
        ("congestion", before.congestion != now.congestion),
        ("initial_window", before.initial_window != now.initial_window),
        ("udp_buffer", before.udp_buffer != now.udp_buffer),
        ("proxy_protocol", before.proxy_protocol != now.proxy_protocol),
        ("min_tls", before.min_tls != now.min_tls),
        ("early_data", before.early_data != now.early_data),
        ("http2_prior_knowledge", before.http2_prior_knowledge != now.http2_prior_knowledge),
        ("name", before.name != now.name),
        ("state_dir", before.state_dir != now.state_dir),
        ("grace", before.grace != now.grace),
    ]
    .into_iter()
    .filter_map(|(key, is_different)| is_different.then_some(key))
    .collect()
}
