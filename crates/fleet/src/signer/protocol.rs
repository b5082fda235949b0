//! The messages of the Keyless SSL protocol as Cloudflare's gokeyless speaks it, sans-IO.
//!
//! A message is a header of 8 bytes (version, length, request ID) and a body of items, each with a
//! tag, a length of two bytes and a value. Requests may be answered in any order, so a client can
//! have many of them on one connection. [`Decoder`] turns received bytes into messages;
//! [`Operation::encode`] is the other direction.

mod codes;
mod decoder;
mod operation;
#[cfg(test)]
mod tests;

pub use codes::{ErrorCode, Opcode, Tag};
pub use decoder::{Decoder, FrameError, Message};
pub use operation::{EncodeError, MalformedOperation, Operation, Ski};

/// Size of a message's header.
pub const HEADER_BYTES: usize = 8;
/// Maximum size of a message: the header's length field has two bytes.
pub const MAX_MESSAGE_BYTES: usize = HEADER_BYTES + u16::MAX as usize;
/// Messages are padded to this size, so that an observer cannot tell them apart.
pub const PADDED_BYTES: usize = 1024;
/// Major version of the protocol.
pub const VERSION: u8 = 1;
