//! Protects servers from Retry packets.

use bytes::Buf;
use pronghorn_h3::varint;

/// Returns the length of a datagram before its first Retry packet, or all of it if there is none.
///
/// A Retry packet is of no use to a server, and nothing in it is authenticated. But quinn-proto
/// ends the connection, so one forged or damaged datagram would end a handshake.
pub(super) fn len_without_retry(datagram: &[u8]) -> usize {
    let mut rest = datagram;
    while is_long_header(rest) {
        if rest[0] & 0x30 == 0x30 {
            return datagram.len() - rest.len();
        }
        match skip_packet(rest) {
            Some(next) => rest = next,
            None => break,
        }
    }
    datagram.len()
}

/// Only of version 1, the supported one: other versions may have other packet types.
fn is_long_header(packet: &[u8]) -> bool {
    matches!(packet, [first, 0, 0, 0, 1, ..] if first & 0x80 != 0)
}

/// Returns the bytes after an Initial, 0-RTT or Handshake packet (RFC 9000, section 17.2).
fn skip_packet(packet: &[u8]) -> Option<&[u8]> {
    let is_initial = packet[0] & 0x30 == 0;
    let mut rest = packet.get(5..)?;
    for _ in 0..2 {
        let len = usize::from(*rest.first()?);
        rest = rest.get(1 + len..)?;
    }
    if is_initial {
        skip(&mut rest)?;
    }
    skip(&mut rest)?;
    Some(rest)
}

/// Skips a length and the bytes that it counts.
fn skip(rest: &mut &[u8]) -> Option<()> {
    let len = usize::try_from(varint::decode(rest)?).ok()?;
    if len > rest.len() {
        return None;
    }
    rest.advance(len);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const INITIAL: &[u8] = &[0xc0, 0, 0, 0, 1, 2, 7, 7, 1, 9, 1, 5, 3, 1, 2, 3];
    const HANDSHAKE: &[u8] = &[0xe0, 0, 0, 0, 1, 2, 7, 7, 0, 2, 1, 2];
    const RETRY: &[u8] = &[0xf0, 0, 0, 0, 1, 2, 7, 7, 0, 1, 2, 3];
    const SHORT: &[u8] = &[0x70, 1, 2, 3, 4, 5];

    #[test]
    fn retry_is_cut_off_wherever_it_stands() {
        for before in [&[][..], INITIAL, HANDSHAKE, &[INITIAL, HANDSHAKE].concat()] {
            assert_eq!(len_without_retry(&[before, RETRY, SHORT].concat()), before.len());
            for whole in [[before, SHORT].concat(), before.to_vec()] {
                assert_eq!(len_without_retry(&whole), whole.len());
            }
        }
    }

    #[test]
    fn unknown_frames_stay_unchanged() {
        let another_version = [&RETRY[..1], &[0, 0, 0, 2], &RETRY[5..]].concat();
        for datagram in
            [&another_version[..], &[0xf0], &[], &INITIAL[..12], &[INITIAL, &[0xf0, 0, 0]].concat()]
        {
            assert_eq!(len_without_retry(datagram), datagram.len(), "{datagram:?}");
        }
    }
}
