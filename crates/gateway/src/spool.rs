//! Content of a request that comes without its length and is too large for memory: in a file without a name until all of it is there.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use blocking::unblock;
use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use pronghorn_engine::BodyError;

use crate::buffering::write_at;
use crate::file_body::{FileBody, OpenFile};
use crate::room::Room;

/// Bytes that are written at once: each write is work for another thread.
const PIECE_BYTES: usize = 256 << 10;

/// Content that is written to the disk. Dropped, it is gone.
pub(crate) struct Spool {
    /// Bytes of this request.
    most: u64,
    /// For all that was taken.
    room: Room,
    folder: Arc<Path>,
    file: Option<Arc<OpenFile>>,
    written: u64,
    waiting: BytesMut,
}

/// Why no more is taken.
#[derive(Debug)]
pub(crate) enum Full {
    /// That would be more than one request may have.
    Request,
    /// All of them have too much.
    All,
    Disk(io::Error),
}

impl Spool {
    pub(crate) fn new(most: u64, room: Room, folder: Arc<Path>) -> Self {
        Self { most, room, folder, file: None, written: 0, waiting: BytesMut::new() }
    }

    /// Adds to what was taken, and waits for the disk.
    pub(crate) async fn add(&mut self, piece: &[u8]) -> Result<(), Full> {
        if self.length() + piece.len() as u64 > self.most {
            return Err(Full::Request);
        }
        if !self.room.grow(piece.len() as u64) {
            return Err(Full::All);
        }
        self.waiting.extend_from_slice(piece);
        if self.waiting.len() >= PIECE_BYTES { self.write().await.map_err(Full::Disk) } else { Ok(()) }
    }

    fn length(&self) -> u64 {
        self.written + self.waiting.len() as u64
    }

    async fn write(&mut self) -> io::Result<()> {
        let (file, piece, position, folder) = (self.file.take(), self.waiting.split().freeze(), self.written, self.folder.clone());
        self.written += piece.len() as u64;
        let written = unblock(move || {
            let file = match file {
                Some(file) => file,
                None => Arc::new(OpenFile::new(OwnedFd::from(tempfile::tempfile_in(&folder)?), false)),
            };
            write_at(&*file, &piece, position)?;
            Ok::<_, io::Error>(file)
        });
        self.file = Some(written.await?);
        Ok(())
    }

    /// All of it, and how many bytes that is.
    pub(crate) async fn finish(mut self) -> io::Result<(Spooled, u64)> {
        self.write().await?;
        let part: Range<u64> = 0..self.written;
        let file = self.file.take().expect("invariant: something was written");
        Ok((Spooled { content: FileBody::new(file, part), _room: self.room }, self.written))
    }
}

/// What was written, as content that takes room on the disk until it is dropped.
pub(crate) struct Spooled {
    content: FileBody,
    _room: Room,
}

impl http_body::Body for Spooled {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(Pin::new(&mut self.content).poll_frame(cx));
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.content.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.content.size_hint()
    }
}
