//! Extensions of a ClientHello, and whether its client sent early data along with it, which rustls
//! does not tell.

/// A ClientHello of Chromium with a post-quantum key share is 1.8 KiB. Larger messages than this
/// are not parsed.
pub(super) const CLIENT_HELLO_BYTES: usize = 8 << 10;

/// The wire number of `server_name` (RFC 6066, section 3).
pub(super) const SERVER_NAME: u16 = 0;
/// The wire number of `early_data` (RFC 8446, section 4.2).
const EARLY_DATA: u16 = 42;
/// Type and length of a handshake message (RFC 8446, section 4).
pub(super) const MESSAGE_HEADER_BYTES: usize = 4;
/// Content type, version and length (RFC 8446, section 5.1).
pub(super) const RECORD_HEADER_BYTES: usize = 5;

/// Parses handshake bytes as they arrive, until the answer is known.
#[derive(Debug, Default)]
pub(crate) struct EarlyDataOffer {
    seen: Vec<u8>,
    offered: Option<bool>,
}

impl EarlyDataOffer {
    /// Reads the next bytes of the client's first handshake message.
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        if self.offered.is_some() {
            return;
        }
        let room = CLIENT_HELLO_BYTES - self.seen.len();
        self.seen.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let Some(size) = self.seen.get(1..MESSAGE_HEADER_BYTES) else { return };
        match self.seen.get(..MESSAGE_HEADER_BYTES + length(size)) {
            Some(message) => self.offered = Some(extension(message, EARLY_DATA).is_some()),
            None if self.seen.len() == CLIENT_HELLO_BYTES => self.offered = Some(false),
            None => return,
        }
        self.seen = Vec::new();
    }

    pub(crate) fn offered(&self) -> bool {
        self.offered == Some(true)
    }
}

/// An [`EarlyDataOffer`] over TCP, where the message comes in records.
#[derive(Debug, Default)]
pub(crate) struct RecordedOffer {
    offer: EarlyDataOffer,
    header: Vec<u8>,
    /// Bytes left of the current record.
    left: usize,
}

impl RecordedOffer {
    pub(crate) fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.offer.offered.is_none() {
            if self.left == 0 {
                let (header, rest) =
                    bytes.split_at(bytes.len().min(RECORD_HEADER_BYTES - self.header.len()));
                self.header.extend_from_slice(header);
                bytes = rest;
                if let &[_, _, _, high, low] = &*self.header {
                    self.left = usize::from(high) << 8 | usize::from(low);
                    self.header.clear();
                }
            } else {
                let (content, rest) = bytes.split_at(bytes.len().min(self.left));
                self.offer.read(content);
                self.left -= content.len();
                bytes = rest;
            }
        }
    }

    pub(crate) fn offered(&self) -> bool {
        self.offer.offered()
    }
}

/// Finds an extension of a ClientHello. Returns its offset and content; `None` also if the message is
/// malformed, which TLS detects by itself.
pub(super) fn extension(message: &[u8], wanted: u16) -> Option<(usize, &[u8])> {
    // Version and random, then session ID, cipher suites and compression methods (RFC 8446, section
    // 4.1.2).
    let mut at = MESSAGE_HEADER_BYTES + 34;
    for width in [1, 2, 1] {
        at += width + length(message.get(at..at + width)?);
    }
    at += 2;
    loop {
        let kind = u16::from_be_bytes(*message.get(at..)?.first_chunk()?);
        let begin = at + 4;
        let end = begin + length(message.get(at + 2..begin)?);
        let content = message.get(begin..end)?;
        if kind == wanted {
            return Some((at, content));
        }
        at = end;
    }
}

/// Reads a number of the wire, in network byte order.
pub(super) fn length(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client_hello(extensions: &[(u16, &[u8])]) -> Vec<u8> {
        let mut list = Vec::new();
        for (kind, content) in extensions {
            list.extend(kind.to_be_bytes());
            list.extend((content.len() as u16).to_be_bytes());
            list.extend(*content);
        }
        let mut body = vec![3, 3];
        body.extend([9; 32]);
        body.extend([4, 1, 2, 3, 4]);
        body.extend([0, 2, 0x13, 0x01]);
        body.extend([1, 0]);
        body.extend((list.len() as u16).to_be_bytes());
        body.extend(list);
        let mut message = vec![1, 0];
        message.extend((body.len() as u16).to_be_bytes());
        message.extend(body);
        message
    }

    fn offers(message: &[u8], piece: usize) -> bool {
        let mut offer = EarlyDataOffer::default();
        message.chunks(piece).for_each(|piece| offer.read(piece));
        offer.offered()
    }

    #[test]
    fn early_data_is_found_among_extensions_in_pieces_of_any_size() {
        let with =
            client_hello(&[(0, b"name"), (51, &[7; 1200]), (EARLY_DATA, b""), (41, b"ticket")]);
        let without = client_hello(&[(0, b"name"), (51, &[7; 1200]), (41, b"ticket")]);
        for piece in [1, 2, 7, 500, 4096] {
            assert!(offers(&with, piece));
            assert!(!offers(&without, piece));
        }
    }

    #[test]
    fn message_in_records_of_any_size_is_read() {
        let message = client_hello(&[(51, &[7; 300]), (EARLY_DATA, b"")]);
        for (record, piece) in [(1, 1), (100, 3), (4096, 4096), (50, 1000)] {
            let mut wire = Vec::new();
            for content in message.chunks(record) {
                wire.extend([22, 3, 1]);
                wire.extend((content.len() as u16).to_be_bytes());
                wire.extend(content);
            }
            let mut offer = RecordedOffer::default();
            wire.chunks(piece).for_each(|piece| offer.read(piece));
            assert!(offer.offered());
        }
    }

    #[test]
    fn truncated_or_endless_message_is_no_offer() {
        let message = client_hello(&[(EARLY_DATA, b"")]);
        for end in 0..message.len() {
            assert!(!offers(&message[..end], 1));
        }
        assert!(!offers(
            &[1, 0xff, 0xff, 0xff].into_iter().chain(vec![0; 20_000]).collect::<Vec<_>>(),
            1000
        ));
        // A length inside the message that points beyond its end.
        let mut broken = message.clone();
        broken[4 + 34] = 255;
        assert!(!offers(&broken, 4096));
    }
}
