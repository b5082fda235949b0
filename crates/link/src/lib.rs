//! An emulated network link between two network namespaces, in user space: rate, delay, jitter, loss and a bounded queue
//! for each direction and each wire packet, from a seed. It never depends on the kernel's own emulation (`netem`), never
//! changes anything outside its namespaces, and never leaves anything behind. Start with [`Profile`], what a link does,
//! and [`Link`], a link that does it.
//!
//! ```text
//!   namespace "near" (client)                                  namespace "far" (server)
//!   10.77.0.1  fd77::1                                         10.77.0.2  fd77::2
//!        link0 ──── TUN ───►  scheduler up   ───► TUN ──────────── link0
//!              ◄─── TUN ────  scheduler down ◄─── TUN ────
//!                            (one real-time thread)
//! ```
//!
//! [`run::run`] is `pronghorn link PROFILE -- COMMAND`, [`calibrate::calibrate`] is `pronghorn link --calibrate PROFILE`.
//! [`Scheduler`](scheduler::Scheduler) is the emulation itself, in virtual time.
#![deny(unsafe_code)]

mod address;
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

pub use error::Error;
pub use link::{FAR_IPV4, FAR_IPV6, Link, NEAR_IPV4, NEAR_IPV6, Options};
pub use namespace::{Namespace, enter_user_namespace_unless_root};
pub use profile::Profile;
pub use report::{Report, Scheduling};
pub use tcp_info::{Sampled, TcpInfo};
