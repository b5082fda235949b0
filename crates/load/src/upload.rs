//! Generated request bodies.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use pronghorn_engine::Body;

use crate::Upload;

/// A chunk of a generated body. The protocols split bodies no finer.
static CHUNK: [u8; 16 << 10] = [b'p'; 16 << 10];

/// Returns the body of one request.
pub(crate) fn body(upload: &Upload) -> Body {
    match upload {
        Upload::None => Body::empty(),
        Upload::Bytes(bytes) => Body::from(bytes.clone()),
        Upload::Size(size) => Body::stream(GeneratedBody { left: *size }),
    }
}

struct GeneratedBody {
    left: u64,
}

impl http_body::Body for GeneratedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let size = self.left.min(CHUNK.len() as u64);
        self.left -= size;
        Poll::Ready(
            (size > 0).then(|| Ok(Frame::data(Bytes::from_static(&CHUNK[..size as usize])))),
        )
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
