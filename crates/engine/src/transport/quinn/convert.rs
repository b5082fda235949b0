//! Conversions between quinn-proto's types and ours.

use pronghorn_h3::{Priority, StreamId};
use quinn_proto::{ConnectionError, EcnCodepoint, TransportErrorCode, VarInt};

use crate::transport::{Closed, Dir, Ecn, Transmit};

pub(super) fn closed(reason: ConnectionError) -> Closed {
    match reason {
        ConnectionError::ApplicationClosed(close) => Closed::ByPeer {
            code: close.error_code.into_inner(),
            reason: String::from_utf8_lossy(&close.reason).into_owned(),
        },
        // RFC 9000, section 10.2.3: the application's error code is replaced until the handshake is
        // done. A client whose early data was answered may close that early.
        ConnectionError::ConnectionClosed(close)
            if matches!(
                close.error_code,
                TransportErrorCode::NO_ERROR | TransportErrorCode::APPLICATION_ERROR
            ) =>
        {
            Closed::ByPeer { code: 0, reason: String::new() }
        }
        ConnectionError::LocallyClosed => Closed::Locally,
        ConnectionError::TimedOut => Closed::TimedOut,
        ConnectionError::Reset => Closed::Reset,
        other => Closed::Transport(other.to_string()),
    }
}

/// Priority of our unidirectional streams: before every response.
pub(super) const OWN_STREAMS: i32 = i32::MAX;
/// Distance of quinn-proto's priorities between two levels of urgency.
const LEVEL: i32 = 1 << 28;
/// Extra send buffer that each level of urgency has over the next less urgent one, in bytes, so
/// that a page's style sheet need not wait for its images to free the buffer.
const HEADROOM_PER_LEVEL: u64 = 16 << 10;

/// Returns quinn-proto's priority of a stream. It sends the highest number first, and alternates
/// between equal ones. `is_whole` means that all data of the stream was written. An incomplete
/// stream must not be placed below others of its level: quinn-proto applies a waiting stream's new
/// priority only after its next turn.
pub(super) fn to_quinn_priority(stream: StreamId, priority: Priority, is_whole: bool) -> i32 {
    let level = (3 - i32::from(priority.urgency)) * LEVEL;
    if priority.incremental || !is_whole {
        return level;
    }
    // In the order of the requests. After 2^27 of them on one connection, two neighbours may be
    // sent in the wrong order, once.
    let place = (stream.0 / 4) % (LEVEL as u64 / 2);
    level + LEVEL / 2 - place as i32
}

/// Returns the extra send buffer of a stream over the least urgent level. `None` is for streams of
/// no request, which go first.
pub(super) fn headroom(priority: Option<Priority>) -> u64 {
    let urgency = priority.map_or(0, |priority| priority.urgency);
    u64::from(Priority::MAX_URGENCY.saturating_sub(urgency)) * HEADROOM_PER_LEVEL
}

pub(super) fn varint(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}

pub(super) fn to_quinn_dir(dir: Dir) -> quinn_proto::Dir {
    match dir {
        Dir::Bidi => quinn_proto::Dir::Bi,
        Dir::Uni | Dir::Control => quinn_proto::Dir::Uni,
    }
}

pub(super) fn to_quinn(stream: StreamId) -> quinn_proto::StreamId {
    varint(stream.into()).into()
}

pub(super) fn from_quinn(stream: quinn_proto::StreamId) -> StreamId {
    StreamId::from(VarInt::from(stream).into_inner())
}

pub(super) fn from_transmit(transmit: &quinn_proto::Transmit) -> Transmit {
    Transmit {
        remote: transmit.destination,
        local_ip: transmit.src_ip,
        ecn: transmit.ecn.map(from_codepoint),
        size: transmit.size,
        segment_size: transmit.segment_size,
    }
}

pub(super) fn to_codepoint(ecn: Ecn) -> EcnCodepoint {
    match ecn {
        Ecn::Ect0 => EcnCodepoint::Ect0,
        Ecn::Ect1 => EcnCodepoint::Ect1,
        Ecn::Ce => EcnCodepoint::Ce,
    }
}

pub(super) fn from_codepoint(ecn: EcnCodepoint) -> Ecn {
    match ecn {
        EcnCodepoint::Ect0 => Ecn::Ect0,
        EcnCodepoint::Ect1 => Ecn::Ect1,
        EcnCodepoint::Ce => Ecn::Ce,
    }
}
