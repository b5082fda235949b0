//! Serves any [`tower_service::Service`], including axum applications, over HTTP/1.1, HTTP/2 and
//! HTTP/3 on one port.
//!
//! The crate contains no protocol logic; `pronghorn_engine` implements the protocols. Start with
//! [`Server`], which serves, and [`Client`], which sends requests.
//!
//! ```no_run
//! # #[cfg(feature = "axum")]
//! # #[tokio::main]
//! # async fn main() -> Result<(), pronghorn_server::Error> {
//! use axum::{Router, routing::get};
//! use pronghorn_server::Server;
//!
//! let app = Router::new().route("/", get(|| async { "hello" }));
//! Server::new().listen("[::]:8443").development_certificate().serve(app).await
//! # }
//! # #[cfg(not(feature = "axum"))]
//! # fn main() {}
//! ```

#![forbid(unsafe_code)]

#[cfg(feature = "acme")]
mod acme;
mod departure;
mod error;
mod failure;
mod handler;
mod peer;
mod pipe;
mod redirect;
mod response;
mod running;
mod server;
mod setup;
mod shutdown;
mod stats;
mod upgrade;
pub mod webtransport;

#[cfg(feature = "acme")]
pub use acme::Acme;
pub use error::Error;
pub use failure::{FailedPart, Failure, Panicked};
pub use peer::Peer;
#[cfg(feature = "acme")]
pub use pronghorn_acme::Challenge as AcmeChallenge;
pub use pronghorn_certificates::CertificateError;
pub use pronghorn_client as client;
pub use pronghorn_client::{Body, Client};
pub use pronghorn_engine::{
    AltSvc, BindError, Congestion, EarlyData, Identity, LimitError, Limits, Protocol, Qlog, Secret,
};
pub use running::{Handle, LocalAddress, Running};
pub use server::Server;
pub use shutdown::shutdown_signal;
pub use stats::Stats;
pub use webtransport::{WebTransport, WebTransportUpgrade};

/// Compiles the code blocks of the documentation page.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct RustPage;
