//! What an endpoint allows and offers.

use crate::varint;

/// What one endpoint allows and offers on a connection. The default is safe on the open internet.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) max_field_section_size: u64,
    pub(crate) grease: bool,
    pub(crate) grease_seed: u64,
    pub(crate) extended_connect: bool,
    pub(crate) qpack_table_capacity: u64,
    pub(crate) qpack_blocked_streams: u64,
    pub(crate) qpack_encoder_capacity: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_field_section_size: 64 * 1024,
            grease: true,
            grease_seed: 0,
            extended_connect: false,
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
    /// The largest field section would be too small for any request, or too large for the wire.
    #[error("a field section size of {size} is not between 1024 and 2^30")]
    FieldSectionSize {
        /// What was asked for.
        size: u64,
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
        if !(1024..=1 << 30).contains(&size) {
            return Err(ConfigError::FieldSectionSize { size });
        }
        self.max_field_section_size = size;
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
