//! Received bytes to messages.

use bytes::{Buf, BytesMut};

use super::operation::{MalformedOperation, Operation};
use super::sizes::{HEADER_BYTES, VERSION};

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// ID of the request, which its response repeats.
    pub id: u32,
    /// The body. Messages behind a malformed one can still be read.
    pub operation: Result<Operation, MalformedOperation>,
}

/// An error after which nothing more can be read from the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The peer speaks another version.
    #[error("unsupported protocol version {0}")]
    Version(u8, u32),
    /// The message is longer than this end accepts.
    #[error("a message of {size} bytes is longer than the limit of {limit}")]
    TooLong {
        /// Size of the message.
        size: usize,
        /// Maximum size.
        limit: usize,
        /// ID of the request.
        id: u32,
    },
}

impl FrameError {
    /// Returns the ID of the request.
    pub fn id(&self) -> u32 {
        match *self {
            Self::Version(_, id) | Self::TooLong { id, .. } => id,
        }
    }
}

/// Splits a byte stream into messages: [`handle_bytes`](Self::handle_bytes), then
/// [`poll_message`](Self::poll_message) until it returns `None`.
#[derive(Debug)]
pub struct Decoder {
    buffer: BytesMut,
    limit: usize,
}

impl Decoder {
    /// Returns a decoder that accepts messages of up to `limit` bytes, header included. It buffers
    /// at most one incomplete message if all complete ones are polled.
    pub fn new(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), limit }
    }

    /// Takes received bytes.
    pub fn handle_bytes(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next complete message.
    ///
    /// # Errors
    ///
    /// Returns an error after which the connection has to be closed.
    pub fn poll_message(&mut self) -> Result<Option<Message>, FrameError> {
        let Some(&[major, _, high, low, a, b, c, d]) = self.buffer.first_chunk::<HEADER_BYTES>()
        else {
            return Ok(None);
        };
        let id = u32::from_be_bytes([a, b, c, d]);
        if major != VERSION {
            return Err(FrameError::Version(major, id));
        }
        let length = usize::from(u16::from_be_bytes([high, low]));
        let size = HEADER_BYTES + length;
        if size > self.limit {
            return Err(FrameError::TooLong { size, limit: self.limit, id });
        }
        if self.buffer.len() < size {
            return Ok(None);
        }
        self.buffer.advance(HEADER_BYTES);
        let body = self.buffer.split_to(length);
        Ok(Some(Message { id, operation: Operation::decode(&body) }))
    }

    /// Returns the number of buffered bytes.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }
}
