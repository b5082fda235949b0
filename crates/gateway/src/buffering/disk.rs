//! What a response holds in a file of its own, which has no name and is gone with it.

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

use crate::file_body::{FileBody, OpenFile};
use crate::room::Room;

/// The file is there while something is in it that nobody has read, or is being written.
pub(super) struct Disk {
    most: u64,
    /// For as much as was written to the file, read or not.
    room: Room,
    /// Where the next piece goes.
    end: u64,
    file: Option<(Arc<OpenFile>, FileBody)>,
    writing: Option<Writing>,
    /// It refused something, and nothing more is written until what it has is read.
    has_failed: bool,
}

struct Writing {
    task: Task<io::Result<Arc<OpenFile>>>,
    bytes: u64,
    /// Its reader was faster.
    is_unwanted: bool,
}

/// What became of a piece.
#[derive(Debug)]
pub(super) enum Written {
    Kept,
    /// Its reader has it already.
    Unwanted,
    Failed(io::Error),
}

impl Disk {
    /// `most`: bytes.
    pub(super) fn new(most: u64, room: Room) -> Self {
        Self { most, room, end: 0, file: None, writing: None, has_failed: false }
    }

    /// Whether there is nothing in it to read.
    pub(super) fn is_empty(&self) -> bool {
        self.file.as_ref().is_none_or(|(_, left)| left.is_end_stream())
    }

    pub(super) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// Begins to write a piece, if there is room. No other is being written.
    pub(super) fn write(&mut self, piece: Bytes, folder: &Arc<Path>) -> bool {
        let bytes = piece.len() as u64;
        if self.has_failed || self.end + bytes > self.most || !self.room.grow(bytes) {
            return false;
        }
        let (file, position, folder) = (self.file.as_ref().map(|(file, _)| file.clone()), self.end, folder.clone());
        let task = unblock(move || {
            let file = match file {
                Some(file) => file,
                None => Arc::new(OpenFile::new(OwnedFd::from(tempfile::tempfile_in(&folder)?), false)),
            };
            write_at(&*file, &piece, position)?;
            Ok(file)
        });
        self.writing = Some(Writing { task, bytes, is_unwanted: false });
        true
    }

    /// What is being written, if anything is, is not to be read.
    pub(super) fn forget_what_is_written(&mut self) {
        if let Some(writing) = &mut self.writing {
            writing.is_unwanted = true;
        }
    }

    /// Whether what is being written has been read already.
    pub(super) fn is_unwanted(&self) -> bool {
        self.writing.as_ref().is_some_and(|writing| writing.is_unwanted)
    }

    /// What became of the piece that is being written, if one is.
    pub(super) fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<Option<Written>> {
        let Some(writing) = &mut self.writing else { return Poll::Ready(None) };
        let result = ready!(Pin::new(&mut writing.task).poll(cx));
        let (bytes, is_unwanted) = (writing.bytes, writing.is_unwanted);
        self.writing = None;
        let written = match result {
            Err(error) => {
                self.has_failed = true;
                self.room.shrink(bytes);
                Written::Failed(error)
            }
            Ok(_) if is_unwanted => {
                self.room.shrink(bytes);
                Written::Unwanted
            }
            Ok(file) => {
                let part = self.end..self.end;
                let (_, left) = self.file.get_or_insert_with(|| (file.clone(), FileBody::new(file, part)));
                left.extend(bytes);
                self.end += bytes;
                Written::Kept
            }
        };
        self.leave_if_empty();
        Poll::Ready(Some(written))
    }

    /// What was written first and not read.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let Some((_, left)) = &mut self.file else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(left).poll_frame(cx));
        self.leave_if_empty();
        // A file has no trailers.
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.into_data().unwrap_or_default())))
    }

    /// What is on the disk takes room until the file is closed.
    fn leave_if_empty(&mut self) {
        if self.is_empty() && self.writing.is_none() {
            self.file = None;
            self.end = 0;
            self.room.shrink(self.room.bytes());
        }
    }

    /// If it had refused something: all that came before that was read.
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
