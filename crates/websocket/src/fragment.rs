//! Fragmented messages, whose length is not known in advance (RFC 6455 section 5.4).

use bytes::Bytes;

use crate::Kind;
use crate::deflate::{Deflater, Stream};
use crate::frame::Opcode;
use crate::utf8::Utf8;

/// Position of a fragment in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// The first fragment; more follow.
    First {
        /// Kind of the message.
        kind: Kind,
        /// Whether to compress the message, if negotiated.
        compress: bool,
    },
    /// A fragment between the first and the last.
    Middle,
    /// The last fragment. Other messages may follow.
    Last,
}

/// Reason why a fragment cannot be sent. The connection is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FragmentError {
    /// A first fragment while a fragmented message is unfinished.
    #[error("a fragmented message is in progress")]
    UnderWay,
    /// A middle or last fragment without a first.
    #[error("no fragmented message is in progress")]
    NotBegun,
    /// The fragment makes the text invalid UTF-8. Only the last fragment must not end inside a
    /// character.
    #[error("text is not UTF-8")]
    NotUtf8,
}

/// A fragmented message in progress.
pub(crate) struct Outbound {
    kind: Kind,
    utf8: Utf8,
    stream: Option<Stream>,
}

/// One frame of a fragmented message.
pub(crate) struct Part {
    pub(crate) opcode: Opcode,
    pub(crate) compressed: bool,
    pub(crate) data: Bytes,
}

impl Outbound {
    /// Begins a message with the first fragment.
    pub(crate) fn begin(
        kind: Kind,
        deflater: Option<&mut Deflater>,
        data: Bytes,
    ) -> Result<(Self, Part), FragmentError> {
        let mut message = Self { kind, utf8: Utf8::default(), stream: None };
        message.check(&data, false)?;
        let opcode = if kind == Kind::Text { Opcode::Text } else { Opcode::Binary };
        let Some(deflater) = deflater else {
            return Ok((message, Part { opcode, compressed: false, data }));
        };
        let stream = message.stream.insert(deflater.begin());
        let data = stream.deflate(&data).into();
        Ok((message, Part { opcode, compressed: true, data }))
    }

    /// Adds a fragment. After the last one, call [`Outbound::end`] to return the compression
    /// context.
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
        // Work on a copy, so that a rejected fragment leaves the state unchanged.
        let mut utf8 = self.utf8;
        utf8.check(data)
            .and_then(|()| if is_last { utf8.finish() } else { Ok(()) })
            .map_err(|_| FragmentError::NotUtf8)?;
        self.utf8 = utf8;
        Ok(())
    }
}
