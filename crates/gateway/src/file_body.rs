//! A file's content as a body.

use std::future::Future;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use blocking::{Task, unblock};
use bytes::Bytes;
use http_body::{Frame, SizeHint};

/// Bytes read from a file at once; the most that a response holds of its file.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;

/// Reads a part of a file, chunk by chunk, off the worker.
pub(crate) struct FileBody {
    file: Arc<OwnedFd>,
    left: Range<u64>,
    reading: Option<Task<io::Result<Bytes>>>,
}

impl FileBody {
    pub(crate) fn new(file: OwnedFd, part: Range<u64>) -> Self {
        Self { file: Arc::new(file), left: part, reading: None }
    }
}

impl http_body::Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        if this.left.is_empty() {
            return Poll::Ready(None);
        }
        let reading = this.reading.get_or_insert_with(|| {
            let file = this.file.clone();
            let part = this.left.start..this.left.end.min(this.left.start + CHUNK_BYTES as u64);
            unblock(move || read(&file, part))
        });
        let result = ready!(Pin::new(reading).poll(cx));
        this.reading = None;
        if let Ok(data) = &result {
            this.left.start += data.len() as u64;
        }
        Poll::Ready(Some(result.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.end - self.left.start)
    }
}

/// Reads a part of a file whole. A file that has become shorter is an error: its length has been promised.
pub(crate) fn read(file: &OwnedFd, part: Range<u64>) -> io::Result<Bytes> {
    let mut buffer = vec![0; (part.end - part.start) as usize];
    let mut filled = 0;
    while filled < buffer.len() {
        match rustix::io::pread(file, &mut buffer[filled..], part.start + filled as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(buffer.into())
}
