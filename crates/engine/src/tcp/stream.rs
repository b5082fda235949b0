//! A TCP or Unix socket connection as an asynchronous stream.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice, Write};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use mio::Interest;
use smallvec::SmallVec;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::info::{TcpPath, TcpProbe};
use super::queue::SendQueue;
use crate::limits::Limits;
use crate::progress::WriteProgress;
use crate::runtime::{Handle, Registration};
use crate::window_budget::SendWindow;

/// Bytes that one connection may transfer in a turn. The protocol libraries go on until the socket
/// would block, so a fast peer could keep them from ever returning to the worker.
const BYTES_PER_TURN: usize = 1 << 20;

/// Pieces that are no larger than this together are joined for one write: copying them costs less
/// than processing each in the kernel.
const GATHERED_BYTES: usize = 1 << 10;

/// Activity of a connection, for its watchdog.
pub(crate) struct Activity {
    /// When bytes were last transferred in either direction.
    last: Cell<Instant>,
    /// Whether data waits to be sent and the peer does not accept it.
    write_blocked: Cell<bool>,
    /// Whether there has been a request.
    is_used: Cell<bool>,
    /// Whether the connection closes unless another request arrives.
    is_to_close: Cell<bool>,
    /// Requests whose response is not complete.
    exchanges: Cell<usize>,
    /// Those of them that wait for the peer rather than for their handler.
    waiting: Cell<usize>,
    /// Progress of the data that waits to be sent.
    pub(super) sending: WriteProgress,
    /// When the current head began, and its bytes so far.
    head: Cell<Option<(Instant, usize)>>,
}

impl Activity {
    pub(crate) fn new(now: Instant, limits: &Limits) -> Rc<Self> {
        Rc::new(Self {
            last: Cell::new(now),
            write_blocked: Cell::default(),
            is_used: Cell::default(),
            is_to_close: Cell::default(),
            exchanges: Cell::default(),
            waiting: Cell::default(),
            sending: WriteProgress::new(limits),
            head: Cell::default(),
        })
    }

    pub(crate) fn last(&self) -> Instant {
        self.last.get()
    }

    /// Counts received bytes of a request's head.
    pub(crate) fn begin_head(&self, now: Instant, bytes: usize) {
        let (began, so_far) = self.head.get().unwrap_or((now, 0));
        self.head.set(Some((began, so_far + bytes)));
    }

    /// The head is complete, or there was none.
    pub(crate) fn end_head(&self) {
        self.head.set(None);
    }

    /// Returns when the current head began, and its bytes so far.
    pub(crate) fn head(&self) -> Option<(Instant, usize)> {
        self.head.get()
    }

    /// Whether a shorter deadline than the idle timeout applies.
    pub(super) fn has_short_deadline(&self) -> bool {
        self.head.get().is_some() || self.sending.deadline().is_some()
    }

    pub(crate) fn has_exchanges(&self) -> bool {
        self.exchanges.get() > 0
    }

    /// Closes the connection if it has had a request and all of them are answered.
    pub(crate) fn close_if_idle(&self) {
        self.is_to_close
            .set(self.is_used.get() && !self.has_exchanges() && self.head.get().is_none());
    }

    /// Whether the connection is to close, and no request has arrived since.
    pub(crate) fn is_to_close(&self) -> bool {
        self.is_to_close.get()
    }

    /// Whether the peer causes the silence: there is no request, content does not arrive, or the
    /// response is not read.
    pub(crate) fn waits_for_peer(&self) -> bool {
        self.exchanges.get() == self.waiting.get() || self.write_blocked.get()
    }

    pub(crate) fn begin_exchange(self: &Rc<Self>) -> Rc<ExchangeGuard> {
        self.exchanges.set(self.exchanges.get() + 1);
        self.is_used.set(true);
        self.is_to_close.set(false);
        self.end_head();
        Rc::new(ExchangeGuard {
            activity: self.clone(),
            inbound: Cell::default(),
            outbound: Cell::default(),
            answered: Cell::default(),
        })
    }
}

/// Counts one exchange of a connection until dropped, and what it waits for.
pub(crate) struct ExchangeGuard {
    activity: Rc<Activity>,
    /// Whether the handler waits for the request's content.
    inbound: Cell<bool>,
    /// Whether the response's content waits for the peer's flow control.
    outbound: Cell<bool>,
    answered: Cell<bool>,
}

impl ExchangeGuard {
    pub(crate) fn set_inbound_waiting(&self, waiting: bool) {
        self.change(|| self.inbound.set(waiting));
    }

    pub(crate) fn set_outbound_waiting(&self, waiting: bool) {
        self.change(|| self.outbound.set(waiting));
    }

    /// The response has begun. From now on the request's content may pause: the two sides may be in
    /// a dialogue.
    pub(crate) fn set_answered(&self) {
        self.change(|| self.answered.set(true));
    }

    fn change(&self, change: impl FnOnce()) {
        let before = usize::from(self.waits());
        change();
        let waiting = &self.activity.waiting;
        waiting.set(waiting.get() - before + usize::from(self.waits()));
    }

    fn waits(&self) -> bool {
        self.outbound.get() || (self.inbound.get() && !self.answered.get())
    }
}

impl Drop for ExchangeGuard {
    fn drop(&mut self) {
        let Activity { exchanges, waiting, .. } = &*self.activity;
        exchanges.set(exchanges.get() - 1);
        waiting.set(waiting.get() - usize::from(self.waits()));
    }
}

/// A socket below a [`Stream`].
pub(crate) trait Socket: mio::event::Source + AsFd + 'static {
    fn write(&self, data: &[u8]) -> io::Result<usize>;

    fn write_vectored(&self, data: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Makes the probe's statistics final, if there is a probe.
    fn on_closed(&self, _: &TcpProbe) {}
}

impl Socket for mio::net::TcpStream {
    fn write(&self, data: &[u8]) -> io::Result<usize> {
        Write::write(&mut &*self, data)
    }

    fn write_vectored(&self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        Write::write_vectored(&mut &*self, data)
    }

    fn on_closed(&self, probe: &TcpProbe) {
        probe.refresh(self);
    }
}

impl Socket for mio::net::UnixStream {
    fn write(&self, data: &[u8]) -> io::Result<usize> {
        Write::write(&mut &*self, data)
    }

    fn write_vectored(&self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        Write::write_vectored(&mut &*self, data)
    }
}

/// A connection whose end can be detected without reading.
pub(crate) trait PeerEnd {
    /// Ready when the peer has ended its side or is gone, even if data is still unread.
    fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Continues the handshake of a client that has sent early data, while nobody reads from the
    /// connection.
    fn poll_handshake(&mut self, _: &mut Context<'_>) {}

    /// Returns the number of bytes written but not acknowledged by the peer's system.
    fn unacknowledged_bytes(&self) -> u64;
}

impl<T: PeerEnd> PeerEnd for &mut T {
    fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()> {
        (**self).poll_ended(cx)
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) {
        (**self).poll_handshake(cx);
    }

    fn unacknowledged_bytes(&self) -> u64 {
        (**self).unacknowledged_bytes()
    }
}

/// A TCP stream on the worker's reactor.
pub(crate) type TcpStream = Stream<mio::net::TcpStream>;

/// A stream over a Unix socket on the worker's reactor.
pub(crate) type UnixStream = Stream<mio::net::UnixStream>;

/// A byte stream on the worker's reactor.
pub(crate) struct Stream<S: Socket> {
    // Declared before the socket, so that it leaves the reactor's table before the descriptor can
    // be reused.
    registration: Registration,
    socket: Rc<S>,
    /// Notified of the end, if there is a probe.
    probe: Option<Rc<TcpProbe>>,
    handle: Handle,
    activity: Rc<Activity>,
    /// The last turn with transfers, and the bytes transferred in it.
    moved: Cell<(u64, usize)>,
    /// The kernel's send queue, if it is metered.
    queue: Option<RefCell<SendQueue>>,
}

impl<S: Socket> Stream<S> {
    pub(crate) fn new(mut socket: S, handle: &Handle, limits: &Limits) -> io::Result<Self> {
        let registration =
            handle.reactor().register(&mut socket, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self {
            registration,
            socket: Rc::new(socket),
            probe: None,
            handle: handle.clone(),
            activity: Activity::new(handle.now(), limits),
            moved: Cell::default(),
            queue: None,
        })
    }

    /// Meters the kernel's send queue, and limits it to what `window` lends.
    pub(crate) fn meter(&mut self, window: SendWindow) {
        self.queue = Some(RefCell::new(SendQueue::new(window)));
    }

    pub(crate) fn activity(&self) -> &Rc<Activity> {
        &self.activity
    }

    /// Pending until the next turn once this turn's share is used up.
    fn poll_share(&self, cx: &Context<'_>) -> Poll<()> {
        let (turn, bytes) = self.moved.get();
        if turn == self.handle.turn() && bytes >= BYTES_PER_TURN {
            self.handle.defer(cx.waker());
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    fn on_moved(&self, count: usize) {
        let (turn, bytes) = self.moved.get();
        let now = self.handle.turn();
        self.moved.set((now, if turn == now { bytes + count } else { count }));
        self.activity.last.set(self.handle.now());
    }

    fn poll_write_with(
        &self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(&S) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_share(cx));
        loop {
            if self.registration.readiness().poll_writable(cx).is_pending() {
                self.activity.write_blocked.set(true);
                self.activity.sending.on_blocked(self.handle.now());
                return Poll::Pending;
            }
            match write(&self.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.registration.readiness().clear_writable();
                    if let Some(queue) = &self.queue {
                        queue.borrow_mut().on_blocked(&*self.socket);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => {
                    self.activity.write_blocked.set(false);
                    let written = *result.as_ref().unwrap_or(&0);
                    self.activity.sending.on_moved(written);
                    self.on_moved(written);
                    return Poll::Ready(result);
                }
            }
        }
    }
}

impl TcpStream {
    /// Returns a probe for the connection's statistics, which are final after its end.
    pub(crate) fn probe(&mut self) -> Rc<TcpProbe> {
        self.probe.get_or_insert_with(|| TcpProbe::new(&self.socket)).clone()
    }

    pub(crate) fn path(&self) -> TcpPath {
        TcpPath::new(&self.socket)
    }

    /// Peeks at the first received bytes, without consuming them, until `decide` returns an answer.
    /// If the stream or connection ends first, the result is `false`.
    pub(crate) fn poll_peek(
        &self,
        cx: &mut Context<'_>,
        first: &mut [u8],
        decide: impl Fn(&[u8]) -> Option<bool>,
    ) -> Poll<bool> {
        loop {
            let readiness = self.registration.readiness();
            ready!(readiness.poll_readable(cx));
            match self.socket.peek(first) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    readiness.clear_readable();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The next read reports the error.
                Err(_) => return Poll::Ready(false),
                Ok(count) => {
                    if let Some(decision) = decide(&first[..count]) {
                        return Poll::Ready(decision);
                    }
                    if readiness.poll_ended(cx).is_ready() {
                        return Poll::Ready(false);
                    }
                    // The poller reports further bytes.
                    readiness.clear_readable();
                }
            }
        }
    }

    /// Waits until the connection is established or has failed.
    pub(crate) async fn connected(&self) -> io::Result<()> {
        std::future::poll_fn(|cx| self.registration.readiness().poll_writable(cx)).await;
        match self.socket.take_error()? {
            Some(error) => Err(error),
            None => self.socket.peer_addr().map(drop),
        }
    }
}

impl<S: Socket> PeerEnd for Stream<S> {
    fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.registration.readiness().poll_ended(cx)
    }

    fn unacknowledged_bytes(&self) -> u64 {
        super::queue::queued(&*self.socket)
    }
}

impl<S: Socket> Drop for Stream<S> {
    fn drop(&mut self) {
        if let Some(probe) = &self.probe {
            self.socket.on_closed(probe);
        }
    }
}

impl<S: Socket> AsyncRead for Stream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_share(cx));
        loop {
            ready!(self.registration.readiness().poll_readable(cx));
            match receive(&*self.socket, buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.registration.readiness().clear_readable();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(count) => {
                    if count > 0 && buffer.remaining() > 0 {
                        // Another read would find nothing.
                        self.registration.readiness().clear_drained();
                    }
                    self.on_moved(count);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

/// Reads into `buffer` without initializing it first.
#[expect(
    unsafe_code,
    reason = "the buffer says which of its bytes are initialized in no other way"
)]
fn receive(socket: &impl AsFd, buffer: &mut ReadBuf<'_>) -> io::Result<usize> {
    // SAFETY: the system call writes bytes and takes none back that were initialized.
    let ((read, _), _) = rustix::net::recv(
        socket,
        unsafe { buffer.unfilled_mut() },
        rustix::net::RecvFlags::empty(),
    )?;
    let count = read.len();
    // SAFETY: these are the bytes that were just read.
    unsafe { buffer.assume_init(count) };
    buffer.advance(count);
    Ok(count)
}

impl<S: Socket> AsyncWrite for Stream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |socket| socket.write(data))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [only] = data {
            return self.poll_write(cx, only);
        }
        if data.iter().map(|piece| piece.len()).sum::<usize>() <= GATHERED_BYTES {
            let mut gathered = SmallVec::<[u8; GATHERED_BYTES]>::new();
            for piece in data {
                gathered.extend_from_slice(piece);
            }
            return self.poll_write(cx, &gathered);
        }
        self.poll_write_with(cx, |socket| socket.write_vectored(data))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.activity.write_blocked.get() {
            // The protocol libraries flush when they have written everything.
            self.activity.sending.on_done();
            if let Some(queue) = &self.queue {
                queue.borrow_mut().on_done();
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match SockRef::from(&*self.socket).shutdown(std::net::Shutdown::Write) {
            // The peer has already closed the connection.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            result => Poll::Ready(result),
        }
    }
}
