//! The part of a buffered response on disk: an unnamed file of its own, which is deleted with it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use blocking::{Task, unblock};
use bytes::Bytes;
use http_body::Body as _;
use rustix::io::Errno;

use crate::memory_limit::Reservation;
use crate::static_files::file_body::{FileBody, OpenFile};

/// The file exists while it has unread data or a write is running.
pub(super) struct Disk {
    most: u64,
    /// Reservation for all bytes written to the file, read or not.
    reservation: Reservation,
    /// Offset of the next piece.
    end: u64,
    file: Option<(Arc<OpenFile>, FileBody)>,
    writing: Option<Writing>,
    /// A write failed; no more is written until the existing data is read.
    has_failed: bool,
}

struct Writing {
    task: Task<io::Result<Arc<OpenFile>>>,
    bytes: u64,
    /// The reader has taken the piece already.
    is_unwanted: bool,
}

/// The result of a write.
#[derive(Debug)]
pub(super) enum WriteResult {
    Kept,
    /// The reader has taken the piece already.
    Unwanted,
    Failed(io::Error),
}

impl Disk {
    /// `most` is a number of bytes.
    pub(super) fn new(most: u64, reservation: Reservation) -> Self {
        Self { most, reservation, end: 0, file: None, writing: None, has_failed: false }
    }

    /// Returns whether there is no data to read.
    pub(super) fn is_empty(&self) -> bool {
        self.file.as_ref().is_none_or(|(_, left)| left.is_end_stream())
    }

    pub(super) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Starts to write a piece and returns `true` if the limits allow it. No other write may be
    /// running.
    pub(super) fn write(&mut self, piece: Bytes, folder: &Arc<Path>) -> bool {
        let bytes = piece.len() as u64;
        if self.has_failed || self.end + bytes > self.most || !self.reservation.grow(bytes) {
            return false;
        }
        let (file, position, folder) =
            (self.file.as_ref().map(|(file, _)| file.clone()), self.end, folder.clone());
        let task = unblock(move || {
            let file = match file {
                Some(file) => file,
                None => {
                    Arc::new(OpenFile::new(OwnedFd::from(tempfile::tempfile_in(&folder)?), false))
                }
            };
            write_at(&*file, &piece, position)?;
            Ok(file)
        });
        self.writing = Some(Writing { task, bytes, is_unwanted: false });
        true
    }

    /// Marks the piece that is being written, if any, as already read.
    pub(super) fn forget_what_is_written(&mut self) {
        if let Some(writing) = &mut self.writing {
            writing.is_unwanted = true;
        }
    }

    /// Returns whether the piece that is being written was already read.
    pub(super) fn is_unwanted(&self) -> bool {
        self.writing.as_ref().is_some_and(|writing| writing.is_unwanted)
    }

    /// Polls the running write, if any.
    pub(super) fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<Option<WriteResult>> {
        let Some(writing) = &mut self.writing else { return Poll::Ready(None) };
        let result = ready!(Pin::new(&mut writing.task).poll(cx));
        let (bytes, is_unwanted) = (writing.bytes, writing.is_unwanted);
        self.writing = None;
        let written = match result {
            Err(error) => {
                self.has_failed = true;
                self.reservation.shrink(bytes);
                WriteResult::Failed(error)
            }
            Ok(_) if is_unwanted => {
                self.reservation.shrink(bytes);
                WriteResult::Unwanted
            }
            Ok(file) => {
                let part = self.end..self.end;
                let (_, left) =
                    self.file.get_or_insert_with(|| (file.clone(), FileBody::new(file, part)));
                left.extend(bytes);
                self.end += bytes;
                WriteResult::Kept
            }
        };
        self.leave_if_empty();
        Poll::Ready(Some(written))
    }

    /// Returns the oldest unread data.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let Some((_, left)) = &mut self.file else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(left).poll_frame(cx));
        self.leave_if_empty();
        // A file has no trailers.
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.into_data().unwrap_or_default())))
    }

    /// Closes the file once all of it is read. Its bytes stay reserved until then.
    fn leave_if_empty(&mut self) {
        if self.is_empty() && self.writing.is_none() {
            self.file = None;
            self.end = 0;
            self.reservation.shrink(self.reservation.bytes());
        }
    }

    /// Allows writes again after a failure, since all earlier data was read.
    pub(super) fn try_again(&mut self) {
        self.has_failed = false;
    }
}

pub(crate) fn write_at(file: impl AsFd, mut piece: &[u8], mut position: u64) -> io::Result<()> {
    while !piece.is_empty() {
        match rustix::io::pwrite(&file, piece, position) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                piece = &piece[count..];
                position += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
