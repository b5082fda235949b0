//! A connection or stream upgraded to another protocol: bytes in both directions, shared by
//! JavaScript and the engine.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame};
use pronghorn_engine::{AbortHandle, BodyError, Handle, Incoming};

use crate::events::{Event, Events, TunnelEvent};
use crate::pipe::wake;

/// Number of unread bytes at which reading stops, which holds the peer back. One piece may exceed
/// it.
const INBOUND_BYTES: usize = 64 << 10;
/// Number of buffered bytes at which JavaScript is told to stop. The chunk that reaches it is
/// buffered as a whole.
const OUTBOUND_BYTES: usize = 128 << 10;
/// Number of buffered bytes at which JavaScript is told to continue.
const LOW_WATER: usize = 32 << 10;

/// How long the peer may take to receive the remaining bytes after JavaScript ended the tunnel.
/// Memory and connection are kept until then.
const LINGER: Duration = Duration::from_secs(5);

/// The state of both directions. A future reads from the peer; the engine polls a body to send.
pub(crate) struct Tunnel {
    pub(crate) listener: u32,
    inbound: RefCell<Inbound>,
    outbound: RefCell<Outbound>,
    /// Aborts sending. Needed if the peer reads nothing, because the engine then does not poll the
    /// body and would not notice a reset.
    cut: AbortHandle,
    /// Whether the engine has taken all bytes and the end.
    has_left: Rc<Cell<bool>>,
    handle: Handle,
    /// Counts live tunnels.
    _alive: Rc<()>,
}

#[derive(Default)]
struct Inbound {
    pieces: Vec<Bytes>,
    bytes: usize,
    has_ended: bool,
    /// Whether JavaScript is reading.
    is_wanted: bool,
    /// Whether JavaScript has been notified of available bytes.
    is_announced: bool,
    /// Whether JavaScript has stopped reading for good.
    is_dropped: bool,
    reader: Option<Waker>,
}

#[derive(Default)]
struct Outbound {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    end: Option<Ending>,
    /// Whether JavaScript has been told to stop.
    is_full: bool,
    /// Whether the engine has dropped the body.
    is_dropped: bool,
    sender: Option<Waker>,
}

/// How the sending direction ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// After all written bytes.
    Complete,
    /// At once: resets the stream, or closes the connection over HTTP/1.1.
    Reset,
}

impl Tunnel {
    pub(crate) fn new(listener: u32, handle: Handle, alive: Rc<()>) -> Self {
        let (inbound, outbound, cut, has_left) = Default::default();
        Self { listener, inbound, outbound, cut, has_left, handle, _alive: alive }
    }

    /// Returns the handle that aborts sending even if the peer reads nothing.
    pub(crate) fn cut(&self) -> AbortHandle {
        self.cut.clone()
    }

    /// Requests an event for available bytes.
    pub(crate) fn read(&self) {
        let mut inbound = self.inbound.borrow_mut();
        inbound.is_wanted = true;
        wake(inbound.reader.take());
    }

    /// Takes the received bytes, and makes room for more.
    pub(crate) fn take(&self) -> Vec<Bytes> {
        let mut inbound = self.inbound.borrow_mut();
        (inbound.is_wanted, inbound.is_announced, inbound.bytes) = (false, false, 0);
        wake(inbound.reader.take());
        std::mem::take(&mut inbound.pieces)
    }

    /// Returns whether the peer has ended its direction: nothing follows the bytes of
    /// [`Tunnel::take`].
    pub(crate) fn has_ended(&self) -> bool {
        self.inbound.borrow().has_ended
    }

    /// Sends a piece. Returns whether there is capacity for more; if not, an event follows.
    pub(crate) fn write(&self, piece: Bytes) -> bool {
        let mut outbound = self.outbound.borrow_mut();
        if outbound.is_dropped {
            // The event of the tunnel's end is pending.
            return false;
        }
        if outbound.end.is_some() || piece.is_empty() {
            return true;
        }
        outbound.bytes += piece.len();
        outbound.pieces.push_back(piece);
        outbound.is_full = outbound.bytes >= OUTBOUND_BYTES;
        wake(outbound.sender.take());
        !outbound.is_full
    }

    /// Ends the sending direction. A reset discards buffered bytes, even after a complete end.
    pub(crate) fn finish(&self, ending: Ending) {
        let mut outbound = self.outbound.borrow_mut();
        if outbound.end.is_none() || ending == Ending::Reset {
            outbound.end = Some(ending);
        }
        wake(outbound.sender.take());
        drop(outbound);
        if ending == Ending::Reset {
            self.cut.abort();
        }
    }

    /// Ends the tunnel for JavaScript.
    pub(crate) fn end(&self, ending: Ending) {
        self.finish(ending);
        if ending == Ending::Complete && !self.outbound.borrow().is_dropped {
            let (cut, has_left, handle) =
                (self.cut.clone(), self.has_left.clone(), self.handle.clone());
            self.handle.spawn(async move {
                // Counts from the next turn: JavaScript may have called between turns, where the
                // clock is that of the last one.
                handle.sleep(LINGER).await;
                if !has_left.get() {
                    cut.abort();
                }
            });
        }
        let mut inbound = self.inbound.borrow_mut();
        (inbound.is_dropped, inbound.bytes) = (true, 0);
        inbound.pieces.clear();
        wake(inbound.reader.take());
    }
}

/// Sends events of a tunnel to JavaScript.
#[derive(Clone)]
struct EventSender {
    events: Rc<dyn Events>,
    number: u32,
}

impl EventSender {
    fn send(&self, what: TunnelEvent) {
        self.events.push(Event::Tunnel { tunnel: self.number, what });
    }
}

/// Creates the engine's two ends: the body to send, and the reader of received bytes.
pub(crate) fn ends(
    events: Rc<dyn Events>,
    number: u32,
    tunnel: &Rc<Tunnel>,
    body: Incoming,
) -> (TunnelBody, TunnelReader) {
    let sender = EventSender { events, number };
    let reader = TunnelReader {
        sender: sender.clone(),
        tunnel: tunnel.clone(),
        body: Some(body),
        has_told_end: false,
    };
    (TunnelBody { sender, tunnel: tunnel.clone(), has_told_end: false }, reader)
}

/// The body of bytes to send.
pub(crate) struct TunnelBody {
    sender: EventSender,
    tunnel: Rc<Tunnel>,
    has_told_end: bool,
}

impl TunnelBody {
    fn tell_end(&mut self, what: TunnelEvent) {
        if !std::mem::replace(&mut self.has_told_end, true) {
            self.sender.send(what);
        }
    }
}

impl http_body::Body for TunnelBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let tunnel = self.tunnel.clone();
        let mut outbound = tunnel.outbound.borrow_mut();
        if outbound.end == Some(Ending::Reset) {
            return Poll::Ready(Some(Err("the socket was reset".into())));
        }
        let Some(piece) = outbound.pieces.pop_front() else {
            if outbound.end.is_some() {
                tunnel.has_left.set(true);
                self.tell_end(TunnelEvent::Finished);
                return Poll::Ready(None);
            }
            outbound.sender = Some(cx.waker().clone());
            return Poll::Pending;
        };
        outbound.bytes -= piece.len();
        if outbound.is_full && outbound.bytes <= LOW_WATER {
            outbound.is_full = false;
            self.sender.send(TunnelEvent::Writable);
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

impl Drop for TunnelBody {
    fn drop(&mut self) {
        let mut outbound = self.tunnel.outbound.borrow_mut();
        outbound.is_dropped = true;
        outbound.pieces.clear();
        outbound.bytes = 0;
        drop(outbound);
        // No effect if everything was sent.
        self.tell_end(TunnelEvent::Failed);
    }
}

/// Reads from the peer, bounded by what JavaScript has not taken.
pub(crate) struct TunnelReader {
    sender: EventSender,
    tunnel: Rc<Tunnel>,
    body: Option<Incoming>,
    /// Whether the last event of this direction was pushed.
    has_told_end: bool,
}

impl TunnelReader {
    /// Reads available bytes, up to the limit. Returns whether the peer has failed.
    fn fill(&mut self, inbound: &mut Inbound, cx: &mut Context<'_>) -> bool {
        while let Some(body) = self.body.as_mut().filter(|_| inbound.bytes < INBOUND_BYTES) {
            match Pin::new(body).poll_frame(cx) {
                Poll::Pending => return false,
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data()
                        && !data.is_empty()
                    {
                        inbound.bytes += data.len();
                        inbound.pieces.push(data);
                    }
                }
                Poll::Ready(Some(Err(_))) => return true,
                Poll::Ready(None) => {
                    inbound.has_ended = true;
                    self.body = None;
                }
            }
        }
        false
    }
}

impl Future for TunnelReader {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let tunnel = this.tunnel.clone();
        let mut inbound = tunnel.inbound.borrow_mut();
        if inbound.is_dropped {
            this.has_told_end = true;
            return Poll::Ready(());
        }
        if this.fill(&mut inbound, cx) {
            this.has_told_end = true;
            this.sender.send(TunnelEvent::Failed);
            return Poll::Ready(());
        }
        if inbound.is_wanted
            && !inbound.is_announced
            && (inbound.has_ended || !inbound.pieces.is_empty())
        {
            inbound.is_announced = true;
            this.sender.send(TunnelEvent::Readable);
            if inbound.has_ended {
                this.has_told_end = true;
                return Poll::Ready(());
            }
        }
        inbound.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for TunnelReader {
    fn drop(&mut self) {
        // Dropped with its worker.
        if !self.has_told_end {
            self.sender.send(TunnelEvent::Closed);
        }
    }
}
