//! Strict parsing of the chunked coding (RFC 9112, section 7.1): finds its end and accepts only one
//! form.

use super::head::{Malformed, is_token, is_value};

/// Maximum bytes of chunk extensions and trailers in one message. Extensions are unused in
/// practice, trailers rare.
const MAX_EXTRA_BYTES: usize = 16 << 10;

/// Maximum white space after a chunk size.
const MAX_PADDING: u8 = 32;

/// Parses the framing of one message's content.
#[derive(Debug)]
pub(crate) struct Chunked {
    awaiting: Awaiting,
    extra_bytes: usize,
    has_trailers: bool,
    /// Allows white space after a chunk size and any number of leading zeros, as some servers write
    /// them.
    is_lenient: bool,
}

/// The part of the coding that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaiting {
    Size {
        digits: u8,
        size: u64,
    },
    /// White space after the size, where it is allowed.
    Padding {
        size: u64,
        bytes: u8,
    },
    Extension {
        size: u64,
    },
    SizeLf {
        size: u64,
    },
    Data {
        left: u64,
    },
    DataCr,
    DataLf,
    /// The first byte of a trailer line, or the CR of the last line.
    Trailer,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    End,
}

impl Chunked {
    pub(super) const fn new() -> Self {
        Self {
            awaiting: Awaiting::Size { digits: 0, size: 0 },
            extra_bytes: 0,
            has_trailers: false,
            is_lenient: false,
        }
    }

    /// Creates a parser for a response's content, which is lenient about sizes.
    pub(crate) const fn of_response() -> Self {
        Self { is_lenient: true, ..Self::new() }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.awaiting == Awaiting::End
    }

    /// Returns the number of missing bytes of the current chunk's data; 0 outside of data.
    pub(crate) fn missing_data(&self) -> usize {
        if let Awaiting::Data { left } = self.awaiting {
            usize::try_from(left).unwrap_or(usize::MAX)
        } else {
            0
        }
    }

    /// Whether the next byte is part of the trailer section, including the empty line at its end.
    pub(crate) fn is_in_trailers(&self) -> bool {
        use Awaiting::{EndLf, Trailer, TrailerLf, TrailerName, TrailerValue};
        matches!(self.awaiting, Trailer | TrailerName | TrailerValue | TrailerLf | EndLf)
    }

    /// Whether the previous byte was part of a trailer's name.
    pub(crate) fn is_in_trailer_name(&self) -> bool {
        self.awaiting == Awaiting::TrailerName
    }

    pub(super) fn has_trailers(&self) -> bool {
        self.has_trailers
    }

    /// Parses `bytes`. Returns how many of them belong to the message.
    pub(crate) fn follow(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let mut at = 0;
        while at < bytes.len() && self.awaiting != Awaiting::End {
            if let Awaiting::Data { left } = &mut self.awaiting {
                let skipped = usize::try_from(*left)
                    .map_or(bytes.len() - at, |left| left.min(bytes.len() - at));
                *left -= skipped as u64;
                at += skipped;
                if *left == 0 {
                    self.awaiting = Awaiting::DataCr;
                }
                continue;
            }
            self.awaiting = self.step(bytes[at])?;
            at += 1;
        }
        Ok(at)
    }

    fn step(&mut self, byte: u8) -> Result<Awaiting, Malformed> {
        if matches!(
            self.awaiting,
            Awaiting::Extension { .. } | Awaiting::TrailerName | Awaiting::TrailerValue
        ) {
            self.extra_bytes += 1;
            if self.extra_bytes > MAX_EXTRA_BYTES {
                return Err(Malformed("too many bytes of chunk extensions or trailers"));
            }
        }
        Ok(match (self.awaiting, byte) {
            // Some servers write sizes of a fixed width: leading zeros count as one digit.
            (Awaiting::Size { digits: 1, size: 0 }, b'0') if self.is_lenient => self.awaiting,
            (Awaiting::Size { digits, size }, _) if byte.is_ascii_hexdigit() && digits < 16 => {
                let digit = (byte as char).to_digit(16).expect("invariant: a hexadecimal digit");
                Awaiting::Size { digits: digits + 1, size: size << 4 | u64::from(digit) }
            }
            (Awaiting::Size { digits: 1.., size } | Awaiting::Padding { size, .. }, b';') => {
                Awaiting::Extension { size }
            }
            (Awaiting::Size { digits: 1.., size }, b' ' | b'\t') if self.is_lenient => {
                Awaiting::Padding { size, bytes: 1 }
            }
            (Awaiting::Padding { size, bytes: bytes @ ..MAX_PADDING }, b' ' | b'\t') => {
                Awaiting::Padding { size, bytes: bytes + 1 }
            }
            (
                Awaiting::Size { digits: 1.., size }
                | Awaiting::Padding { size, .. }
                | Awaiting::Extension { size },
                b'\r',
            ) => Awaiting::SizeLf { size },
            (Awaiting::Padding { .. }, _) => {
                return Err(Malformed("unexpected byte after a chunk size"));
            }
            (Awaiting::Size { .. }, _) => {
                return Err(Malformed("chunk size is not a hexadecimal number"));
            }
            (Awaiting::Extension { size }, _) if is_value(byte) => Awaiting::Extension { size },
            (Awaiting::Extension { .. }, _) => {
                return Err(Malformed("invalid character in a chunk extension"));
            }
            (Awaiting::SizeLf { size: 0 } | Awaiting::TrailerLf, b'\n') => Awaiting::Trailer,
            (Awaiting::SizeLf { size }, b'\n') => Awaiting::Data { left: size },
            (Awaiting::DataCr, b'\r') => Awaiting::DataLf,
            (Awaiting::DataLf, b'\n') => Awaiting::Size { digits: 0, size: 0 },
            (Awaiting::Trailer, b'\r') => Awaiting::EndLf,
            (Awaiting::Trailer | Awaiting::TrailerName, _) if is_token(byte) => {
                Awaiting::TrailerName
            }
            (Awaiting::TrailerName, b':') => {
                self.has_trailers = true;
                Awaiting::TrailerValue
            }
            (Awaiting::Trailer | Awaiting::TrailerName, _) => {
                return Err(Malformed("trailer name is not a token"));
            }
            (Awaiting::TrailerValue, b'\r') => Awaiting::TrailerLf,
            (Awaiting::TrailerValue, _) if is_value(byte) => Awaiting::TrailerValue,
            (Awaiting::TrailerValue, _) => {
                return Err(Malformed("invalid character in a trailer value"));
            }
            (Awaiting::EndLf, b'\n') => Awaiting::End,
            _ => return Err(Malformed("missing CR or LF in the chunked coding")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the length of the message, parsed whole and byte by byte.
    fn length(bytes: &str) -> Result<Option<usize>, Malformed> {
        let mut whole = Chunked::new();
        let result = whole.follow(bytes.as_bytes()).map(|taken| whole.is_over().then_some(taken));
        let mut pieces = Chunked::new();
        let mut taken = 0;
        let step = bytes.bytes().try_for_each(|byte| {
            taken += pieces.follow(&[byte])?;
            Ok(())
        });
        assert_eq!(step.map(|()| pieces.is_over().then_some(taken)), result, "{bytes:?}");
        result
    }

    #[test]
    fn message_ends_where_it_says() {
        assert_eq!(length("0\r\n\r\nGET"), Ok(Some(5)));
        assert_eq!(length("3\r\nabc\r\n0\r\n\r\n"), Ok(Some(13)));
        assert_eq!(
            length("00A;x=\"y\"; z\r\n0123456789\r\n000\r\nname: value\r\nb:\r\n\r\nrest"),
            Ok(Some(50))
        );
        assert_eq!(length("3\r\nabc\r\n0\r\n"), Ok(None));
    }

    #[test]
    fn ambiguous_chunked_coding_is_refused() {
        for bytes in [
            "\r\n0\r\n\r\n",
            "0x3\r\nabc\r\n0\r\n\r\n",
            "+3\r\nabc\r\n0\r\n\r\n",
            "-3\r\n",
            " 3\r\n",
            "3 \r\nabc\r\n",
            "3 ;x\r\n",
            "g\r\n",
            ";x\r\n",
            "3\nabc\n0\n\n",
            "3\rabc",
            "3;x\nabc",
            "3;x\r\rabc",
            "3;\u{0}\r\n",
            "3\r\nabcd\r\n",
            "3\r\nabc0\r\n\r\n",
            "3\r\nabc\n0\r\n\r\n",
            "3\r\nabc\r0\r\n\r\n",
            "0\r\n\n",
            "0\r\n name: value\r\n\r\n",
            "0\r\nname : value\r\n\r\n",
            "0\r\nname: a\nb: c\r\n\r\n",
            "0\r\nname: \u{0}\r\n\r\n",
            "10000000000000003\r\nabc",
        ] {
            assert!(length(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn extensions_and_trailers_are_bounded() {
        let long = "x".repeat(MAX_EXTRA_BYTES + 1);
        assert!(length(&format!("1;{long}\r\n")).is_err());
        assert!(length(&format!("0\r\na:{long}\r\n")).is_err());
        let many = format!("1;{}\r\na\r\n", "x".repeat(1000)).repeat(17);
        assert!(length(&many).is_err());
    }
}
