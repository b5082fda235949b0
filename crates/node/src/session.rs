//! WebTransport sessions and their streams, shared by JavaScript and the engine.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use pronghorn_engine::{RecvStream, SendStream, SessionEnd, SessionStreamError, WebTransport};

use crate::events::{Event, Events};

/// Kinds of session events.
#[derive(Clone, Copy)]
enum SessionEvent {
    Datagram = 0,
    /// The peer opened a stream, whose number is the code.
    Bidirectional = 1,
    Unidirectional = 2,
    /// The peer asks to end the session.
    Draining = 3,
    Closed = 4,
}

/// The last event of a session.
pub(crate) const CLOSED: i32 = SessionEvent::Closed as i32;

/// Returns whether the event's code is the number of a stream.
pub(crate) fn is_stream(what: i32) -> bool {
    what == SessionEvent::Bidirectional as i32 || what == SessionEvent::Unidirectional as i32
}

/// Kinds of stream events.
#[derive(Clone, Copy)]
enum StreamEvent {
    Data = 0,
    End = 1,
    /// The peer reset its direction, with the code.
    Reset = 2,
    /// There is capacity for another write.
    Written = 3,
    /// The peer stopped reading, with the code. It may continue to send.
    Stopped = 4,
    /// The stream ended with its session, in both directions.
    Lost = 5,
}

/// The orders of JavaScript for a stream: one queue for each direction.
pub(crate) struct Stream {
    pub(crate) sending: Orders<Send>,
    pub(crate) receiving: Orders<Receive>,
    /// Counts live streams.
    _alive: Rc<()>,
}

impl Stream {
    pub(crate) fn new(alive: Rc<()>) -> Self {
        Self { sending: Orders::default(), receiving: Orders::default(), _alive: alive }
    }

    /// Resets and stops open directions, which ends their futures.
    pub(crate) fn end(&self, code: u32) {
        self.sending.give(Send::Reset(code));
        self.receiving.give(Receive::Stop(code));
    }
}

pub(crate) enum Send {
    Write(Bytes),
    Finish,
    Reset(u32),
}

pub(crate) enum Receive {
    /// Reads one piece.
    Read,
    Stop(u32),
}

/// A queue of orders. JavaScript gives the next order only after the event of the last, so it stays
/// short.
pub(crate) struct Orders<T> {
    queue: RefCell<VecDeque<T>>,
    waker: Cell<Option<Waker>>,
}

impl<T> Default for Orders<T> {
    fn default() -> Self {
        Self { queue: RefCell::default(), waker: Cell::default() }
    }
}

impl<T> Orders<T> {
    pub(crate) fn give(&self, order: T) {
        self.queue.borrow_mut().push_back(order);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<T> {
        if let Some(order) = self.queue.borrow_mut().pop_front() {
            return Poll::Ready(order);
        }
        self.waker.set(Some(cx.waker().clone()));
        Poll::Pending
    }
}

/// Owner of the streams of an environment.
pub(crate) trait Streams: Events {
    /// Creates a stream. Returns its number and the stream.
    fn add_stream(&self) -> (u32, Rc<Stream>);
}

/// Sends events of a session to JavaScript.
#[derive(Clone)]
struct EventSender {
    streams: Rc<dyn Streams>,
    number: u32,
}

impl EventSender {
    fn send(&self, what: SessionEvent, code: u32, data: Bytes) {
        self.streams.push(Event::Session { session: self.number, what: what as i32, code, data });
    }
}

/// Reports the end of a session when dropped, so also when its worker ends.
struct End {
    sender: EventSender,
    code: u32,
    reason: Bytes,
}

impl End {
    fn set(&mut self, end: SessionEnd) {
        (self.code, self.reason) = match end {
            SessionEnd::Peer { code, reason } | SessionEnd::Local { code, reason } => {
                (code, reason.into())
            }
            SessionEnd::Lost(reason) => (0, reason.into()),
        };
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.sender.send(SessionEvent::Closed, self.code, std::mem::take(&mut self.reason));
    }
}

/// Spawns the futures that serve a session until it has ended.
pub(crate) fn run(streams: Rc<dyn Streams>, number: u32, session: &WebTransport) {
    let handle = session.handle().clone();
    let events = EventSender { streams, number };
    let (mut end, watched) =
        (End { sender: events.clone(), code: 0, reason: Bytes::new() }, session.clone());
    handle.spawn(async move {
        end.set(watched.closed().await);
    });
    let (sender, draining) = (events.clone(), session.clone());
    handle.spawn(async move {
        draining.draining().await;
        sender.send(SessionEvent::Draining, 0, Bytes::new());
    });
    let (sender, datagrams) = (events.clone(), session.clone());
    handle.spawn(async move {
        while let Ok(datagram) = datagrams.read_datagram().await {
            sender.send(SessionEvent::Datagram, 0, datagram);
        }
    });
    let (sender, streams) = (events.clone(), session.clone());
    handle.spawn(async move {
        while let Ok((send, receive)) = streams.accept_bi().await {
            let (number, stream) = sender.streams.add_stream();
            sender.send(SessionEvent::Bidirectional, number, Bytes::new());
            streams.handle().spawn(sending(sender.streams.clone(), number, send, stream.clone()));
            streams.handle().spawn(receiving(sender.streams.clone(), number, receive, stream));
        }
    });
    let streams = session.clone();
    handle.spawn(async move {
        while let Ok(receive) = streams.accept_uni().await {
            let (number, stream) = events.streams.add_stream();
            events.send(SessionEvent::Unidirectional, number, Bytes::new());
            streams.handle().spawn(receiving(events.streams.clone(), number, receive, stream));
        }
    });
}

/// Opens a stream and returns its number at once. The stream opens when the peer allows another
/// one.
pub(crate) fn open(
    streams: Rc<dyn Streams>,
    session: &WebTransport,
    is_unidirectional: bool,
) -> u32 {
    let (number, stream) = streams.add_stream();
    let (session, handle) = (session.clone(), session.handle().clone());
    handle.spawn(async move {
        let opened = if is_unidirectional {
            session.open_uni().await.map(|send| (send, None))
        } else {
            session.open_bi().await.map(|(send, receive)| (send, Some(receive)))
        };
        match opened {
            Ok((send, receive)) => {
                if let Some(receive) = receive {
                    session.handle().spawn(receiving(
                        streams.clone(),
                        number,
                        receive,
                        stream.clone(),
                    ));
                }
                sending(streams, number, send, stream).await;
            }
            Err(_) => push_stream_event(&*streams, number, StreamEvent::Lost, 0, Bytes::new()),
        }
    });
    number
}

fn push_stream_event(
    streams: &dyn Streams,
    stream: u32,
    what: StreamEvent,
    code: u32,
    data: Bytes,
) {
    streams.push(Event::Stream { stream, what: what as i32, code, data });
}

/// Reports how a direction has ended.
fn push_stream_end(streams: &dyn Streams, stream: u32, error: &SessionStreamError) {
    let (what, code) = match error {
        SessionStreamError::Reset { code } => (StreamEvent::Reset, code.unwrap_or(0)),
        SessionStreamError::Stopped { code } => (StreamEvent::Stopped, code.unwrap_or(0)),
        _ => (StreamEvent::Lost, 0),
    };
    push_stream_event(streams, stream, what, code, Bytes::new());
}

/// Returns the next order, or the result of `other` if that is ready first.
async fn either<T, O>(orders: &Orders<T>, other: impl Future<Output = O>) -> Result<T, O> {
    let mut other = pin!(other);
    poll_fn(|cx| match orders.poll(cx) {
        Poll::Ready(order) => Poll::Ready(Ok(order)),
        Poll::Pending => other.as_mut().poll(cx).map(Err),
    })
    .await
}

async fn sending(streams: Rc<dyn Streams>, number: u32, mut send: SendStream, stream: Rc<Stream>) {
    loop {
        let order = match either(&stream.sending, send.stopped()).await {
            Ok(order) => order,
            Err(error) => return push_stream_end(&*streams, number, &error),
        };
        match order {
            Send::Finish => return send.finish(),
            Send::Reset(code) => return send.reset(code),
            Send::Write(data) => match either(&stream.sending, send.write(data)).await {
                // While a write is pending, the only other order is a reset.
                Ok(order) => {
                    return send.reset(if let Send::Reset(code) = order { code } else { 0 });
                }
                Err(Ok(())) => {
                    push_stream_event(&*streams, number, StreamEvent::Written, 0, Bytes::new());
                }
                Err(Err(error)) => return push_stream_end(&*streams, number, &error),
            },
        }
    }
}

async fn receiving(
    streams: Rc<dyn Streams>,
    number: u32,
    mut receive: RecvStream,
    stream: Rc<Stream>,
) {
    loop {
        let order = poll_fn(|cx| stream.receiving.poll(cx)).await;
        let read = match order {
            Receive::Stop(code) => return receive.stop(code),
            Receive::Read => either(&stream.receiving, receive.read()).await,
        };
        match read {
            Ok(order) => {
                return receive.stop(if let Receive::Stop(code) = order { code } else { 0 });
            }
            Err(Ok(Some(data))) => push_stream_event(&*streams, number, StreamEvent::Data, 0, data),
            Err(Ok(None)) => {
                return push_stream_event(&*streams, number, StreamEvent::End, 0, Bytes::new());
            }
            Err(Err(error)) => return push_stream_end(&*streams, number, &error),
        }
    }
}
