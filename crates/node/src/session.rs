//! A WebTransport session and its streams, as JavaScript and the engine share them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use pronghorn_engine::{RecvStream, SendStream, SessionEnd, SessionStreamError, WebTransport};

use crate::addon::{Addon, Event};

/// What an event tells of a session.
#[derive(Clone, Copy)]
enum Told {
    Datagram = 0,
    /// The peer has opened a stream, whose number is the code.
    Bidirectional = 1,
    Unidirectional = 2,
    /// The peer wants it to come to an end.
    Draining = 3,
    Closed = 4,
}

/// The event after which there are no others of a session.
pub(crate) const CLOSED: i32 = Told::Closed as i32;

/// Whether the event's code is the number of a stream.
pub(crate) fn is_stream(what: i32) -> bool {
    what == Told::Bidirectional as i32 || what == Told::Unidirectional as i32
}

/// What an event tells of a stream.
#[derive(Clone, Copy)]
enum Heard {
    Data = 0,
    End = 1,
    /// Nothing more comes; the code is the peer's.
    Reset = 2,
    /// What was written has left, as far as that there is room for more.
    Written = 3,
    /// Nothing more can be sent; the code is the peer's. What the peer sends goes on.
    Stopped = 4,
    /// Neither direction goes on: with its session.
    Lost = 5,
}

/// What JavaScript wants of a stream: one queue for each direction.
pub(crate) struct Stream {
    pub(crate) sending: Orders<Send>,
    pub(crate) receiving: Orders<Receive>,
    /// So that they can be counted.
    _alive: Rc<()>,
}

impl Stream {
    pub(crate) fn new(alive: Rc<()>) -> Self {
        Self { sending: Orders::default(), receiving: Orders::default(), _alive: alive }
    }

    /// Resets and stops what has not ended yet, and with that ends the futures that look after it.
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
    /// One piece.
    Read,
    Stop(u32),
}

/// JavaScript asks for the next only when it has been told of the last, so that there are few.
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

/// Tells JavaScript of a session.
#[derive(Clone)]
struct Teller {
    addon: Rc<Addon>,
    number: u32,
}

impl Teller {
    fn tell(&self, what: Told, code: u32, data: Bytes) {
        self.addon.push(Event::Session { session: self.number, what: what as i32, code, data });
    }
}

/// Tells that a session is over, also where nobody waits for that any more: with its worker.
struct End {
    teller: Teller,
    code: u32,
    reason: Bytes,
}

impl End {
    fn set(&mut self, end: SessionEnd) {
        (self.code, self.reason) = match end {
            SessionEnd::ByPeer { code, reason } | SessionEnd::Locally { code, reason } => (code, reason.into()),
            SessionEnd::Lost(reason) => (0, reason.into()),
        };
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.teller.tell(Told::Closed, self.code, std::mem::take(&mut self.reason));
    }
}

/// Looks after a session until it has ended.
pub(crate) fn run(addon: &Rc<Addon>, number: u32, session: &WebTransport) {
    let handle = session.handle().clone();
    let told = Teller { addon: addon.clone(), number };
    let (mut end, watched) = (End { teller: told.clone(), code: 0, reason: Bytes::new() }, session.clone());
    handle.spawn(async move {
        end.set(watched.closed().await);
    });
    let (tell, draining) = (told.clone(), session.clone());
    handle.spawn(async move {
        draining.draining().await;
        tell.tell(Told::Draining, 0, Bytes::new());
    });
    let (tell, datagrams) = (told.clone(), session.clone());
    handle.spawn(async move {
        while let Ok(datagram) = datagrams.read_datagram().await {
            tell.tell(Told::Datagram, 0, datagram);
        }
    });
    let (tell, streams) = (told.clone(), session.clone());
    handle.spawn(async move {
        while let Ok((send, receive)) = streams.accept_bi().await {
            let (number, stream) = tell.addon.add_stream();
            tell.tell(Told::Bidirectional, number, Bytes::new());
            streams.handle().spawn(sending(tell.addon.clone(), number, send, stream.clone()));
            streams.handle().spawn(receiving(tell.addon.clone(), number, receive, stream));
        }
    });
    let streams = session.clone();
    handle.spawn(async move {
        while let Ok(receive) = streams.accept_uni().await {
            let (number, stream) = told.addon.add_stream();
            told.tell(Told::Unidirectional, number, Bytes::new());
            streams.handle().spawn(receiving(told.addon.clone(), number, receive, stream));
        }
    });
}

/// Opens a stream. Its number is there at once, the stream as soon as the peer allows another one.
pub(crate) fn open(addon: &Rc<Addon>, session: &WebTransport, is_unidirectional: bool) -> u32 {
    let (number, stream) = addon.add_stream();
    let (addon, session, handle) = (addon.clone(), session.clone(), session.handle().clone());
    handle.spawn(async move {
        let opened = if is_unidirectional {
            session.open_uni().await.map(|send| (send, None))
        } else {
            session.open_bi().await.map(|(send, receive)| (send, Some(receive)))
        };
        match opened {
            Ok((send, receive)) => {
                if let Some(receive) = receive {
                    session.handle().spawn(receiving(addon.clone(), number, receive, stream.clone()));
                }
                sending(addon, number, send, stream).await;
            }
            Err(_) => hear(&addon, number, Heard::Lost, 0, Bytes::new()),
        }
    });
    number
}

fn hear(addon: &Addon, stream: u32, what: Heard, code: u32, data: Bytes) {
    addon.push(Event::Stream { stream, what: what as i32, code, data });
}

/// Tells how a direction has ended.
fn hear_end(addon: &Addon, stream: u32, error: &SessionStreamError) {
    let (what, code) = match error {
        SessionStreamError::Reset { code } => (Heard::Reset, code.unwrap_or(0)),
        SessionStreamError::Stopped { code } => (Heard::Stopped, code.unwrap_or(0)),
        _ => (Heard::Lost, 0),
    };
    hear(addon, stream, what, code, Bytes::new());
}

/// Ready with the next order, or when the other thing has come first.
async fn either<T, O>(orders: &Orders<T>, other: impl Future<Output = O>) -> Result<T, O> {
    let mut other = pin!(other);
    poll_fn(|cx| match orders.poll(cx) {
        Poll::Ready(order) => Poll::Ready(Ok(order)),
        Poll::Pending => other.as_mut().poll(cx).map(Err),
    })
    .await
}

async fn sending(addon: Rc<Addon>, number: u32, mut send: SendStream, stream: Rc<Stream>) {
    loop {
        let order = match either(&stream.sending, send.stopped()).await {
            Ok(order) => order,
            Err(error) => return hear_end(&addon, number, &error),
        };
        match order {
            Send::Finish => return send.finish(),
            Send::Reset(code) => return send.reset(code),
            Send::Write(data) => match either(&stream.sending, send.write(data)).await {
                // While a piece waits there is no other order.
                Ok(order) => return send.reset(if let Send::Reset(code) = order { code } else { 0 }),
                Err(Ok(())) => hear(&addon, number, Heard::Written, 0, Bytes::new()),
                Err(Err(error)) => return hear_end(&addon, number, &error),
            },
        }
    }
}

async fn receiving(addon: Rc<Addon>, number: u32, mut receive: RecvStream, stream: Rc<Stream>) {
    loop {
        let order = poll_fn(|cx| stream.receiving.poll(cx)).await;
        let read = match order {
            Receive::Stop(code) => return receive.stop(code),
            Receive::Read => either(&stream.receiving, receive.read()).await,
        };
        match read {
            Ok(order) => return receive.stop(if let Receive::Stop(code) = order { code } else { 0 }),
            Err(Ok(Some(data))) => hear(&addon, number, Heard::Data, 0, data),
            Err(Ok(None)) => return hear(&addon, number, Heard::End, 0, Bytes::new()),
            Err(Err(error)) => return hear_end(&addon, number, &error),
        }
    }
}
