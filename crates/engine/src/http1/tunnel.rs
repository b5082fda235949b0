//! An HTTP/1.1 connection after an upgrade: bytes in both directions.

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

/// Maximum bytes of one piece, which is also all that is read ahead of the reader.
const READ_BYTES: usize = 16 << 10;

/// Received data, shared by the connection's task and the reader.
#[derive(Default)]
pub(crate) struct Tunnel {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// Data that was read from the connection and not yet fetched.
    piece: Option<Bytes>,
    end: Option<Result<(), io::ErrorKind>>,
    /// The reader has left: received data is discarded.
    discarding: bool,
    reader: Option<Waker>,
    /// The connection's task, which waits until the piece is fetched or the reader leaves.
    connection: Option<Waker>,
}

impl Tunnel {
    pub(crate) fn poll_inbound(
        &self,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
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

    /// Notes that the reader has left.
    pub(crate) fn discard(&self) {
        let mut state = self.state.borrow_mut();
        state.discarding = true;
        state.piece = None;
        let connection = state.connection.take();
        drop(state);
        wake(connection);
    }

    /// Notes that no more data will come. Only the first call counts.
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
        // Registered even if another piece may be read: the reader may leave while no data arrives.
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

/// The connection's end of a tunnel. Dropping it tells the reader that the connection has ended.
pub(crate) struct TunnelEnd(Rc<Tunnel>);

impl TunnelEnd {
    pub(crate) fn new() -> Self {
        Self(Rc::default())
    }

    /// Returns the reader's end.
    pub(crate) fn reader(&self) -> Rc<Tunnel> {
        self.0.clone()
    }

    /// Ends the tunnel before it began. There is nothing to read.
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
pub(crate) enum TunnelOutcome {
    /// Both directions ended.
    Done,
    /// This side has sent all data and does not read any more, while the peer may go on sending.
    Unread,
    /// Cut off in the middle, by the peer, by the network, or by the producer of the outgoing data.
    Aborted,
}

/// Sends `body` to the peer, and passes received data, beginning with `early`, to the tunnel's
/// reader, until both directions have ended.
pub(crate) async fn run<T: AsyncRead + AsyncWrite + Unpin>(
    io: &mut T,
    early: Bytes,
    end: TunnelEnd,
    body: Body,
) -> TunnelOutcome {
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
            return Poll::Ready(TunnelOutcome::Aborted);
        }
        match poll_send(io, body.as_mut(), &mut sending, cx) {
            Poll::Ready(Err(kind)) => {
                tunnel.on_end(Err(kind));
                Poll::Ready(TunnelOutcome::Aborted)
            }
            Poll::Ready(Ok(())) if received.is_ready() => Poll::Ready(TunnelOutcome::Done),
            Poll::Ready(Ok(())) if tunnel.is_discarding() => Poll::Ready(TunnelOutcome::Unread),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Ready when the peer has ended its direction.
fn poll_receive<T: AsyncRead + Unpin>(
    io: &mut T,
    tunnel: &Tunnel,
    cx: &mut TaskContext<'_>,
) -> Poll<io::Result<()>> {
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
    /// Waits for the producer.
    Waiting,
    /// Waits for the peer to take this data.
    Blocked(Bytes),
    /// All data was written, but not the end.
    Ending,
    Over,
}

/// Ready when all data and the end were sent.
fn poll_send<T: AsyncWrite + Unpin>(
    io: &mut T,
    mut body: Pin<&mut Body>,
    sending: &mut Sending,
    cx: &mut TaskContext<'_>,
) -> Poll<Result<(), io::ErrorKind>> {
    let kind = |error: io::Error| error.kind();
    if body.poll_abort(cx).is_ready() {
        return Poll::Ready(Err(io::ErrorKind::ConnectionAborted));
    }
    loop {
        match sending {
            Sending::Waiting => match body.as_mut().poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    // A tunnel has no trailers.
                    if let Ok(data) = frame.into_data() {
                        *sending = Sending::Blocked(data);
                    }
                }
                Poll::Ready(Some(Err(_))) => {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionAborted));
                }
                Poll::Ready(None) => *sending = Sending::Ending,
                Poll::Pending => {
                    let _ = Pin::new(&mut *io).poll_flush(cx).map_err(kind)?;
                    return Poll::Pending;
                }
            },
            Sending::Blocked(data) if data.is_empty() => *sending = Sending::Waiting,
            Sending::Blocked(data) => {
                let written =
                    std::task::ready!(Pin::new(&mut *io).poll_write(cx, data)).map_err(kind)?;
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
