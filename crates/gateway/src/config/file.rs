//! The tables of a configuration file.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::acme::Acme;
use super::admin::Admin;
use super::fleet::Fleet;
use super::log::Log;
use super::server::{LimitTable, Server};
use super::site::Site;
use super::upstream::Upstream;

/// The configuration of a Pronghorn server.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(title = "pronghorn.toml")]
pub(crate) struct File {
    /// Further files with sites and upstreams, relative to this file's folder; `*` matches any
    /// characters of a file name.
    #[serde(default)]
    pub(super) include: Vec<String>,
    /// Settings of the server as a whole.
    #[serde(default)]
    pub(super) server: Server,
    /// Limits on what clients may use, by the names in docs/limits.md; `pronghorn serve
    /// --list-limits` prints them.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, super::server::NumberOrText>")]
    pub(super) limits: LimitTable,
    /// Access log and qlog files.
    #[serde(default)]
    pub(super) log: Log,
    /// Admin API of the running server.
    #[serde(default)]
    pub(super) admin: Admin,
    /// ACME authority that issues certificates for sites with `tls = "acme"`.
    #[serde(default)]
    pub(super) acme: Acme,
    /// What this server shares with others that serve the same sites.
    #[serde(default)]
    pub(super) fleet: Fleet,
    /// Upstreams by name: groups of servers that requests are proxied to.
    #[serde(default)]
    pub(super) upstreams: BTreeMap<String, Upstream>,
    /// Sites: what is served under which host names.
    #[serde(default)]
    pub(super) sites: Vec<Site>,
}

/// An included file.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(title = "an included file")]
pub(crate) struct Included {
    #[serde(default)]
    pub(super) upstreams: BTreeMap<String, Upstream>,
    #[serde(default)]
    pub(super) sites: Vec<Site>,
}
