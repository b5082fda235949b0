//! The messages of the Keyless SSL protocol as Cloudflare's gokeyless speaks it, sans-IO.
//!
//! A message is a header of 8 bytes (version, length, request ID) and a body of items, each with a
//! tag, a length of two bytes and a value. Requests may be answered in any order, so a client can
//! have many of them on one connection. [`Decoder`] turns received bytes into messages;
//! [`Operation::encode`] is the other direction.

mod codes;
mod decoder;
mod operation;
mod sizes;
#[cfg(test)]
mod tests;

pub use codes::{ErrorCode, Opcode, Tag};
pub use decoder::{Decoder, FrameError, Message};
pub use operation::{EncodeError, MalformedOperation, Operation, Ski};
pub use sizes::{HEADER_BYTES, MAX_MESSAGE_BYTES, PADDED_BYTES, VERSION};
