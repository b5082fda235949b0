//! Certificates: loads a chain and its key from PEM, and creates development certificates.
//!
//! The result is an identity for the engine. This crate never requests a certificate from an
//! authority. Start with [`Loaded`].

#![forbid(unsafe_code)]

mod authorities;
#[cfg(feature = "development")]
mod development;
mod error;
mod loaded;
mod source;

pub use authorities::{Authorities, Untrusted};
#[cfg(feature = "development")]
pub use development::user_folder;
pub use error::CertificateError;
pub use loaded::Loaded;
pub use source::Source;
