//! Events of a connection.

use bytes::Bytes;
use pronghorn_qpack::FieldSection;

use crate::{error::ErrorCode, head::Head, limit::Limit, priority::Priority, stream::StreamId};

/// An event, returned by [`crate::Connection::poll_event`].
///
/// The order on a stream is: any number of interim heads (client role), one head, any number of
/// `Data`, optionally `Trailers`, then `Finished`, unless the head has `end`. `Reset`,
/// `StreamError` or `Unprocessed` may come instead at any point, even as the first event of the
/// stream, and are the last.
#[derive(Debug)]
pub enum Event {
    /// The peer's SETTINGS have arrived: see [`crate::Connection::peer_settings`].
    Settings,
    /// A request's or response's control data and fields, valid according to RFC 9114 section 4.
    /// For a server this is the first event of a request.
    Head {
        /// The request's stream.
        stream: StreamId,
        /// The head.
        head: Head,
        /// Whether the message is complete: no `Data` and no `Finished` follow. If false, the end
        /// is reported as `Finished`, even without content.
        end: bool,
    },
    /// A piece of content, never empty. It is a slice of the input without a copy, except that
    /// small pieces are joined.
    Data {
        /// The request's stream.
        stream: StreamId,
        /// The piece.
        data: Bytes,
    },
    /// The trailers; `Finished` follows.
    Trailers {
        /// The request's stream.
        stream: StreamId,
        /// The trailer fields.
        section: FieldSection,
    },
    /// The peer's side ended after a complete message.
    Finished {
        /// The request's stream.
        stream: StreamId,
    },
    /// The peer reset its side. The caller must still end its own side
    /// ([`crate::Connection::finish_sending`]).
    Reset {
        /// The request's stream.
        stream: StreamId,
        /// The peer's error code.
        code: ErrorCode,
    },
    /// The message is malformed, too large or refused. No more events follow for data on this
    /// stream. The caller stops receiving and resets its side with `code`, then calls
    /// [`crate::Connection::stop_receiving`] and [`crate::Connection::finish_sending`]. A server
    /// may respond first: 431 for `H3_EXCESSIVE_LOAD`, 400 for `H3_MESSAGE_ERROR`.
    StreamError {
        /// The request's stream.
        stream: StreamId,
        /// Error code for STOP_SENDING and RESET_STREAM.
        code: ErrorCode,
        /// Short description of the error.
        reason: &'static str,
        /// The limit that the message exceeded, if any.
        limit: Option<Limit>,
    },
    /// Client role: the server is shutting down and did not process the request, so that it is safe
    /// to retry elsewhere. No more events follow for this stream. The caller stops receiving and
    /// resets its side with `H3_REQUEST_CANCELLED`, then calls
    /// [`crate::Connection::stop_receiving`] and [`crate::Connection::finish_sending`].
    Unprocessed {
        /// The request's stream.
        stream: StreamId,
    },
    /// The peer reads no more of what this endpoint sends on the stream. The caller resets its
    /// side.
    StopSending {
        /// The request's stream.
        stream: StreamId,
        /// The peer's error code.
        code: ErrorCode,
    },
    /// The peer is shutting down. For a client: requests with this stream ID and above were not
    /// processed; each open one gets its own `Unprocessed`. For a server: a push ID, without use.
    GoAway {
        /// Stream ID or push ID.
        id: u64,
    },
    /// Server role: the client changes the priority of this request's response, which replaces the
    /// request's `priority` field (RFC 9218 section 7). Comes after the request's head.
    PriorityUpdate {
        /// The request's stream.
        stream: StreamId,
        /// The new priority.
        priority: Priority,
    },
    /// The peer opened a unidirectional stream of unknown type: send STOP_SENDING with `code`, then
    /// call [`crate::Connection::stop_receiving`]. Data that arrives before is ignored.
    StopUni {
        /// The peer's unidirectional stream.
        stream: StreamId,
        /// Error code for STOP_SENDING.
        code: ErrorCode,
    },
    /// An event of a WebTransport session or one of its streams.
    Session(SessionEvent),
}

/// An event of a WebTransport session, after [`crate::Connection::begin_session`].
///
/// The order on a stream opened by the peer is: `Opened`, any number of `Data`, then `Finished` or
/// `Reset`; `Refused` may come instead at any point, even as the first event, and is the last.
/// Local bidirectional streams have no `Opened`.
#[derive(Debug)]
pub enum SessionEvent {
    /// The peer opened a stream in a session.
    Opened {
        /// The session's ID: the stream of its CONNECT request.
        session: StreamId,
        /// The new stream.
        stream: StreamId,
    },
    /// A piece of received data, never empty.
    Data {
        /// The session's stream.
        stream: StreamId,
        /// The piece.
        data: Bytes,
    },
    /// The peer's side ended cleanly.
    Finished {
        /// The session's stream.
        stream: StreamId,
    },
    /// The peer reset its side: see [`ErrorCode::to_application`].
    Reset {
        /// The session's stream.
        stream: StreamId,
        /// The peer's error code.
        code: ErrorCode,
    },
    /// The peer reads no more of what this endpoint sends on the stream. The caller resets its
    /// side.
    StopSending {
        /// The session's stream.
        stream: StreamId,
        /// The peer's error code.
        code: ErrorCode,
    },
    /// The stream's session does not exist or has ended. The caller stops receiving and resets its
    /// side with `code`, as far as the stream has these sides, then calls
    /// [`crate::Connection::stop_receiving`] and [`crate::Connection::finish_sending`].
    Refused {
        /// The stream. There may have been no `Opened` for it.
        stream: StreamId,
        /// Error code for STOP_SENDING and RESET_STREAM.
        code: ErrorCode,
        /// The limit that the peer exceeded, if any.
        limit: Option<Limit>,
    },
    /// A datagram of a session.
    Datagram {
        /// The session's ID.
        session: StreamId,
        /// The payload.
        payload: Bytes,
    },
}
