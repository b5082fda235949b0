//! Messages and events.

use bytes::Bytes;

use crate::CloseReason;

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// UTF-8.
    Text,
    /// Arbitrary bytes.
    Binary,
}

/// A message. Text messages are valid UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    kind: Kind,
    data: Bytes,
}

impl Message {
    /// Returns a text message.
    pub fn text(text: impl Into<String>) -> Self {
        Self { kind: Kind::Text, data: Bytes::from(text.into()) }
    }

    /// Returns a binary message.
    pub fn binary(data: impl Into<Bytes>) -> Self {
        Self { kind: Kind::Binary, data: data.into() }
    }

    /// Returns a message of either kind, or `None` for text that is not UTF-8.
    pub fn new(kind: Kind, data: Bytes) -> Option<Self> {
        (kind == Kind::Binary || std::str::from_utf8(&data).is_ok()).then_some(Self { kind, data })
    }

    /// Returns a message whose text was already validated.
    pub(crate) fn checked(kind: Kind, data: Bytes) -> Self {
        Self { kind, data }
    }

    /// Returns the kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the payload.
    pub fn data(&self) -> &Bytes {
        &self.data
    }

    /// Converts the message to its payload.
    pub fn into_data(self) -> Bytes {
        self.data
    }

    /// Returns the text of a text message.
    pub fn as_text(&self) -> Option<&str> {
        let text =
            || std::str::from_utf8(&self.data).expect("invariant: the text of a message is UTF-8");
        (self.kind == Kind::Text).then(text)
    }
}

/// An event of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A whole message.
    Message(Message),
    /// A ping. The pong is queued automatically.
    Ping(Bytes),
    /// A pong.
    Pong(Bytes),
    /// The peer closes the connection and sends nothing more. Answer with
    /// [`Connection::close`](crate::Connection::close).
    Close(Option<CloseReason>),
}

/// A message encoded for the wire. Large payloads are not copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The frame header, and the payload if it is small.
    pub first: Bytes,
    /// The payload, if it is large.
    pub rest: Bytes,
}

impl Encoded {
    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    /// Returns whether the length is zero, which never happens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
