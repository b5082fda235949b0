//! A file's content as a response body.

use std::future::Future;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use blocking::{Task, unblock};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use pronghorn_engine::send_capacity;
use rustix::buffer::spare_capacity;
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

use crate::static_files::chunk::{CHUNK_BYTES, Chunk};

/// Minimum number of bytes read at once, even if the peer can take fewer.
const LEAST_BYTES: usize = 4 << 10;

/// Reads a part of a file, chunk by chunk: cached data on the worker, data on disk on another
/// thread.
pub(crate) struct FileBody {
    file: Arc<OpenFile>,
    left: Range<u64>,
    /// Whether the file system supports non-blocking reads.
    asks_memory: bool,
    reading: Option<Task<io::Result<Bytes>>>,
}

impl FileBody {
    pub(crate) fn new(file: Arc<OpenFile>, part: Range<u64>) -> Self {
        Self { file, left: part, asks_memory: true, reading: None }
    }

    /// Extends the part after more was written.
    pub(crate) fn extend(&mut self, bytes: u64) {
        self.left.end += bytes;
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        // As much as the connection can take. Small reads are copied and keep no chunk.
        let most = send_capacity().clamp(LEAST_BYTES, CHUNK_BYTES);
        let next = self.left.start..self.left.end.min(self.left.start + most as u64);
        if self.reading.is_none() && self.asks_memory {
            let mut chunk = Chunk::take();
            match read_from_memory(
                &*self.file,
                next.start,
                chunk.room((next.end - next.start) as usize),
            ) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => return Poll::Ready(Ok(chunk.into_bytes(count))),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => self.asks_memory = false,
            }
        }
        let file = &self.file;
        let reading = self.reading.get_or_insert_with(|| {
            let file = file.clone();
            unblock(move || read(&*file, next))
        });
        let result = ready!(Pin::new(reading).poll(cx));
        self.reading = None;
        Poll::Ready(result)
    }
}

impl http_body::Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left.is_empty() {
            return Poll::Ready(None);
        }
        let result = ready!(self.poll_chunk(cx));
        if let Ok(data) = &result {
            self.left.start += data.len() as u64;
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

/// An open file, closed on another thread where closing may block.
pub(crate) struct OpenFile {
    /// `None` once closed.
    file: Option<OwnedFd>,
    is_local: bool,
}

impl OpenFile {
    /// `is_local` means that the file's metadata is in this machine's memory.
    pub(crate) fn new(file: OwnedFd, is_local: bool) -> Self {
        Self { file: Some(file), is_local }
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_ref().expect("invariant: it is not closed before it is dropped").as_fd()
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        // The last close of a deleted file blocks until the file system has freed its blocks.
        let links = || {
            rustix::fs::statx(
                &file,
                c"",
                AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC,
                StatxFlags::NLINK,
            )
        };
        if !self.is_local || links().is_ok_and(|stat| stat.stx_nlink == 0) {
            unblock(move || drop(file)).detach();
        }
    }
}

/// Reads cached data: less than the buffer's size where the rest is on disk, [`Errno::AGAIN`] where
/// all of it is, nothing at the end of the file.
fn read_from_memory(file: impl AsFd, position: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    rustix::io::preadv2(file, &mut [IoSliceMut::new(buffer)], position, ReadWriteFlags::NOWAIT)
}

/// Returns the first `length` bytes of a small file, if they are cached.
pub(crate) fn read_cached(file: impl AsFd, length: u64) -> Result<Bytes, Errno> {
    let mut chunk = Chunk::take();
    let buffer = chunk.room(length as usize);
    let count = read_from_memory(file, 0, buffer)?;
    // The rest is on disk or truncated.
    if count < buffer.len() { Err(Errno::AGAIN) } else { Ok(Bytes::copy_from_slice(buffer)) }
}

/// Reads a whole part of a file. A truncated file is an error, since its length was already
/// announced.
pub(crate) fn read(file: impl AsFd, part: Range<u64>) -> io::Result<Bytes> {
    let length = (part.end - part.start) as usize;
    let mut buffer = Vec::with_capacity(length);
    while buffer.len() < length {
        let position = part.start + buffer.len() as u64;
        match rustix::io::pread(&file, spare_capacity(&mut buffer), position) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // The capacity may be larger than requested.
    buffer.truncate(length);
    Ok(buffer.into())
}
