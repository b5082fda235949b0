//! Sizes and the version of messages.

/// Size of a message's header.
pub const HEADER_BYTES: usize = 8;
/// Maximum size of a message: the header's length field has two bytes.
pub const MAX_MESSAGE_BYTES: usize = HEADER_BYTES + u16::MAX as usize;
/// Messages are padded to this size, so that an observer cannot tell them apart.
pub const PADDED_BYTES: usize = 1024;
/// Major version of the protocol.
pub const VERSION: u8 = 1;
