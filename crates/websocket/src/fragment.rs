//! A message that is sent in parts, before all of it is known (RFC 6455 section 5.4).

use bytes::Bytes;

use crate::Kind;
use crate::deflate::{Deflater, Stream};
use crate::frame::Opcode;
use crate::utf8::Utf8;

/// Which part of a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// The first, and more follow.
    First {
        /// Of the whole message.
        kind: Kind,
        /// Whether the message is worth to be compressed, where both sides agreed on it.
        compress: bool,
    },
    /// One between the first and the last.
    Middle,
    /// The last. Other messages may follow.
    Last,
}

/// Why a part of a message cannot be sent. The connection is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FragmentError {
    /// A first one while another message is under way.
    #[error("a message in fragments is under way")]
    UnderWay,
    /// One that is not the first, of no message.
    #[error("no message in fragments is under way")]
    NotBegun,
    /// It makes the text one that is not UTF-8. The last must not end within a character; the others may.
    #[error("text is not UTF-8")]
    NotUtf8,
}

/// A message of which the first part was sent.
pub(crate) struct Outbound {
    kind: Kind,
    utf8: Utf8,
    stream: Option<Stream>,
}

/// One frame of a message.
pub(crate) struct Part {
    pub(crate) opcode: Opcode,
    pub(crate) compressed: bool,
    pub(crate) data: Bytes,
}

impl Outbound {
    /// A message whose first part is `data`.
    pub(crate) fn begin(kind: Kind, deflater: Option<&mut Deflater>, data: Bytes) -> Result<(Self, Part), FragmentError> {
        let mut message = Self { kind, utf8: Utf8::default(), stream: None };
        message.check(&data, false)?;
        let opcode = if kind == Kind::Text { Opcode::Text } else { Opcode::Binary };
        let Some(deflater) = deflater else { return Ok((message, Part { opcode, compressed: false, data })) };
        let stream = message.stream.insert(deflater.begin());
        let data = stream.deflate(&data).into();
        Ok((message, Part { opcode, compressed: true, data }))
    }

    /// The next part. After the last, [`Outbound::end`] gives back what was borrowed.
    pub(crate) fn next(&mut self, data: Bytes, is_last: bool) -> Result<Part, FragmentError> {
        self.check(&data, is_last)?;
        let data = match &mut self.stream {
            Some(stream) if is_last => stream.finish(&data).into(),
            Some(stream) => stream.deflate(&data).into(),
            None => data,
        };
        Ok(Part { opcode: Opcode::Continuation, compressed: false, data })
    }

    pub(crate) fn end(self, deflater: Option<&mut Deflater>) {
        if let (Some(stream), Some(deflater)) = (self.stream, deflater) {
            deflater.end(stream);
        }
    }

    fn check(&mut self, data: &[u8], is_last: bool) -> Result<(), FragmentError> {
        if self.kind == Kind::Binary {
            return Ok(());
        }
        // What is refused must not be remembered.
        let mut utf8 = self.utf8;
        utf8.check(data).and_then(|()| if is_last { utf8.finish() } else { Ok(()) }).map_err(|_| FragmentError::NotUtf8)?;
        self.utf8 = utf8;
        Ok(())
    }
}
