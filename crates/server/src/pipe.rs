//! An in-memory connection between hyper, which creates upgrades, and the engine's tunnel, which
//! carries them.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};
use hyper::rt::{Read, ReadBufCursor, Write};

/// Maximum bytes that the application may write ahead of the peer, in addition to the protocols'
/// own windows.
const OUTGOING_BYTES: usize = 64 << 10;

/// Returns both ends: the tunnel's, then the application's.
pub(crate) fn pipe() -> (TunnelEnd, ApplicationEnd) {
    let shared = Arc::<SharedPipe>::default();
    (TunnelEnd(shared.clone()), ApplicationEnd(shared))
}

/// The tunnel's end.
#[derive(Clone)]
pub(crate) struct TunnelEnd(Arc<SharedPipe>);

/// The application's end. Dropping it ends both directions. If a panic drops it, what the
/// application sent counts as truncated.
pub(crate) struct ApplicationEnd(Arc<SharedPipe>);

thread_local! {
    /// Whether hyper is currently being polled to hand over the application's end.
    static HANDING_OVER: Cell<bool> = const { Cell::new(false) };
}

/// Runs `poll`, which hands over the application's end. If the end is dropped meanwhile, no
/// application has claimed it.
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
struct SharedPipe(Mutex<PipeState>);

#[derive(Default)]
struct PipeState {
    /// Bytes that the peer sent. The next piece is accepted when this one is used up.
    incoming: Bytes,
    /// What the application reads after `incoming`: the end or an error.
    incoming_end: Option<Result<(), io::ErrorKind>>,
    /// Bytes that the application sent.
    outgoing: BytesMut,
    outgoing_ended: bool,
    /// Whether the application's end was dropped.
    gone: bool,
    /// Whether the application's end was dropped before an application had claimed it.
    unclaimed: bool,
    /// Whether a panic dropped the application's end.
    broken: bool,
    /// Whether the application's bytes are no longer accepted.
    refused: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    pusher: Option<Waker>,
    puller: Option<Waker>,
}

impl SharedPipe {
    fn lock(&self) -> MutexGuard<'_, PipeState> {
        // The lock only covers plain assignments, which leave the state consistent after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

impl TunnelEnd {
    /// Waits until the application has read what was pushed. Returns whether its end still exists.
    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.0.lock();
        if state.gone {
            return Poll::Ready(false);
        }
        state.pusher = Some(cx.waker().clone());
        if state.incoming.is_empty() { Poll::Ready(true) } else { Poll::Pending }
    }

    /// Waits until the application's end is dropped.
    pub(crate) fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.gone {
            return Poll::Ready(());
        }
        state.pusher = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Passes data of the peer to the application. Call it only when [`Self::poll_writable`] is
    /// ready.
    pub(crate) fn push(&self, data: Bytes) {
        let mut state = self.0.lock();
        state.incoming = data;
        wake(&mut state.reader);
    }

    /// Ends the peer's direction.
    pub(crate) fn end(&self) {
        self.conclude(Ok(()));
    }

    /// Ends the peer's direction with an error, because it was cut off.
    pub(crate) fn fail(&self, kind: io::ErrorKind) {
        self.conclude(Err(kind));
    }

    /// Records the end of the peer's direction. Only the first call counts.
    fn conclude(&self, end: Result<(), io::ErrorKind>) {
        let mut state = self.0.lock();
        state.incoming_end.get_or_insert(end);
        wake(&mut state.reader);
    }

    /// Returns whether the application's end was dropped before an application had claimed it.
    pub(crate) fn is_unclaimed(&self) -> bool {
        self.0.lock().unclaimed
    }

    /// Returns bytes that the application sent, or `None` after it has ended its direction or
    /// dropped its end.
    ///
    /// # Errors
    ///
    /// Returns an error if a panic cut the application off, so that its bytes are not taken for
    /// complete.
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

    /// Stops accepting bytes from the application.
    pub(crate) fn refuse(&self) {
        let mut state = self.0.lock();
        state.refused = true;
        state.outgoing = BytesMut::new();
        wake(&mut state.writer);
    }
}

impl Read for ApplicationEnd {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
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

impl Write for ApplicationEnd {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
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

impl Drop for ApplicationEnd {
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

    fn write(far: &mut ApplicationEnd, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(far).poll_write(&mut cx(), data)
    }

    #[test]
    fn application_that_is_far_ahead_waits() {
        let (near, mut far) = pipe();
        assert!(matches!(
            write(&mut far, &vec![b'x'; OUTGOING_BYTES + 1]),
            Poll::Ready(Ok(OUTGOING_BYTES))
        ));
        assert!(write(&mut far, b"x").is_pending());
        assert!(
            matches!(near.poll_pull(&mut cx()), Poll::Ready(Some(Ok(data))) if data.len() == OUTGOING_BYTES)
        );
        assert!(matches!(write(&mut far, b"x"), Poll::Ready(Ok(1))));
    }

    #[test]
    fn peer_that_is_ahead_waits_for_the_application() {
        let (near, mut far) = pipe();
        assert_eq!(near.poll_writable(&mut cx()), Poll::Ready(true));
        near.push(Bytes::from_static(b"hello"));
        assert!(near.poll_writable(&mut cx()).is_pending());
        let mut buffer = [0; 16];
        let mut buffer = hyper::rt::ReadBuf::new(&mut buffer);
        assert!(Pin::new(&mut far).poll_read(&mut cx(), buffer.unfilled()).is_ready());
        assert_eq!(buffer.filled(), b"hello");
        assert_eq!(near.poll_writable(&mut cx()), Poll::Ready(true));
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
        assert_eq!(near.poll_writable(&mut cx()), Poll::Ready(false));
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
        assert!(matches!(
            Pin::new(&mut far).poll_read(&mut cx(), buffer.unfilled()),
            Poll::Ready(Ok(()))
        ));
        assert_eq!(buffer.filled(), b"half");
        let end = Pin::new(&mut far).poll_read(&mut cx(), buffer.unfilled());
        assert!(
            matches!(end, Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset)
        );
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
