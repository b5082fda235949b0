//! Message bodies that can be read on any thread, whichever worker receives them.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use pronghorn_engine::{BodyError, Handle};

/// A message body: empty, bytes in memory, any [`http_body::Body`], or data that a worker receives
/// from a connection.
///
/// It can be sent to other threads. At most one piece is read ahead, so a reader that does not poll
/// slows the peer down. Dropping the body discards the rest.
///
/// ```
/// use pronghorn_client::Body;
///
/// let request = http::Request::post("https://example.org/").body(Body::from("hello")).unwrap();
/// # let _ = request;
/// ```
#[derive(Default)]
pub struct Body(Content);

#[derive(Default)]
enum Content {
    #[default]
    Empty,
    Full(Bytes),
    Stream(UnsyncBoxBody<Bytes, BodyError>),
    RemoteBody(RemoteBody),
}

impl Body {
    /// Returns an empty body.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Wraps any [`http_body::Body`].
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http_body_util::Full;
    /// use pronghorn_client::Body;
    ///
    /// let body = Body::new(Full::new(Bytes::from("hello")));
    /// # let _ = body;
    /// ```
    pub fn new<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BodyError>,
    {
        if body.is_end_stream() {
            Self::empty()
        } else {
            Self(Content::Stream(body.map_err(Into::into).boxed_unsync()))
        }
    }

    /// Wraps a `body` that must be polled on the worker of `handle`, and passes its data to the
    /// reader's thread. `length` is the total length, if known from elsewhere.
    pub fn carry<B>(body: B, length: Option<u64>, handle: &Handle) -> Self
    where
        B: http_body::Body<Data = Bytes> + 'static,
        B::Error: Into<BodyError>,
    {
        if body.is_end_stream() {
            return Self::empty();
        }
        let size = length.map_or_else(|| body.size_hint(), SizeHint::with_exact);
        let shared = Arc::<SharedPieces>::default();
        handle.spawn(carry(body, BodySender(shared.clone())));
        Self(Content::RemoteBody(RemoteBody { shared, size }))
    }
}

impl From<Body> for pronghorn_engine::Body {
    fn from(body: Body) -> Self {
        match body.0 {
            Content::Empty => Self::empty(),
            Content::Full(bytes) => Self::from(bytes),
            content => Self::stream(Body(content)),
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self(if bytes.is_empty() { Content::Empty } else { Content::Full(bytes) })
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

impl From<()> for Body {
    fn from((): ()) -> Self {
        Self::empty()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            Content::Empty => Poll::Ready(None),
            Content::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = Content::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Content::Stream(body) => Pin::new(body).poll_frame(cx),
            Content::RemoteBody(remote) => remote.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Content::Empty => true,
            Content::Full(_) => false,
            Content::Stream(body) => body.is_end_stream(),
            Content::RemoteBody(remote) => remote.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Content::Empty => SizeHint::with_exact(0),
            Content::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Stream(body) => body.size_hint(),
            Content::RemoteBody(remote) => remote.size,
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = match &self.0 {
            Content::Empty => "empty",
            Content::Full(_) => "full",
            Content::Stream(_) | Content::RemoteBody(_) => "stream",
        };
        f.debug_struct("Body").field("content", &content).finish_non_exhaustive()
    }
}

/// The reader's end of a body that a worker receives.
struct RemoteBody {
    shared: Arc<SharedPieces>,
    size: SizeHint,
}

#[derive(Default)]
struct SharedPieces(Mutex<State>);

#[derive(Default)]
struct State {
    /// The requested piece. There is never more than one.
    frame: Option<Result<Frame<Bytes>, BodyError>>,
    /// Whether `frame` is the last piece.
    over: bool,
    /// Whether the reader has requested the next piece.
    wanted: bool,
    /// Whether the reader was dropped.
    abandoned: bool,
    reader: Option<Waker>,
    sender: Option<Waker>,
}

impl SharedPieces {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The lock only covers assignments, which leave the state consistent even if a waker
        // panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RemoteBody {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut state = self.shared.lock();
        let frame = state.frame.take();
        let sender = if state.over {
            None
        } else {
            // The next piece can arrive while the reader processes this one.
            state.wanted = true;
            state.sender.take()
        };
        let result = match frame {
            Some(frame) => {
                let bytes =
                    frame.as_ref().ok().and_then(Frame::data_ref).map_or(0, Bytes::len) as u64;
                if let Some(left) = self.size.exact() {
                    self.size = SizeHint::with_exact(left.saturating_sub(bytes));
                }
                Poll::Ready(Some(frame))
            }
            None if state.over => Poll::Ready(None),
            None => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        };
        drop(state);
        if let Some(sender) = sender {
            sender.wake();
        }
        result
    }

    fn is_over(&self) -> bool {
        let state = self.shared.lock();
        state.over && state.frame.is_none()
    }
}

impl Drop for RemoteBody {
    fn drop(&mut self) {
        let sender = {
            let mut state = self.shared.lock();
            state.abandoned = true;
            state.frame = None;
            state.sender.take()
        };
        if let Some(sender) = sender {
            sender.wake();
        }
    }
}

/// The worker's end. Dropping it before the end of the body reports an error to the reader.
struct BodySender(Arc<SharedPieces>);

impl BodySender {
    /// Waits until the reader requests a piece. Returns whether the reader still exists.
    fn poll_wanted(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.0.lock();
        if state.abandoned {
            return Poll::Ready(false);
        }
        state.sender = Some(cx.waker().clone());
        if state.wanted && state.frame.is_none() { Poll::Ready(true) } else { Poll::Pending }
    }

    fn put(&self, frame: Option<Result<Frame<Bytes>, BodyError>>, over: bool) {
        let reader = {
            let mut state = self.0.lock();
            if state.over {
                return;
            }
            state.wanted = false;
            (state.frame, state.over) = (frame, over);
            state.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl Drop for BodySender {
    fn drop(&mut self) {
        self.put(Some(Err("the connection was closed".into())), true);
    }
}

async fn carry<B>(body: B, sender: BodySender)
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BodyError>,
{
    let mut body = pin!(body);
    loop {
        let frame = poll_fn(|cx| match sender.poll_wanted(cx) {
            Poll::Ready(true) => body.as_mut().poll_frame(cx).map(Some),
            Poll::Ready(false) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        match frame.await {
            None => return,
            Some(frame) => {
                let over = !matches!(frame, Some(Ok(_))) || body.is_end_stream();
                sender.put(frame.map(|frame| frame.map_err(Into::into)), over);
                if over {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::future::Future;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    /// Yields prepared frames, and counts how often it is polled.
    struct Source {
        pieces: VecDeque<Result<Frame<Bytes>, BodyError>>,
        asked: Arc<AtomicUsize>,
    }

    impl http_body::Body for Source {
        type Data = Bytes;
        type Error = BodyError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            Poll::Ready(self.pieces.pop_front())
        }
    }

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Pair {
        reader: RemoteBody,
        sender: Pin<Box<dyn Future<Output = ()>>>,
        asked: Arc<AtomicUsize>,
    }

    fn pair(pieces: impl IntoIterator<Item = Frame<Bytes>>) -> Pair {
        let asked = Arc::<AtomicUsize>::default();
        let shared = Arc::<SharedPieces>::default();
        let source = Source { pieces: pieces.into_iter().map(Ok).collect(), asked: asked.clone() };
        let sender = Box::pin(carry(source, BodySender(shared.clone())));
        Pair { reader: RemoteBody { shared, size: SizeHint::default() }, sender, asked }
    }

    impl Pair {
        fn read(&mut self) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            self.reader.poll(&mut Context::from_waker(Waker::noop()))
        }

        fn run(&mut self) -> bool {
            self.sender.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
        }
    }

    fn data(text: &'static str) -> Frame<Bytes> {
        Frame::data(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn nothing_is_read_before_the_reader_asks_and_one_piece_ahead_after() {
        let mut pair = pair([data("a"), data("b"), data("c"), data("d")]);
        assert!(!pair.run());
        assert_eq!(pair.asked.load(Ordering::Relaxed), 0);
        assert!(pair.read().is_pending());
        assert!(!pair.run());
        assert_eq!(pair.asked.load(Ordering::Relaxed), 1);
        assert!(
            matches!(pair.read(), Poll::Ready(Some(Ok(frame))) if frame.data_ref().is_some_and(|data| data == "a"))
        );
        assert!(!pair.run());
        assert!(!pair.run());
        assert_eq!(pair.asked.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn end_arrives_after_the_last_piece() {
        let mut pair = pair([data("a")]);
        assert!(pair.read().is_pending());
        pair.run();
        assert!(matches!(pair.read(), Poll::Ready(Some(Ok(_)))));
        assert!(pair.run(), "the sender has ended");
        assert!(matches!(pair.read(), Poll::Ready(None)));
        assert!(pair.reader.is_over());
    }

    #[test]
    fn worker_that_ends_fails_the_reader() {
        let mut pair = pair([data("a")]);
        assert!(pair.read().is_pending());
        pair.sender = Box::pin(async {});
        assert!(matches!(pair.read(), Poll::Ready(Some(Err(_)))));
        assert!(matches!(pair.read(), Poll::Ready(None)));
    }

    #[test]
    fn reader_that_goes_wakes_the_carrier_to_end() {
        let mut pair = pair([data("a")]);
        let counter = Arc::<Counter>::default();
        assert!(
            pair.sender
                .as_mut()
                .poll(&mut Context::from_waker(&counter.clone().into()))
                .is_pending()
        );
        let Pair { reader, mut sender, asked } = pair;
        drop(reader);
        assert_eq!(counter.0.load(Ordering::Relaxed), 1);
        assert!(sender.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        assert_eq!(asked.load(Ordering::Relaxed), 0);
    }
}
