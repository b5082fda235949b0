//! A connection in memory between the library that makes upgrades and the tunnel that carries them.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};
use hyper::rt::{Read, ReadBufCursor, Write};

/// Bytes that the application may be ahead of the peer; the protocols have windows of their own besides.
const OUTGOING_BYTES: usize = 64 << 10;

/// Both ends, the tunnel's first.
pub(crate) fn pipe() -> (Near, Far) {
    let shared = Arc::<Shared>::default();
    (Near(shared.clone()), Far(shared))
}

/// The tunnel's end.
#[derive(Clone)]
pub(crate) struct Near(Arc<Shared>);

/// The application's end. Dropped, both directions have ended; if that is by a panic, what it sends was cut off in the middle.
pub(crate) struct Far(Arc<Shared>);

thread_local! {
    /// Whether the library is at work that hands the application's end over.
    static HANDING_OVER: Cell<bool> = const { Cell::new(false) };
}

/// Polls what hands the application's end over. Dropped meanwhile, that end had nobody to take it.
pub(crate) fn while_handing_over<T>(poll: impl FnOnce() -> T) -> T {
    struct Over;

    impl Drop for Over {
        fn drop(&mut self) {
            HANDING_OVER.set(false);
        }
    }

    HANDING_OVER.set(true);
    let _over = Over;
    poll()
}

#[derive(Default)]
struct Shared(Mutex<State>);

#[derive(Default)]
struct State {
    /// What the peer sent. The next piece is taken when there is nothing of this one left.
    incoming: Bytes,
    /// What the application learns once it has read that.
    incoming_end: Option<Result<(), io::ErrorKind>>,
    /// What the application sends.
    outgoing: BytesMut,
    outgoing_ended: bool,
    /// The application's end was dropped.
    gone: bool,
    /// It was dropped before anybody had it.
    unclaimed: bool,
    /// It was dropped by a panic.
    broken: bool,
    /// Nobody takes what the application sends.
    refused: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    pusher: Option<Waker>,
    puller: Option<Waker>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Held around plain changes, which leave the state whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

impl Near {
    /// Ready when the application has read what was pushed: with whether it is still there.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.0.lock();
        if state.gone {
            return Poll::Ready(false);
        }
        state.pusher = Some(cx.waker().clone());
        if state.incoming.is_empty() { Poll::Ready(true) } else { Poll::Pending }
    }

    /// Ready when the application is gone.
    pub(crate) fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.gone {
            return Poll::Ready(());
        }
        state.pusher = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Hands over what the peer sent, when there is room.
    pub(crate) fn push(&self, data: Bytes) {
        let mut state = self.0.lock();
        state.incoming = data;
        wake(&mut state.reader);
    }

    /// The peer sends no more.
    pub(crate) fn end(&self) {
        self.conclude(Ok(()));
    }

    /// What the peer sends was cut off.
    pub(crate) fn fail(&self, kind: io::ErrorKind) {
        self.conclude(Err(kind));
    }

    /// Only the first end counts.
    fn conclude(&self, end: Result<(), io::ErrorKind>) {
        let mut state = self.0.lock();
        state.incoming_end.get_or_insert(end);
        wake(&mut state.reader);
    }

    /// Whether the application's end was dropped before anybody had it.
    pub(crate) fn is_unclaimed(&self) -> bool {
        self.0.lock().unclaimed
    }

    /// What the application sends; `None` when it has ended that, or is gone.
    ///
    /// # Errors
    ///
    /// When it was cut off by a panic, so that nobody takes what it has sent for all that there is.
    pub(crate) fn poll_pull(&self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let mut state = self.0.lock();
        if !state.outgoing.is_empty() {
            let data = state.outgoing.split().freeze();
            wake(&mut state.writer);
            return Poll::Ready(Some(Ok(data)));
        }
        if state.broken && !state.outgoing_ended {
            state.outgoing_ended = true;
            return Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into())));
        }
        if state.outgoing_ended || state.gone {
            return Poll::Ready(None);
        }
        state.puller = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Nobody takes what the application sends.
    pub(crate) fn refuse(&self) {
        let mut state = self.0.lock();
        state.refused = true;
        state.outgoing = BytesMut::new();
        wake(&mut state.writer);
    }
}

impl Read for Far {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        if state.incoming.is_empty() {
            if let Some(end) = state.incoming_end {
                return Poll::Ready(end.map_err(Into::into));
            }
            state.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = state.incoming.len().min(buffer.remaining());
        buffer.put_slice(&state.incoming[..count]);
        state.incoming.advance(count);
        if state.incoming.is_empty() {
            wake(&mut state.pusher);
        }
        Poll::Ready(Ok(()))
    }
}

impl Write for Far {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.0.lock();
        if state.refused || state.outgoing_ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let count = data.len().min(OUTGOING_BYTES - state.outgoing.len());
        if count == 0 && !data.is_empty() {
            state.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        state.outgoing.extend_from_slice(&data[..count]);
        wake(&mut state.puller);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        state.outgoing_ended = true;
        wake(&mut state.puller);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.gone = true;
        state.unclaimed = HANDING_OVER.get();
        state.broken = std::thread::panicking();
        wake(&mut state.puller);
        wake(&mut state.pusher);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cx() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    fn write(far: &mut Far, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(far).poll_write(&mut cx(), data)
    }

    #[test]
    fn application_that_is_far_ahead_waits() {
        let (near, mut far) = pipe();
        assert!(matches!(write(&mut far, &vec![b'x'; OUTGOING_BYTES + 1]), Poll::Ready(Ok(OUTGOING_BYTES))));
        assert!(write(&mut far, b"x").is_pending());
        assert!(matches!(near.poll_pull(&mut cx()), Poll::Ready(Some(Ok(data))) if data.len() == OUTGOING_BYTES));
        assert!(matches!(write(&mut far, b"x"), Poll::Ready(Ok(1))));
    }

    #[test]
    fn peer_that_is_ahead_waits_for_the_application() {
        let (near, mut far) = pipe();
        assert_eq!(near.poll_room(&mut cx()), Poll::Ready(true));
        near.push(Bytes::from_static(b"hello"));
        assert!(near.poll_room(&mut cx()).is_pending());
        let mut buffer = [0; 16];
        let mut buffer = hyper::rt::ReadBuf::new(&mut buffer);
        assert!(Pin::new(&mut far).poll_read(&mut cx(), buffer.unfilled()).is_ready());
        assert_eq!(buffer.filled(), b"hello");
        assert_eq!(near.poll_room(&mut cx()), Poll::Ready(true));
    }

    #[test]
    fn application_that_goes_ends_both_directions_after_what_it_sent() {
        let (near, mut far) = pipe();
        assert!(write(&mut far, b"bye").is_ready());
        assert!(near.poll_gone(&mut cx()).is_pending());
        drop(far);
        assert!(matches!(near.poll_pull(&mut cx()), Poll::Ready(Some(Ok(data))) if data == "bye"));
        assert!(matches!(near.poll_pull(&mut cx()), Poll::Ready(None)));
        assert!(near.poll_gone(&mut cx()).is_ready());
        assert_eq!(near.poll_room(&mut cx()), Poll::Ready(false));
    }

    #[test]
    fn nobody_takes_what_is_refused() {
        let (near, mut far) = pipe();
        near.refuse();
        assert!(matches!(write(&mut far, b"x"), Poll::Ready(Err(_))));
    }

    #[test]
    fn application_that_panics_is_cut_off_behind_what_it_sent() {
        let (near, mut far) = pipe();
        assert!(write(&mut far, b"half").is_ready());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _far = far;
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(panicked.is_err());
        assert!(matches!(near.poll_pull(&mut cx()), Poll::Ready(Some(Ok(data))) if data == "half"));
        assert!(matches!(near.poll_pull(&mut cx()), Poll::Ready(Some(Err(_)))));
        assert!(matches!(near.poll_pull(&mut cx()), Poll::Ready(None)));
    }

    #[test]
    fn peer_that_is_cut_off_is_an_error_behind_what_it_sent() {
        let (near, mut far) = pipe();
        near.push(Bytes::from_static(b"half"));
        near.fail(io::ErrorKind::ConnectionReset);
        near.end();
        let mut buffer = [0; 16];
        let mut buffer = hyper::rt::ReadBuf::new(&mut buffer);
        assert!(matches!(Pin::new(&mut far).poll_read(&mut cx(), buffer.unfilled()), Poll::Ready(Ok(()))));
        assert_eq!(buffer.filled(), b"half");
        let end = Pin::new(&mut far).poll_read(&mut cx(), buffer.unfilled());
        assert!(matches!(end, Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset));
    }

    #[test]
    fn end_that_is_dropped_while_it_is_handed_over_was_nobodys() {
        let (near, far) = pipe();
        while_handing_over(|| drop(far));
        assert!(near.is_unclaimed());
        let (near, far) = pipe();
        while_handing_over(|| ());
        drop(far);
        assert!(!near.is_unclaimed());
    }
}
