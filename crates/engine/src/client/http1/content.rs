//! Framing of response bodies.

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;

use super::error::Http1Error;
use super::head::parse_trailers;
use crate::http1::Chunked;
use crate::memory::{MemoryPressure, memory_pressure};

/// Bytes of one read into a buffer, if more of a response's content is missing.
pub(super) const LARGE_READ: usize = 64 << 10;
/// The same while memory is short.
const PRESSED_READ: usize = 16 << 10;

/// Returns the bytes of one read into a buffer.
pub(super) fn large_read() -> usize {
    if memory_pressure() >= MemoryPressure::SmallWindows { PRESSED_READ } else { LARGE_READ }
}

/// How the content of a response is framed.
#[derive(Debug)]
pub(super) enum Framing {
    /// Number of missing bytes.
    Length(u64),
    Chunked {
        chunked: Chunked,
        /// Bytes of the trailer section so far.
        trailers: Vec<u8>,
    },
    UntilClose,
}

/// The result of decoding the received bytes.
#[derive(Debug, PartialEq)]
pub(super) enum Decoded {
    Data(Bytes),
    Trailers(HeaderMap),
    End,
    /// More bytes are needed, of which this many are certain to arrive.
    Incomplete(usize),
}

impl Framing {
    pub(super) fn chunked() -> Self {
        Self::Chunked { chunked: Chunked::of_response(), trailers: Vec::new() }
    }

    /// Returns the number of missing bytes, if the head announced the length.
    pub(super) fn missing(&self) -> Option<u64> {
        if let Self::Length(missing) = self { Some(*missing) } else { None }
    }

    /// Whether everything was decoded.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Length(missing) => *missing == 0,
            Self::Chunked { chunked, .. } => chunked.is_over(),
            Self::UntilClose => false,
        }
    }

    /// Removes the next piece of content from the front of `input`.
    pub(super) fn decode(&mut self, input: &mut BytesMut) -> Result<Decoded, Http1Error> {
        match self {
            Self::Length(0) => Ok(Decoded::End),
            Self::Length(missing) if input.is_empty() => {
                Ok(Decoded::Incomplete(usize::try_from(*missing).unwrap_or(usize::MAX)))
            }
            Self::Length(missing) => {
                let size = usize::try_from(*missing)
                    .map_or(input.len(), |missing| missing.min(input.len()));
                *missing -= size as u64;
                Ok(Decoded::Data(take(input, size)))
            }
            Self::UntilClose if input.is_empty() => Ok(Decoded::Incomplete(LARGE_READ)),
            Self::UntilClose => {
                let size = input.len();
                Ok(Decoded::Data(take(input, size)))
            }
            Self::Chunked { chunked, trailers } => decode_chunks(chunked, trailers, input),
        }
    }
}

fn decode_chunks(
    chunked: &mut Chunked,
    trailers: &mut Vec<u8>,
    input: &mut BytesMut,
) -> Result<Decoded, Http1Error> {
    let mut at = 0;
    while !chunked.is_over() {
        let missing = chunked.missing_data();
        if at == input.len() {
            input.clear();
            return Ok(Decoded::Incomplete(missing));
        }
        if missing > 0 {
            input.advance(at);
            let data = take(input, missing.min(input.len()));
            chunked.follow(&data)?;
            return Ok(Decoded::Data(data));
        }
        let is_trailer = chunked.is_in_trailers();
        chunked.follow(&input[at..=at])?;
        // Without trailers there is only an empty line.
        if is_trailer && (!trailers.is_empty() || chunked.is_in_trailer_name()) {
            trailers.push(input[at]);
        }
        at += 1;
    }
    input.advance(at);
    if trailers.is_empty() {
        return Ok(Decoded::End);
    }
    parse_trailers(&std::mem::take(trailers)).map(Decoded::Trailers)
}

/// Removes `size` bytes from the front of `input`. A piece that is much smaller than its buffer is
/// copied, so that it does not retain the buffer.
fn take(input: &mut BytesMut, size: usize) -> Bytes {
    if size == input.len() && size < input.capacity() / 4 {
        let piece = Bytes::copy_from_slice(input);
        input.clear();
        return piece;
    }
    input.split_to(size).freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes content in pieces of this size. Also returns the number of bytes behind its end.
    fn decode(
        mut framing: Framing,
        bytes: &[u8],
        size: usize,
    ) -> Result<(Vec<u8>, Option<HeaderMap>, usize), Http1Error> {
        let (mut content, mut input, mut rest) = (Vec::new(), BytesMut::new(), bytes);
        loop {
            match framing.decode(&mut input)? {
                Decoded::Data(data) => content.extend_from_slice(&data),
                Decoded::Trailers(trailers) => {
                    return Ok((content, Some(trailers), input.len() + rest.len()));
                }
                Decoded::End => return Ok((content, None, input.len() + rest.len())),
                Decoded::Incomplete(_) if rest.is_empty() => return Err(Http1Error::Incomplete),
                Decoded::Incomplete(_) => {
                    let (piece, behind) = rest.split_at(size.min(rest.len()));
                    input.extend_from_slice(piece);
                    rest = behind;
                }
            }
        }
    }

    #[test]
    fn content_is_the_same_in_pieces_of_any_size() {
        let chunks = b"5\r\nhello\r\n00B ; x=1\r\n, the world\r\n0\r\na: b\r\nc:d\r\n\r\nrest";
        for size in 1..=chunks.len() {
            let (content, trailers, left) = decode(Framing::chunked(), chunks, size).unwrap();
            assert_eq!((content.as_slice(), left), (&b"hello, the world"[..], 4), "{size}");
            let trailers = trailers.unwrap();
            assert_eq!(
                (trailers.len(), &trailers["a"], &trailers["c"]),
                (2, &"b".parse().unwrap(), &"d".parse().unwrap())
            );
            let (content, trailers, left) =
                decode(Framing::chunked(), b"2  \r\nab\r\n0\r\n\r\n", size).unwrap();
            assert_eq!((content.as_slice(), trailers, left), (&b"ab"[..], None, 0), "{size}");
            let (content, _, left) = decode(Framing::Length(7), b"0123456789", size).unwrap();
            assert_eq!((content.as_slice(), left), (&b"0123456"[..], 3), "{size}");
            assert!(matches!(
                decode(Framing::Length(11), b"0123456789", size),
                Err(Http1Error::Incomplete)
            ));
            let (content, ..) =
                decode(Framing::chunked(), b"00000000000000000002\r\nab\r\n0\r\n\r\n", size)
                    .unwrap();
            assert_eq!(content, b"ab", "{size}");
            assert!(matches!(
                decode(Framing::chunked(), b"3\r\nabcd\r\n", size),
                Err(Http1Error::Malformed(_))
            ));
        }
    }

    #[test]
    fn padding_of_sizes_does_not_add_up() {
        let chunks = "0001    \r\na\r\n".repeat(10_000) + "0\r\n\r\n";
        let (content, ..) = decode(Framing::chunked(), chunks.as_bytes(), 8192).unwrap();
        assert_eq!(content.len(), 10_000);
        let padded = format!("1{}\r\na\r\n0\r\n\r\n", " ".repeat(100));
        assert!(decode(Framing::chunked(), padded.as_bytes(), 8192).is_err());
        assert!(decode(Framing::chunked(), b"1 1\r\na\r\n", 8192).is_err());
    }

    #[test]
    fn small_piece_does_not_retain_a_large_buffer() {
        let mut input = BytesMut::with_capacity(LARGE_READ);
        input.extend_from_slice(b"small");
        let at = input.as_ptr();
        let piece = take(&mut input, 5);
        assert_eq!(
            (&piece[..], piece.as_ptr() == at, input.capacity()),
            (&b"small"[..], false, LARGE_READ)
        );
        input.extend_from_slice(&vec![0; LARGE_READ]);
        assert_eq!(take(&mut input, LARGE_READ).as_ptr(), at);
    }
}
