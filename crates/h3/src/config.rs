//! Limits and features of an endpoint.

use crate::{limit::Limit, varint};

/// Limits and features of an endpoint on a connection. The default is safe on the open internet.
///
/// Each `max_…` is a [`Limit`] of the same name, which documents what happens when a peer reaches
/// it.
///
/// A connection with *n* open streams uses at most about *n* × 2 × `max_field_section_size` bytes
/// for field sections, plus the data of events that have not been polled. In addition there are the
/// dynamic tables, and 64 KiB for each stream blocked on them. All other state of a connection is a
/// few kilobytes, whatever the peer sends.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) max_field_section_size: u64,
    pub(crate) max_field_lines: u32,
    pub(crate) max_interim_responses: u32,
    pub(crate) max_useless_frames: u32,
    pub(crate) max_useless_bytes: u64,
    pub(crate) max_unknown_streams: u32,
    pub(crate) max_control_frames: u32,
    pub(crate) max_aborted_requests: u32,
    pub(crate) grease: bool,
    pub(crate) grease_seed: u64,
    pub(crate) extended_connect: bool,
    pub(crate) max_sessions: u64,
    pub(crate) max_waiting_streams: u32,
    pub(crate) max_concurrent_requests: u64,
    pub(crate) qpack_table_capacity: u64,
    pub(crate) qpack_blocked_streams: u64,
    pub(crate) qpack_encoder_capacity: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_field_section_size: 64 * 1024,
            max_field_lines: 256,
            max_interim_responses: 64,
            max_useless_frames: 1000,
            max_useless_bytes: 1024 * 1024,
            max_unknown_streams: 100,
            max_control_frames: 1000,
            max_aborted_requests: 500,
            grease: true,
            grease_seed: 0,
            extended_connect: false,
            max_sessions: 0,
            max_waiting_streams: 16,
            max_concurrent_requests: 1 << 60,
            qpack_table_capacity: 4096,
            qpack_blocked_streams: 16,
            qpack_encoder_capacity: 4096,
        }
    }
}

/// A value that [`Config`] rejects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A limit so low that it would refuse ordinary peers, or so high that it would be none.
    #[error("{limit} is {value}, which is not between {min} and {max}")]
    OutOfRange {
        /// The limit.
        limit: Limit,
        /// The requested value.
        value: u64,
        /// Minimum value.
        min: u64,
        /// Maximum value.
        max: u64,
    },
    /// A dynamic table would use too much memory.
    #[error("a dynamic table of {capacity} bytes is larger than 2^20")]
    TableCapacity {
        /// The requested capacity in bytes.
        capacity: u64,
    },
    /// The sections of blocked streams would use too much memory.
    #[error("{streams} blocked streams are more than 1024")]
    BlockedStreams {
        /// The requested number of streams.
        streams: u64,
    },
}

/// Maximum dynamic table of either side.
const MAX_TABLE_CAPACITY: u64 = 1 << 20;
const MAX_BLOCKED_STREAMS: u64 = 1024;

impl Config {
    /// Sets the maximum size of a received field section, as defined in RFC 9114 section 4.2.2.
    /// Default: 64 KiB, from 1 KiB to 1 GiB. A stream uses at most about twice as much: the encoded
    /// section until it is complete, and the decoded one.
    pub fn with_max_field_section_size(mut self, size: u64) -> Result<Self, ConfigError> {
        self.max_field_section_size = within(Limit::FieldSectionSize, size, 1024, 1 << 30)?;
        Ok(self)
    }

    /// Sets the maximum number of lines in a received field section, including pseudo-header fields
    /// and trailers. Default: 256, from 16 to 65,536. Browsers send some 20, plus one per cookie.
    /// This bounds the work of code that looks at each line; the memory is bounded by
    /// [`Config::with_max_field_section_size`], which counts 32 bytes per line.
    pub fn with_max_field_lines(mut self, lines: u32) -> Result<Self, ConfigError> {
        self.max_field_lines = within(Limit::FieldLines, lines, 16, 65_536)?;
        Ok(self)
    }

    /// Client role: sets the maximum number of interim responses to a request. Default: 64, from 8
    /// to 65,536. They are passed on and not stored, but a server could send them forever.
    pub fn with_max_interim_responses(mut self, responses: u32) -> Result<Self, ConfigError> {
        self.max_interim_responses = within(Limit::InterimResponses, responses, 8, 65_536)?;
        Ok(self)
    }

    /// Sets the maximum excess of useless over useful frames. Frames of unknown type and DATA
    /// frames without content are useless. Default: 1,000, from 16 to 2^32 - 1. They cost time, at
    /// two bytes each on the wire, but no memory.
    pub fn with_max_useless_frames(mut self, frames: u32) -> Result<Self, ConfigError> {
        self.max_useless_frames = within(Limit::UselessFrames, frames, 16, u32::MAX)?;
        Ok(self)
    }

    /// Sets the maximum excess of useless over useful bytes. Bytes in unknown frames and
    /// unidirectional streams are useless. Default: 1 MiB, from 4 KiB to 2^62 - 1. They cost time
    /// and bandwidth, but no memory.
    pub fn with_max_useless_bytes(mut self, bytes: u64) -> Result<Self, ConfigError> {
        self.max_useless_bytes = within(Limit::UselessBytes, bytes, 4096, varint::MAX)?;
        Ok(self)
    }

    /// Sets the maximum excess of unidirectional streams of unknown type over messages. Default:
    /// 100, from 8 to 2^32 - 1. An open stream uses 32 bytes.
    pub fn with_max_unknown_streams(mut self, streams: u32) -> Result<Self, ConfigError> {
        self.max_unknown_streams = within(Limit::UnknownStreams, streams, 8, u32::MAX)?;
        Ok(self)
    }

    /// Sets the maximum excess of frames on the control stream over four per message. Default:
    /// 1,000, from 16 to 2^32 - 1. Each may become an event, of some 100 bytes until it is polled.
    pub fn with_max_control_frames(mut self, frames: u32) -> Result<Self, ConfigError> {
        self.max_control_frames = within(Limit::ControlFrames, frames, 16, u32::MAX)?;
        Ok(self)
    }

    /// Server role: sets the maximum excess of aborted over successful requests. A request is
    /// aborted if it is cancelled or violates the protocol before its response is sent. Default:
    /// 500, from 1 to 2^32 - 1. Such a request costs the work already begun for it, and immediately
    /// permits the peer another request. Leaving a page with many pictures cancels a hundred
    /// requests.
    pub fn with_max_aborted_requests(mut self, requests: u32) -> Result<Self, ConfigError> {
        self.max_aborted_requests = within(Limit::AbortedRequests, requests, 1, u32::MAX)?;
        Ok(self)
    }

    /// Sets whether to send a reserved setting and a reserved frame, so that peers keep ignoring
    /// unknown values (RFC 9114 sections 7.2.4.1 and 7.2.8). Default: yes.
    #[must_use]
    pub const fn with_grease(mut self, grease: bool) -> Self {
        self.grease = grease;
        self
    }

    /// Sets the random number that selects the reserved values. Default: 0, always the same values.
    #[must_use]
    pub const fn with_grease_seed(mut self, seed: u64) -> Self {
        self.grease_seed = seed;
        self
    }

    /// Server role: sets whether to offer extended CONNECT (RFC 9220), so that requests with
    /// `:protocol` are accepted. Default: no.
    #[must_use]
    pub const fn with_extended_connect(mut self, extended_connect: bool) -> Self {
        self.extended_connect = extended_connect;
        self
    }

    /// Sets the maximum number of concurrent WebTransport sessions on a connection, for both roles.
    /// Default: 0, which disables WebTransport; at most 65,536. Enabling it offers HTTP datagrams
    /// and, as a server, extended CONNECT: the transport must support datagrams. The caller
    /// enforces the limit, because it knows which requests become sessions.
    pub fn with_webtransport_sessions(mut self, sessions: u64) -> Result<Self, ConfigError> {
        self.max_sessions = within(Limit::Sessions, sessions, 0, 65_536)?;
        self.extended_connect |= sessions > 0;
        Ok(self)
    }

    /// Sets the maximum number of streams, and of datagrams, that wait for their WebTransport
    /// session. Default: 16, from 1 to 65,536. For each stream one piece of data is buffered, no
    /// larger than a UDP datagram, and the same applies to each datagram.
    pub fn with_max_waiting_streams(mut self, streams: u32) -> Result<Self, ConfigError> {
        self.max_waiting_streams = within(Limit::WaitingStreams, streams, 1, 65_536)?;
        Ok(self)
    }

    /// Server role: sets the number of requests that the transport permits a client to have open. A
    /// PRIORITY_UPDATE for a later request is an error. Default: 2^60, which no stream ID exceeds.
    #[must_use]
    pub const fn with_max_concurrent_requests(mut self, requests: u64) -> Self {
        self.max_concurrent_requests = requests;
        self
    }

    /// Sets the capacity in bytes of the dynamic table for the peer's encoder
    /// (SETTINGS_QPACK_MAX_TABLE_CAPACITY). Default: 4096, at most 1 MiB; 0 for no table. At worst
    /// it uses twice as much memory.
    pub const fn with_qpack_table_capacity(mut self, capacity: u64) -> Result<Self, ConfigError> {
        if capacity > MAX_TABLE_CAPACITY {
            return Err(ConfigError::TableCapacity { capacity });
        }
        self.qpack_table_capacity = capacity;
        Ok(self)
    }

    /// Sets how many streams may be blocked on that table (SETTINGS_QPACK_BLOCKED_STREAMS).
    /// Default: 16, at most 1024. Each blocked stream buffers an encoded field section of up to
    /// [`Config::max_field_section_size`], and the data passed to
    /// [`crate::Connection::handle_data`] after it.
    pub const fn with_qpack_blocked_streams(mut self, streams: u64) -> Result<Self, ConfigError> {
        if streams > MAX_BLOCKED_STREAMS {
            return Err(ConfigError::BlockedStreams { streams });
        }
        self.qpack_blocked_streams = streams;
        Ok(self)
    }

    /// Sets the maximum bytes used of the dynamic table that the peer offers. Default: 4096, at
    /// most 1 MiB; 0 to refer to the static table only. At worst it uses three times as much
    /// memory.
    pub const fn with_qpack_encoder_capacity(mut self, capacity: u64) -> Result<Self, ConfigError> {
        if capacity > MAX_TABLE_CAPACITY {
            return Err(ConfigError::TableCapacity { capacity });
        }
        self.qpack_encoder_capacity = capacity;
        Ok(self)
    }

    /// Returns whether WebTransport is enabled.
    pub(crate) const fn has_webtransport(&self) -> bool {
        self.max_sessions > 0
    }

    /// Returns the maximum size of a received field section.
    pub const fn max_field_section_size(&self) -> u64 {
        self.max_field_section_size
    }

    /// Returns the capacity of the dynamic table for the peer's encoder, in bytes.
    pub const fn qpack_table_capacity(&self) -> u64 {
        self.qpack_table_capacity
    }

    /// Returns how many streams may be blocked on that table.
    pub const fn qpack_blocked_streams(&self) -> u64 {
        self.qpack_blocked_streams
    }

    /// Returns a reserved value 0x1f * N + 0x21. Each `draw` gives another one for the same seed.
    pub(crate) const fn reserved_value(&self, draw: u32) -> u64 {
        // Spreads the seed over all bits, so that each draw gives another value.
        let mixed = (self.grease_seed ^ draw as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 34;
        let value = 0x1f * mixed + 0x21;
        debug_assert!(value <= varint::MAX);
        value
    }
}

/// Returns the value if it is in the range.
fn within<T: Copy + PartialOrd + Into<u64>>(
    limit: Limit,
    value: T,
    min: T,
    max: T,
) -> Result<T, ConfigError> {
    if (min..=max).contains(&value) {
        Ok(value)
    } else {
        Err(ConfigError::OutOfRange {
            limit,
            value: value.into(),
            min: min.into(),
            max: max.into(),
        })
    }
}
