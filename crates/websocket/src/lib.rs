//! WebSocket (RFC 6455) with permessage-deflate (RFC 7692) for clients and servers, sans-IO: bytes
//! in, messages out; messages in, bytes out.
//!
//! The crate opens no sockets, reads no clock and uses nothing of HTTP except the values of
//! `sec-websocket-*` fields. An idle connection allocates no buffers, and keeps compression
//! contexts only if negotiated. Start with [`Connection`] and [`handshake`]; [`Prepared`] is a
//! message for many connections.
//!
//! ```
//! use bytes::Bytes;
//! use pronghorn_websocket::{Connection, Event, Message, Role};
//!
//! const MAX_MESSAGE_BYTES: u64 = 1 << 20;
//!
//! /// Masks must be unpredictable: use a cryptographically secure random number generator.
//! fn mask() -> [u8; 4] {
//!     [0x37, 0xfa, 0x21, 0x3d]
//! }
//!
//! let mut client = Connection::new(Role::Client { mask }, MAX_MESSAGE_BYTES, None);
//! let mut server = Connection::new(Role::Server, MAX_MESSAGE_BYTES, None);
//!
//! // The application sends the encoded bytes over its transport.
//! let encoded = client.encode(&Message::text("hello")).unwrap();
//! let sent: Vec<u8> = [encoded.first, encoded.rest].concat();
//!
//! // The other side passes received bytes to `read` until it returns `None`.
//! let mut input = Bytes::from(sent);
//! assert_eq!(server.read(&mut input)?, Some(Event::Message(Message::text("hello"))));
//! assert_eq!(server.read(&mut input)?, None);
//!
//! // The closing handshake: one side closes, the other answers.
//! server.close(None);
//! let mut close = server.poll_control().unwrap();
//! assert_eq!(client.read(&mut close)?, Some(Event::Close(None)));
//! client.close(None);
//! let mut answer = client.poll_control().unwrap();
//! assert_eq!(server.read(&mut answer)?, Some(Event::Close(None)));
//! assert!(client.is_over() && server.is_over());
//! # Ok::<(), pronghorn_websocket::Error>(())
//! ```

#![forbid(unsafe_code)]

mod close;
mod close_code;
mod connection;
pub mod deflate;
mod error;
mod fragment;
mod frame;
pub mod handshake;
mod message;
mod receive;
mod utf8;

pub use close::CloseReason;
pub use close_code::CloseCode;
pub use connection::{Connection, Prepared, Role};
pub use error::Error;
pub use fragment::{Fragment, FragmentError};
pub use message::{Encoded, Event, Kind, Message};
