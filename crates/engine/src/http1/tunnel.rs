//! An HTTP/1.1 connection that has changed its protocol: bytes in both directions.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};

use bytes::Bytes;
use http_body::{Body as _, Frame};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{Body, BodyError};

/// Bytes of one piece, and all that is read ahead of who reads.
const READ_BYTES: usize = 16 << 10;

/// What comes through the connection, as its task and its reader share it.
#[derive(Default)]
pub(crate) struct Tunnel {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// Read and not fetched.
    piece: Option<Bytes>,
    end: Option<Result<(), io::ErrorKind>>,
    /// Nobody reads: what comes is thrown away.
    discarding: bool,
    reader: Option<Waker>,
    /// The connection's task, which waits for the piece to be fetched, or for the reader to leave.
    connection: Option<Waker>,
}

impl Tunnel {
    pub(crate) fn poll_inbound(&self, cx: &mut TaskContext<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut state = self.state.borrow_mut();
        if let Some(piece) = state.piece.take() {
            let connection = state.connection.take();
            drop(state);
            wake(connection);
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        match state.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(kind)) => {
                state.end = Some(Ok(()));
                Poll::Ready(Some(Err(io::Error::from(kind).into())))
            }
            None => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        let state = self.state.borrow();
        state.piece.is_none() && state.end == Some(Ok(()))
    }

    /// Nobody reads any more.
    pub(crate) fn discard(&self) {
        let mut state = self.state.borrow_mut();
        state.discarding = true;
        state.piece = None;
        let connection = state.connection.take();
        drop(state);
        wake(connection);
    }

    /// No more will come. Only the first end counts.
    fn on_end(&self, end: Result<(), io::ErrorKind>) {
        let mut state = self.state.borrow_mut();
        if state.end.is_none() {
            state.end = Some(end);
            let reader = state.reader.take();
            drop(state);
            wake(reader);
        }
    }

    fn is_discarding(&self) -> bool {
        self.state.borrow().discarding
    }

    fn has_ended(&self) -> bool {
        self.state.borrow().end.is_some()
    }

    /// Ready when another piece may be read.
    fn poll_room(&self, cx: &mut TaskContext<'_>) -> Poll<()> {
        let mut state = self.state.borrow_mut();
        // Also where there is room: the reader may leave while nothing comes.
        if state.connection.as_ref().is_none_or(|connection| !connection.will_wake(cx.waker())) {
            state.connection = Some(cx.waker().clone());
        }
        if state.piece.is_none() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn on_piece(&self, piece: Bytes) {
        let mut state = self.state.borrow_mut();
        if state.discarding {
            return;
        }
        state.piece = Some(piece);
        let reader = state.reader.take();
        drop(state);
        wake(reader);
    }
}

/// The connection's end of a tunnel. Dropped, it tells the reader that the connection has ended.
pub(crate) struct TunnelEnd(Rc<Tunnel>);

impl TunnelEnd {
    pub(crate) fn new() -> Self {
        Self(Rc::default())
    }

    /// What the tunnel's reader holds.
    pub(crate) fn reader(&self) -> Rc<Tunnel> {
        self.0.clone()
    }

    /// There will be no tunnel, and nothing to read.
    pub(crate) fn decline(self) {
        self.0.on_end(Ok(()));
    }
}

impl Drop for TunnelEnd {
    fn drop(&mut self) {
        self.0.on_end(Err(io::ErrorKind::ConnectionAborted));
    }
}

/// How the two directions ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Both came to their end.
    Done,
    /// This side has sent all that it had, and reads no more, while the peer may go on.
    Unread,
    /// Cut off in the middle: by the peer, by the network, or by the producer of what is sent.
    Aborted,
}

/// Moves `body` to the peer and what the peer sends, beginning with `early`, to the tunnel's reader, until both directions have ended.
pub(crate) async fn run<T: AsyncRead + AsyncWrite + Unpin>(io: &mut T, early: Bytes, end: TunnelEnd, body: Body) -> Ended {
    let tunnel = &*end.0;
    let mut body = pin!(body);
    if !early.is_empty() {
        tunnel.on_piece(early);
    }
    let mut sending = Sending::Waiting;
    poll_fn(|cx| {
        let received = poll_receive(io, tunnel, cx);
        if let Poll::Ready(Err(error)) = received {
            tunnel.on_end(Err(error.kind()));
            return Poll::Ready(Ended::Aborted);
        }
        match poll_send(io, body.as_mut(), &mut sending, cx) {
            Poll::Ready(Err(kind)) => {
                tunnel.on_end(Err(kind));
                Poll::Ready(Ended::Aborted)
            }
            Poll::Ready(Ok(())) if received.is_ready() => Poll::Ready(Ended::Done),
            Poll::Ready(Ok(())) if tunnel.is_discarding() => Poll::Ready(Ended::Unread),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Ready when the peer has sent all that it will.
fn poll_receive<T: AsyncRead + Unpin>(io: &mut T, tunnel: &Tunnel, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
    loop {
        if tunnel.has_ended() {
            return Poll::Ready(Ok(()));
        }
        std::task::ready!(tunnel.poll_room(cx));
        let mut storage = [MaybeUninit::uninit(); READ_BYTES];
        let mut read = ReadBuf::uninit(&mut storage);
        std::task::ready!(Pin::new(&mut *io).poll_read(cx, &mut read))?;
        if read.filled().is_empty() {
            tunnel.on_end(Ok(()));
        } else {
            tunnel.on_piece(Bytes::copy_from_slice(read.filled()));
        }
    }
}

enum Sending {
    /// For the producer.
    Waiting,
    /// For the peer, who does not take this.
    Blocked(Bytes),
    /// All was written; the end is not.
    Ending,
    Over,
}

/// Ready when all was sent.
fn poll_send<T: AsyncWrite + Unpin>(
    io: &mut T,
    mut body: Pin<&mut Body>,
    sending: &mut Sending,
    cx: &mut TaskContext<'_>,
) -> Poll<Result<(), io::ErrorKind>> {
    let kind = |error: io::Error| error.kind();
    if body.poll_cut(cx).is_ready() {
        return Poll::Ready(Err(io::ErrorKind::ConnectionAborted));
    }
    loop {
        match sending {
            Sending::Waiting => match body.as_mut().poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    // There is no place for trailers.
                    if let Ok(data) = frame.into_data() {
                        *sending = Sending::Blocked(data);
                    }
                }
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Err(io::ErrorKind::ConnectionAborted)),
                Poll::Ready(None) => *sending = Sending::Ending,
                Poll::Pending => {
                    let _ = Pin::new(&mut *io).poll_flush(cx).map_err(kind)?;
                    return Poll::Pending;
                }
            },
            Sending::Blocked(data) if data.is_empty() => *sending = Sending::Waiting,
            Sending::Blocked(data) => {
                let written = std::task::ready!(Pin::new(&mut *io).poll_write(cx, data)).map_err(kind)?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero));
                }
                drop(data.split_to(written));
            }
            Sending::Ending => {
                std::task::ready!(Pin::new(&mut *io).poll_flush(cx)).map_err(kind)?;
                std::task::ready!(Pin::new(&mut *io).poll_shutdown(cx)).map_err(kind)?;
                *sending = Sending::Over;
            }
            Sending::Over => return Poll::Ready(Ok(())),
        }
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
