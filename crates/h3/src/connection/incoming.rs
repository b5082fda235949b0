//! The peer's unidirectional streams (RFC 9114 section 6.2).

use bytes::{Buf, Bytes};

use super::{control::ControlStream, cost_balance::CostBalance, stream_context::StreamContext};
use crate::{
    error::{ConnectionError, ErrorCode},
    role::Role,
    stream::{StreamId, StreamType},
    varint,
};

/// The peer's open unidirectional streams. There are only a few: the transport limits their number.
#[derive(Debug)]
pub(super) struct IncomingStreams {
    streams: Vec<(StreamId, Incoming)>,
    pub(super) control: ControlStream,
    has_control: bool,
    has_encoder: bool,
    has_decoder: bool,
}

/// Purpose of a unidirectional stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Incoming {
    /// The type is incomplete: the bytes so far.
    AwaitingType {
        bytes: [u8; 8],
        filled: u8,
    },
    Known(Purpose),
}

/// Purpose of a stream's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Control,
    QpackEncoder,
    QpackDecoder,
    /// Unused; data is dropped.
    Ignored,
}

/// Classification of received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Classified {
    /// The bytes end inside the stream type.
    AwaitingType,
    /// The type is now known to be unsupported: the peer should stop.
    Unknown,
    /// The type is now known: the stream belongs to a WebTransport session, whose ID follows.
    Session,
    /// Data for this purpose.
    Known(Purpose),
}

impl IncomingStreams {
    pub(super) fn new(role: Role) -> Self {
        Self {
            streams: Vec::new(),
            control: ControlStream::new(role),
            has_control: false,
            has_encoder: false,
            has_decoder: false,
        }
    }

    /// Classifies `data`, after removing the stream type from its front.
    pub(super) fn sort(
        &mut self,
        stream: StreamId,
        data: &mut Bytes,
        shared: &mut StreamContext,
    ) -> Result<Classified, ConnectionError> {
        let place = self.streams.iter().position(|(id, _)| *id == stream).unwrap_or_else(|| {
            shared.cost_balance.on_unknown_stream();
            self.streams.push((stream, Incoming::AwaitingType { bytes: [0; 8], filled: 0 }));
            self.streams.len() - 1
        });
        let (mut bytes, mut filled) = match self.streams[place].1 {
            Incoming::Known(purpose) => return Ok(Classified::Known(purpose)),
            Incoming::AwaitingType { bytes, filled } => (bytes, filled),
        };
        while !data.is_empty() {
            bytes[usize::from(filled)] = data.get_u8();
            filled += 1;
            if let Some(stream_type) = varint::decode(&mut &bytes[..usize::from(filled)]) {
                return self.on_type(place, StreamType(stream_type), shared);
            }
        }
        self.streams[place].1 = Incoming::AwaitingType { bytes, filled };
        Ok(Classified::AwaitingType)
    }

    fn on_type(
        &mut self,
        place: usize,
        stream_type: StreamType,
        shared: &mut StreamContext,
    ) -> Result<Classified, ConnectionError> {
        let (purpose, is_open) = match stream_type {
            StreamType::CONTROL => (Purpose::Control, &mut self.has_control),
            //= RFC 9204 section 4.2
            //# An endpoint MUST allow its peer to create an encoder stream and a decoder stream even if the connection's
            //# settings prevent their use.
            StreamType::QPACK_ENCODER => (Purpose::QpackEncoder, &mut self.has_encoder),
            StreamType::QPACK_DECODER => (Purpose::QpackDecoder, &mut self.has_decoder),
            //= RFC 9114 section 6.2.2
            //# Only servers can push; if a server receives a client-initiated push stream, this MUST be treated as a
            //# connection error of type H3_STREAM_CREATION_ERROR.
            StreamType::PUSH if shared.role == Role::Server => {
                return Err(ConnectionError::new(
                    ErrorCode::H3_STREAM_CREATION_ERROR,
                    "a client opened a push stream",
                ));
            }
            //= RFC 9114 section 4.6
            //# A client MUST treat receipt of a push stream as a connection error of type H3_ID_ERROR when no
            //# MAX_PUSH_ID frame has been sent or when the stream references a push ID that is greater than the maximum
            //# push ID.
            StreamType::PUSH => {
                return Err(ConnectionError::new(
                    ErrorCode::H3_ID_ERROR,
                    "a push stream, but no push is allowed",
                ));
            }
            StreamType::WEBTRANSPORT if shared.config.has_webtransport() => {
                shared.cost_balance.on_known_stream();
                return Ok(Classified::Session);
            }
            _ => {
                self.streams[place].1 = Incoming::Known(Purpose::Ignored);
                let is_ignored = stream_type.is_reserved();
                return Ok(if is_ignored {
                    Classified::Known(Purpose::Ignored)
                } else {
                    Classified::Unknown
                });
            }
        };
        //= RFC 9114 section 6.2.1
        //# Only one control stream per peer is permitted; receipt of a second stream claiming to be a control stream MUST
        //# be treated as a connection error of type H3_STREAM_CREATION_ERROR.
        //= RFC 9204 section 4.2
        //# Receipt of a second instance of either stream type MUST be treated as a connection error of type
        //# H3_STREAM_CREATION_ERROR.
        if std::mem::replace(is_open, true) {
            return Err(ConnectionError::new(
                ErrorCode::H3_STREAM_CREATION_ERROR,
                "a second control, encoder or decoder stream",
            ));
        }
        shared.cost_balance.on_known_stream();
        self.streams[place].1 = Incoming::Known(purpose);
        Ok(Classified::Known(purpose))
    }

    /// The peer ended or reset the stream.
    pub(super) fn on_end(
        &mut self,
        stream: StreamId,
        cost_balance: &mut CostBalance,
    ) -> Result<(), ConnectionError> {
        let Some(place) = self.streams.iter().position(|(id, _)| *id == stream) else {
            cost_balance.on_unknown_stream();
            return cost_balance.verdict();
        };
        match self.streams.swap_remove(place).1 {
            //= RFC 9114 section 6.2
            //# A receiver MUST tolerate unidirectional streams being closed or reset prior to the reception of the
            //# unidirectional stream header.
            Incoming::AwaitingType { .. } | Incoming::Known(Purpose::Ignored) => Ok(()),
            Incoming::Known(_) => Err(closed_critical_stream()),
        }
    }

    /// Forgets a stream that the caller no longer reads.
    pub(super) fn forget(&mut self, stream: StreamId) {
        self.streams.retain(|(id, _)| *id != stream);
    }
}

//= RFC 9114 section 6.2.1
//# If either control stream is closed at any point, this MUST be treated as a connection error of type
//# H3_CLOSED_CRITICAL_STREAM.
//= RFC 9204 section 4.2
//# Closure of either unidirectional stream type MUST be treated as a connection error of type H3_CLOSED_CRITICAL_STREAM.
pub(super) const fn closed_critical_stream() -> ConnectionError {
    ConnectionError::new(
        ErrorCode::H3_CLOSED_CRITICAL_STREAM,
        "a control, encoder or decoder stream was closed",
    )
}
