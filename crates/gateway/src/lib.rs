//! A configuration turned into a running server: static files for now, with certificates and an access log.
//!
//! It never parses protocol bytes; the engine below does. Start with [`StaticFiles`], which answers requests, and [`AccessLog`],
//! which tells about them.

#![forbid(unsafe_code)]

mod access_log;
mod certificate;
mod chunk;
mod conditional;
mod file_body;
mod file_cache;
mod file_state;
mod path;
mod range;
mod root;
mod secret;
mod static_files;

pub use access_log::{AccessLog, Logged};
pub use certificate::{CertificateError, Loaded};
pub use secret::{SecretError, kept_secret};
pub use static_files::{FileHandler, StaticFiles};
