//! A client for what this crate needs of Redis (or Valkey), over TCP, TLS and Unix sockets.
//!
//! It repeats no command: whether a write took effect before its connection ended is unknown, and
//! a repeated `SET` would bring a session back that was removed meanwhile. Replies are bounded, in
//! bytes and depth, before anything is allocated for them.

mod address;
mod client_tls;
mod connection;
mod reply;
mod servers;

pub use address::{Address, InvalidAddress};
pub use client_tls::{RedisTls, TlsError};
pub(crate) use connection::{Connection, Down, Login, command};
pub(crate) use reply::Reply;
pub use servers::RedisServers;
pub(crate) use servers::{Candidates, Dialer, slot};
