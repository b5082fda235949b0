//! The configuration: one TOML file and the files that it includes.
//!
//! [`Config::load`] reads it and reports all errors in it; [`schema`] describes it; [`format()`]
//! formats it in one style.

mod acme;
mod admin;
mod buffering;
mod changes;
mod check;
mod configuration;
mod content_type;
mod decode;
mod file;
mod fleet;
mod format;
mod health;
mod layer;
mod load;
mod location;
mod log;
mod matches;
mod patterns;
mod php;
mod problem;
mod proxy;
mod response;
mod retry;
mod schema;
mod server;
mod short_form;
mod site;
mod source;
mod sticky;
#[cfg(test)]
mod tests;
mod upgrades;
mod upstream;
mod values;

pub(crate) use acme::has_clear;
pub use acme::{Acme, AcmeChallenge, ExternalAccount};
pub use admin::{Admin, AdminAccess, AdminListen, Token, admin_socket};
pub use buffering::{Buffering, BufferingTable, ServerBuffering};
pub use configuration::Config;
pub use content_type::{ContentType, FileExtension};
pub(crate) use fleet::signature_timeout;
pub use fleet::{Fleet, FleetSessions, FleetSigner, KeyLocation, RedisAddress, SecretsSource};
pub use format::format;
pub use health::{CheckPath, FailureKind, UpstreamCheck, UpstreamCheckTable, UpstreamHealth};
pub use layer::Layer;
pub use load::in_order;
pub(crate) use location::Location;
pub use log::{Log, LogFormat, QlogRule};
pub use matches::{Match, MatchTable};
pub use patterns::{HostPattern, PathPattern};
pub(crate) use php::{DEFAULT_COLLECT, DEFAULT_COLLECT_ON_DISK};
pub use php::{Php, VariableName};
pub(crate) use problem::nearest;
pub use problem::{Fault, Problem};
pub use proxy::Proxy;
pub use response::{ErrorPages, ErrorStatus, Rewrite};
pub use retry::RetryBudget;
pub use schema::schema;
pub use server::{AltSvc, Congestion, EarlyData, LimitValue, MinTls, RampUp, Server};
pub use site::{
    CertificateFiles, ClearText, ClientAuth, ClientAuthMode, Files, FilesTable, HeaderRules, Paths,
    Redirect, RedirectTable, Respond, RespondTable, Route, Site, Tls,
};
pub use sticky::{CookieName, SameSite, Sticky};
pub use upgrades::{ProtocolName, Upgrades};
pub use upstream::{
    Policy, ServerAddress, Upstream, UpstreamHost, UpstreamProtocol, UpstreamServer,
    UpstreamServerTable, UpstreamTls,
};
pub use values::{
    FieldName, FieldValue, Listen, ListenHost, Method, Network, Size, Time, Timestamp, overlap,
};
