//! An HTTP client over HTTP/1.1, HTTP/2 and HTTP/3 with pooled connections, fallback between
//! versions, a timeout for each phase, and retries where a request cannot be processed twice.
//!
//! The crate contains no protocol logic; `pronghorn_engine` implements the protocols. [`Client`]
//! can be used from any task on any runtime and has its own threads. [`Pool`] is the same on one
//! engine worker, for code that already runs there, so that nothing crosses threads.

#![forbid(unsafe_code)]

mod addresses;
mod alt_svc;
mod body;
mod client;
mod connect;
mod connections;
mod error;
mod exchanges;
mod lease;
mod options;
mod origin;
mod pool;
mod queue;
mod race;
mod retry_copy;
mod tls;
mod upload;

pub use body::Body;
pub use client::{Client, wait_for_threads};
pub use error::{Error, Phase};
pub use lease::Content;
pub use options::{Http3, Options, Resolve};
pub use origin::UnixSocket;
pub use pool::Pool;
pub use pronghorn_engine::ClientRequest;
pub use tls::{Roots, RootsError, is_system_root};
