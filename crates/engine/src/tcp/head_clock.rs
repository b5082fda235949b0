//! Measures when the head of an HTTP/1.1 request began.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Activity, PeerEnd};
use crate::runtime::Handle;

/// A connection on which bytes received without an open request begin the next head.
///
/// hyper's own timer runs from the end of the previous request, so it cannot tell a slow client
/// from an idle one.
pub(crate) struct HeadClock<T> {
    io: T,
    activity: Rc<Activity>,
    handle: Handle,
}

impl<T> HeadClock<T> {
    pub(crate) fn new(io: T, activity: Rc<Activity>, handle: Handle) -> Self {
        Self { io, activity, handle }
    }
}

impl<T: PeerEnd> PeerEnd for HeadClock<T> {
    fn poll_ended(&self, cx: &mut TaskContext<'_>) -> Poll<()> {
        self.io.poll_ended(cx)
    }

    fn poll_handshake(&mut self, cx: &mut TaskContext<'_>) {
        self.io.poll_handshake(cx);
    }

    fn unacknowledged_bytes(&self) -> u64 {
        self.io.unacknowledged_bytes()
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for HeadClock<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        let read = buffer.filled().len() - before;
        if read > 0 && !self.activity.has_exchanges() {
            self.activity.begin_head(self.handle.now(), read);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for HeadClock<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
