//! What is said over a connection.

use bytes::Bytes;

use crate::CloseReason;

/// What the bytes of a message are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// UTF-8.
    Text,
    /// Whatever the application says.
    Binary,
}

/// A message. The bytes of text are UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    kind: Kind,
    data: Bytes,
}

impl Message {
    /// A message of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { kind: Kind::Text, data: Bytes::from(text.into()) }
    }

    /// A message of bytes.
    pub fn binary(data: impl Into<Bytes>) -> Self {
        Self { kind: Kind::Binary, data: data.into() }
    }

    /// A message of either kind; `None` for text that is not UTF-8.
    pub fn new(kind: Kind, data: Bytes) -> Option<Self> {
        (kind == Kind::Binary || std::str::from_utf8(&data).is_ok()).then_some(Self { kind, data })
    }

    /// What was checked as it came.
    pub(crate) fn checked(kind: Kind, data: Bytes) -> Self {
        Self { kind, data }
    }

    /// Which kind it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its bytes.
    pub fn data(&self) -> &Bytes {
        &self.data
    }

    /// Its bytes.
    pub fn into_data(self) -> Bytes {
        self.data
    }

    /// Its text, if it is text.
    pub fn as_text(&self) -> Option<&str> {
        let text = || std::str::from_utf8(&self.data).expect("invariant: the text of a message is UTF-8");
        (self.kind == Kind::Text).then(text)
    }
}

/// What has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A whole message.
    Message(Message),
    /// The peer asks whether this side is there; the answer goes by itself.
    Ping(Bytes),
    /// The peer is there.
    Pong(Bytes),
    /// The peer closes the connection, and sends nothing more; the answer goes by itself.
    Close(Option<CloseReason>),
}

/// Bytes of one message on the wire. What is large was not copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The frame's head, and content that is small.
    pub first: Bytes,
    /// The content, if it is large.
    pub rest: Bytes,
}

impl Encoded {
    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    /// Whether it has none, which no message is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
