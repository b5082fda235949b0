//! An upstream, shared by all workers.

use std::sync::Arc;

use pronghorn_client::{Http3, Options, Roots};
use pronghorn_engine::Protocol;

use super::balance::Balance;
use super::budget::Budget;
use super::failure_log::FailureLog;
use super::health::{Observer, ServerHealth, ServerState};
use crate::clock;
use crate::config::{Upstream, UpstreamProtocol};

/// An upstream, shared by all workers.
pub(crate) struct UpstreamPlan {
    pub(super) name: Arc<str>,
    pub(crate) settings: Upstream,
    pub(super) roots: Roots,
    /// Contents of the file in `tls.trust`.
    pub(super) trust: Option<Arc<[u8]>>,
    /// Health of each server.
    pub(super) health: Vec<Arc<ServerHealth>>,
    pub(super) budget: Arc<Budget>,
    pub(super) observer: Arc<Observer>,
    pub(super) failures: Arc<FailureLog>,
}

impl UpstreamPlan {
    /// `before` is earlier plans, from which the health of unchanged servers is kept.
    pub(crate) fn new(
        name: &str,
        settings: Upstream,
        (roots, trust): (Roots, Option<Arc<[u8]>>),
        before: &[Arc<Self>],
        observer: &Arc<Observer>,
    ) -> Self {
        let name: Arc<str> = name.into();
        let asked_alike = |before: &&Arc<Self>| {
            let Upstream { health, check, protocol, host, runs_scripts, .. } = &before.settings;
            before.name == name
                && (health, check, protocol, host)
                    == (&settings.health, &settings.check, &settings.protocol, &settings.host)
                && *runs_scripts == settings.runs_scripts
                && (before.settings.servers.len() == 1) == (settings.servers.len() == 1)
        };
        let before = before.iter().find(asked_alike);
        let health_of = |server: &crate::config::UpstreamServer| {
            let address = server.0.address.to_string();
            let known = before
                .and_then(|before| before.health.iter().find(|health| health.server() == address))
                .cloned();
            known.unwrap_or_else(|| Arc::new(ServerHealth::new(&name, address, observer)))
        };
        let health = settings.servers.iter().map(health_of).collect();
        let budget = Arc::new(Budget::new(&settings.retry_budget, clock::now()));
        let failures = observer.failure_logs.of(&name);
        Self { name, settings, roots, trust, health, budget, observer: observer.clone(), failures }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns whether this is the upstream with this name, these settings, and these contents of
    /// `tls.trust`. Positions in the configuration do not count.
    pub(crate) fn is_of(&self, name: &str, settings: &Upstream, trust: Option<&Arc<[u8]>>) -> bool {
        *self.name == *name && self.settings.is_same(settings) && self.trust.as_ref() == trust
    }

    pub(crate) fn servers(&self) -> impl Iterator<Item = ServerState> {
        self.health.iter().map(|health| health.state())
    }

    pub(super) fn balance(&self) -> Balance {
        let is_counted = self.settings.servers.len() > 1 && self.settings.health.failures > 0;
        let is_watched =
            is_counted || self.settings.check.is_some() || self.settings.requests.is_some();
        Balance::new(&self.settings, if is_watched { &self.health } else { &[] })
    }

    /// Returns the options of the client for this upstream.
    pub(super) fn options(&self) -> Options {
        let Upstream {
            protocol,
            connect_timeout,
            head_timeout,
            body_timeout,
            idle_timeout,
            connections,
            long_responses,
            waiting,
            ..
        } = &self.settings;
        Options {
            roots: self.roots.clone(),
            http3: if *protocol == UpstreamProtocol::Http3 { Http3::Only } else { Http3::Off },
            tcp: match protocol {
                UpstreamProtocol::Http1 => Some(Protocol::Http1),
                UpstreamProtocol::Http2 => Some(Protocol::Http2),
                UpstreamProtocol::Auto | UpstreamProtocol::Http3 | UpstreamProtocol::FastCgi => {
                    None
                }
            },
            connect_timeout: connect_timeout.0,
            head_timeout: head_timeout.0,
            body_timeout: body_timeout.0,
            idle_timeout: idle_timeout.0,
            connections_per_origin: *connections,
            long_responses_per_origin: *long_responses,
            waiting_per_origin: *waiting,
            // One retry on another connection to the same server; after that, failover to another
            // server.
            retries: self.settings.retries.min(1),
            resolve_every: Some(self.settings.resolve.0).filter(|every| !every.is_zero()),
            ..Options::default()
        }
    }
}
