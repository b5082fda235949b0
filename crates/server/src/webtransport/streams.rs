//! The application's side of a session's streams, and the tasks on the worker that drive them.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use pronghorn_engine as engine;
use pronghorn_engine::{Handle, SessionStreamError};
use tokio::sync::{mpsc, oneshot, watch};

use super::tasks::spawn;

/// Number of pieces queued between a stream and its task. Further data waits in the engine, which
/// limits it.
const AHEAD: usize = 1;

/// The send side of a stream. Dropping it before [`SendStream::finish`] resets the stream with code
/// 0.
///
/// ```
/// # use pronghorn_server::webtransport::{SessionStreamError, WebTransport};
/// async fn tell(session: &WebTransport) -> Result<(), SessionStreamError> {
///     let mut stream = session.open_uni().await?;
///     stream.write("the news").await?;
///     stream.finish();
///     Ok(())
/// }
/// # let _ = tell;
/// ```
pub struct SendStream {
    pieces: mpsc::Sender<Bytes>,
    end: Option<oneshot::Sender<End>>,
    stopped: watch::Receiver<Option<SessionStreamError>>,
}

/// How the send side ends.
enum End {
    Finish,
    Reset(u32),
}

impl SendStream {
    /// Returns the application's side of an engine stream, and spawns a task that drives the stream
    /// on its worker.
    pub(super) fn from_engine(stream: engine::SendStream, handle: &Handle) -> Self {
        let (pieces, written) = mpsc::channel(AHEAD);
        let (end, ending) = oneshot::channel();
        let (told, stopped) = watch::channel(None);
        spawn(handle, send(stream, written, Ending { end: ending, is_finished: false }, told));
        Self { pieces, end: Some(end), stopped }
    }

    /// Sends `data` as soon as most of the data written before has been sent. A peer that does not
    /// read thus slows the writer down.
    ///
    /// ```
    /// # use pronghorn_server::webtransport::{SendStream, SessionStreamError};
    /// async fn count(stream: &mut SendStream) -> Result<(), SessionStreamError> {
    ///     for number in 0..1_000_000 {
    ///         stream.write(format!("{number}\n")).await?;
    ///     }
    ///     Ok(())
    /// }
    /// # let _ = count;
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the peer has stopped the stream or its session has ended. Data written
    /// just before may then be lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it completes sends nothing.
    pub async fn write(&mut self, data: impl Into<Bytes>) -> Result<(), SessionStreamError> {
        let data = data.into();
        if let Ok(permit) = self.pieces.reserve().await {
            permit.send(data);
            return Ok(());
        }
        Err(self.stopped().await)
    }

    /// Ends the stream after the data written so far.
    pub fn finish(mut self) {
        self.end_with(End::Finish);
    }

    /// Resets the stream with an application code. Data that has not been sent yet is discarded.
    ///
    /// If the stream was opened just before, the peer may never learn of it.
    ///
    /// ```
    /// # use pronghorn_server::webtransport::SendStream;
    /// const OUT_OF_DATE: u32 = 17;
    ///
    /// fn give_up(stream: SendStream) {
    ///     stream.reset(OUT_OF_DATE);
    /// }
    /// # let _ = give_up;
    /// ```
    pub fn reset(mut self, code: u32) {
        self.end_with(End::Reset(code));
    }

    fn end_with(&mut self, end: End) {
        if let Some(ending) = self.end.take() {
            // Sending fails only if the stream has already ended.
            let _ = ending.send(end);
        }
    }

    /// Waits until the peer accepts no more data, and returns the reason.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn stopped(&mut self) -> SessionStreamError {
        let told = self.stopped.wait_for(Option::is_some).await;
        told.ok().and_then(|told| *told).unwrap_or(SessionStreamError::SessionEnded)
    }
}

impl fmt::Debug for SendStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendStream").finish_non_exhaustive()
    }
}

/// The end of the stream, as its task knows it.
struct Ending {
    end: oneshot::Receiver<End>,
    is_finished: bool,
}

impl Ending {
    /// Returns the code when the stream is to be reset. Records when the stream is to be finished.
    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<u32> {
        if self.is_finished {
            return Poll::Pending;
        }
        match ready!(Pin::new(&mut self.end).poll(cx)) {
            Ok(End::Reset(code)) => Poll::Ready(code),
            Ok(End::Finish) => {
                self.is_finished = true;
                Poll::Pending
            }
            Err(_) => Poll::Ready(0),
        }
    }

    /// Runs `work`. Returns the reset code as an error if the stream is to be reset first.
    async fn or_reset<T>(&mut self, work: impl Future<Output = T>) -> Result<T, u32> {
        let mut work = pin!(work);
        poll_fn(|cx| match self.poll_reset(cx) {
            Poll::Ready(code) => Poll::Ready(Err(code)),
            Poll::Pending => work.as_mut().poll(cx).map(Ok),
        })
        .await
    }

    /// Waits for the end: returns the reset code, or `None` for a finished stream.
    async fn reset(&mut self) -> Option<u32> {
        poll_fn(|cx| match self.poll_reset(cx) {
            Poll::Pending if self.is_finished => Poll::Ready(None),
            reset => reset.map(Some),
        })
        .await
    }
}

/// Sends the data that the application has written.
async fn send(
    mut stream: engine::SendStream,
    mut pieces: mpsc::Receiver<Bytes>,
    mut ending: Ending,
    told: watch::Sender<Option<SessionStreamError>>,
) {
    loop {
        let next = {
            let mut stopped = pin!(stream.stopped());
            let next = poll_fn(|cx| match pieces.poll_recv(cx) {
                Poll::Ready(piece) => Poll::Ready(Ok(piece)),
                Poll::Pending => stopped.as_mut().poll(cx).map(Err),
            });
            ending.or_reset(next).await
        };
        let written = match next {
            Ok(Ok(Some(piece))) => ending.or_reset(stream.write(piece)).await,
            // The application has dropped the sender and thereby also set how the stream ends.
            Ok(Ok(None)) => match ending.reset().await {
                None => return stream.finish(),
                Some(code) => Err(code),
            },
            Ok(Err(error)) => Ok(Err(error)),
            Err(code) => Err(code),
        };
        match written {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                // Later writes fail with this error.
                pieces.close();
                told.send_replace(Some(error));
                return;
            }
            Err(code) => return stream.reset(code),
        }
    }
}

type Piece = Result<Option<Bytes>, SessionStreamError>;

/// The receive side of a stream. Dropping it before its end asks the peer to stop with code 0.
pub struct RecvStream {
    pieces: mpsc::Receiver<Piece>,
    stop: oneshot::Sender<u32>,
    end: Option<Result<(), SessionStreamError>>,
}

impl RecvStream {
    /// Returns the application's side of an engine stream, and spawns a task that drives the stream
    /// on its worker.
    pub(super) fn from_engine(stream: engine::RecvStream, handle: &Handle) -> Self {
        let (brought, pieces) = mpsc::channel(AHEAD);
        let (stop, stopping) = oneshot::channel();
        spawn(handle, forward_data(stream, brought, stopping));
        Self { pieces, stop, end: None }
    }

    /// Waits for the next piece of data. Returns `None` at the end of the stream. Unread data slows
    /// the peer down.
    ///
    /// ```
    /// # use pronghorn_server::webtransport::{RecvStream, SessionStreamError};
    /// async fn read_to_end(mut stream: RecvStream) -> Result<Vec<u8>, SessionStreamError> {
    ///     let mut content = Vec::new();
    ///     while let Some(piece) = stream.read().await? {
    ///         content.extend_from_slice(&piece);
    ///         // A stream may be as long as its sender likes.
    ///         content.truncate(1 << 20);
    ///     }
    ///     Ok(content)
    /// }
    /// # let _ = read_to_end;
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the peer has reset the stream or its session has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not lose data.
    pub async fn read(&mut self) -> Result<Option<Bytes>, SessionStreamError> {
        if let Some(end) = self.end {
            return end.map(|()| None);
        }
        let piece = self.pieces.recv().await.unwrap_or(Err(SessionStreamError::SessionEnded));
        match piece {
            Ok(Some(_)) => {}
            Ok(None) => self.end = Some(Ok(())),
            Err(error) => self.end = Some(Err(error)),
        }
        piece
    }

    /// Asks the peer to stop sending, with an application code.
    ///
    /// ```
    /// # use pronghorn_server::webtransport::RecvStream;
    /// const NOT_WANTED: u32 = 18;
    ///
    /// fn refuse(stream: RecvStream) {
    ///     stream.stop(NOT_WANTED);
    /// }
    /// # let _ = refuse;
    /// ```
    pub fn stop(self, code: u32) {
        // Sending fails only if the stream has already ended.
        let _ = self.stop.send(code);
    }
}

impl fmt::Debug for RecvStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvStream").finish_non_exhaustive()
    }
}

/// Passes the peer's data to the application, one piece ahead of it.
async fn forward_data(
    mut stream: engine::RecvStream,
    pieces: mpsc::Sender<Piece>,
    mut stop: oneshot::Receiver<u32>,
) {
    loop {
        let next = {
            let mut next =
                pin!(async { Some((pieces.reserve().await.ok()?, stream.read().await)) });
            poll_fn(|cx| match Pin::new(&mut stop).poll(cx) {
                Poll::Ready(code) => Poll::Ready(Err(code)),
                Poll::Pending => next.as_mut().poll(cx).map(Ok),
            })
            .await
        };
        let code = match next {
            Ok(Some((permit, piece))) => {
                let is_over = !matches!(piece, Ok(Some(_)));
                permit.send(piece);
                if is_over {
                    return;
                }
                continue;
            }
            // The application has dropped the receiver and thereby also set the code.
            Ok(None) => stop.await,
            Err(code) => code,
        };
        return stream.stop(code.unwrap_or(0));
    }
}
