//! Limits on what a peer can make an endpoint spend.

use std::fmt;

use crate::error::ErrorCode;

/// A limit that a peer can exceed.
///
/// [`crate::ConnectionError::limit`] and [`crate::Event::StreamError`] report the limit, so that
/// the caller can count. The wire code is `H3_EXCESSIVE_LOAD`, except for QPACK and WebTransport
/// limits, which have their own codes.
///
/// Where a connection may last for days, a limit applies to a balance, not to a total: useless
/// input counts up, useful input counts down, and only the excess is limited.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Limit {
    /// Size of a field section, as defined in RFC 9114 section 4.2.2. The message is rejected.
    FieldSectionSize,
    /// Lines of a field section. The message is rejected.
    FieldLines,
    /// Interim responses to a request. The response is rejected.
    InterimResponses,
    /// Excess of frames of unknown type and DATA frames without content over useful frames. The
    /// connection is closed.
    UselessFrames,
    /// Excess of bytes in unknown frames and on unidirectional streams of unknown type over useful
    /// bytes. The connection is closed.
    UselessBytes,
    /// Excess of unidirectional streams of unknown type, or that ended before their type, over
    /// requests. The connection is closed.
    UnknownStreams,
    /// Excess of frames on the control stream, not counting SETTINGS, over four per message. The
    /// connection is closed.
    ControlFrames,
    /// Excess of requests that were cancelled or violated the protocol before their response was
    /// sent over successful ones. The connection is closed.
    AbortedRequests,
    /// Size of a SETTINGS frame, 4 KiB. The connection is closed.
    SettingsSize,
    /// Size of a PRIORITY_UPDATE frame, 1 KiB. The connection is closed.
    PriorityUpdateSize,
    /// Bytes of the local decoder stream that the peer's flow control holds back, 64 KiB. The
    /// connection is closed.
    DecoderBacklog,
    /// Bytes buffered for a stream blocked on the dynamic table, 64 KiB in addition to the section.
    /// The connection is closed. A caller that does not read blocked streams cannot reach it.
    BlockedStreamBytes,
    /// Dynamic table capacity set by the peer's encoder. The connection is closed with
    /// `QPACK_ENCODER_STREAM_ERROR`.
    QpackTableCapacity,
    /// Streams blocked on the dynamic table. The connection is closed with
    /// `QPACK_DECOMPRESSION_FAILED`.
    QpackBlockedStreams,
    /// WebTransport sessions of a connection. The caller refuses the request.
    Sessions,
    /// Streams that wait for their WebTransport session. The one that has waited longest is refused
    /// with `WEBTRANSPORT_BUFFERED_STREAM_REJECTED`.
    WaitingStreams,
}

impl Limit {
    /// All limits, in the order of [`Limit::index`].
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
        Self::WaitingStreams,
    ];

    /// Returns the index in [`Limit::ALL`], for an array of counters.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the name for statistics and messages.
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
            Self::WaitingStreams => "early_streams",
        }
    }

    /// Short description of the violation.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::FieldSectionSize => "the field section is too large",
            Self::FieldLines => "the field section has too many lines",
            Self::InterimResponses => "too many interim responses",
            Self::UselessFrames => "too many unknown or empty frames",
            Self::UselessBytes => "too many bytes in unknown frames and streams",
            Self::UnknownStreams => "too many unidirectional streams of unknown type",
            Self::ControlFrames => "too many frames on the control stream",
            Self::AbortedRequests => "too many aborted requests",
            Self::SettingsSize => "a SETTINGS frame is too long",
            Self::PriorityUpdateSize => "a PRIORITY_UPDATE frame is too long",
            Self::DecoderBacklog => "the peer does not read the decoder stream",
            Self::BlockedStreamBytes => "too much data on a blocked stream",
            Self::QpackTableCapacity => "the dynamic table capacity exceeds the limit",
            Self::QpackBlockedStreams => "more streams are blocked than the settings allow",
            Self::Sessions => "more WebTransport sessions than the settings allow",
            Self::WaitingStreams => "too many streams wait for their WebTransport session",
        }
    }

    /// Wire code for the violation.
    pub(crate) const fn code(self) -> ErrorCode {
        match self {
            Self::QpackTableCapacity => ErrorCode::QPACK_ENCODER_STREAM_ERROR,
            Self::QpackBlockedStreams => ErrorCode::QPACK_DECOMPRESSION_FAILED,
            Self::Sessions => ErrorCode::H3_REQUEST_REJECTED,
            Self::WaitingStreams => ErrorCode::WEBTRANSPORT_BUFFERED_STREAM_REJECTED,
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
