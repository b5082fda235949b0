//! What an endpoint allows and offers.

use crate::varint;

/// What one endpoint allows and offers on a connection. The default is safe on the open internet.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) max_field_section_size: u64,
    pub(crate) grease: bool,
    pub(crate) grease_seed: u64,
    pub(crate) extended_connect: bool,
    pub(crate) max_concurrent_requests: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_field_section_size: 64 * 1024, grease: true, grease_seed: 0, extended_connect: false, max_concurrent_requests: 1 << 60 }
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
}

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

    /// Server role: the requests that the transport lets a client have open at once. A PRIORITY_UPDATE for one beyond is an
    /// error. Default: 2^60, which no stream ID is beyond.
    #[must_use]
    pub const fn with_max_concurrent_requests(mut self, requests: u64) -> Self {
        self.max_concurrent_requests = requests;
        self
    }

    /// The largest field section that is received.
    pub const fn max_field_section_size(&self) -> u64 {
        self.max_field_section_size
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
