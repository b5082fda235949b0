//! What a peer may cost, by name.

use std::fmt;

use crate::error::ErrorCode;

/// A limit that a peer can reach. [`crate::ConnectionError::limit`] and [`crate::Event::StreamError`] say which one it was, so
/// that the caller can count; each is `H3_EXCESSIVE_LOAD` on the wire, but for those of QPACK and
/// WebTransport, which have their own codes.
///
/// Where a connection may last for days, a limit is not a total but a balance: what is useless counts up, what is useful
/// counts down again, and only the excess is limited.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Limit {
    /// Size of one field section, as RFC 9114 section 4.2.2 counts it: its message is refused.
    FieldSectionSize,
    /// Lines of one field section: its message is refused.
    FieldLines,
    /// Interim responses to one request: the response is refused.
    InterimResponses,
    /// Frames of unknown type and DATA frames without content, beyond the useful frames: the connection is closed.
    UselessFrames,
    /// Bytes of unknown frames and on unidirectional streams of unknown type, beyond the useful bytes: the connection is closed.
    UselessBytes,
    /// Unidirectional streams of unknown type, or that ended before it, beyond the requests: the connection is closed.
    UnknownStreams,
    /// Frames on the control stream besides SETTINGS, beyond four for each message: the connection is closed.
    ControlFrames,
    /// Requests that were cancelled or broke a rule before their response was sent, beyond those that ended well: the
    /// connection is closed.
    AbortedRequests,
    /// Size of a SETTINGS frame, 4 KiB: the connection is closed.
    SettingsSize,
    /// Size of a PRIORITY_UPDATE frame, 1 KiB: the connection is closed.
    PriorityUpdateSize,
    /// Bytes of our decoder stream that the peer's flow control holds back, 64 KiB: the connection is closed.
    DecoderBacklog,
    /// Bytes held of a stream whose field section waits for the dynamic table, 64 KiB besides the section: the connection is
    /// closed. A caller that reads no blocked stream does not reach it.
    BlockedStreamBytes,
    /// Capacity of the dynamic table that the peer's encoder sets: the connection is closed with `QPACK_ENCODER_STREAM_ERROR`.
    QpackTableCapacity,
    /// Streams that wait for the dynamic table: the connection is closed with `QPACK_DECOMPRESSION_FAILED`.
    QpackBlockedStreams,
    /// WebTransport sessions of one connection: the caller refuses the request.
    Sessions,
    /// Streams that wait for their WebTransport session: the one that has waited longest is refused with
    /// `WEBTRANSPORT_BUFFERED_STREAM_REJECTED`.
    EarlyStreams,
}

impl Limit {
    /// Every limit, in the order of [`Limit::index`].
    pub const ALL: [Self; 16] = [
        Self::FieldSectionSize,
        Self::FieldLines,
        Self::InterimResponses,
        Self::UselessFrames,
        Self::UselessBytes,
        Self::UnknownStreams,
        Self::ControlFrames,
        Self::AbortedRequests,
        Self::SettingsSize,
        Self::PriorityUpdateSize,
        Self::DecoderBacklog,
        Self::BlockedStreamBytes,
        Self::QpackTableCapacity,
        Self::QpackBlockedStreams,
        Self::Sessions,
        Self::EarlyStreams,
    ];

    /// Its place in [`Limit::ALL`], for an array of counters.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its name, for statistics and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FieldSectionSize => "field_section_size",
            Self::FieldLines => "field_lines",
            Self::InterimResponses => "interim_responses",
            Self::UselessFrames => "useless_frames",
            Self::UselessBytes => "useless_bytes",
            Self::UnknownStreams => "unknown_streams",
            Self::ControlFrames => "control_frames",
            Self::AbortedRequests => "aborted_requests",
            Self::SettingsSize => "settings_size",
            Self::PriorityUpdateSize => "priority_update_size",
            Self::DecoderBacklog => "decoder_backlog",
            Self::BlockedStreamBytes => "blocked_stream_bytes",
            Self::QpackTableCapacity => "qpack_table_capacity",
            Self::QpackBlockedStreams => "qpack_blocked_streams",
            Self::Sessions => "sessions",
            Self::EarlyStreams => "early_streams",
        }
    }

    /// What the peer did, in a few words.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::FieldSectionSize => "the field section is too large",
            Self::FieldLines => "the field section has too many lines",
            Self::InterimResponses => "there are too many interim responses",
            Self::UselessFrames => "too many unknown or empty frames",
            Self::UselessBytes => "too many bytes in unknown frames and streams",
            Self::UnknownStreams => "too many unidirectional streams of unknown type",
            Self::ControlFrames => "too many frames on the control stream",
            Self::AbortedRequests => "too many aborted requests",
            Self::SettingsSize => "a SETTINGS frame is too long",
            Self::PriorityUpdateSize => "a PRIORITY_UPDATE frame is too long",
            Self::DecoderBacklog => "the peer does not take what our decoder has to say",
            Self::BlockedStreamBytes => "too much data on a blocked stream",
            Self::QpackTableCapacity => "the dynamic table capacity exceeds the limit",
            Self::QpackBlockedStreams => "more streams are blocked than the settings allow",
            Self::Sessions => "more WebTransport sessions than the settings allow",
            Self::EarlyStreams => "too many streams without their WebTransport session",
        }
    }

    /// What the peer is told.
    pub(crate) const fn code(self) -> ErrorCode {
        match self {
            Self::QpackTableCapacity => ErrorCode::QPACK_ENCODER_STREAM_ERROR,
            Self::QpackBlockedStreams => ErrorCode::QPACK_DECOMPRESSION_FAILED,
            Self::Sessions => ErrorCode::H3_REQUEST_REJECTED,
            Self::EarlyStreams => ErrorCode::WEBTRANSPORT_BUFFERED_STREAM_REJECTED,
            _ => ErrorCode::H3_EXCESSIVE_LOAD,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_is_the_place_in_all() {
        for (place, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit.index(), place, "{limit}");
        }
    }
}
