//! An HTTP client over HTTP/1.1, HTTP/2 and HTTP/3: pooled connections, fall-back between the versions, time-outs for each phase, and
//! retries where nothing can happen twice.
//!
//! It holds no protocol logic: the engine below does. [`Client`] is for any task of any runtime and has threads of its own; [`Pool`]
//! is the same on one worker of the engine, for those who are there already, so that nothing crosses threads.

#![forbid(unsafe_code)]

mod addresses;
mod alt_svc;
mod body;
mod client;
mod connect;
mod connections;
mod error;
mod lease;
mod loan;
mod options;
mod origin;
mod pool;
mod race;
mod spare;
mod tls;
mod underway;
mod waiting;

pub use body::Body;
pub use client::{Client, wait_for_threads};
pub use error::{Error, Phase};
pub use lease::Content;
pub use options::{Http3, Options, Resolve};
pub use origin::UnixSocket;
pub use pool::Pool;
pub use tls::{Roots, RootsError, is_system_root};
