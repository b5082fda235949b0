//! Message bodies that the application sends.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;

use crate::gauge::GaugeGuard;

/// Why a body could not be produced. The engine aborts the message, so that the peer does not take
/// it for complete.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

type BoxBody = Pin<Box<dyn http_body::Body<Data = Bytes, Error = BodyError>>>;
type OnEnd = Box<dyn FnOnce(BodyEnd)>;

/// The body of an outgoing message: empty, bytes in memory, or any [`http_body::Body`].
///
/// The engine polls for more only when the connection can take it, so a slow reader slows the
/// producer down.
pub struct Body {
    content: Content,
    sent: u64,
    /// The announced length, if the body does not know its size.
    expected: Option<u64>,
    on_end: Option<OnEnd>,
    /// The request that this body answers.
    request: Option<GaugeGuard>,
    /// Set if the body is not content but one direction of another protocol.
    tunnel: Option<AbortHandle>,
}

/// Cuts off the outgoing direction of an upgraded connection, even while its peer takes nothing and
/// the body is therefore not polled.
#[derive(Clone, Default)]
pub struct AbortHandle(Rc<AbortState>);

#[derive(Default)]
struct AbortState {
    is_aborted: Cell<bool>,
    sender: RefCell<Option<Waker>>,
}

impl AbortHandle {
    /// Ends the direction at once. Its stream is reset; over HTTP/1.1 the connection is closed.
    pub fn abort(&self) {
        self.0.is_aborted.set(true);
        let sender = self.0.sender.take();
        if let Some(sender) = sender {
            sender.wake();
        }
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        if self.0.is_aborted.get() {
            return Poll::Ready(());
        }
        let mut sender = self.0.sender.borrow_mut();
        if sender.as_ref().is_none_or(|sender| !sender.will_wake(cx.waker())) {
            *sender = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

thread_local! {
    static ROOM: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Returns how many bytes of content the connection can take now, if called while a [`Body`] is
/// polled. [`usize::MAX`] if that is not known.
///
/// A body that can choose how much it reads at once, as from a file, buffers no more than this for
/// a peer that takes nothing.
pub fn send_capacity() -> usize {
    ROOM.get()
}

/// Polls a body for a connection that can take `bytes` now.
pub(crate) fn with_send_capacity<T>(bytes: usize, poll: impl FnOnce() -> T) -> T {
    struct Restore(usize);

    impl Drop for Restore {
        fn drop(&mut self) {
            ROOM.set(self.0);
        }
    }

    let _restore = Restore(ROOM.replace(bytes));
    poll()
}

enum Content {
    Empty,
    Full(Bytes),
    Stream(BoxBody),
}

/// How the sending of a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyEnd {
    /// Bytes handed to the protocol.
    pub bytes: u64,
    /// Whether all of it was handed over. If not, the peer, the connection or the producer gave up.
    pub complete: bool,
}

impl Body {
    /// Creates an empty body.
    pub fn empty() -> Self {
        Self::from_content(Content::Empty)
    }

    /// Creates a body that `body` produces.
    pub fn stream<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + 'static,
        B::Error: Into<BodyError>,
    {
        Self::from_content(Content::Stream(Box::pin(BodyExt::map_err(body, Into::into))))
    }

    /// Returns a copy of the body if it is in memory, for a request that may be sent again.
    pub fn try_clone(&self) -> Option<Self> {
        match &self.content {
            Content::Empty => Some(Self::empty()),
            Content::Full(bytes) => Some(Self::from(bytes.clone())),
            Content::Stream(_) => None,
        }
    }

    /// Calls `on_end` once, when the body has been handed over or dropped. For logs and statistics.
    #[must_use]
    pub fn on_end(mut self, on_end: impl FnOnce(BodyEnd) + 'static) -> Self {
        self.on_end = Some(Box::new(on_end));
        self
    }

    /// Calls `on_end_first` once, when the body has been handed over or dropped, before the
    /// function given to [`Body::on_end`].
    pub(crate) fn on_end_first(&mut self, on_end_first: impl FnOnce() + 'static) {
        let on_end = self.on_end.take();
        self.on_end = Some(Box::new(move |end| {
            on_end_first();
            if let Some(on_end) = on_end {
                on_end(end);
            }
        }));
    }

    fn from_content(content: Content) -> Self {
        Self { content, sent: 0, expected: None, on_end: None, request: None, tunnel: None }
    }

    /// Keeps the request open until the body has been handed over or dropped.
    pub(crate) fn hold(&mut self, request: GaugeGuard) {
        self.request = Some(request);
    }

    /// Marks the body as one direction of another protocol, of unknown length.
    pub(crate) fn set_tunnel(&mut self) {
        self.tunnel.get_or_insert_default();
    }

    /// Lets `cut` end the body, even while the peer takes nothing. For
    /// [`Responder::upgrade`](crate::Responder::upgrade).
    #[must_use]
    pub fn with_abort_handle(mut self, cut: AbortHandle) -> Self {
        self.set_abort_handle(cut);
        self
    }

    /// Like [`Body::set_tunnel`], with a handle that cuts the direction off.
    pub(crate) fn set_abort_handle(&mut self, cut: AbortHandle) {
        self.tunnel = Some(cut);
    }

    /// Ready when a tunnel is cut off, even while the peer takes nothing.
    pub(crate) fn poll_abort(&self, cx: &Context<'_>) -> Poll<()> {
        self.tunnel.as_ref().map_or(Poll::Pending, |cut| cut.poll(cx))
    }

    pub(crate) fn is_tunnel(&self) -> bool {
        self.tunnel.is_some()
    }

    /// Makes the body fail unless it has this size.
    pub(crate) fn expect_bytes(&mut self, bytes: u64) {
        self.expected = Some(bytes);
    }

    fn check_size(&self, is_over: bool) -> Result<(), BodyError> {
        match self.expected {
            Some(expected) if self.sent > expected => {
                Err("body is longer than its `content-length`".into())
            }
            Some(expected) if is_over && self.sent < expected => {
                Err("body is shorter than its `content-length`".into())
            }
            _ => Ok(()),
        }
    }

    /// Takes the bytes if they are all in memory. The body is then empty and has ended.
    pub(crate) fn take_full(&mut self) -> Option<Bytes> {
        let bytes = match &mut self.content {
            Content::Empty => Bytes::new(),
            Content::Full(bytes) => std::mem::take(bytes),
            Content::Stream(_) => return None,
        };
        self.sent += bytes.len() as u64;
        self.end(true);
        Some(bytes)
    }

    /// Returns the size if the body is all in memory.
    pub(crate) fn full_size(&self) -> Option<usize> {
        match &self.content {
            Content::Empty => Some(0),
            Content::Full(bytes) => Some(bytes.len()),
            Content::Stream(_) => None,
        }
    }

    /// Drops the body unsent, as for HEAD, and counts that as a complete end.
    pub(crate) fn discard(&mut self) {
        self.content = Content::Empty;
        self.end(true);
    }

    fn end(&mut self, complete: bool) {
        self.content = Content::Empty;
        self.request = None;
        if let Some(on_end) = self.on_end.take() {
            on_end(BodyEnd { bytes: self.sent, complete });
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let complete = match &self.content {
            Content::Empty => true,
            Content::Full(bytes) => bytes.is_empty(),
            Content::Stream(body) => body.is_end_stream(),
        };
        self.end(complete);
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let frame = match &mut this.content {
            Content::Empty => None,
            Content::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                (!bytes.is_empty()).then(|| Ok(Frame::data(bytes)))
            }
            Content::Stream(body) => std::task::ready!(body.as_mut().poll_frame(cx)),
        };
        //= RFC 9114 section 4.4
        //# Once the CONNECT method has completed, only DATA frames are permitted to be sent on the stream.
        let frame = frame
            .filter(|frame| !(this.is_tunnel() && frame.as_ref().is_ok_and(Frame::is_trailers)));
        let is_over = match &frame {
            None => true,
            Some(Ok(frame)) => {
                this.sent += frame.data_ref().map_or(0, |data| data.len() as u64);
                frame.is_trailers() || http_body::Body::is_end_stream(this)
            }
            Some(Err(_)) => false,
        };
        if let Err(error) = this.check_size(is_over) {
            this.end(false);
            return Poll::Ready(Some(Err(error)));
        }
        match &frame {
            Some(Err(_)) => this.end(false),
            _ if is_over => this.end(true),
            _ => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Empty => true,
            Content::Full(bytes) => bytes.is_empty(),
            Content::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            _ if self.is_tunnel() => SizeHint::default(),
            Content::Empty => SizeHint::with_exact(0),
            Content::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Stream(body) => body.size_hint(),
        }
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = match &self.content {
            Content::Empty => "empty",
            Content::Full(_) => "full",
            Content::Stream(_) => "stream",
        };
        f.debug_struct("Body")
            .field("content", &content)
            .field("sent", &self.sent)
            .finish_non_exhaustive()
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::from_content(if bytes.is_empty() { Content::Empty } else { Content::Full(bytes) })
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    fn observed(body: Body) -> (Body, Rc<Cell<Option<BodyEnd>>>) {
        let seen = Rc::new(Cell::new(None));
        let end = seen.clone();
        (body.on_end(move |what| end.set(Some(what))), seen)
    }

    #[test]
    fn body_taken_whole_ends_complete() {
        let (mut body, seen) = observed(Body::from("hello"));
        assert_eq!(body.take_full().as_deref(), Some(&b"hello"[..]));
        assert_eq!(seen.get(), Some(BodyEnd { bytes: 5, complete: true }));
    }

    #[test]
    fn body_dropped_unsent_ends_incomplete() {
        let (body, seen) = observed(Body::from("hello"));
        drop(body);
        assert_eq!(seen.get(), Some(BodyEnd { bytes: 0, complete: false }));
    }

    #[test]
    fn body_polled_to_its_end_ends_complete() {
        let (body, seen) = observed(Body::from("hello"));
        let mut body = Box::pin(body);
        let frame = http_body::Body::poll_frame(
            body.as_mut(),
            &mut Context::from_waker(std::task::Waker::noop()),
        );
        assert!(
            matches!(frame, Poll::Ready(Some(Ok(frame))) if frame.data_ref().is_some_and(|data| data == "hello"))
        );
        assert_eq!(seen.get(), Some(BodyEnd { bytes: 5, complete: true }));
    }
}
