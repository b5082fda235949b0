//! WebSocket over tunnels: the opening handshake, and connections that send and receive messages.
//!
//! A server answers a request with [`WebSocketUpgrade`]; a client calls [`connect`]. Both yield a
//! [`WebSocket`], which receives, and any number of [`Sender`]s. [`Options`] set the limits of one
//! route's connections: message size, send queue, and how long a peer may be silent. Unset options
//! come from [`Limits`](crate::Limits).
//!
//! | task | API |
//! |---|---|
//! | send a message, waiting while the queue is full | [`Sender::send`], or [`Sender::poll_ready`] and [`Sender::push`] |
//! | send a message without waiting | [`Sender::push`], which returns the queued bytes; [`Sender::push_compressed`] chooses whether to compress |
//! | send a message in fragments | [`Sender::push_fragment`]: first, middle, last; [`Sender::drained`] to wait before each |
//! | send one message to many peers, framed and compressed once | [`Prepared`] and [`Sender::push_prepared`] |
//! | watch the send queue | [`Sender::buffered_amount`], [`Sender::drained`], [`Sender::poll_drained`] |
//! | receive messages, pings and pongs with their payload | [`WebSocket::poll_event`]; [`WebSocket::recv`] for messages alone |
//! | send pings from the application | [`Sender::ping`], and [`Options::without_pings`] to turn off automatic pings |
//! | close with a code and a reason, and read the peer's | [`Sender::close`], [`WebSocket::reason`] |
//! | end the connection at once | [`Sender::abort`]; the receiver gets [`Error::Aborted`] |
//!
//! Pushed messages leave with the worker's next write, as many together as there are. Queued bytes
//! count until the underlying connection accepts them; what that connection buffers itself is
//! bounded by its flow control and its own limits.

mod connection;
mod error;
mod handshake;
mod outgoing;
mod sender;

pub use pronghorn_websocket::handshake::accept;
pub use pronghorn_websocket::{
    CloseCode, CloseReason, Error as ProtocolError, Event, Fragment, FragmentError, Kind, Message,
    Prepared, deflate,
};

pub use connection::WebSocket;
pub use error::Error;
pub use handshake::{ConnectError, Options, Refusal, WebSocketUpgrade, connect};
pub use sender::Sender;
