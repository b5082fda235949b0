//! Request targets in canonical form, so that a gateway matches and forwards the same view of a
//! path and a host.
//!
//! It opens no sockets, knows neither requests nor routes, and never guesses: a target without a
//! canonical form is an error. Start with [`Spelling::of`] for paths, [`Pattern`] for the patterns
//! that paths are compared with, and [`authority`] for hosts.

#![forbid(unsafe_code)]

mod host;
#[cfg(any(test, feature = "models"))]
#[doc(hidden)]
pub mod models;
mod octets;
mod path;
mod pattern;

pub use host::{BadAuthority, address, authority, host};
pub use path::{BadPath, Disagreement, Spelling, without_segments};
pub use pattern::{BadPattern, Pattern};
