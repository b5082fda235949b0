//! Spooling of a request body without content-length that is too large for memory: it is collected
//! in an unnamed file until it is complete.

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
use crate::memory_limit::Reservation;
use crate::static_files::file_body::{FileBody, OpenFile};

/// Number of bytes written at once; each write is a task on another thread.
const PIECE_BYTES: usize = 256 << 10;

/// A body that is written to disk; the file is deleted on drop.
pub(crate) struct Spool {
    /// Maximum bytes of this request.
    most: u64,
    /// Reservation for all bytes added.
    reservation: Reservation,
    folder: Arc<Path>,
    file: Option<Arc<OpenFile>>,
    written: u64,
    waiting: BytesMut,
}

/// Why a piece was not added.
#[derive(Debug)]
pub(crate) enum LimitReached {
    /// The limit of one request is reached.
    Request,
    /// The limit of all requests is reached.
    All,
    Disk(io::Error),
}

impl Spool {
    pub(crate) fn new(most: u64, reservation: Reservation, folder: Arc<Path>) -> Self {
        Self { most, reservation, folder, file: None, written: 0, waiting: BytesMut::new() }
    }

    /// Adds a piece, waiting for the disk if needed.
    pub(crate) async fn add(&mut self, piece: &[u8]) -> Result<(), LimitReached> {
        if self.length() + piece.len() as u64 > self.most {
            return Err(LimitReached::Request);
        }
        if !self.reservation.grow(piece.len() as u64) {
            return Err(LimitReached::All);
        }
        self.waiting.extend_from_slice(piece);
        if self.waiting.len() >= PIECE_BYTES {
            self.write().await.map_err(LimitReached::Disk)
        } else {
            Ok(())
        }
    }

    fn length(&self) -> u64 {
        self.written + self.waiting.len() as u64
    }

    async fn write(&mut self) -> io::Result<()> {
        let (file, piece, position, folder) =
            (self.file.take(), self.waiting.split().freeze(), self.written, self.folder.clone());
        self.written += piece.len() as u64;
        let written = unblock(move || {
            let file = match file {
                Some(file) => file,
                None => {
                    Arc::new(OpenFile::new(OwnedFd::from(tempfile::tempfile_in(&folder)?), false))
                }
            };
            write_at(&*file, &piece, position)?;
            Ok::<_, io::Error>(file)
        });
        self.file = Some(written.await?);
        Ok(())
    }

    /// Returns the whole body and its length.
    pub(crate) async fn finish(mut self) -> io::Result<(Spooled, u64)> {
        self.write().await?;
        let part: Range<u64> = 0..self.written;
        let file = self.file.take().expect("invariant: something was written");
        Ok((Spooled { content: FileBody::new(file, part), _room: self.reservation }, self.written))
    }
}

/// A spooled body; its disk space stays reserved until it is dropped.
pub(crate) struct Spooled {
    content: FileBody,
    _room: Reservation,
}

impl http_body::Body for Spooled {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
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
