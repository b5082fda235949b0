//! The Pronghorn gateway: turns a configuration into sites and routes, and answers their requests
//! with static files, fixed responses, redirects, a reverse proxy, or PHP over FastCGI.
//!
//! It never parses protocol bytes; the engine below it does. Start with [`Gateway`], which is built
//! from a [`config::Config`] and answers requests, and with [`layers::Registry`], the middleware
//! that a configuration can name. [`StaticFiles`] and [`Recording`] serve a folder or a recorded
//! page without a configuration; [`AccessLog`] writes the access log.

#![forbid(unsafe_code)]

mod access_log;
mod application;
mod buffering;
mod certificates;
mod clock;
pub mod config;
mod drop_on_thread;
mod fastcgi;
mod fields;
mod fleet;
mod gateway;
mod interim_responses;
pub mod layers;
mod memory_limit;
mod plan;
mod proxy;
mod ramp;
mod recording;
mod responses;
mod routing;
mod secret;
mod server_requests;
mod static_files;
mod switches;
mod timeout;
mod tunnels;

pub use access_log::{AccessLog, LogCounts, Logged};
pub use certificates::certificate_faults::{CertificateFault, certificate_faults};
pub use certificates::certificate_state::CertificateState;
pub use fleet::Fleet;
pub use gateway::{Gateway, GatewayHandler, KeyState};
pub use pronghorn_acme::{OrderState, RetryError};
pub use pronghorn_certificates::{CertificateError, Loaded};
pub use pronghorn_client::wait_for_threads;
pub use proxy::{ServerCondition, ServerState, UpstreamCounts};
pub use recording::{Recording, RecordingError, RecordingHandler};
pub use secret::{SecretError, stored_secret};
pub use static_files::{FileHandler, StaticFiles};
pub use switches::{SiteState, Switch, SwitchError};
pub use tunnels::TunnelCounts;
