//! HTTP/3 (RFC 9114) for servers and clients, sans-IO: converts stream bytes to events and messages
//! to bytes.
//!
//! The crate never opens a socket, reads a clock, draws a random number or spawns a task; the
//! transport and the engine do. Start with [`Connection`] and [`Event`].
//!
//! ```
//! use bytes::BytesMut;
//! use pronghorn_h3::{Config, Connection, Event, FieldLine, Head, Role, StreamId};
//!
//! let mut client = Connection::new(Role::Client, Config::default());
//! let mut server = Connection::new(Role::Server, Config::default());
//! let stream = StreamId(0);
//!
//! let lines = [(":method", "GET"), (":scheme", "https"), (":authority", "example.com"), (":path", "/")];
//! let lines = lines.map(|(name, value)| FieldLine::new(name.as_bytes(), value.as_bytes()));
//! let mut bytes = BytesMut::new();
//! client.open_request(stream)?;
//! client.encode_headers(stream, lines, &mut bytes)?;
//! client.finish_sending(stream);
//!
//! // A transport carries the bytes and the end of the stream.
//! server.handle_data(stream, bytes.freeze())?;
//! server.handle_fin(stream)?;
//! match server.poll_event() {
//!     Some(Event::Head { head: Head::Request(head), end: true, .. }) => assert_eq!(head.path(), Some(&b"/"[..])),
//!     other => panic!("{other:?}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod capsule;
mod config;
mod connection;
mod error;
mod event;
mod frame;
mod head;
mod limit;
mod message;
mod priority;
mod role;
mod stream;
mod stream_map;
pub mod varint;

pub use config::{Config, ConfigError};
pub use connection::{Connection, UniStream};
pub use error::{ConnectionError, ErrorCode, SendError};
pub use event::{Event, SessionEvent};
pub use frame::FrameType;
pub use frame::settings::{SettingId, Settings};
pub use head::{Head, RequestHead, ResponseHead};
pub use limit::Limit;
pub use priority::Priority;
pub use pronghorn_qpack::{
    FieldLine, FieldSection, Iter, OutgoingLine, ReadyLine, SectionLine, static_table,
};
pub use role::Role;
pub use stream::{StreamId, StreamType};
pub use stream_map::StreamMap;
