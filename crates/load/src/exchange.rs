//! A stream's requests, one after the other.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use pronghorn_engine::Error;
use pronghorn_engine::websocket::Message;

use crate::deadlines::{CutOff, Deadline};
use crate::generator::Generator;
use crate::lane::{Lane, LaneConnection};
use crate::plan::ConnectionUse;
use crate::schedule::{Next, Ticket};
use crate::socket::{OpenResult, OpenWebSocket};
use crate::tally::RequestResult;

/// Maximum number of retries of a request that the server refused unprocessed.
const RESENDS: u32 = 3;

/// A stream that sends one request at a time.
pub(crate) struct Slot {
    generator: Rc<Generator>,
    lane: Rc<Lane>,
    deadline: Rc<Deadline>,
    /// Request handed out at the fixed rate.
    ticket: Cell<Option<Ticket>>,
    is_idle: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Slot {
    pub(crate) fn new(
        generator: Rc<Generator>,
        lane: Rc<Lane>,
        deadline: Rc<Deadline>,
    ) -> Rc<Self> {
        Rc::new(Self {
            generator,
            lane,
            deadline,
            ticket: Cell::default(),
            is_idle: Cell::default(),
            waker: RefCell::default(),
        })
    }

    /// Sends requests until there are no more.
    pub(crate) async fn run(self: Rc<Self>) {
        let mut hold = None;
        let mut socket = self.lane.take_socket();
        while let Some((ticket, held_up)) = self.next(&mut socket).await {
            let generator = &self.generator;
            let now = generator.clock();
            generator.tally.borrow_mut().on_begun(
                &ticket,
                now,
                generator.plan().rate.is_some(),
                held_up,
            );
            let done = {
                let deadline = now + generator.plan().timeout;
                match generator.message() {
                    Some(message) => {
                        self.deadline
                            .guard(deadline, pin!(self.message(&ticket, message, &mut socket)))
                            .await
                    }
                    None => {
                        self.deadline.guard(deadline, pin!(self.exchange(&ticket, &mut hold))).await
                    }
                }
            };
            let cut = done.is_err();
            let outcome = match done {
                Ok(Ok((status, head))) => RequestResult::Answered { status, head },
                Ok(Err(error)) => RequestResult::Failed(error),
                Err(CutOff::TimedOut) => RequestResult::TimedOut,
                Err(CutOff::Interrupted) => RequestResult::GivenUp,
            };
            generator.tally.borrow_mut().on_ended(&ticket, generator.clock(), &outcome);
            if generator.plan().connection_use == ConnectionUse::OneRequest {
                self.lane.retire(hold.take(), ticket.measured).await;
            } else if cut {
                // Over HTTP/1.1, the rest of the abandoned exchange would block the next one.
                hold = hold.filter(|hold: &LaneConnection| hold.connection.share().is_some());
            }
        }
        drop(hold);
        self.generator.on_slot_ended();
    }

    /// Returns the next request to send, and whether it had to wait for this slot to become free;
    /// `None` after the last one.
    async fn next(
        self: &Rc<Self>,
        socket: &mut Option<Box<OpenWebSocket>>,
    ) -> Option<(Ticket, bool)> {
        std::future::poll_fn(|cx| {
            if let Some(ticket) = self.ticket.take() {
                return Poll::Ready(Some((ticket, false)));
            }
            // An idle slot is woken by the pace, or by events of its WebSocket.
            if !self.is_idle.get() {
                match self.generator.take() {
                    Next::Now(ticket) => return Poll::Ready(Some((ticket, true))),
                    Next::Over => return Poll::Ready(None),
                    Next::At(_) => {}
                }
            }
            if let Some(open) = socket
                && open.poll_idle(cx).is_ready()
            {
                *socket = None;
                self.generator.tally.borrow_mut().on_websocket_ended();
            }
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            if !self.is_idle.replace(true) {
                self.generator.on_idle(self.clone());
            }
            Poll::Pending
        })
        .await
    }

    /// Gives an idle slot a request, or wakes it to see that there are no more.
    pub(crate) fn wake(&self, ticket: Option<Ticket>) {
        self.is_idle.set(false);
        self.ticket.set(ticket);
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Sends one message and waits for the next message. Returns a status of 200 in place of a
    /// response status, and when the message arrived.
    async fn message(
        &self,
        ticket: &Ticket,
        message: &Bytes,
        socket: &mut Option<Box<OpenWebSocket>>,
    ) -> Result<(StatusCode, Instant), Error> {
        let generator = &self.generator;
        // The WebSocket is put back only on success: in the middle of an exchange it cannot serve
        // the next message.
        let mut open = match socket.take() {
            Some(open) => open,
            None => match OpenWebSocket::open(generator, &self.lane).await? {
                OpenResult::Open(open) => open,
                OpenResult::Refused(status) => return Ok((status, generator.clock())),
            },
        };
        if ticket.measured {
            generator.on_body_sent(message.len() as u64);
        }
        let answer = open
            .exchange(Message::binary(message.clone()))
            .await
            .inspect_err(|_| generator.tally.borrow_mut().on_websocket_ended())?;
        let now = generator.clock();
        generator.tally.borrow_mut().on_data(ticket, now, answer.len() as u64);
        *socket = Some(open);
        Ok((StatusCode::OK, now))
    }

    /// Sends one request and reads the whole response. Returns its status and when its head
    /// arrived.
    async fn exchange(
        &self,
        ticket: &Ticket,
        hold: &mut Option<LaneConnection>,
    ) -> Result<(StatusCode, Instant), Error> {
        let generator = &self.generator;
        let mut resent = 0;
        // Number of the last unusable connection.
        let mut seen = 0;
        let response = loop {
            if let Some(useless) = hold.take_if(|hold| !hold.connection.is_usable()) {
                seen = useless.number;
            }
            let LaneConnection { connection, number } = match hold {
                Some(hold) => hold,
                // Boxed: a handshake is large, and every stream would reserve the space for one.
                None => hold.insert(Box::pin(self.lane.take(seen)).await?),
            };
            match connection.send(generator.request(ticket.measured)).await {
                Ok(response) => break response,
                Err(Error::Refused(_)) if resent < RESENDS => {
                    resent += 1;
                    generator.tally.borrow_mut().resent += 1;
                    seen = *number;
                    *hold = None;
                }
                Err(error) => return Err(error),
            }
        };
        let head = generator.clock();
        let status = response.status();
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Error::from(&error))?;
            if let Some(data) = frame.data_ref() {
                generator.tally.borrow_mut().on_data(ticket, generator.clock(), data.len() as u64);
            }
        }
        self.lane.on_response();
        Ok((status, head))
    }
}
