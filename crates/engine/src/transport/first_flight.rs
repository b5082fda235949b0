//! A client's first flight, read before the library accepts the connection.

use std::collections::BTreeMap;

use bytes::BytesMut;
use pronghorn_h3::varint;
use quinn_proto::ConnectionId;
use quinn_proto::crypto::Keys;

use super::frames::Frames;

/// Maximum size of a ClientHello that is read ahead. Those of browsers, with post-quantum key
/// shares, have some 1,800 bytes.
const CLIENT_HELLO_BYTES: usize = 16 << 10;
/// Maximum number of pieces that wait for an earlier one.
const PIECES: usize = 64;
/// Packet numbers are encoded in 1 to 4 bytes, and packets are protected with a sample that begins
/// after 4 (RFC 9001, section 5.4.2).
const PACKET_NUMBER_BYTES: usize = 4;
const HEADER_BYTES: usize = 5;

/// What is known of the ClientHello.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More datagrams have to arrive.
    Incomplete,
    Complete,
    /// It is too large, or no ClientHello.
    Refused,
}

/// Why a datagram could not be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Undecryptable;

/// Collects the ClientHello of one connection from the Initial packets of its client.
pub(super) struct FirstFlight {
    /// Destination of the client's Initial packets.
    id: ConnectionId,
    keys: Keys,
    /// The beginning of the message, without gaps.
    hello: Vec<u8>,
    /// Pieces behind a gap, by offset.
    pieces: BTreeMap<usize, Vec<u8>>,
    is_refused: bool,
}

/// Returns the destination connection ID of a packet with a long header.
pub(super) fn destination(packet: &[u8]) -> Option<ConnectionId> {
    const MAX_ID: usize = 20;

    let (len, rest) = packet.get(HEADER_BYTES..)?.split_first()?;
    let id = rest.get(..usize::from(*len)).filter(|id| id.len() <= MAX_ID)?;
    Some(ConnectionId::new(id))
}

/// Whether a packet is an Initial packet of version 1 (RFC 9000, section 17.2.2).
pub(super) fn is_initial(packet: &[u8]) -> bool {
    matches!(packet, [first, 0, 0, 0, 1, ..] if first & 0xb0 == 0x80)
}

impl FirstFlight {
    /// Creates a collector. `keys` are a server's for the connection ID `id`.
    pub(super) fn new(id: ConnectionId, keys: Keys) -> Self {
        Self { id, keys, hello: Vec::new(), pieces: BTreeMap::new(), is_refused: false }
    }

    /// Reads the Initial packets of a datagram. An error means that the first one cannot be
    /// decrypted.
    pub(super) fn read(&mut self, datagram: &[u8]) -> Result<(), Undecryptable> {
        let mut rest = datagram;
        let mut is_first = true;
        while let Some(packet) = Packet::new(rest).filter(|packet| *packet.destination == *self.id)
        {
            match self.decrypt(&packet) {
                Some(payload) => self.read_frames(&payload),
                None if is_first => return Err(Undecryptable),
                // A damaged packet in the datagram: the library drops it too.
                None => {}
            }
            rest = &rest[packet.bytes.len()..];
            is_first = false;
        }
        if is_first { Err(Undecryptable) } else { Ok(()) }
    }

    pub(super) fn progress(&self) -> Progress {
        match self.hello.get(..4) {
            _ if self.is_refused => Progress::Refused,
            Some(&[CLIENT_HELLO, a, b, c]) => {
                let len = 4 + (usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c));
                match len {
                    _ if len > CLIENT_HELLO_BYTES => Progress::Refused,
                    _ if self.hello.len() < len => Progress::Incomplete,
                    _ => Progress::Complete,
                }
            }
            Some(_) => Progress::Refused,
            None => Progress::Incomplete,
        }
    }

    /// Returns the ClientHello once it is complete.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.hello)
    }

    fn decrypt(&self, packet: &Packet<'_>) -> Option<BytesMut> {
        let mut bytes = packet.bytes.to_vec();
        let sample = packet.number_at + PACKET_NUMBER_BYTES + self.keys.header.remote.sample_size();
        if bytes.len() < sample {
            return None;
        }
        self.keys.header.remote.decrypt(packet.number_at, &mut bytes);
        let number_len = usize::from(bytes[0] & 0x03) + 1;
        let payload_at = packet.number_at + number_len;
        let number = bytes[packet.number_at..payload_at]
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte));
        let (header, payload) = bytes.split_at(payload_at);
        let mut payload = BytesMut::from(payload);
        // A client's first packets have numbers that need no more bytes than are sent.
        self.keys.packet.remote.decrypt(number, header, &mut payload).ok()?;
        Some(payload)
    }

    fn read_frames(&mut self, payload: &[u8]) {
        let mut frames = Frames { rest: payload };
        while !frames.rest.is_empty() {
            match frames.crypto() {
                Some((offset, data)) => self.insert(offset, data),
                None if frames.skip().is_some() => {}
                // The library ends the connection.
                None => return,
            }
        }
    }

    fn insert(&mut self, offset: u64, data: &[u8]) {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        if offset.saturating_add(data.len()) > CLIENT_HELLO_BYTES || self.pieces.len() >= PIECES {
            self.is_refused = true;
            return;
        }
        let longest = self.pieces.get(&offset).is_none_or(|piece| piece.len() < data.len());
        if longest {
            self.pieces.insert(offset, data.to_vec());
        }
        while let Some(piece) = self.pieces.first_entry() {
            let offset = *piece.key();
            if offset > self.hello.len() {
                return;
            }
            let piece = piece.remove();
            let known = self.hello.len() - offset;
            self.hello.extend_from_slice(piece.get(known..).unwrap_or_default());
        }
    }
}

const CLIENT_HELLO: u8 = 1;

/// An Initial packet, still encrypted.
struct Packet<'a> {
    bytes: &'a [u8],
    destination: &'a [u8],
    /// Offset of the packet number.
    number_at: usize,
}

impl<'a> Packet<'a> {
    fn new(datagram: &'a [u8]) -> Option<Self> {
        if !is_initial(datagram) {
            return None;
        }
        let mut rest = datagram.get(HEADER_BYTES..)?;
        let mut ids = [&[][..]; 2];
        for id in &mut ids {
            let (len, after) = rest.split_first()?;
            (*id, rest) = after.split_at_checked(usize::from(*len))?;
        }
        let token = usize::try_from(varint::decode(&mut rest)?).ok()?;
        rest = rest.get(token..)?;
        let len = usize::try_from(varint::decode(&mut rest)?).ok()?;
        let number_at = datagram.len() - rest.len();
        let end = number_at.checked_add(len)?;
        Some(Self { bytes: datagram.get(..end)?, destination: ids[0], number_at })
    }
}

#[cfg(test)]
mod tests {
    use quinn_proto::Side;

    use super::*;
    use crate::transport::initial_keys::InitialKeys;

    const ID: &[u8] = b"a client's ID";

    fn keys(side: Side) -> Keys {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        InitialKeys::new(&provider).unwrap().derive(&ConnectionId::new(ID), side)
    }

    fn flight() -> FirstFlight {
        FirstFlight::new(ConnectionId::new(ID), keys(Side::Server))
    }

    fn crypto(offset: u64, data: &[u8]) -> Vec<u8> {
        let mut frame = vec![0x06];
        varint::encode(offset, &mut frame);
        varint::encode(data.len() as u64, &mut frame);
        frame.extend_from_slice(data);
        frame
    }

    /// Returns an encrypted Initial packet of a client.
    fn packet(number: u8, frames: &[u8]) -> Vec<u8> {
        let keys = keys(Side::Client);
        let mut frames = frames.to_vec();
        frames.resize(frames.len().max(20), 0);
        let mut packet = vec![0xc0, 0, 0, 0, 1, ID.len() as u8];
        packet.extend_from_slice(ID);
        packet.extend([3, 1, 2, 3, 0]);
        varint::encode((1 + frames.len() + 16) as u64, &mut packet);
        let number_at = packet.len();
        packet.push(number);
        let header_len = packet.len();
        packet.extend_from_slice(&frames);
        packet.extend([0; 16]);
        keys.packet.local.encrypt(u64::from(number), &mut packet, header_len);
        keys.header.local.encrypt(number_at, &mut packet);
        packet
    }

    fn hello(len: usize) -> Vec<u8> {
        let mut hello = vec![1, 0, (len >> 8) as u8, len as u8];
        hello.extend((0..len).map(|at| at as u8));
        hello
    }

    #[test]
    fn hello_in_pieces_of_any_order_is_put_together() {
        let whole = hello(1_000);
        let orders: [&[usize]; 4] = [&[0, 1, 2, 3], &[3, 2, 1, 0], &[1, 1, 3, 0, 2], &[2, 0, 3, 1]];
        for order in orders {
            let mut flight = flight();
            for (number, at) in order.iter().enumerate() {
                assert_eq!(flight.progress(), Progress::Incomplete);
                let (begin, end) = (at * 251, ((at + 1) * 251 + 10).min(whole.len()));
                let frames = [crypto(begin as u64, &whole[begin..end]), vec![1, 0, 0]].concat();
                flight.read(&packet(number as u8, &frames)).unwrap();
            }
            assert_eq!(flight.progress(), Progress::Complete);
            assert_eq!(flight.take(), whole);
        }
    }

    #[test]
    fn packets_that_share_a_datagram_are_all_read() {
        let whole = hello(100);
        let mut flight = flight();
        let early = [0xd0, 0, 0, 0, 1, 1, 2, 3, 4];
        let datagram = [
            packet(0, &crypto(50, &whole[50..])),
            packet(1, &crypto(0, &whole[..60])),
            early.to_vec(),
        ];
        flight.read(&datagram.concat()).unwrap();
        assert_eq!(flight.progress(), Progress::Complete);
    }

    #[test]
    fn damaged_or_truncated_datagram_is_not_read() {
        let whole = packet(0, &crypto(0, &hello(50)));
        assert_eq!(destination(&whole), Some(ConnectionId::new(ID)));
        for at in 0..whole.len() {
            let mut flight = flight();
            assert_eq!(flight.read(&whole[..at]), Err(Undecryptable));
            let mut damaged = whole.clone();
            damaged[at] ^= 0x40;
            let _ = destination(&damaged);
            assert_eq!(flight.read(&damaged), Err(Undecryptable), "byte {at}");
            assert_eq!(flight.progress(), Progress::Incomplete);
        }
    }

    #[test]
    fn endless_hello_and_other_messages_are_refused() {
        for frames in [
            crypto(0, &[1, 1, 0, 0]),
            crypto(0, &[2, 0, 0, 4]),
            crypto(CLIENT_HELLO_BYTES as u64, b"x"),
            crypto(varint::MAX, b"x"),
        ] {
            let mut flight = flight();
            flight.read(&packet(0, &frames)).unwrap();
            assert_eq!(flight.progress(), Progress::Refused);
        }
        let mut flight = flight();
        for piece in 0..=PIECES as u64 {
            flight.read(&packet(piece as u8, &crypto(2 * piece + 1, b"x"))).unwrap();
        }
        assert_eq!(flight.progress(), Progress::Refused);
    }
}
