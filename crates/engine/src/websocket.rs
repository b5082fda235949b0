//! WebSocket over tunnels: the handshake, and connections that one sends messages over and receives them from.
//!
//! [`WebSocketUpgrade`] answers a request, [`connect`] asks a server; both give a [`WebSocket`], to read from, and any number of
//! [`Sender`]s. [`Options`] say what one route's connections may take: the size of messages, what may wait to be sent, and how long a peer
//! may be silent; what they leave out comes from [`Limits`](crate::Limits).
//!
//! | an application wants | it uses |
//! |---|---|
//! | a message, waiting while too much is to be sent | [`Sender::send`], or [`Sender::poll_ready`] and [`Sender::push`] |
//! | a message at once, and to hear how many bytes wait | [`Sender::push`]; [`Sender::push_compressed`] says whether it is worth to be compressed |
//! | a message whose end is not known yet | [`Sender::push_fragment`]: first, middle, last; [`Sender::drained`] to wait before each |
//! | one message for many, framed and compressed once | [`Prepared`] and [`Sender::push_prepared`] |
//! | to know what waits, and when that has gone | [`Sender::buffered_amount`], [`Sender::drained`], [`Sender::poll_drained`] |
//! | messages, pings and pongs with what they carry | [`WebSocket::poll_event`]; [`WebSocket::recv`] for messages alone |
//! | to ask the peer by itself | [`Sender::ping`], and [`Options::without_pings`] if nobody else shall |
//! | to close with a code and a reason, and to hear the peer's | [`Sender::close`], [`WebSocket::reason`] |
//! | to end the connection now | [`Sender::abort`], which whoever reads hears as [`Error::Aborted`] |
//!
//! What was pushed goes with the worker's next write, as much of it together as there is. What waits is counted until the connection below
//! takes it; what that holds itself is bounded by its flow control and by limits of its own.

mod handshake;
mod outgoing;
mod sender;

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
pub use pronghorn_websocket::handshake::accept;
pub use pronghorn_websocket::{
    CloseCode, CloseReason, Error as ProtocolError, Event, Fragment, FragmentError, Kind, Message, Prepared, deflate,
};
use pronghorn_websocket::{Connection, Role};

pub use handshake::{ConnectError, Options, Refusal, WebSocketUpgrade, connect};
use outgoing::{Outgoing, Shared};
pub use sender::Sender;

use crate::body::Cut;
use crate::runtime::{Handle, Sleep};
use crate::stats::Stats;
use crate::{Body, Incoming};

/// What a connection may read in a turn of its worker: pieces and messages, and one more for each KiB of them. What comes over HTTP/2 is in
/// memory already, and would be handed over for as long as there is any, while all others wait.
const TURN_BUDGET: usize = 256;

/// Why a connection ended without a closing handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer broke the protocol, and was told so.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// A part of a message that cannot be sent. The connection goes on.
    #[error(transparent)]
    Fragment(#[from] FragmentError),
    /// The stream or the connection below ended in the middle, or [`Sender::abort`] ended it.
    #[error("the connection ended without a close")]
    Aborted,
    /// The peer did not answer a ping or a close in time.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// Nothing can be sent any more.
    #[error("the connection is closed")]
    Closed,
}

/// What a connection may take.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    message_bytes: u64,
    backlog_bytes: u64,
    timeout: Duration,
    close_timeout: Duration,
    /// A peer that is silent is asked whether it is there.
    pings: bool,
}

/// A WebSocket connection: what comes is read from it, and what is sent goes through it or any of its [`Sender`]s.
///
/// The peer's pings are answered, and silence is broken by pings, as long as somebody reads. Dropping it closes the connection with 1001 (going away),
/// unless it was closed before.
pub struct WebSocket {
    incoming: Incoming,
    /// What has come and was not looked at.
    input: Bytes,
    sender: Sender,
    handle: Handle,
    bounds: Bounds,
    stats: Option<Arc<Stats>>,
    protocol: Option<String>,
    /// When bytes came last.
    last: Instant,
    /// When the peer was asked whether it is there, and has said nothing since.
    asked: Option<Instant>,
    /// When the close of this side was first seen here, or something before it was seen to go.
    closing_since: Option<Instant>,
    /// How many bytes had gone by then.
    gone: u64,
    sleep: Pin<Box<Sleep>>,
    armed: Instant,
    /// The turn in which something was read last, and how much in it.
    turn: u64,
    spent: usize,
    reason: Option<CloseReason>,
    /// The peer has closed, and was not answered.
    owes_close: bool,
    is_over: bool,
    /// There is nobody to wait for.
    is_failed: bool,
}

impl WebSocket {
    /// The connection, whose `outgoing` the tunnel takes, and which `cut` cuts off.
    fn new(
        role: Role,
        agreed: Option<deflate::Agreed>,
        bounds: Bounds,
        cut: Cut,
        handle: &Handle,
        stats: Option<Arc<Stats>>,
    ) -> (impl FnOnce(Incoming, Option<String>) -> Self, Body) {
        let connection = Connection::new(role, bounds.message_bytes, agreed);
        let shared = Rc::new(RefCell::new(Shared::new(connection, bounds.backlog_bytes, cut.clone(), stats.clone())));
        let mut outgoing = Body::stream(Outgoing::new(shared.clone()));
        outgoing.set_cut(cut);
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

    /// The subprotocol that both sides agreed on.
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// Sends from elsewhere.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// The next message. `None` when the peer has closed; [`WebSocket::reason`] then says why.
    ///
    /// # Errors
    ///
    /// When the connection ends in another way. Nothing comes after that.
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

    /// What comes next, control frames included, which need no answer from the caller. `None` after a close or an error.
    ///
    /// After [`Event::Close`] all that is pushed still goes to the peer, until the next call answers its close.
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
            // A peer that goes on sending does not put off its answer to a close.
            if self.closing_since.is_some() || self.sender.is_closed() {
                self.sender.shared.borrow_mut().watch(cx);
                if self.poll_patience(cx).is_ready() {
                    return Poll::Ready(Some(Err(self.give_up())));
                }
            }
            if !self.has_budget() {
                self.handle.defer(cx.waker());
                return Poll::Pending;
            }
            if !self.input.is_empty() {
                let waiting = self.input.len();
                let event = self.read();
                let size = if let Some(Ok(Event::Message(message))) = &event { message.data().len() } else { 0 };
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
                    ready!(self.poll_patience(cx));
                    return Poll::Ready(Some(Err(self.give_up())));
                }
            }
        }
        Poll::Ready(None)
    }

    /// What the peer closed with.
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
    /// A future that is dropped before it is ready has sent nothing.
    pub async fn send(&mut self, message: Message) -> Result<(), Error> {
        self.sender.send(&message).await
    }

    /// Closes the connection, once what was sent before is gone. What comes until the peer closes too can still be read.
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
                    let counter =
                        if error == ProtocolError::TooLarge { &stats.websocket_messages_too_large } else { &stats.websocket_errors };
                    counter.add(1);
                }
                // The close frame goes, and then the end.
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
            Shared::change(&self.sender.shared, |shared| shared.close(self.reason.clone()));
        }
    }

    /// The peer's time is up.
    fn give_up(&mut self) -> Error {
        if let Some(stats) = &self.stats {
            let closing = self.closing_since.is_some();
            let counter = if closing { &stats.websocket_closes_timed_out } else { &stats.websockets_timed_out };
            counter.add(1);
        }
        if self.sender.shared.borrow().has_said_all() {
            // It may be on its way still, and the connection below has limits of its own for that.
            self.is_over = true;
            Shared::change(&self.sender.shared, Shared::end);
            return Error::TimedOut;
        }
        self.fail(Error::TimedOut)
    }

    /// The connection below is of no use any more.
    fn fail(&mut self, error: Error) -> Error {
        (self.is_over, self.is_failed) = (true, true);
        Shared::change(&self.sender.shared, Shared::abort);
        error
    }

    /// Ready when the peer's time is up. Asks the peer when half of it is.
    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let now = self.handle.now();
            if self.sender.is_closed() {
                // What was sent before the close may take its time, as long as it goes.
                let gone = self.sender.shared.borrow().gone_bytes();
                if std::mem::replace(&mut self.gone, gone) != gone || self.closing_since.is_none() {
                    self.closing_since = Some(now);
                }
            }
            // An answer has time from when it was asked for: nobody may have looked for what came for longer than the peer may be silent.
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
                    Shared::change(&self.sender.shared, |shared| shared.connection.ping(&[]));
                }
                continue;
            }
            // Traffic costs no timer: a deadline that moves back is looked at when the time is up.
            if deadline < self.armed {
                self.arm(deadline);
            }
            ready!(self.sleep.as_mut().poll(cx));
            self.arm(deadline);
        }
    }

    /// Lets the peer end its side by itself, so that it gets the close before it hears that nobody reads.
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
        Shared::change(&self.sender.shared, |shared| {
            shared.close(Some(CloseCode::GOING_AWAY.into()));
            shared.end();
        });
        self.linger();
    }
}

impl fmt::Debug for WebSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocket").field("protocol", &self.protocol).field("is_over", &self.is_over).finish_non_exhaustive()
    }
}
