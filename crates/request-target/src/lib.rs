//! Request targets in canonical form: what a gateway matches, and what it passes on, is one view of a path and of a host.
//!
//! It opens no socket and knows neither requests nor routes; it never guesses: what has no canonical form is an error. Start with
//! [`Spelling::of`] for paths, [`Pattern`] for what they are compared with, and [`authority`] for hosts.

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
