//! A connection over TCP or a Unix socket as the libraries above want it.

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

use super::queue::SendQueue;
use super::{TcpPath, TcpProbe};
use crate::limits::Limits;
use crate::progress::Progress;
use crate::runtime::{Handle, Registration};
use crate::window_budget::SendWindow;

/// Bytes that one connection may move in a turn. The libraries above go on until the socket stops them, and a peer that is fast
/// enough would keep them from ever returning to the worker.
const BYTES_PER_TURN: usize = 1 << 20;

/// Pieces that are no more than this together are written as one: to copy them costs less than the system's look at each.
const GATHERED_BYTES: usize = 1 << 10;

/// What a watchdog needs to know of a connection.
pub(crate) struct Activity {
    /// When bytes last moved in either direction.
    last: Cell<Instant>,
    /// Bytes wait to be sent and the peer does not take them.
    write_blocked: Cell<bool>,
    /// There has been a request.
    is_used: Cell<bool>,
    /// The connection closes if no other one comes.
    is_to_close: Cell<bool>,
    /// Requests that have not been answered to their end.
    exchanges: Cell<usize>,
    /// Those of them that wait for the peer and not for their handler.
    waiting: Cell<usize>,
    /// What waits to be sent goes.
    pub(super) sending: Progress,
    /// When the head that comes now began, and its bytes so far.
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
            sending: Progress::new(limits),
            head: Cell::default(),
        })
    }

    pub(crate) fn last(&self) -> Instant {
        self.last.get()
    }

    /// Bytes of a request's head have come.
    pub(crate) fn begin_head(&self, now: Instant, bytes: usize) {
        let (began, so_far) = self.head.get().unwrap_or((now, 0));
        self.head.set(Some((began, so_far + bytes)));
    }

    /// It is complete, or there was none.
    pub(crate) fn end_head(&self) {
        self.head.set(None);
    }

    /// When the head that comes now began, and its bytes so far.
    pub(crate) fn head(&self) -> Option<(Instant, usize)> {
        self.head.get()
    }

    /// Whether the peer has less time than for idling.
    pub(super) fn is_pressed(&self) -> bool {
        self.head.get().is_some() || self.sending.deadline().is_some()
    }

    pub(crate) fn has_exchanges(&self) -> bool {
        self.exchanges.get() > 0
    }

    /// Has the connection close if there was a request, and all that there were are answered.
    pub(crate) fn close_if_idle(&self) {
        self.is_to_close.set(self.is_used.get() && !self.has_exchanges() && self.head.get().is_none());
    }

    /// Whether it is to close, and no request has come since.
    pub(crate) fn is_to_close(&self) -> bool {
        self.is_to_close.get()
    }

    /// Whether silence is the peer's doing: nothing is asked, content does not come, or what was answered is not taken.
    pub(crate) fn waits_for_peer(&self) -> bool {
        self.exchanges.get() == self.waiting.get() || self.write_blocked.get()
    }

    pub(crate) fn begin_exchange(self: &Rc<Self>) -> Rc<ExchangeGuard> {
        self.exchanges.set(self.exchanges.get() + 1);
        self.is_used.set(true);
        self.is_to_close.set(false);
        self.end_head();
        Rc::new(ExchangeGuard { activity: self.clone(), inbound: Cell::default(), outbound: Cell::default(), answered: Cell::default() })
    }
}

/// Counts one exchange of a connection until dropped, and what it waits for.
pub(crate) struct ExchangeGuard {
    activity: Rc<Activity>,
    /// The handler waits for content of the request.
    inbound: Cell<bool>,
    /// Content of the response waits for the peer's permission.
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

    /// The response has begun. From here on a request's content may rest: perhaps the two sides talk to each other.
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

/// A socket that streams run over.
pub(crate) trait Socket: mio::event::Source + AsFd + 'static {
    fn write(&self, data: &[u8]) -> io::Result<usize>;

    fn write_vectored(&self, data: &[IoSlice<'_>]) -> io::Result<usize>;

    /// The counts of a connection whose probe was asked for are now those of its end.
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

/// A connection that can be seen to end without being read.
pub(crate) trait Ends {
    /// Ready when the peer has ended its side or is gone, whatever is still to be read.
    fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Bytes that were written and that the peer's system has not acknowledged.
    fn untaken(&self) -> u64;
}

impl<T: Ends> Ends for &mut T {
    fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()> {
        (**self).poll_ended(cx)
    }

    fn untaken(&self) -> u64 {
        (**self).untaken()
    }
}

/// A TCP stream on the worker's reactor.
pub(crate) type TcpStream = Stream<mio::net::TcpStream>;

/// A stream over a Unix socket on the worker's reactor.
pub(crate) type UnixStream = Stream<mio::net::UnixStream>;

/// A stream of bytes on the worker's reactor.
pub(crate) struct Stream<S: Socket> {
    // Before the socket, so that it leaves the reactor's table before the descriptor can be used again.
    registration: Registration,
    socket: Rc<S>,
    /// Told of the end, where somebody asked.
    probe: Option<Rc<TcpProbe>>,
    handle: Handle,
    activity: Rc<Activity>,
    /// The last turn in which bytes moved, and how many.
    moved: Cell<(u64, usize)>,
    /// What the kernel holds, where that counts.
    queue: Option<RefCell<SendQueue>>,
}

impl<S: Socket> Stream<S> {
    pub(crate) fn new(mut socket: S, handle: &Handle, limits: &Limits) -> io::Result<Self> {
        let registration = handle.reactor().register(&mut socket, Interest::READABLE | Interest::WRITABLE)?;
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

    /// Counts what the kernel holds of what is sent, and bounds it by what `window` lends.
    pub(crate) fn meter(&mut self, window: SendWindow) {
        self.queue = Some(RefCell::new(SendQueue::new(window)));
    }

    pub(crate) fn activity(&self) -> &Rc<Activity> {
        &self.activity
    }

    /// Pending, until the next turn, once this one has moved its share.
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

    fn poll_write_with(&self, cx: &mut Context<'_>, mut write: impl FnMut(&S) -> io::Result<usize>) -> Poll<io::Result<usize>> {
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
    /// Lets the connection's counts be read as long as it is open, and those of its end afterwards.
    pub(crate) fn probe(&mut self) -> Rc<TcpProbe> {
        self.probe.get_or_insert_with(|| TcpProbe::new(&self.socket)).clone()
    }

    pub(crate) fn path(&self) -> TcpPath {
        TcpPath::new(&self.socket)
    }

    /// Looks at the first bytes that have come and leaves them where they are, until `decide` has seen enough of them. At the end of the stream,
    /// or of the connection, there are no more: without a decision the answer is `false`.
    pub(crate) fn poll_peek(&self, cx: &mut Context<'_>, first: &mut [u8], decide: impl Fn(&[u8]) -> Option<bool>) -> Poll<bool> {
        loop {
            let readiness = self.registration.readiness();
            ready!(readiness.poll_readable(cx));
            match self.socket.peek(first) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => readiness.clear_readable(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Reading says what has happened.
                Err(_) => return Poll::Ready(false),
                Ok(count) => {
                    if let Some(decision) = decide(&first[..count]) {
                        return Poll::Ready(decision);
                    }
                    if readiness.poll_ended(cx).is_ready() {
                        return Poll::Ready(false);
                    }
                    // The poller tells when there are more.
                    readiness.clear_readable();
                }
            }
        }
    }

    /// Waits until a connection that was begun is there or has failed.
    pub(crate) async fn connected(&self) -> io::Result<()> {
        std::future::poll_fn(|cx| self.registration.readiness().poll_writable(cx)).await;
        match self.socket.take_error()? {
            Some(error) => Err(error),
            None => self.socket.peer_addr().map(drop),
        }
    }
}

impl<S: Socket> Ends for Stream<S> {
    fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.registration.readiness().poll_ended(cx)
    }

    fn untaken(&self) -> u64 {
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
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_share(cx));
        loop {
            ready!(self.registration.readiness().poll_readable(cx));
            match receive(&*self.socket, buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.registration.readiness().clear_readable(),
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

/// Reads into `buffer`, without writing to it what nobody reads.
#[expect(unsafe_code, reason = "the buffer says which of its bytes are initialized in no other way")]
fn receive(socket: &impl AsFd, buffer: &mut ReadBuf<'_>) -> io::Result<usize> {
    // SAFETY: the system call writes bytes and takes none back that were initialized.
    let ((read, _), _) = rustix::net::recv(socket, unsafe { buffer.unfilled_mut() }, rustix::net::RecvFlags::empty())?;
    let count = read.len();
    // SAFETY: these are the bytes that were just read.
    unsafe { buffer.assume_init(count) };
    buffer.advance(count);
    Ok(count)
}

impl<S: Socket> AsyncWrite for Stream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, |socket| socket.write(data))
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
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
            // Those above flush when they have written all that they had.
            self.activity.sending.on_done();
            if let Some(queue) = &self.queue {
                queue.borrow_mut().on_done();
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match SockRef::from(&*self.socket).shutdown(std::net::Shutdown::Write) {
            // The peer has closed already; there is nobody left to tell.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            result => Poll::Ready(result),
        }
    }
}
