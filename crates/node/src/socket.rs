//! WebSocket connections, shared by JavaScript and the engine.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use pronghorn_engine::websocket::{
    self, CloseCode, CloseReason, Fragment, Message, Options, Prepared, ProtocolError, Sender,
    WebSocket,
};
use pronghorn_engine::{Handle, Sleep};

use crate::events::{Event, Events};

/// Maximum number of events of one connection in a row, so that a fast peer does not delay others.
const EVENTS_IN_A_ROW: usize = 64;
/// The code of a connection that ended without a close frame (RFC 6455, section 7.1.5).
pub(crate) const ABNORMAL: u16 = 1006;
/// The code of a close frame without a code.
const NO_CODE: u16 = 1005;

/// The settings of a route's connections.
pub(crate) struct Kind {
    pub(crate) options: Options,
    /// Maximum number of bytes buffered for a slow client; further messages are dropped.
    pub(crate) max_backpressure: usize,
    /// Maximum duration of a connection.
    pub(crate) lifetime: Option<Duration>,
}

/// JavaScript's end.
pub(crate) struct Socket {
    sender: Sender,
    handle: Handle,
    max_backpressure: usize,
    fresh: Cell<Fresh>,
    /// Whether JavaScript knows of buffered bytes and gets an event when they have been sent.
    awaits_drain: Cell<bool>,
    /// The same for bytes that wait for the last fragment of a message.
    awaits_last: Cell<bool>,
    driver: RefCell<Option<Waker>>,
}

/// Maximum number of fresh bytes. A client that reads nothing causes no turn, so its bytes would
/// stay fresh forever.
const FRESH_BYTES: usize = 1 << 20;
/// Bytes beyond the back-pressure limit that a fragmented message may buffer, because its fragments
/// cannot be dropped. More ends the connection.
const UNFINISHED_BYTES: usize = 16 << 20;

/// Bytes that the connection has had no chance to send: those of this turn of the worker, and those
/// from between the turns.
#[derive(Clone, Copy, Default)]
struct Fresh {
    turn: u64,
    now: usize,
    before: usize,
}

/// The outcome of sending a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Buffered, because the client is slow.
    Waiting = 0,
    Sent = 1,
    /// Dropped, because too many bytes are buffered.
    Dropped = 2,
    /// The connection has closed; JavaScript's event may be pending.
    Gone = 3,
}

impl Socket {
    pub(crate) fn new(sender: Sender, handle: Handle, max_backpressure: usize) -> Rc<Self> {
        let (fresh, awaits_drain, awaits_last, driver) = Default::default();
        Rc::new(Self { sender, handle, max_backpressure, fresh, awaits_drain, awaits_last, driver })
    }

    pub(crate) fn send(&self, message: &Message, compress: bool) -> Outcome {
        self.push(true, Sender::buffered_amount, |sender| sender.push_compressed(message, compress))
            .unwrap_or(Outcome::Gone)
    }

    pub(crate) fn send_prepared(&self, prepared: &Prepared) -> Outcome {
        self.push(true, Sender::buffered_amount, |sender| sender.push_prepared(prepared))
            .unwrap_or(Outcome::Gone)
    }

    /// Sends a fragment.
    ///
    /// # Errors
    ///
    /// If the fragment is out of order.
    pub(crate) fn send_fragment(
        &self,
        fragment: Fragment,
        data: Bytes,
    ) -> Result<Outcome, websocket::Error> {
        // A started message must be complete, and only its last fragment releases the messages that
        // wait for it.
        let may_drop = matches!(fragment, Fragment::First { .. });
        let outcome = match self
            .push(may_drop, Sender::sendable_amount, |sender| sender.push_fragment(fragment, data))
        {
            Err(error @ websocket::Error::Fragment(_)) => return Err(error),
            other => other.unwrap_or(Outcome::Gone),
        };
        if fragment == Fragment::Last && self.awaits_last.take() {
            self.await_drain();
        }
        Ok(outcome)
    }

    pub(crate) fn ping(&self, data: &[u8]) -> Outcome {
        self.push(true, Sender::buffered_amount, |sender| sender.push_ping(data))
            .unwrap_or(Outcome::Gone)
    }

    pub(crate) fn close(&self, reason: Option<CloseReason>) {
        self.sender.close(reason);
    }

    pub(crate) fn abort(&self) {
        self.sender.abort();
    }

    /// Returns the number of buffered bytes. If there are any, an event follows as they are sent.
    pub(crate) fn buffered(&self) -> usize {
        let buffered = self.sender.buffered_amount();
        if self.sender.sendable_amount() > 0 {
            self.await_drain();
        } else if buffered > 0 {
            self.awaits_last.set(true);
        }
        buffered
    }

    /// `may_drop`: whether the message is dropped at the limit. `waits`: counts the buffered bytes.
    fn push(
        &self,
        may_drop: bool,
        waits: impl Fn(&Sender) -> usize,
        push: impl FnOnce(&Sender) -> Result<usize, websocket::Error>,
    ) -> Result<Outcome, websocket::Error> {
        let turn = self.handle.turn();
        let mut fresh = self.fresh.get();
        if fresh.turn != turn {
            let before = if fresh.turn + 1 == turn { fresh.now } else { 0 };
            fresh = Fresh { turn, now: 0, before };
        }
        // Bytes pushed in this turn leave with it, and say nothing about the client's speed.
        let buffered = self.sender.buffered_amount();
        // Sent bytes are not fresh any more.
        fresh.before = fresh.before.min(buffered);
        fresh.now = fresh.now.min(buffered - fresh.before);
        let waiting = waits(&self.sender).saturating_sub(fresh.now + fresh.before);
        if waiting > self.max_backpressure {
            if may_drop {
                self.await_drain();
                return Ok(Outcome::Dropped);
            }
            if waiting > self.max_backpressure.saturating_add(UNFINISHED_BYTES) {
                self.sender.abort();
                return Ok(Outcome::Dropped);
            }
        }
        push(&self.sender)?;
        if fresh.now + fresh.before < FRESH_BYTES {
            // The whole message counts as fresh, however large: the client has had no chance to
            // read it.
            fresh.now += self.sender.buffered_amount().saturating_sub(buffered);
        }
        self.fresh.set(fresh);
        if waits(&self.sender) <= fresh.now + fresh.before {
            return Ok(Outcome::Sent);
        }
        self.await_drain();
        Ok(Outcome::Waiting)
    }

    fn await_drain(&self) {
        if !self.awaits_drain.replace(true)
            && let Some(driver) = self.driver.take()
        {
            driver.wake();
        }
    }
}

/// Reads a connection and reports its events to JavaScript until it has ended.
pub(crate) struct Driver {
    events: Rc<dyn Events>,
    number: u32,
    socket: Rc<Socket>,
    connection: WebSocket,
    lifetime: Option<Pin<Box<Sleep>>>,
    /// Number of buffered bytes at which JavaScript gets the next drain event.
    drained_at: Option<usize>,
    has_ended: bool,
    /// The turn in which the peer closed.
    closed_in: Option<u64>,
}

impl Driver {
    pub(crate) fn new(
        events: Rc<dyn Events>,
        number: u32,
        socket: Rc<Socket>,
        connection: WebSocket,
        lifetime: Option<Duration>,
    ) -> Self {
        let lifetime = lifetime.map(|lifetime| Box::pin(socket.handle.sleep(lifetime)));
        Self {
            events,
            number,
            socket,
            connection,
            lifetime,
            drained_at: None,
            has_ended: false,
            closed_in: None,
        }
    }

    fn tell(&self, what: i32, data: Bytes) {
        self.events.push(Event::Message { socket: self.number, what, data });
    }

    fn end(&mut self, code: u16, reason: &str) {
        if !std::mem::replace(&mut self.has_ended, true) {
            self.events.push(Event::Closed {
                socket: self.number,
                code,
                reason: Bytes::copy_from_slice(reason.as_bytes()),
            });
        }
    }

    fn fail(&mut self, error: websocket::Error) {
        let reason = match error {
            websocket::Error::TimedOut => "WebSocket timed out from inactivity",
            websocket::Error::Protocol(ProtocolError::TooLarge) => "Received too big message",
            websocket::Error::Protocol(ProtocolError::NotUtf8) => "Received invalid UTF-8",
            websocket::Error::Protocol(_) => "Received invalid WebSocket frame",
            _ => "Received TCP FIN before WebSocket close frame",
        };
        self.end(ABNORMAL, reason);
    }

    fn poll_drained(&mut self, cx: &mut Context<'_>) {
        while self.socket.awaits_drain.get() {
            // Without bytes that wait for the last fragment of a message: the sender may wait for
            // this event before the next fragment.
            let waiting = self.socket.sender.sendable_amount();
            let wanted = *self.drained_at.get_or_insert(waiting / 2);
            match self.socket.sender.poll_drained(wanted, cx) {
                Poll::Pending => return,
                Poll::Ready(result) => {
                    self.drained_at = None;
                    // One event for each half, and the last when nothing is buffered.
                    self.socket
                        .awaits_drain
                        .set(result.is_ok() && self.socket.sender.sendable_amount() > 0);
                    if result.is_ok() {
                        self.events.push(Event::Drain { socket: self.number });
                    }
                }
            }
        }
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.closed_in == Some(this.socket.handle.turn()) {
            return Poll::Pending;
        }
        for _ in 0..EVENTS_IN_A_ROW {
            match this.connection.poll_event(cx) {
                Poll::Pending => {
                    if let Some(lifetime) = &mut this.lifetime
                        && lifetime.as_mut().poll(cx).is_ready()
                    {
                        this.lifetime = None;
                        let reason = "please reconnect";
                        this.connection.close(CloseReason {
                            code: CloseCode::NORMAL,
                            text: reason.to_owned(),
                        });
                        this.end(CloseCode::NORMAL.number(), reason);
                        cx.waker().wake_by_ref();
                    }
                    this.poll_drained(cx);
                    *this.socket.driver.borrow_mut() = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                Poll::Ready(Some(Ok(event))) => match event {
                    websocket::Event::Message(message) => {
                        this.tell(
                            (message.kind() == websocket::Kind::Binary).into(),
                            message.into_data(),
                        );
                    }
                    websocket::Event::Ping(data) => this.tell(2, data),
                    websocket::Event::Pong(data) => this.tell(3, data),
                    websocket::Event::Close(_) => {
                        // At the end of this turn JavaScript gets the earlier messages and may
                        // answer them. Nothing can follow the answering close frame.
                        this.closed_in = Some(this.socket.handle.turn());
                        this.socket.handle.defer(cx.waker());
                        return Poll::Pending;
                    }
                },
                Poll::Ready(Some(Err(error))) => {
                    this.fail(error);
                    return Poll::Ready(());
                }
                Poll::Ready(None) => {
                    let (code, text) = this
                        .connection
                        .reason()
                        .map_or((NO_CODE, String::new()), |r| (r.code.number(), r.text.clone()));
                    this.end(code, &text);
                    return Poll::Ready(());
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Dropped with its worker.
        self.end(ABNORMAL, "");
    }
}
