//! Buffers responses of upstreams that arrive faster than their clients read, so that the upstream
//! server is free again.
//!
//! Data is forwarded as soon as the client can take it. Only the excess is buffered, first in
//! memory, then on disk, each up to a limit per response and a limit for all responses. Beyond
//! those limits the upstream is slowed down, as without buffering.

mod disk;
mod memory;
pub(crate) mod spool;

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use pronghorn_engine::{Body, BodyError, Handle};

pub(crate) use self::disk::write_at;
use self::disk::{Disk, WriteResult};
use self::memory::Memory;
use crate::clock::now;
use crate::config::{BufferingTable, ServerBuffering};
use crate::memory_limit::{Reservation, SharedLimit};

/// Number of pieces that one response reads before other tasks have a turn.
const PIECES_AT_ONCE: usize = 16;
/// Minimum time between two log lines about write errors in the folder, in milliseconds: a nearly
/// full disk refuses writes now and then.
const QUIET: u64 = 10_000;

/// Buffers of the responses of all upstreams, over all workers and reloads.
pub(crate) struct Buffers {
    memory: Arc<SharedLimit>,
    disk: Arc<SharedLimit>,
    folder: Mutex<Arc<Path>>,
    /// Whether a write error in the folder was logged and no write has succeeded since.
    is_refused: AtomicBool,
    /// Time of the last log line about a write error; 0 if there was none.
    told: AtomicU64,
}

impl Default for Buffers {
    fn default() -> Self {
        let settings = ServerBuffering::default();
        Self {
            memory: Arc::new(SharedLimit::optional(settings.memory.0)),
            disk: Arc::new(SharedLimit::disk(settings.disk.0)),
            folder: Mutex::new(settings.folder().into()),
            is_refused: AtomicBool::new(false),
            told: AtomicU64::new(0),
        }
    }
}

impl Buffers {
    /// Applies new limits; `folder` is the folder for new files.
    pub(crate) fn set(&self, settings: &ServerBuffering, folder: Arc<Path>) {
        self.memory.set(settings.memory.0);
        self.disk.set(settings.disk.0);
        *self.folder.lock().unwrap_or_else(PoisonError::into_inner) = folder;
    }

    /// Returns a reservation for request bodies, which share the limit on disk.
    pub(crate) fn room_on_disk(&self) -> Reservation {
        self.disk.begin()
    }

    pub(crate) fn folder(&self) -> Arc<Path> {
        self.folder.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of bytes buffered now, in memory and on disk.
    pub(crate) fn held(&self) -> [u64; 2] {
        [self.memory.held(), self.disk.held()]
    }
}

/// Buffering of an upstream's responses on one worker.
pub(crate) struct ResponseBuffering {
    handle: Handle,
    context: Rc<BufferContext>,
}

/// State shared by the buffered responses of an upstream on one worker.
struct BufferContext {
    /// Limits of one response.
    most: BufferingTable,
    buffers: Arc<Buffers>,
    tell: Tell,
}

/// Logs a line for the operator; returns whether it was accepted.
type Tell = Box<dyn Fn(String) -> bool>;

impl ResponseBuffering {
    /// `most` is the limits of one response.
    pub(crate) fn new(
        handle: Handle,
        most: BufferingTable,
        buffers: Arc<Buffers>,
        tell: Tell,
    ) -> Self {
        Self { handle, context: Rc::new(BufferContext { most, buffers, tell }) }
    }

    /// Returns the response body for the client.
    pub(crate) fn body<B>(&self, content: B) -> Body
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin + 'static,
    {
        let mut buffer = Buffer::new(self.context.clone(), content);
        // A body that has arrived completely needs no task.
        let is_whole = buffer.poll_fill(&mut Context::from_waker(Waker::noop())).is_ready();
        let buffer = Rc::new(RefCell::new(buffer));
        if !is_whole {
            let filled = buffer.clone();
            self.handle.spawn(poll_fn(move |cx| filled.borrow_mut().poll_fill_as_task(cx)));
        }
        Body::stream(Buffered(buffer))
    }
}

impl BufferContext {
    /// Logs a write error, once until a write succeeds again.
    fn refused(&self, folder: &Path, error: &io::Error) {
        let line = || {
            format!(
                "cannot buffer upstream responses in {}: {error}; until this works again, slow \
                clients slow down upstreams: free disk space, or set `buffering.folder` in \
                [server]",
                folder.display()
            )
        };
        let Buffers { is_refused, told, .. } = &*self.buffers;
        let (now, before) = (now(), told.load(Ordering::Relaxed));
        let may_tell =
            !is_refused.load(Ordering::Relaxed) && (before == 0 || now >= before + QUIET);
        // Another worker may log it first.
        if !may_tell
            || told.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        if (self.tell)(line()) {
            is_refused.store(true, Ordering::Relaxed);
        } else {
            told.store(0, Ordering::Relaxed);
        }
    }

    fn written(&self, folder: &Path) {
        let refused = &self.buffers.is_refused;
        if refused.load(Ordering::Relaxed) && refused.swap(false, Ordering::Relaxed) {
            (self.tell)(format!(
                "upstream responses can be buffered in {} again",
                folder.display()
            ));
        }
    }
}

/// A response body between the upstream and the client. The oldest data is in memory, then on disk,
/// then in `arrived`.
struct Buffer<B> {
    context: Rc<BufferContext>,
    /// The rest of the upstream's body; dropped at its end.
    content: Option<B>,
    memory: Memory,
    disk: Disk,
    folder: Arc<Path>,
    /// The latest piece as received: kept while it is written to disk, or while all buffers are
    /// full.
    arrived: Option<Bytes>,
    trailers: Option<HeaderMap>,
    /// The error that cut the body off.
    broken: Option<BodyError>,
    /// Number of bytes that the client has not read yet, if the body's size is known.
    left: Option<u64>,
    /// The waker of the task that fills the buffer, whichever side polls the upstream's body.
    filler: Option<Waker>,
    /// The client's waker, while the client waits for data.
    reader: Option<Waker>,
}

impl<B> Buffer<B>
where
    B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
{
    fn new(context: Rc<BufferContext>, content: B) -> Self {
        let Buffers { memory, disk, .. } = &*context.buffers;
        Self {
            memory: Memory::new(context.most.memory.0, memory.begin()),
            disk: Disk::new(context.most.disk.0, disk.begin()),
            folder: context.buffers.folder(),
            left: content.size_hint().exact(),
            content: Some(content),
            arrived: None,
            trailers: None,
            broken: None,
            filler: None,
            reader: None,
            context,
        }
    }

    fn poll_fill_as_task(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.filler.as_ref().is_none_or(|filler| !filler.will_wake(cx.waker())) {
            self.filler = Some(cx.waker().clone());
        }
        self.poll_fill(cx)
    }

    /// Reads from the upstream into the buffers. Ready at the end of the body.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..PIECES_AT_ONCE {
            // The last piece may stay in `arrived`.
            if self.content.is_none() {
                return Poll::Ready(());
            }
            self.poll_written(cx);
            if self.arrived.is_none() {
                ready!(self.poll_content(cx));
            } else if let Some(reader) = self.reader.take() {
                // If the client takes the piece directly, a copy is saved. The next turn shows
                // whether it did.
                reader.wake();
                break;
            } else if !self.put_away() {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_content(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(content) = &mut self.content else { return Poll::Ready(()) };
        match ready!(Pin::new(&mut *content).poll_frame(cx)) {
            Some(Ok(frame)) => {
                let is_over = content.is_end_stream();
                match frame.into_data() {
                    Ok(data) => self.arrived = Some(data).filter(|data| !data.is_empty()),
                    Err(frame) => self.trailers = frame.into_trailers().ok(),
                }
                if is_over {
                    self.end();
                }
            }
            Some(Err(error)) => {
                self.broken = Some(error);
                self.end();
            }
            None => self.end(),
        }
        Poll::Ready(())
    }

    fn end(&mut self) {
        self.content = None;
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Moves the latest piece to a buffer. Returns `false` if all buffers are full: a finished
    /// write, or the client's reading, frees space.
    fn put_away(&mut self) -> bool {
        let Some(mut piece) = self.arrived.take() else { return true };
        let is_written = self.disk.is_writing() && !self.disk.is_unwanted();
        if self.disk.is_empty() && !is_written {
            self.memory.put(&mut piece);
            if piece.is_empty() {
                return true;
            }
        }
        let begins = !self.disk.is_writing() && self.disk.write(piece.clone(), &self.folder);
        self.arrived = Some(piece);
        begins
    }

    fn poll_written(&mut self, cx: &mut Context<'_>) {
        match self.disk.poll_written(cx) {
            Poll::Ready(Some(WriteResult::Kept)) => {
                self.arrived = None;
                self.context.written(&self.folder);
            }
            Poll::Ready(Some(WriteResult::Failed(error))) => {
                self.context.refused(&self.folder, &error);
            }
            Poll::Ready(Some(WriteResult::Unwanted) | None) | Poll::Pending => {}
        }
    }

    /// Returns the oldest buffered data.
    fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if let Some(first) = self.memory.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        if let Some(first) = ready!(self.disk.poll_next(cx)) {
            return Poll::Ready(Some(first));
        }
        let arrived = self.arrived.take();
        if arrived.is_some() {
            self.disk.forget_what_is_written();
            self.disk.try_again();
        }
        Poll::Ready(arrived.map(Ok))
    }

    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.reader = None;
        loop {
            match ready!(self.poll_held(cx)) {
                Some(Ok(data)) => {
                    self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                    // There is free space now.
                    if let (Some(filler), true) = (&self.filler, self.content.is_some()) {
                        filler.wake_by_ref();
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => {
                    self.content = None;
                    return Poll::Ready(Some(Err(error.into())));
                }
                None => {}
            }
            if let Some(trailers) = self.trailers.take() {
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
            if self.content.is_none() {
                return Poll::Ready(self.broken.take().map(Err));
            }
            let is_there = match self.filler.clone() {
                // Polls the upstream's body directly, as without a buffer.
                Some(filler) => self.poll_content(&mut Context::from_waker(&filler)).is_ready(),
                None => false,
            };
            if !is_there {
                self.reader = Some(cx.waker().clone());
                return Poll::Pending;
            }
        }
    }

    fn holds_nothing(&self) -> bool {
        self.memory.is_empty()
            && self.disk.is_empty()
            && self.arrived.is_none()
            && self.trailers.is_none()
            && self.broken.is_none()
    }
}

/// The client's end of a buffer.
struct Buffered<B>(Rc<RefCell<Buffer<B>>>);

impl<B> http_body::Body for Buffered<B>
where
    B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.0.borrow_mut().poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        let buffer = self.0.borrow();
        buffer.content.is_none() && buffer.holds_nothing()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.borrow().left.map(SizeHint::with_exact).unwrap_or_default()
    }
}

impl<B> Drop for Buffered<B> {
    fn drop(&mut self) {
        let mut buffer = self.0.borrow_mut();
        let (content, filler) = (buffer.content.take(), buffer.filler.take());
        buffer.arrived = None;
        drop(buffer);
        // The client is gone: the exchange with the upstream ends at once.
        drop(content);
        if let Some(filler) = filler {
            filler.wake();
        }
    }
}

#[cfg(test)]
mod tests;
