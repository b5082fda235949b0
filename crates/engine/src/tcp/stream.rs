//! A TCP connection as the libraries above want it.

use std::cell::Cell;
use std::io::{self, IoSlice, Read, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use mio::Interest;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::runtime::{Handle, Registration};

/// What a watchdog needs to know of a connection.
pub(crate) struct Activity {
    /// When bytes last moved in either direction.
    last: Cell<Instant>,
    /// Bytes wait to be sent and the peer does not take them.
    write_blocked: Cell<bool>,
    /// Requests that a handler has not answered to their end.
    exchanges: Cell<usize>,
}

impl Activity {
    pub(crate) fn new(now: Instant) -> Rc<Self> {
        Rc::new(Self { last: Cell::new(now), write_blocked: Cell::new(false), exchanges: Cell::new(0) })
    }

    pub(crate) fn last(&self) -> Instant {
        self.last.get()
    }

    /// Whether silence is the peer's doing: nothing is asked, or what was answered is not taken.
    pub(crate) fn waits_for_peer(&self) -> bool {
        self.exchanges.get() == 0 || self.write_blocked.get()
    }

    pub(crate) fn begin_exchange(self: &Rc<Self>) -> ExchangeGuard {
        self.exchanges.set(self.exchanges.get() + 1);
        ExchangeGuard(self.clone())
    }
}

/// Counts one exchange of a connection until dropped.
pub(crate) struct ExchangeGuard(Rc<Activity>);

impl Drop for ExchangeGuard {
    fn drop(&mut self) {
        self.0.exchanges.set(self.0.exchanges.get() - 1);
    }
}

/// A TCP stream on the worker's reactor.
pub(crate) struct TcpStream {
    // Before the socket, so that it leaves the reactor's table before the descriptor can be used again.
    registration: Registration,
    socket: mio::net::TcpStream,
    handle: Handle,
    activity: Rc<Activity>,
}

impl TcpStream {
    pub(crate) fn new(mut socket: mio::net::TcpStream, handle: &Handle) -> io::Result<Self> {
        let registration = handle.reactor().register(&mut socket, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self { registration, socket, handle: handle.clone(), activity: Activity::new(handle.now()) })
    }

    pub(crate) fn activity(&self) -> &Rc<Activity> {
        &self.activity
    }

    /// Waits until a connection that was begun is there or has failed.
    pub(crate) async fn connected(&self) -> io::Result<()> {
        std::future::poll_fn(|cx| self.registration.readiness().poll_writable(cx)).await;
        match self.socket.take_error()? {
            Some(error) => Err(error),
            None => self.socket.peer_addr().map(drop),
        }
    }

    fn poll_write_with(
        &self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(&mio::net::TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            if self.registration.readiness().poll_writable(cx).is_pending() {
                self.activity.write_blocked.set(true);
                return Poll::Pending;
            }
            match write(&self.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.registration.readiness().clear_writable(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => {
                    self.activity.write_blocked.set(false);
                    self.activity.last.set(self.handle.now());
                    return Poll::Ready(result);
                }
            }
        }
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.registration.readiness().poll_readable(cx));
            match (&self.socket).read(buffer.initialize_unfilled()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.registration.readiness().clear_readable(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(count) => {
                    buffer.advance(count);
                    self.activity.last.set(self.handle.now());
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |mut socket| socket.write(data))
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |mut socket| socket.write_vectored(data))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.socket.shutdown(std::net::Shutdown::Write) {
            // The peer has closed already; there is nobody left to tell.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            result => Poll::Ready(result),
        }
    }
}
