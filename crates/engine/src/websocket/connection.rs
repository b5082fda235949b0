//! A connection that receives messages, and drives what is sent.

use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::Body as _;
use pronghorn_websocket::{
    CloseCode, CloseReason, Connection, Error as ProtocolError, Event, Message, Role, deflate,
};

use super::error::Error;
use super::outgoing::{Outgoing, SendState};
use super::sender::Sender;
use crate::body::AbortHandle;
use crate::runtime::{Handle, Sleep};
use crate::stats::Stats;
use crate::{Body, Incoming};

/// Read budget of a connection in one turn of its worker: one unit per piece or message, and one
/// more per KiB. Data over HTTP/2 is already in memory and would be delivered without a pause while
/// all other connections wait.
const TURN_BUDGET: usize = 256;

/// Limits of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionLimits {
    pub(super) message_bytes: u64,
    pub(super) backlog_bytes: u64,
    pub(super) timeout: Duration,
    pub(super) close_timeout: Duration,
    /// Sends a ping to a silent peer.
    pub(super) pings: bool,
}

/// A WebSocket connection. Messages are received from it, and sent through it or any of its
/// [`Sender`]s.
///
/// It answers the peer's pings, and pings a silent peer, as long as the application reads. Dropping
/// it closes the connection with 1001 (going away), unless it was closed before.
pub struct WebSocket {
    incoming: Incoming,
    /// Received bytes that have not been parsed yet.
    input: Bytes,
    sender: Sender,
    handle: Handle,
    bounds: ConnectionLimits,
    stats: Option<Arc<Stats>>,
    protocol: Option<String>,
    /// Time of the last received bytes.
    last: Instant,
    /// Time of the ping that the peer has not answered yet.
    asked: Option<Instant>,
    /// When this side's close was first seen, or when bytes queued before it last left.
    closing_since: Option<Instant>,
    /// Bytes that had left by then.
    gone: u64,
    sleep: Pin<Box<Sleep>>,
    armed: Instant,
    /// The turn that last read something, and the budget spent in it.
    turn: u64,
    spent: usize,
    reason: Option<CloseReason>,
    /// The peer has sent a close that is not answered yet.
    owes_close: bool,
    is_over: bool,
    /// The connection failed, so dropping it waits for no answer.
    is_failed: bool,
}

impl WebSocket {
    /// Returns a function that completes the connection once the peer's body is known, and the body
    /// that the tunnel sends. `cut` ends that body early.
    pub(super) fn new(
        role: Role,
        agreed: Option<deflate::Negotiated>,
        bounds: ConnectionLimits,
        cut: AbortHandle,
        handle: &Handle,
        stats: Option<Arc<Stats>>,
    ) -> (impl FnOnce(Incoming, Option<String>) -> Self, Body) {
        let connection = Connection::new(role, bounds.message_bytes, agreed);
        let shared = Rc::new(RefCell::new(SendState::new(
            connection,
            bounds.backlog_bytes,
            cut.clone(),
            stats.clone(),
        )));
        let mut outgoing = Body::stream(Outgoing::new(shared.clone()));
        outgoing.set_abort_handle(cut);
        let handle = handle.clone();
        let finish = move |incoming, protocol| {
            let last = handle.now();
            let armed = last + bounds.timeout / 2;
            Self {
                incoming,
                input: Bytes::new(),
                sender: Sender { shared },
                sleep: Box::pin(handle.timers().sleep_until(armed)),
                handle,
                bounds,
                stats,
                protocol,
                last,
                asked: None,
                closing_since: None,
                gone: 0,
                armed,
                turn: 0,
                spent: 0,
                reason: None,
                owes_close: false,
                is_over: false,
                is_failed: false,
            }
        };
        (finish, outgoing)
    }

    /// Returns the subprotocol that both sides agreed on.
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// Returns a sender for this connection, which can be cloned.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Receives the next message. Returns `None` when the peer has closed; [`WebSocket::reason`]
    /// then has the reason.
    ///
    /// # Errors
    ///
    /// When the connection ends in another way. Nothing is received after an error.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn recv(&mut self) -> Option<Result<Message, Error>> {
        loop {
            match poll_fn(|cx| self.poll_event(cx)).await? {
                Ok(Event::Message(message)) => return Some(Ok(message)),
                Ok(_) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Polls for the next event, control frames included. Control frames need no answer from the
    /// caller. Returns `None` after a close or an error.
    ///
    /// Messages pushed after [`Event::Close`] still go to the peer, until the next call answers its
    /// close.
    ///
    /// # Errors
    ///
    /// Those of [`WebSocket::recv`].
    pub fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Event, Error>>> {
        self.answer_close();
        while !self.is_over {
            if self.sender.shared.borrow().is_aborted() {
                return Poll::Ready(Some(Err(self.fail(Error::Aborted))));
            }
            // A peer that keeps sending does not postpone the close timeout.
            if self.closing_since.is_some() || self.sender.is_closed() {
                self.sender.shared.borrow_mut().watch(cx);
                if self.poll_timeout(cx).is_ready() {
                    return Poll::Ready(Some(Err(self.time_out())));
                }
            }
            if !self.has_budget() {
                self.handle.defer(cx.waker());
                return Poll::Pending;
            }
            if !self.input.is_empty() {
                let waiting = self.input.len();
                let event = self.read();
                let size = if let Some(Ok(Event::Message(message))) = &event {
                    message.data().len()
                } else {
                    0
                };
                self.spent += 1 + ((waiting - self.input.len()).max(size) >> 10);
                match event {
                    Some(event) => return Poll::Ready(Some(event)),
                    None => continue,
                }
            }
            match Pin::new(&mut self.incoming).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.input = frame.into_data().unwrap_or_default();
                    self.last = self.handle.now();
                    self.asked = None;
                }
                Poll::Ready(_) => return Poll::Ready(Some(Err(self.fail(Error::Aborted)))),
                Poll::Pending => {
                    self.sender.shared.borrow_mut().watch(cx);
                    ready!(self.poll_timeout(cx));
                    return Poll::Ready(Some(Err(self.time_out())));
                }
            }
        }
        Poll::Ready(None)
    }

    /// Returns the reason of the peer's close.
    pub fn reason(&self) -> Option<&CloseReason> {
        self.reason.as_ref()
    }

    /// Sends a message, as [`Sender::send`] does.
    ///
    /// # Errors
    ///
    /// When the connection is closed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, nothing was sent.
    pub async fn send(&mut self, message: Message) -> Result<(), Error> {
        self.sender.send(&message).await
    }

    /// Closes the connection once everything sent before has left. Messages that arrive before the
    /// peer closes too can still be received.
    pub fn close(&mut self, reason: impl Into<Option<CloseReason>>) {
        self.sender.close(reason);
    }

    fn has_budget(&mut self) -> bool {
        let turn = self.handle.turn();
        if std::mem::replace(&mut self.turn, turn) != turn {
            self.spent = 0;
        }
        self.spent < TURN_BUDGET
    }

    fn read(&mut self) -> Option<Result<Event, Error>> {
        let read = self.sender.shared.borrow_mut().read(&mut self.input);
        match read {
            Ok(Some(Event::Close(reason))) => {
                self.reason.clone_from(&reason);
                self.owes_close = true;
                Some(Ok(Event::Close(reason)))
            }
            Ok(event) => event.map(Ok),
            Err(error) => {
                if let Some(stats) = &self.stats {
                    let counter = if error == ProtocolError::TooLarge {
                        &stats.websocket_messages_too_large
                    } else {
                        &stats.websocket_errors
                    };
                    counter.add(1);
                }
                // The body ends after the close frame.
                self.is_over = true;
                Some(Err(error.into()))
            }
        }
    }

    fn answer_close(&mut self) {
        if std::mem::take(&mut self.owes_close) {
            self.is_over = true;
            //= RFC 6455 section 5.5.1
            //# When sending a Close frame in response, the endpoint typically echos the status code it received.
            SendState::change(&self.sender.shared, |shared| shared.close(self.reason.clone()));
        }
    }

    /// Ends the connection after a timeout.
    fn time_out(&mut self) -> Error {
        if let Some(stats) = &self.stats {
            let closing = self.closing_since.is_some();
            let counter = if closing {
                &stats.websocket_closes_timed_out
            } else {
                &stats.websockets_timed_out
            };
            counter.add(1);
        }
        if self.sender.shared.borrow().has_sent_all() {
            // The close frame may still be on its way; the underlying connection has its own limits
            // for that.
            self.is_over = true;
            SendState::change(&self.sender.shared, SendState::end);
            return Error::TimedOut;
        }
        self.fail(Error::TimedOut)
    }

    /// Aborts the underlying connection.
    fn fail(&mut self, error: Error) -> Error {
        (self.is_over, self.is_failed) = (true, true);
        SendState::change(&self.sender.shared, SendState::abort);
        error
    }

    /// Ready when the peer has timed out. Sends a ping after half of the timeout.
    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let now = self.handle.now();
            if self.sender.is_closed() {
                // Data sent before the close may take any time, as long as some of it leaves.
                let gone = self.sender.shared.borrow().sent_bytes();
                if std::mem::replace(&mut self.gone, gone) != gone || self.closing_since.is_none() {
                    self.closing_since = Some(now);
                }
            }
            // The answer is due counted from the ping, not from the last received bytes: the
            // application may not have read for longer than the timeout.
            let half = self.bounds.timeout / 2;
            let deadline = match (self.closing_since, self.asked) {
                (Some(since), _) => since + self.bounds.close_timeout,
                (None, Some(asked)) => asked + half,
                (None, None) => self.last + half,
            };
            if now >= deadline {
                if self.closing_since.is_some() || self.asked.is_some() {
                    return Poll::Ready(());
                }
                self.asked = Some(now);
                if self.bounds.pings {
                    SendState::change(&self.sender.shared, |shared| shared.connection.ping(&[]));
                }
                continue;
            }
            // Traffic resets no timer: a later deadline is only looked at when the timer fires.
            if deadline < self.armed {
                self.arm(deadline);
            }
            ready!(self.sleep.as_mut().poll(cx));
            self.arm(deadline);
        }
    }

    /// Waits for the peer to end its side, so that the peer receives the close before a stop or
    /// reset.
    fn linger(&mut self) {
        if self.is_failed || self.incoming.is_end_stream() {
            return;
        }
        let mut incoming = std::mem::replace(&mut self.incoming, Incoming::empty());
        let mut patience = Box::pin(self.handle.sleep(self.bounds.close_timeout));
        self.handle.spawn(poll_fn(move |cx| {
            while let Poll::Ready(frame) = Pin::new(&mut incoming).poll_frame(cx) {
                if !matches!(frame, Some(Ok(_))) {
                    return Poll::Ready(());
                }
            }
            patience.as_mut().poll(cx)
        }));
    }

    fn arm(&mut self, deadline: Instant) {
        self.armed = deadline;
        self.sleep.reset(deadline);
    }
}

impl Drop for WebSocket {
    fn drop(&mut self) {
        self.answer_close();
        SendState::change(&self.sender.shared, |shared| {
            shared.close(Some(CloseCode::GOING_AWAY.into()));
            shared.end();
        });
        self.linger();
    }
}

impl fmt::Debug for WebSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocket")
            .field("protocol", &self.protocol)
            .field("is_over", &self.is_over)
            .finish_non_exhaustive()
    }
}
