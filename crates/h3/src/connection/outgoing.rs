//! The local unidirectional streams.

use bytes::{Bytes, BytesMut};

use crate::{
    config::Config,
    frame::{
        FrameHeader, FrameType,
        settings::{self, SettingId},
    },
    stream::StreamType,
    varint,
};

/// A local unidirectional stream. The caller opens it when [`crate::Connection::poll_uni_write`]
/// first returns it, and keeps it open as long as the connection.
//= RFC 9204 section 4.2
//# The sender MUST NOT close either of these streams, and the receiver MUST NOT request that the sender close either of these
//# streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UniStream {
    /// Control stream. Its bytes should go out before all others.
    Control,
    /// QPACK encoder stream.
    QpackEncoder,
    /// QPACK decoder stream.
    QpackDecoder,
}

impl UniStream {
    /// All streams, in the order in which they should be written.
    pub const ALL: [Self; 3] = [Self::Control, Self::QpackEncoder, Self::QpackDecoder];

    const fn stream_type(self) -> StreamType {
        match self {
            Self::Control => StreamType::CONTROL,
            Self::QpackEncoder => StreamType::QPACK_ENCODER,
            Self::QpackDecoder => StreamType::QPACK_DECODER,
        }
    }
}

/// A stream: whether its type was written, and its pending bytes.
#[derive(Debug, Default)]
struct Outgoing {
    is_open: bool,
    bytes: BytesMut,
}

/// Pending bytes of the local unidirectional streams.
#[derive(Debug, Default)]
pub(super) struct OutgoingStreams([Outgoing; 3]);

impl OutgoingStreams {
    /// Returns the buffer to append to, after writing the stream's type if needed.
    //= RFC 9204 section 4.2
    //# Each endpoint MUST initiate, at most, one encoder stream and, at most, one decoder stream.
    pub(super) fn open(&mut self, stream: UniStream) -> &mut BytesMut {
        let outgoing = &mut self.0[stream as usize];
        if !outgoing.is_open {
            outgoing.is_open = true;
            varint::encode(stream.stream_type().0, &mut outgoing.bytes);
        }
        &mut outgoing.bytes
    }

    pub(super) fn has_bytes(&self) -> bool {
        self.0.iter().any(|outgoing| !outgoing.bytes.is_empty())
    }

    /// Releases memory that is kept for later bytes.
    pub(super) fn release_memory(&mut self) {
        for outgoing in self.0.iter_mut().filter(|outgoing| outgoing.bytes.is_empty()) {
            outgoing.bytes = BytesMut::new();
        }
    }

    pub(super) fn poll(&mut self) -> Option<(UniStream, Bytes)> {
        let stream =
            UniStream::ALL.into_iter().find(|stream| !self.0[*stream as usize].bytes.is_empty())?;
        Some((stream, self.0[stream as usize].bytes.split().freeze()))
    }

    /// Writes SETTINGS, and reserved values that keep peers tolerant.
    //= RFC 9114 section 7.2.4
    //# SETTINGS frames MUST NOT be sent on any stream other than the control stream.
    //= RFC 9114 section 7.2.4
    //# A SETTINGS frame MUST be sent as the first frame of each control stream (see Section 6.2.1) by each peer, and it
    //# MUST NOT be sent subsequently.
    //= RFC 9114 section 6.2.1
    //# Each side MUST initiate a single control stream at the beginning of the connection and send its SETTINGS frame
    //# as the first frame on this stream.
    pub(super) fn write_settings(&mut self, offered: &[(SettingId, u64)], config: &Config) {
        let out = self.open(UniStream::Control);
        settings::encode(offered, out);
        if config.grease {
            FrameHeader::encode(FrameType(config.reserved_value(1)), 0, out);
        }
    }

    pub(super) fn write_go_away(&mut self, id: u64) {
        let out = self.open(UniStream::Control);
        FrameHeader::encode(FrameType::GOAWAY, varint::encoded_len(id) as u64, out);
        varint::encode(id, out);
    }
}
