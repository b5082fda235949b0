//! Several ranges of a file as one multipart body (RFC 9110, section 14.6).

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body as _, Frame, SizeHint};
use pronghorn_engine::{Body, BodyError};

/// Format of a multipart body.
pub(crate) struct Multipart {
    boundary: String,
    content_type: HeaderValue,
    length: u64,
}

impl Multipart {
    /// `content_type` and `length` are those of the complete content.
    pub(crate) fn new(content_type: HeaderValue, length: u64) -> Self {
        // Occurs in the content only with a probability of 2^-128.
        Self { boundary: format!("{:032x}", rand::random::<u128>()), content_type, length }
    }

    /// Returns the content type of the message.
    pub(crate) fn content_type(&self) -> HeaderValue {
        HeaderValue::try_from(format!("multipart/byteranges; boundary={}", self.boundary))
            .expect("invariant: made of visible ASCII")
    }

    /// Returns the parts with their delimiters; `body` makes the body of one part.
    pub(crate) fn body(
        &self,
        parts: Vec<Range<u64>>,
        mut body: impl FnMut(Range<u64>) -> Body,
    ) -> Parts {
        let mut pieces = VecDeque::with_capacity(2 * parts.len() + 1);
        for part in parts {
            let range = format!(
                "\r\ncontent-range: bytes {}-{}/{}\r\n\r\n",
                part.start,
                part.end - 1,
                self.length
            );
            let head = [
                b"\r\n--",
                self.boundary.as_bytes(),
                b"\r\ncontent-type: ",
                self.content_type.as_bytes(),
                range.as_bytes(),
            ];
            pieces.push_back(Body::from(head.concat()));
            pieces.push_back(body(part));
        }
        pieces.push_back(Body::from(format!("\r\n--{}--\r\n", self.boundary)));
        Parts { left: pieces.iter().map(|piece| piece.size_hint().lower()).sum(), pieces }
    }
}

/// A sequence of bodies with known sizes.
pub(crate) struct Parts {
    pieces: VecDeque<Body>,
    left: u64,
}

impl http_body::Body for Parts {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        while let Some(piece) = self.pieces.front_mut() {
            let frame = ready!(Pin::new(&mut *piece).poll_frame(cx));
            if piece.is_end_stream() {
                self.pieces.pop_front();
            }
            if let Some(frame) = frame {
                let bytes = frame.as_ref().ok().and_then(Frame::data_ref).map_or(0, Bytes::len);
                self.left -= bytes as u64;
                return Poll::Ready(Some(frame));
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// Returns the fields of a multipart response, derived from those of the complete response.
pub(crate) fn fields(whole: &HeaderMap, multipart: &Multipart) -> HeaderMap {
    let mut fields = whole.clone();
    fields.remove(http::header::CONTENT_LENGTH);
    fields.insert(http::header::CONTENT_TYPE, multipart.content_type());
    fields
}
