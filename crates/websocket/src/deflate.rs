//! permessage-deflate (RFC 7692): its negotiation, and messages through it.
//!
//! A context costs memory as long as it is kept: about 40 KiB to decompress, and over 256 KiB to compress. By default neither side keeps one
//! between messages, and those that are needed for a message are a thread's and not a connection's.

mod contexts;
mod extension;

use std::fmt::Write as _;

pub(crate) use contexts::{Deflater, Inflater, Stream};
use extension::Parameters;

use crate::Error;

/// The end of each message, which is not sent (RFC 7692 section 7.2.1).
pub(crate) const TAIL: [u8; 4] = [0x00, 0x00, 0xff, 0xff];
const NAME: &str = "permessage-deflate";
/// The smallest window that the library compresses with.
const MIN_WINDOW_BITS: u8 = 9;
const MAX_WINDOW_BITS: u8 = 15;

/// What this side wants of permessage-deflate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    level: u8,
    window_bits: u8,
    keeps_context: bool,
    peer_window_bits: u8,
    keeps_peer_context: bool,
    min_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            level: 3,
            window_bits: MAX_WINDOW_BITS,
            keeps_context: false,
            peer_window_bits: MAX_WINDOW_BITS,
            keeps_peer_context: false,
            min_bytes: 128,
        }
    }
}

impl Options {
    /// How hard to look for what repeats: 0 (not at all) to 9. Default: 3.
    #[must_use]
    pub fn with_level(self, level: u8) -> Self {
        Self { level: level.min(9), ..self }
    }

    /// Compresses what is sent with a context that the connection keeps, of 2^`window_bits` bytes, 9 to 15: what repeats from one message to
    /// the next is sent once. Costs up to 264 KiB a connection from its first message on. Default: no.
    #[must_use]
    pub fn with_own_context(self, window_bits: u8) -> Self {
        Self { keeps_context: true, window_bits: window_bits.clamp(MIN_WINDOW_BITS, MAX_WINDOW_BITS), ..self }
    }

    /// Lets the peer do the same, with a window of 2^`window_bits` bytes if it can be told so. Costs up to 48 KiB a connection from the
    /// peer's first message on. Default: no.
    #[must_use]
    pub fn with_peer_context(self, window_bits: u8) -> Self {
        Self { keeps_peer_context: true, peer_window_bits: window_bits.clamp(MIN_WINDOW_BITS, MAX_WINDOW_BITS), ..self }
    }

    /// Messages of fewer bytes are sent as they are. Default: 128.
    #[must_use]
    pub fn with_min_bytes(self, bytes: usize) -> Self {
        Self { min_bytes: bytes, ..self }
    }

    pub(crate) fn min_bytes(&self) -> usize {
        self.min_bytes
    }

    /// The server's side: the first of the client's offers that can be taken, and the value of `sec-websocket-extensions` that says so.
    ///
    /// `offers`: the values of the request's `sec-websocket-extensions` lines.
    pub fn answer<'a>(&self, offers: impl IntoIterator<Item = &'a str>) -> Option<(Agreed, String)> {
        let offers = offers.into_iter().flat_map(extension::list);
        offers.filter(|offer| offer.name == NAME).find_map(|offer| self.take(&Parameters::read(&offer)?))
    }

    fn take(&self, offer: &Parameters) -> Option<(Agreed, String)> {
        let mut answer = NAME.to_owned();
        let own_takeover = self.keeps_context && !offer.server_no_context_takeover;
        if !own_takeover {
            answer.push_str("; server_no_context_takeover");
        }
        let peer_takeover = self.keeps_peer_context && !offer.client_no_context_takeover;
        if !peer_takeover {
            answer.push_str("; client_no_context_takeover");
        }
        let window_bits = match offer.server_max_window_bits {
            Some(most) if most < MIN_WINDOW_BITS => return None,
            Some(most) => self.window_bits.min(most),
            None => self.window_bits,
        };
        if offer.server_max_window_bits.is_some() || window_bits < MAX_WINDOW_BITS {
            let _ = write!(answer, "; server_max_window_bits={window_bits}");
        }
        let mut peer_window_bits = MAX_WINDOW_BITS;
        if let Some(most) = offer.client_max_window_bits {
            let wanted = most.min(self.peer_window_bits);
            if peer_takeover && wanted < MAX_WINDOW_BITS {
                peer_window_bits = wanted;
                let _ = write!(answer, "; client_max_window_bits={wanted}");
            }
        }
        let agreed = Agreed { level: self.level, min_bytes: self.min_bytes, own_takeover, window_bits, peer_takeover, peer_window_bits };
        Some((agreed, answer))
    }

    /// The client's side: the value of `sec-websocket-extensions` that offers it.
    pub fn offer(&self) -> String {
        let mut offer = NAME.to_owned();
        if !self.keeps_peer_context {
            offer.push_str("; server_no_context_takeover");
        } else if self.peer_window_bits < MAX_WINDOW_BITS {
            let _ = write!(offer, "; server_max_window_bits={}", self.peer_window_bits);
        }
        if !self.keeps_context {
            offer.push_str("; client_no_context_takeover");
        }
        offer
    }

    /// The client's side: what the server made of the offer. `None`: nothing.
    ///
    /// # Errors
    ///
    /// When the server took something that was not offered.
    pub fn accept<'a>(&self, answers: impl IntoIterator<Item = &'a str>) -> Result<Option<Agreed>, Error> {
        const WRONG: Error = Error::Protocol("the server took an extension that was not offered");
        let mut answers = answers.into_iter().flat_map(extension::list);
        let Some(answer) = answers.next() else { return Ok(None) };
        if answer.name != NAME || answers.next().is_some() {
            return Err(WRONG);
        }
        let taken = Parameters::read(&answer).ok_or(WRONG)?;
        let peer_takeover = !taken.server_no_context_takeover;
        let peer_window_bits = taken.server_max_window_bits.unwrap_or(MAX_WINDOW_BITS);
        let wanted = if self.keeps_peer_context { self.peer_window_bits } else { MAX_WINDOW_BITS };
        // A window of the client's own was not offered, so the server may not ask for one.
        if taken.client_max_window_bits.is_some() || peer_window_bits > wanted || (peer_takeover && !self.keeps_peer_context) {
            return Err(WRONG);
        }
        let own_takeover = self.keeps_context && !taken.client_no_context_takeover;
        Ok(Some(Agreed {
            level: self.level,
            min_bytes: self.min_bytes,
            own_takeover,
            window_bits: if own_takeover { self.window_bits } else { MAX_WINDOW_BITS },
            peer_takeover,
            peer_window_bits,
        }))
    }
}

/// What both sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    level: u8,
    min_bytes: usize,
    own_takeover: bool,
    window_bits: u8,
    peer_takeover: bool,
    peer_window_bits: u8,
}

impl Agreed {
    /// Whether this side keeps a context to compress with, from one message to the next.
    pub fn keeps_context(&self) -> bool {
        self.own_takeover
    }

    /// Whether the peer does, so that this side keeps one to decompress with.
    pub fn keeps_peer_context(&self) -> bool {
        self.peer_takeover
    }

    /// Messages of fewer bytes are sent as they are.
    pub(crate) fn min_bytes(&self) -> usize {
        self.min_bytes
    }

    pub(crate) fn inflater(&self) -> Inflater {
        Inflater::new(self.peer_takeover, self.peer_window_bits)
    }

    pub(crate) fn deflater(&self) -> Deflater {
        Deflater::new(self.level, self.own_takeover, self.window_bits)
    }

    /// Whether what is compressed by itself, with the largest window, may be sent.
    pub(crate) fn takes_shared(&self) -> bool {
        !self.own_takeover && self.window_bits == MAX_WINDOW_BITS
    }
}

/// Compresses one message by itself, for whoever takes that; `None` where it gets no smaller.
pub(crate) fn shared(data: &[u8]) -> Option<Vec<u8>> {
    Deflater::new(Options::default().level, false, MAX_WINDOW_BITS).deflate(data)
}

#[cfg(test)]
mod tests;
