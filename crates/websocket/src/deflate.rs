//! permessage-deflate (RFC 7692): negotiation and compression.
//!
//! A context uses memory as long as it is kept: about 40 KiB to decompress, and over 256 KiB to
//! compress. By default neither side keeps a context between messages, and the contexts in use
//! belong to the thread, not to the connection.

mod contexts;
mod extension;
mod window;

use std::fmt::Write as _;

pub(crate) use contexts::{Deflater, Inflater, Stream, TAIL};
use extension::Parameters;
use window::{MAX_WINDOW_BITS, MIN_WINDOW_BITS};

use crate::Error;

const NAME: &str = "permessage-deflate";

/// Options of one endpoint for permessage-deflate.
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
    /// Sets the compression level, 0 (none) to 9. Default: 3.
    #[must_use]
    pub fn with_level(self, level: u8) -> Self {
        Self { level: level.min(9), ..self }
    }

    /// Keeps a compression context between messages, with a window of 2^`window_bits` bytes (9 to
    /// 15), so that repetitions across messages are compressed. Costs up to 264 KiB per connection
    /// from its first message on. Default: no.
    #[must_use]
    pub fn with_own_context(self, window_bits: u8) -> Self {
        Self {
            keeps_context: true,
            window_bits: window_bits.clamp(MIN_WINDOW_BITS, MAX_WINDOW_BITS),
            ..self
        }
    }

    /// Permits the peer to keep a compression context, with a window of 2^`window_bits` bytes if
    /// that can be negotiated. Costs up to 48 KiB per connection from the peer's first message on.
    /// Default: no.
    #[must_use]
    pub fn with_peer_context(self, window_bits: u8) -> Self {
        Self {
            keeps_peer_context: true,
            peer_window_bits: window_bits.clamp(MIN_WINDOW_BITS, MAX_WINDOW_BITS),
            ..self
        }
    }

    /// Sets the size below which messages are not compressed. Default: 128 bytes.
    #[must_use]
    pub fn with_min_bytes(self, bytes: usize) -> Self {
        Self { min_bytes: bytes, ..self }
    }

    pub(crate) fn min_bytes(&self) -> usize {
        self.min_bytes
    }

    /// Server side: accepts the first supported offer of the client, and returns the value of
    /// `sec-websocket-extensions` for the response.
    ///
    /// `offers`: values of the request's `sec-websocket-extensions` lines.
    pub fn answer<'a>(
        &self,
        offers: impl IntoIterator<Item = &'a str>,
    ) -> Option<(Negotiated, String)> {
        let offers = offers.into_iter().flat_map(extension::list);
        offers
            .filter(|offer| offer.name == NAME)
            .find_map(|offer| self.take(&Parameters::read(&offer)?))
    }

    fn take(&self, offer: &Parameters) -> Option<(Negotiated, String)> {
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
        let agreed = Negotiated {
            level: self.level,
            min_bytes: self.min_bytes,
            own_takeover,
            window_bits,
            peer_takeover,
            peer_window_bits,
        };
        Some((agreed, answer))
    }

    /// Client side: returns the value of `sec-websocket-extensions` for the request.
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

    /// Client side: returns what the server accepted. `None` if it declined.
    ///
    /// # Errors
    ///
    /// Returns an error if the server accepted something that was not offered.
    pub fn accept<'a>(
        &self,
        answers: impl IntoIterator<Item = &'a str>,
    ) -> Result<Option<Negotiated>, Error> {
        const WRONG: Error =
            Error::Protocol("the server accepted an extension that was not offered");
        let mut answers = answers.into_iter().flat_map(extension::list);
        let Some(answer) = answers.next() else { return Ok(None) };
        if answer.name != NAME || answers.next().is_some() {
            return Err(WRONG);
        }
        let taken = Parameters::read(&answer).ok_or(WRONG)?;
        let peer_takeover = !taken.server_no_context_takeover;
        let peer_window_bits = taken.server_max_window_bits.unwrap_or(MAX_WINDOW_BITS);
        let wanted = if self.keeps_peer_context { self.peer_window_bits } else { MAX_WINDOW_BITS };
        // The client offered no window size of its own, so the server must not request one.
        if taken.client_max_window_bits.is_some()
            || peer_window_bits > wanted
            || (peer_takeover && !self.keeps_peer_context)
        {
            return Err(WRONG);
        }
        let own_takeover = self.keeps_context && !taken.client_no_context_takeover;
        Ok(Some(Negotiated {
            level: self.level,
            min_bytes: self.min_bytes,
            own_takeover,
            window_bits: if own_takeover { self.window_bits } else { MAX_WINDOW_BITS },
            peer_takeover,
            peer_window_bits,
        }))
    }
}

/// The negotiated parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    level: u8,
    min_bytes: usize,
    own_takeover: bool,
    window_bits: u8,
    peer_takeover: bool,
    peer_window_bits: u8,
}

impl Negotiated {
    /// Returns whether this endpoint keeps a compression context between messages.
    pub fn keeps_context(&self) -> bool {
        self.own_takeover
    }

    /// Returns whether the peer does, so that this endpoint keeps a decompression context.
    pub fn keeps_peer_context(&self) -> bool {
        self.peer_takeover
    }

    /// Size below which messages are not compressed.
    pub(crate) fn min_bytes(&self) -> usize {
        self.min_bytes
    }

    pub(crate) fn inflater(&self) -> Inflater {
        Inflater::new(self.peer_takeover, self.peer_window_bits)
    }

    pub(crate) fn deflater(&self) -> Deflater {
        Deflater::new(self.level, self.own_takeover, self.window_bits)
    }

    /// Returns whether a message compressed without context and with the largest window may be
    /// sent.
    pub(crate) fn accepts_shared(&self) -> bool {
        !self.own_takeover && self.window_bits == MAX_WINDOW_BITS
    }
}

/// Compresses a message without context, for many connections. `None` if that does not make it
/// smaller.
pub(crate) fn shared(data: &[u8]) -> Option<Vec<u8>> {
    Deflater::new(Options::default().level, false, MAX_WINDOW_BITS).deflate(data)
}

#[cfg(test)]
mod tests;
