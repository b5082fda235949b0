//! Transport parameters of a server's connection that the library has not accepted yet.

use std::time::Duration;

use bytes::BufMut;
use pronghorn_h3::varint;
use quinn_proto::ConnectionId;

/// Values that the library always sends. A connection's own parameters are compared with these when
/// it is accepted ([`super::ready_tls`]).
const ACTIVE_CONNECTION_ID_LIMIT: u64 = 5;
const MIN_ACK_DELAY_US: u64 = 1_000;

/// Wire numbers (RFC 9000, section 18.2; RFC 9221; RFC 9287; the draft on acknowledgement
/// frequency).
mod id {
    pub(super) const ORIGINAL_DESTINATION_CONNECTION_ID: u32 = 0x00;
    pub(super) const MAX_IDLE_TIMEOUT: u32 = 0x01;
    pub(super) const STATELESS_RESET_TOKEN: u32 = 0x02;
    pub(super) const MAX_UDP_PAYLOAD_SIZE: u32 = 0x03;
    pub(super) const INITIAL_MAX_DATA: u32 = 0x04;
    pub(super) const INITIAL_MAX_STREAM_DATA_BIDI_LOCAL: u32 = 0x05;
    pub(super) const INITIAL_MAX_STREAM_DATA_BIDI_REMOTE: u32 = 0x06;
    pub(super) const INITIAL_MAX_STREAM_DATA_UNI: u32 = 0x07;
    pub(super) const INITIAL_MAX_STREAMS_BIDI: u32 = 0x08;
    pub(super) const INITIAL_MAX_STREAMS_UNI: u32 = 0x09;
    pub(super) const ACTIVE_CONNECTION_ID_LIMIT: u32 = 0x0e;
    pub(super) const INITIAL_SOURCE_CONNECTION_ID: u32 = 0x0f;
    pub(super) const RETRY_SOURCE_CONNECTION_ID: u32 = 0x10;
    pub(super) const MAX_DATAGRAM_FRAME_SIZE: u32 = 0x20;
    pub(super) const GREASE_QUIC_BIT: u32 = 0x2ab2;
    pub(super) const MIN_ACK_DELAY: u32 = 0xff04_de1b;
}

/// Parameters of one connection.
pub(super) struct ServerParameters {
    /// Connection ID in the client's first packet, before a Retry.
    pub(super) original: ConnectionId,
    /// Connection ID that the server has chosen.
    pub(super) source: ConnectionId,
    /// Connection ID of the Retry packet, if one was sent.
    pub(super) retry: Option<ConnectionId>,
    pub(super) reset_token: [u8; 16],
    pub(super) idle_timeout: Duration,
    pub(super) max_udp_payload: u64,
    /// Windows in bytes.
    pub(super) connection_window: u64,
    pub(super) stream_window: u64,
    pub(super) bidi_streams: u64,
    pub(super) uni_streams: u64,
    /// Largest datagram in bytes; `None`: no datagrams.
    pub(super) datagram: Option<u64>,
}

impl ServerParameters {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(160);
        let bytes = [
            (id::ORIGINAL_DESTINATION_CONNECTION_ID, Some(&self.original[..])),
            (id::INITIAL_SOURCE_CONNECTION_ID, Some(&self.source[..])),
            (id::RETRY_SOURCE_CONNECTION_ID, self.retry.as_deref()),
            (id::STATELESS_RESET_TOKEN, Some(&self.reset_token[..])),
            (id::GREASE_QUIC_BIT, Some(&[][..])),
        ];
        for (id, value) in bytes {
            if let Some(value) = value {
                put(&mut out, u64::from(id));
                put(&mut out, value.len() as u64);
                out.put_slice(value);
            }
        }
        let idle_timeout = u64::try_from(self.idle_timeout.as_millis()).unwrap_or(varint::MAX);
        let integers = [
            (id::MAX_IDLE_TIMEOUT, Some(idle_timeout)),
            (id::MAX_UDP_PAYLOAD_SIZE, Some(self.max_udp_payload)),
            (id::INITIAL_MAX_DATA, Some(self.connection_window)),
            (id::INITIAL_MAX_STREAM_DATA_BIDI_LOCAL, Some(self.stream_window)),
            (id::INITIAL_MAX_STREAM_DATA_BIDI_REMOTE, Some(self.stream_window)),
            (id::INITIAL_MAX_STREAM_DATA_UNI, Some(self.stream_window)),
            (id::INITIAL_MAX_STREAMS_BIDI, Some(self.bidi_streams)),
            (id::INITIAL_MAX_STREAMS_UNI, Some(self.uni_streams)),
            (id::ACTIVE_CONNECTION_ID_LIMIT, Some(ACTIVE_CONNECTION_ID_LIMIT)),
            (id::MIN_ACK_DELAY, Some(MIN_ACK_DELAY_US)),
            (id::MAX_DATAGRAM_FRAME_SIZE, self.datagram),
        ];
        for (id, value) in integers {
            if let Some(value) = value {
                put(&mut out, u64::from(id));
                put(&mut out, varint::encoded_len(value) as u64);
                put(&mut out, value);
            }
        }
        out
    }
}

fn put(out: &mut Vec<u8>, value: u64) {
    varint::encode(value, out);
}
