//! HTTP/3, as server and as client.

mod client;
mod connection;
mod connections;
mod deadlines;
mod driver;
mod fields;
mod framing;
mod idle;
mod inbound_buffer;
mod limits;
mod memory_pool;
mod outbound;
mod session;
mod session_stream;
mod stream;
mod worker_state;

pub(crate) use client::{Client, ClientConnection, StatsProbe};
pub(crate) use driver::Http3;
#[cfg(test)]
pub(crate) use fields::request as request_head;
pub(crate) use outbound::RequestHead;
pub(crate) use session::{CapsuleQueue, Session, WEBTRANSPORT, WaitFor};
pub use session::{DatagramError, DatagramSender, SessionEnd};
pub(crate) use session_stream::SessionStream;
pub use session_stream::SessionStreamError;
pub(crate) use stream::Stream;
pub use stream::StreamError;
pub(crate) use worker_state::WorkerState;
