//! A connection: messages, answers to control frames, and the closing handshake.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::fmt;

use bytes::{Bytes, BytesMut};

use crate::deflate::{self, Deflater, Negotiated};
use crate::fragment::{Outbound, Part};
use crate::frame::{Head, MAX_CONTROL_BYTES, Opcode, apply_mask};
use crate::receive::Receiver;
use crate::{CloseReason, Encoded, Error, Event, Fragment, FragmentError, Kind, Message};

/// Payloads below this size are copied into one buffer with the frame header.
const COPIED_BELOW: usize = 1 << 10;
/// Maximum number of unanswered pings. Beyond that, the oldest are not answered.
const MAX_PONGS: usize = 16;

/// The role of an endpoint.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    /// The endpoint that accepted the connection.
    Server,
    /// The endpoint that opened the connection; its frames are masked.
    Client {
        /// Source of masks. They must be unpredictable (RFC 6455 section 10.3).
        mask: fn() -> [u8; 4],
    },
}

impl Role {
    fn mask(self) -> Option<[u8; 4]> {
        match self {
            Self::Server => None,
            Self::Client { mask } => Some(mask()),
        }
    }
}

/// A WebSocket connection after its handshake.
///
/// Pass received bytes to [`Connection::read`] until it returns `None`. For each message, send the
/// result of [`Connection::encode`], preceded by the pending results of
/// [`Connection::poll_control`]. Answers to pings appear there automatically. After the peer's
/// close frame, send what remains to be sent, and answer with [`Connection::close`]. Once
/// [`Connection::is_over`] returns true, a server closes the transport connection, and a client
/// waits for that.
///
/// To send a message whose length is not known yet, use [`Connection::encode_fragment`]. Until its
/// last fragment no other message can be encoded, see [`Connection::is_in_message`]; control frames
/// are permitted in between.
pub struct Connection {
    role: Role,
    receiver: Receiver,
    deflate: Option<(Negotiated, Deflater)>,
    /// The message whose first fragment has been encoded, but not its last.
    outbound: Option<Box<Outbound>>,
    /// Payloads of unanswered pings, oldest first.
    pongs: VecDeque<Bytes>,
    /// Payload of a ping that has not been sent yet.
    ping: Option<Bytes>,
    close: Close,
    /// Whether the peer's close frame was received, or the connection has failed.
    is_receive_closed: bool,
}

/// State of the local close frame.
#[derive(Debug, PartialEq, Eq)]
enum Close {
    No,
    Waiting(Vec<u8>),
    Sent,
}

impl Connection {
    /// Returns a connection after the handshake. `max_message_bytes` is the maximum size of a
    /// received message after decompression. Memory is allocated as data arrives.
    pub fn new(role: Role, max_message_bytes: u64, deflate: Option<Negotiated>) -> Self {
        let receiver = Receiver::new(
            matches!(role, Role::Server),
            max_message_bytes,
            deflate.map(|agreed| agreed.inflater()),
        );
        let deflate = deflate.map(|agreed| (agreed, agreed.deflater()));
        Self {
            role,
            receiver,
            deflate,
            outbound: None,
            pongs: VecDeque::new(),
            ping: None,
            close: Close::No,
            is_receive_closed: false,
        }
    }

    /// Reads from `input` until the next event and leaves the rest. Returns `None` when all input
    /// is used up.
    ///
    /// # Errors
    ///
    /// Returns an error if the peer violates the protocol. A close frame with the matching code is
    /// queued, and further input is discarded.
    pub fn read(&mut self, input: &mut Bytes) -> Result<Option<Event>, Error> {
        if self.is_receive_closed {
            input.clear();
            return Ok(None);
        }
        let event = self.receiver.read(input).inspect_err(|error| {
            self.is_receive_closed = true;
            self.close(Some(error.close_code().into()));
        })?;
        match &event {
            Some(Event::Ping(data)) if self.close == Close::No => {
                //= RFC 6455 section 5.5.3
                //# If an endpoint receives a Ping frame and has not yet sent Pong frame(s) in response to previous Ping frame(s), the
                //# endpoint MAY elect to send a Pong frame for only the most recently processed Ping frame.
                if self.pongs.len() == MAX_PONGS {
                    self.pongs.pop_front();
                }
                self.pongs.push_back(data.clone());
            }
            Some(Event::Close(_)) => self.is_receive_closed = true,
            _ => {}
        }
        Ok(event)
    }

    /// Encodes a message as a frame. Returns `None` after a close frame, which no other frame may
    /// follow, and while a fragmented message is unfinished.
    pub fn encode(&mut self, message: &Message) -> Option<Encoded> {
        self.encode_compressed(message, true)
    }

    /// Encodes a message as a frame. `compress`: whether to compress it, if negotiated.
    pub fn encode_compressed(&mut self, message: &Message, compress: bool) -> Option<Encoded> {
        if !self.takes_messages() {
            return None;
        }
        let opcode = opcode(message.kind());
        if compress
            && let Some((agreed, deflater)) = &mut self.deflate
            && message.data().len() >= agreed.min_bytes().max(1)
            && let Some(compressed) = deflater.deflate(message.data())
        {
            return Some(frame(opcode, (true, true), compressed.into(), self.role.mask()));
        }
        Some(frame(opcode, (true, false), message.data().clone(), self.role.mask()))
    }

    /// Encodes a message that is sent to many connections. Returns `None` like
    /// [`Connection::encode`].
    pub fn encode_prepared(&mut self, prepared: &Prepared) -> Option<Encoded> {
        if let Role::Client { .. } = self.role {
            // Each frame of a client has its own mask.
            return self.encode_compressed(&prepared.message, prepared.compress);
        }
        let shares = self.deflate.as_ref().is_some_and(|(agreed, _)| agreed.accepts_shared());
        self.takes_messages().then(|| prepared.frame(shares).clone())
    }

    /// Encodes a fragment of a message. Returns `None` after a close frame.
    ///
    /// # Errors
    ///
    /// Returns an error if the fragment is out of order, or makes a text message invalid UTF-8. The
    /// state is then unchanged.
    pub fn encode_fragment(
        &mut self,
        fragment: Fragment,
        data: Bytes,
    ) -> Result<Option<Encoded>, FragmentError> {
        if self.close != Close::No {
            return Ok(None);
        }
        let deflater = self.deflate.as_mut().map(|(_, deflater)| deflater);
        let (Part { opcode, compressed, data }, is_last) = match (fragment, &mut self.outbound) {
            (Fragment::First { .. }, Some(_)) => return Err(FragmentError::UnderWay),
            (Fragment::Middle | Fragment::Last, None) => return Err(FragmentError::NotBegun),
            (Fragment::First { kind, compress }, outbound @ None) => {
                let (message, part) = Outbound::begin(kind, deflater.filter(|_| compress), data)?;
                *outbound = Some(Box::new(message));
                (part, false)
            }
            (Fragment::Middle, Some(message)) => (message.next(data, false)?, false),
            (Fragment::Last, Some(message)) => {
                let part = message.next(data, true)?;
                if let Some(message) = self.outbound.take() {
                    message.end(deflater);
                }
                (part, true)
            }
        };
        Ok(Some(frame(opcode, (is_last, compressed), data, self.role.mask())))
    }

    /// Returns whether a fragmented message is unfinished, so that no other message can be encoded.
    pub fn is_in_message(&self) -> bool {
        self.outbound.is_some()
    }

    fn takes_messages(&self) -> bool {
        self.close == Close::No && self.outbound.is_none()
    }

    /// Encodes a ping at a chosen position among messages and fragments, with at most 125 bytes of
    /// data. Returns `None` after a close frame.
    pub fn encode_ping(&self, data: &[u8]) -> Option<Encoded> {
        let data = Bytes::copy_from_slice(&data[..data.len().min(MAX_CONTROL_BYTES)]);
        (self.close == Close::No)
            .then(|| frame(Opcode::Ping, (true, false), data, self.role.mask()))
    }

    /// Queues a ping with at most 125 bytes of data, which the pong echoes.
    pub fn ping(&mut self, data: &[u8]) {
        self.ping = Some(Bytes::copy_from_slice(&data[..data.len().min(MAX_CONTROL_BYTES)]));
    }

    /// Starts the closing handshake, or answers the peer's close frame. Only the first call sets
    /// the reason.
    pub fn close(&mut self, reason: Option<CloseReason>) {
        if self.close == Close::No {
            self.close = Close::Waiting(reason.map_or_else(Vec::new, |reason| reason.write()));
            (self.ping, self.pongs) = (None, VecDeque::new());
            self.outbound = None;
        }
    }

    /// Returns the next control frame to send.
    pub fn poll_control(&mut self) -> Option<Bytes> {
        let role = self.role;
        let control =
            |opcode, data: Bytes| Some(frame(opcode, (true, false), data, role.mask()).first);
        if let Close::Waiting(reason) = &mut self.close {
            let reason = std::mem::take(reason);
            self.close = Close::Sent;
            return control(Opcode::Close, reason.into());
        }
        if let Some(data) = self.pongs.pop_front() {
            if self.pongs.is_empty() {
                self.pongs = VecDeque::new();
            }
            return control(Opcode::Pong, data);
        }
        control(Opcode::Ping, self.ping.take()?)
    }

    /// Returns whether [`Connection::poll_control`] has a frame.
    pub fn wants_control(&self) -> bool {
        matches!(self.close, Close::Waiting(_)) || !self.pongs.is_empty() || self.ping.is_some()
    }

    /// Returns whether a close frame was sent or is queued.
    pub fn is_closing(&self) -> bool {
        self.close != Close::No
    }

    /// Returns whether the closing handshake is complete: the local close frame was sent, and the
    /// peer's was received or the connection has failed.
    pub fn is_over(&self) -> bool {
        self.close == Close::Sent && self.is_receive_closed
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("role", &self.role)
            .field("close", &self.close)
            .finish_non_exhaustive()
    }
}

/// A message for many connections of a server. It is encoded once, and compressed once if any
/// connection negotiated compression.
///
/// Clones share what was encoded before the clone. Connections that keep a compression context, or
/// negotiated a smaller window, get it uncompressed.
#[derive(Clone, Debug)]
pub struct Prepared {
    message: Message,
    compress: bool,
    plain: OnceCell<Encoded>,
    /// `None` if compression does not make it smaller.
    compressed: OnceCell<Option<Encoded>>,
}

impl Prepared {
    /// Returns a prepared message. Nothing is encoded until first use.
    pub fn new(message: Message) -> Self {
        Self { message, compress: true, plain: OnceCell::new(), compressed: OnceCell::new() }
    }

    /// Sets whether to compress the message where negotiated. Default: yes.
    #[must_use]
    pub fn with_compression(self, compress: bool) -> Self {
        Self { compress, ..self }
    }

    /// Returns the message.
    pub fn message(&self) -> &Message {
        &self.message
    }

    fn frame(&self, compressed: bool) -> &Encoded {
        let opcode = opcode(self.message.kind());
        let data = self.message.data();
        if compressed && self.compress && data.len() >= deflate::Options::default().min_bytes() {
            let made = self.compressed.get_or_init(|| {
                Some(frame(opcode, (true, true), deflate::shared(data)?.into(), None))
            });
            if let Some(made) = made {
                return made;
            }
        }
        self.plain.get_or_init(|| frame(opcode, (true, false), data.clone(), None))
    }
}

fn opcode(kind: Kind) -> Opcode {
    match kind {
        Kind::Text => Opcode::Text,
        Kind::Binary => Opcode::Binary,
    }
}

fn frame(
    opcode: Opcode,
    (fin, compressed): (bool, bool),
    data: Bytes,
    mask: Option<[u8; 4]>,
) -> Encoded {
    let head = Head { fin, compressed, opcode, length: data.len() as u64, mask };
    let is_one = mask.is_some() || data.len() < COPIED_BELOW;
    let mut first = BytesMut::with_capacity(14 + if is_one { data.len() } else { 0 });
    head.write(&mut first);
    if !is_one {
        return Encoded { first: first.freeze(), rest: data };
    }
    let begin = first.len();
    first.extend_from_slice(&data);
    if let Some(mask) = mask {
        apply_mask(&mut first[begin..], mask, 0);
    }
    Encoded { first: first.freeze(), rest: Bytes::new() }
}

#[cfg(test)]
mod tests;
