//! The configuration: one TOML file, with what it includes.
//!
//! [`Config::load`] reads it and says all that is wrong with it; [`schema`] describes it; [`format()`] writes it in one style.

mod acme;
mod admin;
mod buffering;
mod changes;
mod check;
mod content_type;
mod decode;
mod either;
mod format;
mod health;
mod layer;
mod load;
mod log;
mod matches;
mod patterns;
mod php;
mod problem;
mod response;
mod retry;
mod schema;
mod server;
mod site;
mod source;
mod sticky;
#[cfg(test)]
mod tests;
mod upgrades;
mod upstream;
mod values;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

pub(crate) use acme::has_clear;
pub use acme::{Acme, AcmeChallenge, ExternalAccount};
pub use admin::{Admin, AdminAccess, AdminListen, Token, admin_socket};
pub use buffering::{Buffering, BufferingTable, ServerBuffering};
pub use content_type::{ContentType, NameEnd};
pub use format::format;
pub use health::{CheckPath, FailureKind, UpstreamCheck, UpstreamCheckTable, UpstreamHealth};
pub use layer::Layer;
pub use load::{Config, in_order};
pub use log::{Log, LogFormat, QlogRule};
pub use matches::{Match, MatchTable};
pub use patterns::{HostPattern, PathPattern};
pub(crate) use php::{COLLECT, COLLECT_ON_DISK};
pub use php::{Php, VariableName};
pub(crate) use problem::nearest;
pub use problem::{Fault, Problem};
pub use response::{ErrorPages, ErrorStatus, Rewrite};
pub use retry::RetryBudget;
pub use schema::schema;
pub use server::{AltSvc, Congestion, EarlyData, LimitValue, MinTls, RampUp, Server};
pub use site::{
    CertificateFiles, ClearText, ClientAuth, ClientAuthMode, FieldName, FieldValue, Files, FilesTable, HeaderRules, Method, Paths, Proxy,
    Redirect, RedirectTable, Respond, RespondTable, Route, Site, Tls,
};
pub(crate) use source::Place;
pub use sticky::{CookieName, SameSite, Sticky};
pub use upgrades::{ProtocolName, Upgrades};
pub use upstream::{Policy, ServerAddress, Upstream, UpstreamHost, UpstreamProtocol, UpstreamServer, UpstreamServerTable, UpstreamTls};
pub use values::{Listen, Moment, Network, Size, Time, overlap};

/// The configuration of a Pronghorn server.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(title = "pronghorn.toml")]
pub(crate) struct File {
    /// Further files with sites and upstreams, as seen from this file's folder; `*` stands for any characters of a name.
    #[serde(default)]
    include: Vec<String>,
    /// What holds for the server as a whole.
    #[serde(default)]
    server: Server,
    /// What clients may take, by the names of docs/limits.md; `pronghorn serve --list-limits` prints them.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, schema::NumberOrText>")]
    limits: server::LimitTable,
    /// What is told of requests.
    #[serde(default)]
    log: Log,
    /// How the running server can be asked and told things.
    #[serde(default)]
    admin: Admin,
    /// Where sites with `tls = "acme"` get their certificates from.
    #[serde(default)]
    acme: Acme,
    /// Servers behind this one, by name.
    #[serde(default)]
    upstreams: BTreeMap<String, Upstream>,
    /// What is served under which host names.
    #[serde(default)]
    sites: Vec<Site>,
}

/// A file that is included.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(title = "an included file")]
pub(crate) struct Included {
    #[serde(default)]
    upstreams: BTreeMap<String, Upstream>,
    #[serde(default)]
    sites: Vec<Site>,
}
