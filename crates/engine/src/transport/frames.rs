//! Frames of decrypted packets, as far as they are read ahead of the library.

/// Iterates over frames (RFC 9000, section 19).
pub(super) struct Frames<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Frames<'a> {
    /// Skips one frame. Returns `None` for a frame that extends to the packet's end, is truncated,
    /// or is unknown here.
    pub(super) fn skip(&mut self) -> Option<()> {
        let (frame_type, rest) = self.rest.split_first()?;
        self.rest = rest;
        match frame_type {
            // PADDING, PING, HANDSHAKE_DONE, and IMMEDIATE_ACK of the extension for
            // acknowledgements
            0x00 | 0x01 | 0x1e | 0x1f => Some(()),
            // ACK, without and with ECN counts
            0x02 | 0x03 => {
                self.skip_integers(2)?;
                let ranges = self.integer()?;
                self.skip_integers(1)?;
                // Each range takes at least two bytes, which bounds the loop.
                for _ in 0..ranges {
                    self.skip_integers(2)?;
                }
                self.skip_integers(if *frame_type == 0x03 { 3 } else { 0 })
            }
            // RESET_STREAM
            0x04 => self.skip_integers(3),
            // STOP_SENDING, MAX_STREAM_DATA, STREAM_DATA_BLOCKED
            0x05 | 0x11 | 0x15 => self.skip_integers(2),
            // CRYPTO
            0x06 => {
                self.skip_integers(1)?;
                self.skip_text()
            }
            // CONNECTION_CLOSE
            0x1c | 0x1d => {
                self.skip_integers(if *frame_type == 0x1c { 2 } else { 1 })?;
                self.skip_text()
            }
            // STREAM with its length
            0x0a | 0x0b | 0x0e | 0x0f => {
                self.skip_integers(if frame_type & 0x04 == 0 { 1 } else { 2 })?;
                self.skip_text()
            }
            // MAX_DATA, MAX_STREAMS, DATA_BLOCKED, STREAMS_BLOCKED, RETIRE_CONNECTION_ID
            0x10 | 0x12 | 0x13 | 0x14 | 0x16 | 0x17 | 0x19 => self.skip_integers(1),
            // NEW_CONNECTION_ID
            0x18 => {
                self.skip_integers(2)?;
                let (len, _) = self.rest.split_first()?;
                self.skip_bytes(1 + usize::from(*len) + 16)
            }
            // PATH_CHALLENGE, PATH_RESPONSE
            0x1a | 0x1b => self.skip_bytes(8),
            _ => None,
        }
    }

    /// Reads a CRYPTO frame: the offset of its data, and the data. Returns `None` if the next frame
    /// is another one or is truncated.
    pub(super) fn crypto(&mut self) -> Option<(u64, &'a [u8])> {
        const CRYPTO: u8 = 0x06;

        let mut frames = Frames { rest: self.rest.strip_prefix(&[CRYPTO])? };
        let offset = frames.integer()?;
        let len = usize::try_from(frames.integer()?).ok()?;
        let (data, rest) = frames.rest.split_at_checked(len)?;
        self.rest = rest;
        Some((offset, data))
    }

    fn skip_bytes(&mut self, count: usize) -> Option<()> {
        self.rest = self.rest.get(count..)?;
        Some(())
    }

    fn skip_integers(&mut self, count: usize) -> Option<()> {
        for _ in 0..count {
            self.skip_bytes(1 << (self.rest.first()? >> 6))?;
        }
        Some(())
    }

    fn skip_text(&mut self) -> Option<()> {
        let len = self.integer()?;
        self.skip_bytes(usize::try_from(len).ok()?)
    }

    fn integer(&mut self) -> Option<u64> {
        let mut rest = self.rest;
        let value = pronghorn_h3::varint::decode(&mut rest)?;
        self.rest = rest;
        Some(value)
    }
}
