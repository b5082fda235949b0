//! What an endpoint allows and offers.

use crate::{limit::Limit, varint};

/// What one endpoint allows and offers on a connection. The default is safe on the open internet.
///
/// Each `max_…` is a [`Limit`] of the same name, which says what happens when a peer reaches it.
///
/// A connection of *n* open streams holds at most about *n* × 2 × `max_field_section_size` bytes of field sections, and
/// what the events refer to that were not polled yet; besides that the dynamic tables, and 64 KiB for each stream that
/// waits for them. All other state of a connection is a few kilobytes, whatever the peer sends.
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
    pub(crate) max_early_streams: u32,
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
            max_early_streams: 16,
            max_concurrent_requests: 1 << 60,
            qpack_table_capacity: 4096,
            qpack_blocked_streams: 16,
            qpack_encoder_capacity: 4096,
        }
    }
}

/// A value that [`Config`] does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A limit would refuse what every peer sends, or be none.
    #[error("{limit} is {value}, which is not between {min} and {max}")]
    OutOfRange {
        /// Which limit.
        limit: Limit,
        /// What was asked for.
        value: u64,
        /// The smallest value that is taken.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// A dynamic table would hold too much memory.
    #[error("a dynamic table of {capacity} bytes is larger than 2^20")]
    TableCapacity {
        /// What was asked for.
        capacity: u64,
    },
    /// The sections of blocked streams would hold too much memory.
    #[error("{streams} blocked streams are more than 1024")]
    BlockedStreams {
        /// What was asked for.
        streams: u64,
    },
}

/// The largest dynamic table, of either side.
const MAX_TABLE_CAPACITY: u64 = 1 << 20;
const MAX_BLOCKED_STREAMS: u64 = 1024;

impl Config {
    /// How large a received field section may be, as RFC 9114 section 4.2.2 counts it: default 64 KiB, from 1 KiB to 1 GiB.
    /// A stream holds at most about twice as much: the encoded section until it is complete, and the decoded one.
    pub fn with_max_field_section_size(mut self, size: u64) -> Result<Self, ConfigError> {
        self.max_field_section_size = within(Limit::FieldSectionSize, size, 1024, 1 << 30)?;
        Ok(self)
    }

    /// How many lines a received field section may have, pseudo-header fields and trailers included: default 256, from 16 to
    /// 65,536. Browsers send some 20 and one for each cookie. It bounds the work of whoever looks at each line; the memory is
    /// bounded by [`Config::with_max_field_section_size`], which counts 32 bytes for each line.
    pub fn with_max_field_lines(mut self, lines: u32) -> Result<Self, ConfigError> {
        self.max_field_lines = within(Limit::FieldLines, lines, 16, 65_536)?;
        Ok(self)
    }

    /// Client role: how many interim responses one request may get: default 64, from 8 to 65,536. They are passed on and not
    /// held, but a server could send them for ever.
    pub fn with_max_interim_responses(mut self, responses: u32) -> Result<Self, ConfigError> {
        self.max_interim_responses = within(Limit::InterimResponses, responses, 8, 65_536)?;
        Ok(self)
    }

    /// By how many frames of unknown type and DATA frames without content the peer may exceed the useful frames: default
    /// 1,000, from 16 to 2^32 - 1. They cost time, at two bytes each on the wire, and no memory.
    pub fn with_max_useless_frames(mut self, frames: u32) -> Result<Self, ConfigError> {
        self.max_useless_frames = within(Limit::UselessFrames, frames, 16, u32::MAX)?;
        Ok(self)
    }

    /// By how many bytes what is in unknown frames and unidirectional streams may exceed the useful bytes: default 1 MiB, from
    /// 4 KiB to 2^62 - 1. They cost time and bandwidth, and no memory.
    pub fn with_max_useless_bytes(mut self, bytes: u64) -> Result<Self, ConfigError> {
        self.max_useless_bytes = within(Limit::UselessBytes, bytes, 4096, varint::MAX)?;
        Ok(self)
    }

    /// By how many the unidirectional streams of unknown type may exceed the messages: default 100, from 8 to 2^32 - 1. An
    /// open one holds 32 bytes.
    pub fn with_max_unknown_streams(mut self, streams: u32) -> Result<Self, ConfigError> {
        self.max_unknown_streams = within(Limit::UnknownStreams, streams, 8, u32::MAX)?;
        Ok(self)
    }

    /// By how many the frames on the control stream may exceed four for each message: default 1,000, from 16 to 2^32 - 1. Each
    /// may become an event, of some 100 bytes until it is polled.
    pub fn with_max_control_frames(mut self, frames: u32) -> Result<Self, ConfigError> {
        self.max_control_frames = within(Limit::ControlFrames, frames, 16, u32::MAX)?;
        Ok(self)
    }

    /// Server role: by how many the requests that were cancelled or broke a rule before their response was sent may exceed
    /// those that ended well: default 500, from 1 to 2^32 - 1. Such a request costs the work that was begun for it, and gives
    /// the peer room for the next at once. Who leaves a page with many pictures cancels a hundred.
    pub fn with_max_aborted_requests(mut self, requests: u32) -> Result<Self, ConfigError> {
        self.max_aborted_requests = within(Limit::AbortedRequests, requests, 1, u32::MAX)?;
        Ok(self)
    }

    /// Whether to send a reserved setting and a reserved frame, so that peers keep ignoring what they do not know
    /// (RFC 9114 sections 7.2.4.1 and 7.2.8). Default: yes.
    #[must_use]
    pub const fn with_grease(mut self, grease: bool) -> Self {
        self.grease = grease;
        self
    }

    /// A random number that picks the reserved values. Default: 0, always the same values.
    #[must_use]
    pub const fn with_grease_seed(mut self, seed: u64) -> Self {
        self.grease_seed = seed;
        self
    }

    /// Server role: whether to offer extended CONNECT (RFC 9220), so that requests with `:protocol` are accepted.
    /// Default: no.
    #[must_use]
    pub const fn with_extended_connect(mut self, extended_connect: bool) -> Self {
        self.extended_connect = extended_connect;
        self
    }

    /// WebTransport sessions that a connection may have at once, for both roles: default zero, which is to speak no WebTransport; at most
    /// 65,536. To speak it is to offer HTTP datagrams and, as a server, extended CONNECT: the transport has to carry datagrams.
    /// Whether there are too many is the caller's to say, who knows which requests become sessions.
    pub fn with_webtransport_sessions(mut self, sessions: u64) -> Result<Self, ConfigError> {
        self.max_sessions = within(Limit::Sessions, sessions, 0, 65_536)?;
        self.extended_connect |= sessions > 0;
        Ok(self)
    }

    /// Streams, and datagrams, of WebTransport sessions that may wait for their session: default 16, from 1 to 65,536. Of a
    /// stream one piece of content is held, which is no larger than a UDP datagram, and the same goes for a datagram.
    pub fn with_max_early_streams(mut self, streams: u32) -> Result<Self, ConfigError> {
        self.max_early_streams = within(Limit::EarlyStreams, streams, 1, 65_536)?;
        Ok(self)
    }

    /// Server role: the requests that the transport lets a client have open at once. A PRIORITY_UPDATE for one beyond is an
    /// error. Default: 2^60, which no stream ID is beyond.
    #[must_use]
    pub const fn with_max_concurrent_requests(mut self, requests: u64) -> Self {
        self.max_concurrent_requests = requests;
        self
    }

    /// How many bytes of dynamic table we keep for the peer (SETTINGS_QPACK_MAX_TABLE_CAPACITY): default 4096, at most
    /// 1 MiB; zero for no table. At worst it takes twice as much memory.
    pub const fn with_qpack_table_capacity(mut self, capacity: u64) -> Result<Self, ConfigError> {
        if capacity > MAX_TABLE_CAPACITY {
            return Err(ConfigError::TableCapacity { capacity });
        }
        self.qpack_table_capacity = capacity;
        Ok(self)
    }

    /// How many streams may wait for the dynamic table that we keep (SETTINGS_QPACK_BLOCKED_STREAMS): default 16, at most
    /// 1024. Each holds an encoded field section meanwhile, up to [`Config::max_field_section_size`], and what was passed
    /// to [`crate::Connection::handle_data`] after it.
    pub const fn with_qpack_blocked_streams(mut self, streams: u64) -> Result<Self, ConfigError> {
        if streams > MAX_BLOCKED_STREAMS {
            return Err(ConfigError::BlockedStreams { streams });
        }
        self.qpack_blocked_streams = streams;
        Ok(self)
    }

    /// How many bytes of dynamic table we use of what the peer offers: default 4096, at most 1 MiB; zero to refer to the
    /// static table only. At worst it takes three times as much memory.
    pub const fn with_qpack_encoder_capacity(mut self, capacity: u64) -> Result<Self, ConfigError> {
        if capacity > MAX_TABLE_CAPACITY {
            return Err(ConfigError::TableCapacity { capacity });
        }
        self.qpack_encoder_capacity = capacity;
        Ok(self)
    }

    /// Whether WebTransport is spoken.
    pub(crate) const fn speaks_webtransport(&self) -> bool {
        self.max_sessions > 0
    }

    /// The largest field section that is received.
    pub const fn max_field_section_size(&self) -> u64 {
        self.max_field_section_size
    }

    /// How many bytes of dynamic table we keep for the peer.
    pub const fn qpack_table_capacity(&self) -> u64 {
        self.qpack_table_capacity
    }

    /// How many streams may wait for that table.
    pub const fn qpack_blocked_streams(&self) -> u64 {
        self.qpack_blocked_streams
    }

    /// A reserved value 0x1f * N + 0x21, and one more draw from the seed for the next.
    pub(crate) const fn reserved_value(&self, draw: u32) -> u64 {
        // Spreads a seed over all bits, so that each draw gives another value.
        let mixed = (self.grease_seed ^ draw as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 34;
        let value = 0x1f * mixed + 0x21;
        debug_assert!(value <= varint::MAX);
        value
    }
}

/// The value, if it is in the range.
fn within<T: Copy + PartialOrd + Into<u64>>(limit: Limit, value: T, min: T, max: T) -> Result<T, ConfigError> {
    if (min..=max).contains(&value) {
        Ok(value)
    } else {
        Err(ConfigError::OutOfRange { limit, value: value.into(), min: min.into(), max: max.into() })
    }
}
