//! Incremental UTF-8 validation.

use crate::Error;

/// Validates text as it arrives. Fails at the first byte that cannot belong to valid text.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Utf8 {
    /// The incomplete character at the end.
    partial: [u8; 4],
    length: u8,
}

impl Utf8 {
    pub(crate) fn check(&mut self, mut text: &[u8]) -> Result<(), Error> {
        while self.length > 0 {
            let Some((first, rest)) = text.split_first() else { return Ok(()) };
            text = rest;
            // A character has at most four bytes, so there is space.
            self.partial[usize::from(self.length)] = *first;
            self.length += 1;
            match std::str::from_utf8(&self.partial[..usize::from(self.length)]) {
                Ok(_) => self.length = 0,
                Err(error) if error.error_len().is_some() => return Err(Error::NotUtf8),
                Err(_) => {}
            }
        }
        let Err(error) = std::str::from_utf8(text) else { return Ok(()) };
        if error.error_len().is_some() {
            return Err(Error::NotUtf8);
        }
        let partial = &text[error.valid_up_to()..];
        self.partial[..partial.len()].copy_from_slice(partial);
        self.length = partial.len() as u8;
        Ok(())
    }

    /// Checks that the text does not end inside a character.
    pub(crate) fn finish(self) -> Result<(), Error> {
        if self.length == 0 { Ok(()) } else { Err(Error::NotUtf8) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(pieces: &[&[u8]]) -> Result<(), Error> {
        let mut utf8 = Utf8::default();
        pieces.iter().try_for_each(|piece| utf8.check(piece))?;
        utf8.finish()
    }

    #[test]
    fn invalid_byte_is_detected_immediately() {
        for (good, bad) in [
            (&b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5"[..], &b"\xf4\x90"[..]),
            (b"", b"\xed\xa0"),
            (b"", b"\xc0"),
            (b"a", b"\xff"),
            (b"", b"\xe0\x80"),
        ] {
            let mut utf8 = Utf8::default();
            utf8.check(good).unwrap();
            let (last, first) = bad.split_last().unwrap();
            for byte in first {
                utf8.check(&[*byte]).unwrap();
            }
            assert_eq!(utf8.check(&[*last]), Err(Error::NotUtf8), "{bad:x?}");
        }
    }

    proptest! {
        #[test]
        fn split_input_gives_the_same_result(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), 0x80_u8..0xf5], 0..12), text in "\\PC{0,6}", cut in 0_usize..12, valid: bool) {
            let bytes = if valid { text.into_bytes() } else { bytes };
            let cut = cut.min(bytes.len());
            prop_assert_eq!(check(&[&bytes[..cut], &bytes[cut..]]).is_ok(), std::str::from_utf8(&bytes).is_ok());
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(check(&single).is_ok(), std::str::from_utf8(&bytes).is_ok());
        }
    }
}
