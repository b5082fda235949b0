//! Responses of upstreams that come faster than their clients take them: held so that the server that answers is free again.
//!
//! What has come is handed on as soon as the client can take it; only what it cannot take is held, first in memory, then on the disk, each
//! up to a bound of the response and one of all responses. Beyond those the server is held back, as it is where nothing is held.

mod disk;
mod memory;

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
use self::disk::{Disk, Written};
use self::memory::Memory;
use crate::config::{BufferingTable, ServerBuffering};
use crate::proxy::now;
use crate::room::{Bound, Room};

/// Pieces that one response takes in before others have their turn.
const PIECES_AT_ONCE: usize = 16;
/// Between two lines that say that the folder refuses something, in milliseconds: on a disk that is nearly full it does now and then.
const QUIET: u64 = 10_000;

/// What responses of all upstreams hold, over all workers and reloads.
pub(crate) struct Buffers {
    memory: Arc<Bound>,
    disk: Arc<Bound>,
    folder: Mutex<Arc<Path>>,
    /// The folder refused something, and that was told.
    is_refused: AtomicBool,
    /// When it was told for the last time; 0: never.
    told: AtomicU64,
}

impl Default for Buffers {
    fn default() -> Self {
        let settings = ServerBuffering::default();
        Self {
            memory: Arc::new(Bound::new(settings.memory.0)),
            disk: Arc::new(Bound::new(settings.disk.0)),
            folder: Mutex::new(settings.folder().into()),
            is_refused: AtomicBool::new(false),
            told: AtomicU64::new(0),
        }
    }
}

impl Buffers {
    /// From now on. `folder` is where files are made.
    pub(crate) fn set(&self, settings: &ServerBuffering, folder: Arc<Path>) {
        self.memory.set(settings.memory.0);
        self.disk.set(settings.disk.0);
        *self.folder.lock().unwrap_or_else(PoisonError::into_inner) = folder;
    }

    /// Room for what requests hold on the same disk.
    pub(crate) fn room_on_disk(&self) -> Room {
        self.disk.begin()
    }

    pub(crate) fn folder(&self) -> Arc<Path> {
        self.folder.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Bytes held now, in memory and on the disk.
    pub(crate) fn held(&self) -> [u64; 2] {
        [self.memory.held(), self.disk.held()]
    }
}

/// How responses of an upstream are held, on one worker.
pub(crate) struct Buffering {
    handle: Handle,
    means: Rc<Means>,
}

/// What an upstream's responses have to be held by.
struct Means {
    /// Of one response.
    most: BufferingTable,
    buffers: Arc<Buffers>,
    tell: Tell,
}

/// Takes a line for the operator, if it can.
type Tell = Box<dyn Fn(String) -> bool>;

impl Buffering {
    /// `most`: of one response.
    pub(crate) fn new(handle: Handle, most: BufferingTable, buffers: Arc<Buffers>, tell: Tell) -> Self {
        Self { handle, means: Rc::new(Means { most, buffers, tell }) }
    }

    /// The content for the client.
    pub(crate) fn body<B>(&self, content: B) -> Body
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin + 'static,
    {
        let mut buffer = Buffer::new(self.means.clone(), content);
        // What is wholly there needs no task.
        let is_whole = buffer.poll_fill(&mut Context::from_waker(Waker::noop())).is_ready();
        let buffer = Rc::new(RefCell::new(buffer));
        if !is_whole {
            let filled = buffer.clone();
            self.handle.spawn(poll_fn(move |cx| filled.borrow_mut().poll_fill_as_task(cx)));
        }
        Body::stream(Buffered(buffer))
    }
}

impl Means {
    /// Of which there is one line until something can be written again.
    fn refused(&self, folder: &Path, error: &io::Error) {
        let line = || {
            format!(
                "responses of upstreams cannot be held in {}: {error}; clients that read slowly hold up upstreams until they can: make room there, \
                 or name another folder as `buffering.folder` in [server]",
                folder.display()
            )
        };
        let Buffers { is_refused, told, .. } = &*self.buffers;
        let (now, before) = (now(), told.load(Ordering::Relaxed));
        let may_tell = !is_refused.load(Ordering::Relaxed) && (before == 0 || now >= before + QUIET);
        // Another worker may tell it.
        if !may_tell || told.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_err() {
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
            (self.tell)(format!("responses of upstreams can be held in {} again", folder.display()));
        }
    }
}

/// A response's content between the server and the client. What came first is in memory, then on the disk, then what arrived last.
struct Buffer<B> {
    means: Rc<Means>,
    /// What is still to come; let go at its end.
    content: Option<B>,
    memory: Memory,
    disk: Disk,
    folder: Arc<Path>,
    /// The latest piece as it came: there as long as it is written to the disk, or where there is room nowhere.
    arrived: Option<Bytes>,
    trailers: Option<HeaderMap>,
    /// Why it ended before its end.
    broken: Option<BodyError>,
    /// Of a content that knows its size, what the client has not got.
    left: Option<u64>,
    /// Whom the content wakes, whoever asked it.
    filler: Option<Waker>,
    /// The client, while it could take more than there is.
    reader: Option<Waker>,
}

impl<B> Buffer<B>
where
    B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
{
    fn new(means: Rc<Means>, content: B) -> Self {
        let Buffers { memory, disk, .. } = &*means.buffers;
        Self {
            memory: Memory::new(means.most.memory.0, memory.begin()),
            disk: Disk::new(means.most.disk.0, disk.begin()),
            folder: means.buffers.folder(),
            left: content.size_hint().exact(),
            content: Some(content),
            arrived: None,
            trailers: None,
            broken: None,
            filler: None,
            reader: None,
            means,
        }
    }

    fn poll_fill_as_task(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.filler.as_ref().is_none_or(|filler| !filler.will_wake(cx.waker())) {
            self.filler = Some(cx.waker().clone());
        }
        self.poll_fill(cx)
    }

    /// Takes in what comes. Ready when nothing more does.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..PIECES_AT_ONCE {
            // What arrived last may stay where it is.
            if self.content.is_none() {
                return Poll::Ready(());
            }
            self.poll_written(cx);
            if self.arrived.is_none() {
                ready!(self.poll_content(cx));
            } else if let Some(reader) = self.reader.take() {
                // Who takes it as it is saves a copy. Whether it does is seen when it had its turn.
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

    /// Makes room for the next piece. `false` if there is none now: a piece that was written, or the client, makes some.
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
            Poll::Ready(Some(Written::Kept)) => {
                self.arrived = None;
                self.means.written(&self.folder);
            }
            Poll::Ready(Some(Written::Failed(error))) => self.means.refused(&self.folder, &error),
            Poll::Ready(Some(Written::Unwanted) | None) | Poll::Pending => {}
        }
    }

    /// What came first of what is held.
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

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.reader = None;
        loop {
            match ready!(self.poll_held(cx)) {
                Some(Ok(data)) => {
                    self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                    // There is room now.
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
                // As if nothing were between them.
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
        self.memory.is_empty() && self.disk.is_empty() && self.arrived.is_none() && self.trailers.is_none() && self.broken.is_none()
    }
}

/// The client's end.
struct Buffered<B>(Rc<RefCell<Buffer<B>>>);

impl<B> http_body::Body for Buffered<B>
where
    B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
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
        // Nobody wants it any more: the exchange with the server ends at once.
        drop(content);
        if let Some(filler) = filler {
            filler.wake();
        }
    }
}

#[cfg(test)]
mod tests;
