//! Strips PADDING from received packets before the library parses them.
//!
//! quinn-proto decodes PADDING a byte at a time, each as a frame of its own. Many clients fill up
//! their datagrams, which would make that the largest cost of a small request, and a peer could do
//! it on purpose. Packet decryption is under our control, and passes on the packet without its
//! padding. PADDING frames have no meaning (RFC 9000, section 19.1), and the sizes that matter,
//! those of datagrams, are counted before.

use bytes::BytesMut;
use quinn_proto::crypto::{CryptoError, PacketKey};

use super::frames::Frames;

/// For shorter runs, finding their beginning costs more than decoding them.
const WORTH_A_LOOK: usize = 8;

/// A key for received packets.
pub(super) struct StripPadding<K>(pub(super) K);

impl<K: PacketKey> PacketKey for StripPadding<K> {
    fn encrypt(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        self.0.encrypt(packet, buf, header_len);
    }

    fn decrypt(
        &self,
        packet: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        self.0.decrypt(packet, header, payload)?;
        payload.truncate(meaningful_len(payload));
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.0.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.0.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.0.integrity_limit()
    }
}

/// Returns the length of the payload including one byte of its final PADDING, if there is any.
///
/// One byte stays, because a packet without frames is an error and one with only PADDING is not.
/// Payloads that this parser does not understand stay unchanged.
fn meaningful_len(payload: &[u8]) -> usize {
    let zeros = trailing_zeros(payload);
    if zeros < WORTH_A_LOOK {
        return payload.len();
    }
    // Zeros may also be content: only parsing the frames tells.
    let mut frames = Frames { rest: payload };
    while frames.rest.len() > zeros {
        if frames.skip().is_none() {
            return payload.len();
        }
    }
    // The last frame reaches beyond the first zero, so some zeros belong to it.
    if frames.rest.is_empty() { payload.len() } else { payload.len() - frames.rest.len() + 1 }
}

/// Counts the zeros at the end, as many at a time as a processor's registers hold.
fn trailing_zeros(text: &[u8]) -> usize {
    let mut rest = text;
    while let Some((before, last)) = rest.split_last_chunk::<32>()
        && last.iter().fold(0, |bits, byte| bits | byte) == 0
    {
        rest = before;
    }
    let few = rest.iter().rev().take_while(|byte| **byte == 0).count();
    text.len() - rest.len() + few
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Frames of every kind that can precede padding, most of them ending in zeros.
    const FRAMES: [&[u8]; 23] = [
        &[0x01],
        &[0x02, 9, 0, 0, 0],
        &[0x02, 0x40, 9, 0, 2, 0, 0, 0, 0, 0],
        &[0x03, 9, 0, 1, 0, 0, 0, 0, 0, 0],
        &[0x04, 0, 0, 0],
        &[0x05, 4, 0],
        &[0x06, 0, 3, 0, 0, 0],
        &[0x0a, 0, 3, 0, 0, 0],
        &[0x0b, 0, 0],
        &[0x0e, 0, 0x80, 0, 0, 0, 2, 0, 0],
        &[0x0f, 0, 0, 4, 0, 0, 0, 0],
        &[0x10, 0xc0, 0, 0, 0, 0, 0, 0, 0],
        &[0x11, 0, 0],
        &[0x12, 0],
        &[0x17, 0],
        &[0x18, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0x19, 0],
        &[0x1a, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0x1b, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0x1c, 0, 0, 0],
        &[0x1d, 0x41, 0, 2, 0, 0],
        &[0x1e],
        &[0x1f],
    ];

    proptest! {
        #[test]
        fn padding_alone_is_taken_off(places in prop::collection::vec(0..FRAMES.len(), 0..8), padding in 0..1400_usize) {
            let frames: Vec<u8> = places.iter().flat_map(|place| FRAMES[*place]).copied().collect();
            let mut payload = frames.clone();
            payload.resize(frames.len() + padding, 0);
            let len = meaningful_len(&payload);
            prop_assert!(len == payload.len() || len == frames.len() + 1);
            if padding >= WORTH_A_LOOK {
                prop_assert_eq!(len, frames.len() + 1);
            }
        }

        #[test]
        fn only_trailing_zeros_are_stripped(payload in prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => any::<u8>()], 0..200)) {
            let len = meaningful_len(&payload);
            prop_assert!(len <= payload.len() && payload[len..].iter().all(|byte| *byte == 0));
            prop_assert!(payload.is_empty() || len > 0);
        }
    }

    #[test]
    fn zeros_of_content_that_reaches_to_the_end_stay() {
        for frames in
            [&[0x08, 0][..], &[0x0d, 0, 0], &[0x01, 0x09, 4], &[0x30], &[0x40, 0x08, 0], &[0x20, 0]]
        {
            let mut payload = frames.to_vec();
            payload.resize(200, 0);
            assert_eq!(meaningful_len(&payload), payload.len(), "{frames:?}");
        }
        // A frame longer than the packet: the library reports the error.
        let mut cut_off = vec![0x0a, 0, 0x7f, 0xff];
        cut_off.resize(200, 0);
        assert_eq!(meaningful_len(&cut_off), cut_off.len());
    }
}
