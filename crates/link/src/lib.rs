//! An emulated network link between two network namespaces, in user space: rate, delay, jitter,
//! loss and a bounded queue for each direction and each packet on the wire, from a seed.
//!
//! The crate does not depend on the kernel's own emulation (`netem`), changes nothing outside its
//! namespaces, and leaves nothing behind. Start with [`Profile`], which describes a link, and
//! [`Link`], a running link.
//!
//! ```text
//!   namespace "near" (client)                                  namespace "far" (server)
//!   10.77.0.1  fd77::1                                         10.77.0.2  fd77::2
//!        link0 ──── TUN ───►  scheduler up   ───► TUN ──────────── link0
//!              ◄─── TUN ────  scheduler down ◄─── TUN ────
//!                            (one real-time thread)
//! ```
//!
//! [`run::run`] is `pronghorn link PROFILE -- COMMAND`, [`calibrate::calibrate`] is `pronghorn link
//! --calibrate PROFILE`.
//! [`Scheduler`](scheduler::Scheduler) is the emulation itself, in virtual time.
#![deny(unsafe_code)]

mod address;
mod addressing;
pub mod binomial;
pub mod calibrate;
mod control;
pub mod cpu;
pub mod emulator;
mod error;
pub mod flow;
pub mod hystart;
pub mod lateness;
mod link;
pub mod machine;
mod monotonic;
pub mod namespace;
mod netlink;
pub mod packets;
mod process_tree;
pub mod profile;
pub mod report;
mod resolver;
pub mod rules;
pub mod run;
pub mod scheduler;
mod signals;
mod tcp_info;
pub mod tcp_settings;
mod trace_file;
mod tun;
mod way;

pub use addressing::{FAR_IPV4, FAR_IPV6, NEAR_IPV4, NEAR_IPV6};
pub use emulator::Scheduling;
pub use error::Error;
pub use link::{Link, Options};
pub use namespace::{Namespace, enter_user_namespace_unless_root};
pub use profile::Profile;
pub use report::Report;
pub use tcp_info::{Sampled, TcpInfo};
