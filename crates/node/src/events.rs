//! Events for JavaScript.

use std::net::SocketAddr;

use bytes::Bytes;

/// Queues events for JavaScript.
pub(crate) trait Events {
    fn push(&self, event: Event);

    /// Remembers a HEAD response that is complete for the client and that JavaScript has not ended.
    /// If the connection ends first, JavaScript is notified, because the body may be endless.
    fn track_head_response(&self, listener: u32, remote: SocketAddr, slot: u32);
}

/// An event for JavaScript. Events of an exchange that has ended since are dropped.
pub(crate) enum Event {
    Request {
        slot: u32,
        handler: u32,
        has_content: bool,
    },
    Data {
        slot: u32,
    },
    Aborted {
        slot: u32,
    },
    Writable {
        slot: u32,
    },
    /// A connection was opened or closed, for an application with filters.
    Connection {
        app: u32,
        opened: bool,
        remote: SocketAddr,
    },
    /// A listener and its connections have ended.
    Released {
        listener: u32,
    },
    /// A message of a WebSocket connection: text (0), binary (1), a ping (2) or a pong (3).
    Message {
        socket: u32,
        what: i32,
        data: Bytes,
    },
    /// All or half of the buffered bytes have been sent.
    Drain {
        socket: u32,
    },
    /// An event of a WebTransport session; see `session.rs`.
    Session {
        session: u32,
        what: i32,
        code: u32,
        data: Bytes,
    },
    /// An event of a WebTransport stream.
    Stream {
        stream: u32,
        what: i32,
        code: u32,
        data: Bytes,
    },
    /// A WebSocket connection has ended.
    Closed {
        socket: u32,
        code: u16,
        reason: Bytes,
    },
    /// An event of a tunnel; see `tunnel.rs`.
    Tunnel {
        tunnel: u32,
        what: TunnelEvent,
    },
}

/// Kinds of tunnel events.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TunnelEvent {
    /// Bytes are available, or the peer has ended its direction.
    Readable = 0,
    Writable = 1,
    /// All bytes and the end were sent.
    Finished = 2,
    /// The peer reset the stream, left, or was too slow.
    Failed = 3,
    /// The worker has ended.
    Closed = 4,
}
