//! WebSocket (RFC 6455) with permessage-deflate (RFC 7692), both roles, sans-IO: bytes in, messages out; messages in, bytes out.
//!
//! It opens no sockets, reads no clock and knows nothing of HTTP but the values of its `sec-websocket-*` fields. A connection holds no
//! buffer while nothing is under way, and compression contexts only where they were asked for. Start with [`Connection`] and
//! [`handshake`]; [`Prepared`] is one message for many connections.

#![forbid(unsafe_code)]

mod close;
mod connection;
pub mod deflate;
mod error;
mod fragment;
mod frame;
pub mod handshake;
mod message;
mod receive;
mod utf8;

pub use close::{CloseCode, CloseReason};
pub use connection::{Connection, Prepared, Role};
pub use error::Error;
pub use fragment::{Fragment, FragmentError};
pub use message::{Encoded, Event, Kind, Message};
