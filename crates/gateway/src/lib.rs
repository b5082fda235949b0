//! A configuration turned into a running server: static files or a recorded page for now, with certificates and an access log.
//!
//! It never parses protocol bytes; the engine below does. Start with [`StaticFiles`] or [`Recording`], which answer requests, and
//! [`AccessLog`], which tells about them.

#![forbid(unsafe_code)]

mod access_log;
mod acme;
mod application;
mod buffering;
mod canonical;
mod certificate_faults;
mod certificate_state;
mod chunk;
mod client_address;
mod client_auth;
mod coding;
mod collecting;
mod conditional;
pub mod config;
mod content_types;
mod distinguished_name;
mod extras;
mod fastcgi;
mod file_body;
mod file_cache;
mod file_state;
mod forwarding;
mod freed_aside;
mod gateway;
mod hop;
mod hosts;
mod identity_fields;
mod in_time;
mod informing;
mod layered;
pub mod layers;
mod listing;
mod listings;
mod multipart;
mod path;
mod plan;
mod proxy;
mod ramp;
mod range;
mod recording;
mod room;
mod root;
mod route_index;
mod rules;
mod scripts;
mod secret;
mod site_certificates;
mod spool;
mod static_files;
mod switches;
mod tunnels;
mod versions;
mod wanted;
mod whole_server;

pub use access_log::{AccessLog, LogCounts, Logged};
pub use acme::{NoRetry, OrderState};
pub use certificate_faults::{CertificateFault, certificate_faults};
pub use certificate_state::CertificateState;
pub use gateway::{Gateway, GatewayHandler};
pub use pronghorn_certificates::{CertificateError, Loaded};
pub use pronghorn_client::wait_for_threads;
pub use proxy::{ServerCondition, ServerState, UpstreamCounts};
pub use recording::{Recording, RecordingError, RecordingHandler};
pub use secret::{SecretError, kept_secret};
pub use static_files::{FileHandler, StaticFiles};
pub use switches::{SiteState, Switch, SwitchError};
pub use tunnels::TunnelCounts;
