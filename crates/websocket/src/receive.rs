//! Converts received bytes to events.

use bytes::Bytes;

use crate::deflate::{self, Inflater};
use crate::frame::{Head, MAX_CONTROL_BYTES, Opcode, PartialHead, apply_mask};
use crate::utf8::Utf8;
use crate::{CloseReason, Error, Event, Kind, Message};

/// Initial allocation. Memory grows with received data, not with the length in a frame header.
const FIRST_BYTES: u64 = 16 << 10;

/// Assembles frames into events.
pub(crate) struct Receiver {
    /// Whether frames must be masked; otherwise they must not be.
    expects_mask: bool,
    max_message_bytes: u64,
    head: PartialHead,
    frame: Option<Frame>,
    /// The message in progress.
    message: Option<Box<Partial>>,
    inflater: Option<Inflater>,
}

/// A frame whose header is complete.
struct Frame {
    head: Head,
    /// Payload bytes read so far.
    taken: u64,
    /// Payload of a control frame.
    control: Vec<u8>,
}

struct Partial {
    kind: Kind,
    compressed: bool,
    data: Vec<u8>,
    /// Payload bytes of all its frames.
    wire_bytes: u64,
    utf8: Utf8,
}

impl Receiver {
    pub(crate) fn new(
        expects_mask: bool,
        max_message_bytes: u64,
        inflater: Option<Inflater>,
    ) -> Self {
        Self {
            expects_mask,
            max_message_bytes,
            head: PartialHead::default(),
            frame: None,
            message: None,
            inflater,
        }
    }

    /// Reads from `input` until the next event. Returns `None` when all input is used up.
    pub(crate) fn read(&mut self, input: &mut Bytes) -> Result<Option<Event>, Error> {
        loop {
            let Some(frame) = &mut self.frame else {
                let Some(head) = self.head.read(input)? else { return Ok(None) };
                self.begin(head)?;
                continue;
            };
            let left = frame.head.length - frame.taken;
            if left > 0 && input.is_empty() {
                return Ok(None);
            }
            let piece = input
                .split_to(usize::try_from(left).map_or(input.len(), |left| left.min(input.len())));
            let offset = frame.taken;
            frame.taken += piece.len() as u64;
            let (head, is_whole) = (frame.head, frame.taken == frame.head.length);
            if head.opcode.is_control() {
                extend_unmasked(&mut frame.control, &piece, head.mask, offset);
                if is_whole {
                    let control = std::mem::take(&mut frame.control);
                    self.frame = None;
                    return control_event(head.opcode, control).map(Some);
                }
                continue;
            }
            self.take_content(&piece, head.mask, offset)?;
            if is_whole {
                self.frame = None;
                if head.fin {
                    return self.finish().map(|message| Some(Event::Message(message)));
                }
            }
        }
    }

    /// Returns the memory allocated for the message in progress.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.message.as_ref().map_or(0, |message| message.data.capacity())
    }

    fn begin(&mut self, head: Head) -> Result<(), Error> {
        //= RFC 6455 section 5.1
        //# The server MUST close the connection upon receiving a frame that is not masked.
        //= RFC 6455 section 5.1
        //# A client MUST close a connection if it detects a masked frame.
        if head.mask.is_some() != self.expects_mask {
            return Err(Error::Protocol(if self.expects_mask {
                "the frame is not masked"
            } else {
                "the frame is masked"
            }));
        }
        let kind = match head.opcode {
            Opcode::Text => Some(Kind::Text),
            Opcode::Binary => Some(Kind::Binary),
            _ => None,
        };
        // RFC 7692, section 6: only on the first fragment of a message, and only where both sides
        // agreed on it.
        if head.compressed && (kind.is_none() || self.inflater.is_none()) {
            return Err(Error::Protocol("reserved bit is set"));
        }
        match (kind, &mut self.message) {
            (Some(_), Some(_)) => {
                return Err(Error::Protocol("new message before the end of the previous one"));
            }
            (None, None) if head.opcode == Opcode::Continuation => {
                return Err(Error::Protocol("continuation frame without a message"));
            }
            (Some(kind), message @ None) => {
                let capacity = if head.compressed {
                    0
                } else {
                    head.length.min(FIRST_BYTES).min(self.max_message_bytes)
                };
                let data = Vec::with_capacity(capacity as usize);
                *message = Some(Box::new(Partial {
                    kind,
                    compressed: head.compressed,
                    data,
                    wire_bytes: 0,
                    utf8: Utf8::default(),
                }));
            }
            (None, _) => {}
        }
        if let Some(message) = &mut self.message
            && !head.opcode.is_control()
        {
            message.wire_bytes = message.wire_bytes.saturating_add(head.length);
            // Incompressible data grows slightly when compressed.
            let slack = if message.compressed { 64 + self.max_message_bytes / 256 } else { 0 };
            if message.wire_bytes > self.max_message_bytes.saturating_add(slack) {
                return Err(Error::TooLarge);
            }
        }
        self.frame = Some(Frame { head, taken: 0, control: Vec::new() });
        Ok(())
    }

    fn take_content(
        &mut self,
        piece: &[u8],
        mask: Option<[u8; 4]>,
        offset: u64,
    ) -> Result<(), Error> {
        let message = self.message.as_mut().expect("invariant: a data frame belongs to a message");
        let before = message.data.len();
        if message.compressed {
            let inflater = self
                .inflater
                .as_mut()
                .expect("invariant: compressed frames are rejected without negotiation");
            let mut unmasked = Vec::with_capacity(piece.len());
            extend_unmasked(&mut unmasked, piece, mask, offset);
            inflater.inflate(&unmasked, &mut message.data, self.max_message_bytes)?;
        } else {
            extend_unmasked(&mut message.data, piece, mask, offset);
        }
        if message.kind == Kind::Text {
            message.utf8.check(&message.data[before..])?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Message, Error> {
        let mut message =
            self.message.take().expect("invariant: a last frame belongs to a message");
        if message.compressed {
            let before = message.data.len();
            let inflater = self
                .inflater
                .as_mut()
                .expect("invariant: compressed frames are rejected without negotiation");
            inflater.inflate(&deflate::TAIL, &mut message.data, self.max_message_bytes)?;
            inflater.end_message();
            if message.kind == Kind::Text {
                message.utf8.check(&message.data[before..])?;
            }
        }
        if message.kind == Kind::Text {
            message.utf8.finish()?;
        }
        Ok(Message::checked(message.kind, message.data.into()))
    }
}

fn control_event(opcode: Opcode, payload: Vec<u8>) -> Result<Event, Error> {
    debug_assert!(payload.len() <= MAX_CONTROL_BYTES);
    Ok(match opcode {
        Opcode::Ping => Event::Ping(payload.into()),
        Opcode::Pong => Event::Pong(payload.into()),
        _ => Event::Close(CloseReason::read(&payload)?),
    })
}

fn extend_unmasked(data: &mut Vec<u8>, piece: &[u8], mask: Option<[u8; 4]>, offset: u64) {
    let before = data.len();
    data.extend_from_slice(piece);
    if let Some(mask) = mask {
        apply_mask(&mut data[before..], mask, offset);
    }
}
