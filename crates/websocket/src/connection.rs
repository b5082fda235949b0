//! One connection: messages, the answers to control frames, and the closing handshake.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::fmt;

use bytes::{Bytes, BytesMut};

use crate::deflate::{self, Agreed, Deflater};
use crate::fragment::{Outbound, Part};
use crate::frame::{Head, MAX_CONTROL_BYTES, Opcode, apply_mask};
use crate::receive::Receiver;
use crate::{CloseReason, Encoded, Error, Event, Fragment, FragmentError, Kind, Message};

/// Content of fewer bytes goes into one piece with its head.
const COPIED_BELOW: usize = 1 << 10;
/// Pings that wait to be answered; of more, the oldest get no answer.
const MAX_PONGS: usize = 16;

/// Which side of the connection this is.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    /// The one that took the connection.
    Server,
    /// The one that asked for it, whose frames are masked.
    Client {
        /// Where masks come from. They must not be foreseeable (RFC 6455 section 10.3).
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
/// Call [`Connection::read`] with what has come until it returns `None`; send what [`Connection::encode`] gives for each message, and before
/// the next one what [`Connection::poll_control`] gives. Answers to pings come out of the latter by themselves. A close of the peer's is answered
/// by [`Connection::close`], with its reason, when all has been sent that was still to go. When [`Connection::is_over`] says so, nothing is
/// left to say: a server then ends the transport's connection, and a client waits for that.
///
/// A message whose end is not known yet goes in parts, by [`Connection::encode_fragment`]. Until its last one no other message can be
/// encoded, which [`Connection::is_in_message`] tells; control frames may go between.
pub struct Connection {
    role: Role,
    receiver: Receiver,
    deflate: Option<(Agreed, Deflater)>,
    /// The message of which the first part was encoded, and the last was not.
    outbound: Option<Box<Outbound>>,
    /// The contents of pings that were not answered, the latest last.
    pongs: VecDeque<Bytes>,
    /// The content of a ping of ours that is not sent.
    ping: Option<Bytes>,
    close: Close,
    /// The peer's close frame has come, or it has failed.
    is_deaf: bool,
}

/// Our close frame.
#[derive(Debug, PartialEq, Eq)]
enum Close {
    No,
    Waiting(Vec<u8>),
    Sent,
}

impl Connection {
    /// `max_message_bytes`: of a message, as its receiver gets it. It is allocated as it comes.
    pub fn new(role: Role, max_message_bytes: u64, deflate: Option<Agreed>) -> Self {
        let receiver = Receiver::new(matches!(role, Role::Server), max_message_bytes, deflate.map(|agreed| agreed.inflater()));
        let deflate = deflate.map(|agreed| (agreed, agreed.deflater()));
        Self { role, receiver, deflate, outbound: None, pongs: VecDeque::new(), ping: None, close: Close::No, is_deaf: false }
    }

    /// Takes as much of `input` as the next event needs, and leaves the rest; `None` when that was all of it.
    ///
    /// # Errors
    ///
    /// When the peer breaks the protocol. It is told so by a close frame, and what it sends from here on is not looked at.
    pub fn read(&mut self, input: &mut Bytes) -> Result<Option<Event>, Error> {
        if self.is_deaf {
            input.clear();
            return Ok(None);
        }
        let event = self.receiver.read(input).inspect_err(|error| {
            self.is_deaf = true;
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
            Some(Event::Close(_)) => self.is_deaf = true,
            _ => {}
        }
        Ok(event)
    }

    /// The frame of a message. `None` after a close frame, which nothing may follow, and in the middle of a message.
    pub fn encode(&mut self, message: &Message) -> Option<Encoded> {
        self.encode_compressed(message, true)
    }

    /// The same; `compress` says whether it is worth that, where both sides agreed on it.
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

    /// The frame of a message that goes to many. `None` as above.
    pub fn encode_prepared(&mut self, prepared: &Prepared) -> Option<Encoded> {
        if let Role::Client { .. } = self.role {
            // Each of a client's frames has a mask of its own.
            return self.encode_compressed(&prepared.message, prepared.compress);
        }
        let shares = self.deflate.as_ref().is_some_and(|(agreed, _)| agreed.takes_shared());
        self.takes_messages().then(|| prepared.frame(shares).clone())
    }

    /// The frame of a part of a message. `None` after a close frame.
    ///
    /// # Errors
    ///
    /// When it is none of the parts that may come now, or no part of any text. Nothing has changed then.
    pub fn encode_fragment(&mut self, fragment: Fragment, data: Bytes) -> Result<Option<Encoded>, FragmentError> {
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

    /// Whether the last part of a message is awaited, and no other message may be encoded before.
    pub fn is_in_message(&self) -> bool {
        self.outbound.is_some()
    }

    fn takes_messages(&self) -> bool {
        self.close == Close::No && self.outbound.is_none()
    }

    /// The frame of a ping that has a place of its own among messages and their parts, with at most 125 bytes. `None` after a close frame.
    pub fn encode_ping(&self, data: &[u8]) -> Option<Encoded> {
        let data = Bytes::copy_from_slice(&data[..data.len().min(MAX_CONTROL_BYTES)]);
        (self.close == Close::No).then(|| frame(Opcode::Ping, (true, false), data, self.role.mask()))
    }

    /// Asks whether the peer is there, with at most 125 bytes that the answer will have.
    pub fn ping(&mut self, data: &[u8]) {
        self.ping = Some(Bytes::copy_from_slice(&data[..data.len().min(MAX_CONTROL_BYTES)]));
    }

    /// Begins to close, or answers the peer's close. Only the first call says why.
    pub fn close(&mut self, reason: Option<CloseReason>) {
        if self.close == Close::No {
            self.close = Close::Waiting(reason.map_or_else(Vec::new, |reason| reason.write()));
            (self.ping, self.pongs) = (None, VecDeque::new());
            self.outbound = None;
        }
    }

    /// The next control frame to send.
    pub fn poll_control(&mut self) -> Option<Bytes> {
        let role = self.role;
        let control = |opcode, data: Bytes| Some(frame(opcode, (true, false), data, role.mask()).first);
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

    /// Whether [`Connection::poll_control`] has something.
    pub fn wants_control(&self) -> bool {
        matches!(self.close, Close::Waiting(_)) || !self.pongs.is_empty() || self.ping.is_some()
    }

    /// Whether a close frame was sent, or is about to be.
    pub fn is_closing(&self) -> bool {
        self.close != Close::No
    }

    /// Whether all was said: our close frame was sent, and the peer's has come or is not waited for.
    pub fn is_over(&self) -> bool {
        self.close == Close::Sent && self.is_deaf
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("role", &self.role).field("close", &self.close).finish_non_exhaustive()
    }
}

/// A message for many connections of a server: its frame is made once, and compressed once if any of them takes that.
///
/// A clone shares what was made before. Connections that keep a context between messages, or agreed on a smaller window, get it as it is.
#[derive(Clone, Debug)]
pub struct Prepared {
    message: Message,
    compress: bool,
    plain: OnceCell<Encoded>,
    /// `None` where it got no smaller.
    compressed: OnceCell<Option<Encoded>>,
}

impl Prepared {
    /// Nothing is encoded before somebody takes it.
    pub fn new(message: Message) -> Self {
        Self { message, compress: true, plain: OnceCell::new(), compressed: OnceCell::new() }
    }

    /// Whether the message is worth to be compressed for those who take that. Default: yes.
    #[must_use]
    pub fn with_compression(self, compress: bool) -> Self {
        Self { compress, ..self }
    }

    /// The message.
    pub fn message(&self) -> &Message {
        &self.message
    }

    fn frame(&self, compressed: bool) -> &Encoded {
        let opcode = opcode(self.message.kind());
        let data = self.message.data();
        if compressed && self.compress && data.len() >= deflate::Options::default().min_bytes() {
            let made = self.compressed.get_or_init(|| Some(frame(opcode, (true, true), deflate::shared(data)?.into(), None)));
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

fn frame(opcode: Opcode, (fin, compressed): (bool, bool), data: Bytes, mask: Option<[u8; 4]>) -> Encoded {
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
