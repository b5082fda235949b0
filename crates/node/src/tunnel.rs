//! A connection or stream that goes on in another protocol: bytes in both directions, as JavaScript and the engine share them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame};
use pronghorn_engine::{BodyError, Cut, Handle, Incoming};

use crate::addon::{Addon, Event};
use crate::pipe::wake;

/// With so many bytes from the peer that JavaScript has not fetched nothing more is read, which holds the peer back. One piece may go beyond.
const INBOUND_BYTES: usize = 64 << 10;
/// With so many bytes that wait for the peer JavaScript is told to stop. The chunk that reaches it is kept as a whole.
const OUTBOUND_BYTES: usize = 128 << 10;
/// When no more than so many are left JavaScript is told to go on.
const LOW_WATER: usize = 32 << 10;

/// How long the peer may take for what was written before JavaScript was done. It keeps memory and its connection until then.
const LINGER: Duration = Duration::from_secs(5);

/// What an event says of a tunnel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// There are bytes to be fetched, or the peer has ended its direction.
    Readable = 0,
    Writable = 1,
    /// All that was written has left, and so has the end.
    Finished = 2,
    /// The peer has reset it, left, or was given up.
    Failed = 3,
    /// Its worker has ended.
    Closed = 4,
}

/// What both directions share with JavaScript. There is one future for what the peer sends; what is sent is a body that the engine polls.
pub(crate) struct Tunnel {
    pub(crate) listening: u32,
    inbound: RefCell<Inbound>,
    outbound: RefCell<Outbound>,
    /// For a peer that takes nothing: the engine asks for no more then, and would not hear of a reset.
    cut: Cut,
    /// The engine has taken all that was written, and the end.
    has_left: Rc<Cell<bool>>,
    handle: Handle,
    /// So that they can be counted.
    _alive: Rc<()>,
}

#[derive(Default)]
struct Inbound {
    pieces: Vec<Bytes>,
    bytes: usize,
    has_ended: bool,
    /// JavaScript reads.
    is_wanted: bool,
    /// JavaScript has been told that there is something.
    is_announced: bool,
    /// JavaScript reads no more.
    is_dropped: bool,
    reader: Option<Waker>,
}

#[derive(Default)]
struct Outbound {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    end: Option<Ending>,
    /// JavaScript has been told to stop.
    is_full: bool,
    /// The engine polls no more.
    is_dropped: bool,
    sender: Option<Waker>,
}

/// How what is sent comes to its end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Behind all that was written.
    Complete,
    /// At once: the stream is reset, over HTTP/1.1 the connection is closed.
    Reset,
}

impl Tunnel {
    pub(crate) fn new(listening: u32, handle: Handle, alive: Rc<()>) -> Self {
        let (inbound, outbound, cut, has_left) = Default::default();
        Self { listening, inbound, outbound, cut, has_left, handle, _alive: alive }
    }

    /// What ends it although its peer takes nothing.
    pub(crate) fn cut(&self) -> Cut {
        self.cut.clone()
    }

    /// JavaScript reads: an event says that there is something.
    pub(crate) fn read(&self) {
        let mut inbound = self.inbound.borrow_mut();
        inbound.is_wanted = true;
        wake(inbound.reader.take());
    }

    /// Returns what has come, and makes room for more.
    pub(crate) fn take(&self) -> Vec<Bytes> {
        let mut inbound = self.inbound.borrow_mut();
        (inbound.is_wanted, inbound.is_announced, inbound.bytes) = (false, false, 0);
        wake(inbound.reader.take());
        std::mem::take(&mut inbound.pieces)
    }

    /// Whether the peer has ended its direction, and nothing comes behind what [`Tunnel::take`] returns.
    pub(crate) fn has_ended(&self) -> bool {
        self.inbound.borrow().has_ended
    }

    /// Sends a piece. Returns whether there is room for more; if not, an event says when there is.
    pub(crate) fn write(&self, piece: Bytes) -> bool {
        let mut outbound = self.outbound.borrow_mut();
        if outbound.is_dropped {
            // The end of the tunnel is about to be told.
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

    /// Nothing more is sent. A reset goes before what waits, even where the end was announced.
    pub(crate) fn finish(&self, ending: Ending) {
        let mut outbound = self.outbound.borrow_mut();
        if outbound.end.is_none() || ending == Ending::Reset {
            outbound.end = Some(ending);
        }
        wake(outbound.sender.take());
        drop(outbound);
        if ending == Ending::Reset {
            self.cut.cut();
        }
    }

    /// JavaScript is done with it.
    pub(crate) fn end(&self, ending: Ending) {
        self.finish(ending);
        if ending == Ending::Complete && !self.outbound.borrow().is_dropped {
            let (cut, has_left, handle) = (self.cut.clone(), self.has_left.clone(), self.handle.clone());
            self.handle.spawn(async move {
                // From the turn on that comes next: JavaScript may have called between two, and the time is that of the last one.
                handle.sleep(LINGER).await;
                if !has_left.get() {
                    cut.cut();
                }
            });
        }
        let mut inbound = self.inbound.borrow_mut();
        (inbound.is_dropped, inbound.bytes) = (true, 0);
        inbound.pieces.clear();
        wake(inbound.reader.take());
    }
}

/// Tells JavaScript of one tunnel.
#[derive(Clone)]
struct Teller {
    addon: Rc<Addon>,
    number: u32,
}

impl Teller {
    fn tell(&self, what: Told) {
        self.addon.push(Event::Tunnel { tunnel: self.number, what });
    }
}

/// The two ends that the engine has: what it polls for bytes to send, and what reads those that come.
pub(crate) fn ends(addon: &Rc<Addon>, number: u32, tunnel: &Rc<Tunnel>, body: Incoming) -> (TunnelBody, TunnelReader) {
    let teller = Teller { addon: addon.clone(), number };
    let reader = TunnelReader { teller: teller.clone(), tunnel: tunnel.clone(), body: Some(body), has_told_end: false };
    (TunnelBody { teller, tunnel: tunnel.clone(), has_told_end: false }, reader)
}

/// What is sent.
pub(crate) struct TunnelBody {
    teller: Teller,
    tunnel: Rc<Tunnel>,
    has_told_end: bool,
}

impl TunnelBody {
    fn tell_end(&mut self, what: Told) {
        if !std::mem::replace(&mut self.has_told_end, true) {
            self.teller.tell(what);
        }
    }
}

impl http_body::Body for TunnelBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let tunnel = self.tunnel.clone();
        let mut outbound = tunnel.outbound.borrow_mut();
        if outbound.end == Some(Ending::Reset) {
            return Poll::Ready(Some(Err("the socket was reset".into())));
        }
        let Some(piece) = outbound.pieces.pop_front() else {
            if outbound.end.is_some() {
                tunnel.has_left.set(true);
                self.tell_end(Told::Finished);
                return Poll::Ready(None);
            }
            outbound.sender = Some(cx.waker().clone());
            return Poll::Pending;
        };
        outbound.bytes -= piece.len();
        if outbound.is_full && outbound.bytes <= LOW_WATER {
            outbound.is_full = false;
            self.teller.tell(Told::Writable);
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
        // Where that is not because all was sent.
        self.tell_end(Told::Failed);
    }
}

/// Reads what comes, no further than JavaScript fetches it.
pub(crate) struct TunnelReader {
    teller: Teller,
    tunnel: Rc<Tunnel>,
    body: Option<Incoming>,
    /// The last event of this direction has been pushed.
    has_told_end: bool,
}

impl TunnelReader {
    /// Reads what is there, as far as there is room. Returns whether the peer has failed.
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
            this.teller.tell(Told::Failed);
            return Poll::Ready(());
        }
        if inbound.is_wanted && !inbound.is_announced && (inbound.has_ended || !inbound.pieces.is_empty()) {
            inbound.is_announced = true;
            this.teller.tell(Told::Readable);
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
        // With its worker.
        if !self.has_told_end {
            self.teller.tell(Told::Closed);
        }
    }
}
