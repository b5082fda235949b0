//! What a connection tells the engine.

use bytes::Bytes;
use pronghorn_qpack::FieldSection;

use crate::{error::ErrorCode, head::Head, limit::Limit, priority::Priority, stream::StreamId};

/// What [`crate::Connection::poll_event`] returns.
///
/// On one stream the order is: any number of interim heads (client role), one head, any number of `Data`, perhaps
/// `Trailers`, then `Finished`, unless the head said `end`. `Reset`, `StreamError` or `Unprocessed` may come instead at
/// any point, the first event of the stream included, and are the last.
#[derive(Debug)]
pub enum Event {
    /// The peer's SETTINGS have arrived: see [`crate::Connection::peer_settings`].
    Settings,
    /// A request's or response's control data and fields, valid as RFC 9114 section 4 demands. For a server the
    /// first sign of a request.
    Head {
        /// The request's stream.
        stream: StreamId,
        /// What it says.
        head: Head,
        /// The message ends here and was complete: no `Data`, no `Finished` follows. When it is false, the end comes
        /// as `Finished`, even if there is no content.
        end: bool,
    },
    /// A piece of content, never empty, cut from the input without copying, but for small pieces, which are joined.
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
        /// Their fields.
        section: FieldSection,
    },
    /// The peer's side ended after a complete message.
    Finished {
        /// The request's stream.
        stream: StreamId,
    },
    /// The peer reset its side. The caller still has to end its own ([`crate::Connection::finish_sending`]).
    Reset {
        /// The request's stream.
        stream: StreamId,
        /// The peer's reason.
        code: ErrorCode,
    },
    /// The message cannot be used: malformed, too large, or refused. No more events come from what the peer sends on
    /// this stream. The caller stops receiving and resets its side with `code`, then calls
    /// [`crate::Connection::stop_receiving`] and [`crate::Connection::finish_sending`]. A server may answer first:
    /// 431 for `H3_EXCESSIVE_LOAD`, 400 for `H3_MESSAGE_ERROR`.
    StreamError {
        /// The request's stream.
        stream: StreamId,
        /// What STOP_SENDING and RESET_STREAM should carry.
        code: ErrorCode,
        /// What is wrong, in a few words.
        reason: &'static str,
        /// The limit that the message has reached, if that is what is wrong.
        limit: Option<Limit>,
    },
    /// Client: the server goes away and did not process the request, so that it is safe to send it again elsewhere. No
    /// more events come of this stream. The caller stops receiving and resets its side with `H3_REQUEST_CANCELLED`, then
    /// calls [`crate::Connection::stop_receiving`] and [`crate::Connection::finish_sending`].
    Unprocessed {
        /// The request's stream.
        stream: StreamId,
    },
    /// The peer wants no more of what we send on this stream. The caller resets its side.
    StopSending {
        /// The request's stream.
        stream: StreamId,
        /// The peer's reason.
        code: ErrorCode,
    },
    /// The peer shuts down. For a client: requests of this stream ID and above were not processed; each that is open
    /// gets its own `Unprocessed`. For a server: a push ID, without use.
    GoAway {
        /// Stream ID or push ID.
        id: u64,
    },
    /// Server role: the client asks for another place of this request's response among the others; what the request's
    /// `priority` field says does not count any more (RFC 9218 section 7). Comes after the request's head.
    PriorityUpdate {
        /// The request's stream.
        stream: StreamId,
        /// What the client asks for.
        priority: Priority,
    },
    /// The peer opened a unidirectional stream of a type that we do not know: send STOP_SENDING with `code`, then call
    /// [`crate::Connection::stop_receiving`]. What arrives before is ignored.
    StopUni {
        /// The peer's unidirectional stream.
        stream: StreamId,
        /// What STOP_SENDING should carry.
        code: ErrorCode,
    },
    /// Something happens in a WebTransport session, or on a stream of one.
    Session(SessionEvent),
}

/// What happens in WebTransport sessions, after [`crate::Connection::begin_session`].
///
/// On one stream of the peer the order is: `Opened`, any number of `Data`, then `Finished` or `Reset`; `Refused` may come instead at any
/// point, the first included, and is the last. On a bidirectional stream of ours there is no `Opened`.
#[derive(Debug)]
pub enum SessionEvent {
    /// The peer has opened a stream for a session.
    Opened {
        /// The session's ID: the stream of its CONNECT request.
        session: StreamId,
        /// The new stream.
        stream: StreamId,
    },
    /// A piece of what the peer sends, never empty.
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
        /// The peer's reason.
        code: ErrorCode,
    },
    /// The peer wants no more of what we send on this stream. The caller resets its side.
    StopSending {
        /// The session's stream.
        stream: StreamId,
        /// The peer's reason.
        code: ErrorCode,
    },
    /// The stream's session is not there, or not any more. The caller stops receiving and resets its side with `code`, where the stream has
    /// these sides, then calls [`crate::Connection::stop_receiving`] and [`crate::Connection::finish_sending`].
    Refused {
        /// The stream, which `Opened` may not have told of.
        stream: StreamId,
        /// What STOP_SENDING and RESET_STREAM should carry.
        code: ErrorCode,
        /// The limit that the peer has reached, if that is why.
        limit: Option<Limit>,
    },
    /// A datagram of a session.
    Datagram {
        /// The session's ID.
        session: StreamId,
        /// What it carries.
        payload: Bytes,
    },
}
