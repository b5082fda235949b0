//! An HTTP/1.1 connection to a server: one exchange at a time, driven by the future that waits for
//! it.
//!
//! A request whose content the socket accepts at once needs no task: the future of the response
//! reads from the socket itself. Content that takes longer is sent by a task ([`sending`]). While
//! that runs, its waker is the socket's in both directions, since a TLS stream has one for both;
//! the task wakes the reader of the response.

mod content;
mod error;
mod head;
mod sending;

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::TRANSFER_ENCODING;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use self::content::{Decoded, Framing, large_read};
pub(crate) use self::error::Http1Error;
use self::head::{ResponseHead, has_option};
use self::sending::Sending;
use super::observer::OnInterim;
use super::response;
use crate::http1::{Tunnel, TunnelEnd, TunnelOutcome, run_tunnel};
use crate::limits::Limits;
use crate::memory::Charge;
use crate::runtime::Handle;
use crate::{Body, BodyError};

/// Interim responses to one request.
const MAX_INTERIM: usize = 1000;
/// Bytes of most request heads, with small content.
const HEAD_BYTES: usize = 1 << 10;
/// Bytes of one read onto the stack, if little is expected.
const SMALL_READ: usize = 8 << 10;

/// The transport of a connection.
pub(super) trait Io: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Io for T {}

/// A connection.
pub(crate) struct Http1 {
    state: RefCell<State>,
    limits: Rc<Limits>,
}

struct State {
    /// `None` once the connection is closed or belongs to a tunnel.
    io: Option<Box<dyn Io>>,
    /// Bytes that were read and belong to what is read next.
    input: BytesMut,
    /// Counts the memory behind `input`.
    held: Charge,
    reading: Reading,
    /// A task sends content of the request.
    is_sending: bool,
    /// The connection is not reused after this exchange.
    is_last: bool,
    /// Why the request was not sent to its end.
    failure: Option<Http1Error>,
    /// Wakes the task that sends, which wakes the reader.
    sender: Option<Waker>,
    /// Wakes the future that reads the response.
    reader: Option<Waker>,
    /// Wakes the future that waits for the end of the exchange.
    waiting: Option<Waker>,
    /// Wakes the owner of an idle connection when the server closes it.
    owner: Option<Waker>,
    /// Wakes the task that reads an idle TLS connection.
    idle: Option<Waker>,
}

enum Reading {
    Nothing,
    Head {
        method: Method,
        asks_upgrade: bool,
        interim_responses: usize,
        /// Bytes of the input that do not contain the end of the head.
        scanned: usize,
    },
    Content(Framing),
}

impl Http1 {
    pub(super) fn new(io: impl Io + 'static, limits: Rc<Limits>) -> Rc<Self> {
        let state = State {
            io: Some(Box::new(io)),
            input: BytesMut::new(),
            held: Charge::default(),
            reading: Reading::Nothing,
            is_sending: false,
            is_last: false,
            failure: None,
            sender: None,
            reader: None,
            waiting: None,
            owner: None,
            idle: None,
        };
        Rc::new(Self { state: RefCell::new(state), limits })
    }

    /// Whether another request may be sent once the current exchange is complete.
    pub(super) fn is_open(&self) -> bool {
        let state = &mut *self.state.borrow_mut();
        if state.is_idle() { state.look() } else { state.io.is_some() && !state.is_last }
    }

    /// Whether a request would begin at once.
    pub(super) fn is_ready(&self) -> bool {
        self.state.borrow().is_idle() && self.is_open()
    }

    /// Ready when the current exchange is complete in both directions, with whether the connection
    /// is still open.
    pub(super) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let state = &mut *self.state.borrow_mut();
        if state.io.is_none() || state.is_idle() {
            return Poll::Ready(state.look());
        }
        set_waker(&mut state.waiting, cx);
        Poll::Pending
    }

    /// Wakes `owner` when the server closes the connection while it is idle.
    pub(super) fn watch(&self, owner: &Waker) {
        let state = &mut *self.state.borrow_mut();
        set_waker(&mut state.owner, &Context::from_waker(owner));
        if state.is_idle() {
            let _ = state.look();
        }
    }

    /// Begins an exchange. The previous one is complete.
    pub(super) fn begin(
        self: &Rc<Self>,
        request: Request<Body>,
        asks_upgrade: bool,
        handle: &Handle,
        cx: &mut Context<'_>,
    ) -> Result<(), Http1Error> {
        let (head, body) = request.into_parts();
        let mut text = Vec::with_capacity(HEAD_BYTES);
        head::write(&head, &mut text);
        let mut sending = Sending::new(text, body, head.headers.contains_key(TRANSFER_ENCODING));
        let mut state = self.state.borrow_mut();
        state.is_last = has_option(&head.headers, b"close");
        state.reading =
            Reading::Head { method: head.method, asks_upgrade, interim_responses: 0, scanned: 0 };
        if sending.has_all() {
            let Some(io) = &mut state.io else {
                return Err(Http1Error::Refused("the connection is closed".to_owned()));
            };
            match sending.poll_all(io, cx) {
                Poll::Ready(Ok(())) => return Ok(()),
                // Nothing of the request has left.
                Poll::Ready(Err(error)) if !sending.output.has_begun() => {
                    state.abort();
                    return Err(Http1Error::Refused(error.to_string()));
                }
                // The server may have answered already.
                Poll::Ready(Err(_)) => {
                    state.is_last = true;
                    return Ok(());
                }
                Poll::Pending => {}
            }
        }
        state.is_sending = true;
        drop(state);
        handle.spawn(sending.run(self.clone()));
        Ok(())
    }

    /// Reads the head of the final response. Passes interim ones to `on_interim`.
    pub(super) fn poll_head(
        &self,
        on_interim: &mut Option<OnInterim<'_>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<()>, Http1Error>> {
        loop {
            // Called while nothing is borrowed.
            let mut interim = None;
            let head = self.state.borrow_mut().poll_head(&self.limits, &mut interim, cx);
            match (interim, on_interim.as_mut()) {
                (None, _) => return head,
                (Some((status, headers)), Some(on_interim)) => on_interim(status, headers),
                (Some(_), None) => {}
            }
        }
    }

    /// Returns the body of the response whose head was read last. `None` if there is none.
    pub(super) fn content(self: &Rc<Self>) -> Option<ResponseContent> {
        let has_content = matches!(self.state.borrow().reading, Reading::Content(_));
        has_content.then(|| ResponseContent { connection: self.clone(), is_over: false })
    }

    /// Hands the connection over to another protocol, which sends `outgoing`.
    ///
    /// `patience`: how long to wait until the server accepts the end.
    pub(super) fn hand_over(
        &self,
        outgoing: Body,
        handle: &Handle,
        patience: Duration,
    ) -> Rc<Tunnel> {
        let end = TunnelEnd::new();
        let tunnel = end.reader();
        let mut state = self.state.borrow_mut();
        if let Some(mut io) = state.io.take() {
            let (early, timers) = (state.input.split().freeze(), handle.clone());
            handle.spawn(async move {
                if run_tunnel(&mut io, early, end, outgoing).await != TunnelOutcome::Aborted {
                    let mut sleep = pin!(timers.sleep(patience));
                    poll_fn(|cx| match Pin::new(&mut io).poll_shutdown(cx) {
                        // Fails if the server has already closed the connection.
                        Poll::Ready(_) => Poll::Ready(()),
                        Poll::Pending => sleep.as_mut().poll(cx),
                    })
                    .await;
                }
            });
        }
        tunnel
    }

    /// Closes the connection, whatever is in flight.
    pub(super) fn abort(&self) {
        self.state.borrow_mut().abort();
    }
}

impl Drop for Http1 {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        state.close();
        wake(&mut state.idle);
    }
}

/// Reads a TLS connection while no exchange is running, as session tickets and the end of a
/// handshake require.
pub(super) async fn read_idle(connection: Weak<Http1>) {
    poll_fn(|cx| {
        let Some(connection) = connection.upgrade() else { return Poll::Ready(()) };
        let state = &mut *connection.state.borrow_mut();
        set_waker(&mut state.idle, cx);
        if state.is_idle() && !state.look() {
            wake(&mut state.owner);
        }
        if state.io.is_some() { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
}

impl State {
    /// Whether no exchange is going on.
    fn is_idle(&self) -> bool {
        !self.is_sending && matches!(self.reading, Reading::Nothing)
    }

    /// Whether an idle connection is still open. Detects that the server has closed it.
    fn look(&mut self) -> bool {
        let waker = self.idle.clone().or_else(|| self.owner.clone());
        let _ =
            self.poll_silence(&mut Context::from_waker(waker.as_ref().unwrap_or(Waker::noop())));
        self.io.is_some()
    }

    /// Ready once the connection is closed: by the server, or here because the server sent bytes
    /// without a request.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(io) = &mut self.io else { return Poll::Ready(()) };
        let mut storage = [MaybeUninit::uninit(); 1];
        let _ = ready!(Pin::new(io).poll_read(cx, &mut ReadBuf::uninit(&mut storage)));
        self.close();
        Poll::Ready(())
    }

    /// Reads more input, of which `wanted` bytes are certain to arrive. Ready with 0 at the end.
    fn poll_fill(&mut self, wanted: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let sender;
        let mut cx = Context::from_waker(cx.waker());
        if self.is_sending {
            set_waker(&mut self.reader, &cx);
            // The sending task wakes the reader when it runs.
            let Some(waker) = &self.sender else { return Poll::Pending };
            sender = waker.clone();
            cx = Context::from_waker(&sender);
        }
        let Some(io) = &mut self.io else { return Poll::Ready(Ok(0)) };
        if wanted > SMALL_READ {
            self.input.reserve(wanted.min(large_read()));
            self.held.set_here(self.input.capacity() as u64);
            return pin!(io.read_buf(&mut self.input)).poll(&mut cx);
        }
        let mut storage = [MaybeUninit::uninit(); SMALL_READ];
        let mut read = ReadBuf::uninit(&mut storage);
        ready!(Pin::new(io).poll_read(&mut cx, &mut read))?;
        self.input.extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    }

    /// Pending, with `interim` set, if an interim response was read.
    fn poll_head(
        &mut self,
        limits: &Limits,
        interim: &mut Option<(StatusCode, HeaderMap)>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<()>, Http1Error>> {
        let result = loop {
            let Reading::Head { scanned, interim_responses, .. } = &mut self.reading else {
                break Err(self.broken());
            };
            match head::take(&mut self.input, scanned, limits) {
                Ok(Some(head))
                    if head.status.is_informational()
                        && head.status != StatusCode::SWITCHING_PROTOCOLS =>
                {
                    *interim_responses += 1;
                    if *interim_responses > MAX_INTERIM {
                        break Err(Http1Error::Malformed(format!(
                            "the server sent more than {MAX_INTERIM} interim responses"
                        )));
                    }
                    *interim = Some((head.status, head.headers));
                    return Poll::Pending;
                }
                Ok(Some(head)) => break self.on_head(head),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
            match ready!(self.poll_fill(0, cx)) {
                Ok(0) => break Err(self.broken()),
                Ok(_) => {}
                Err(error) => break Err(error.into()),
            }
        };
        if result.is_err() {
            self.abort();
        }
        Poll::Ready(result)
    }

    fn on_head(&mut self, mut head: ResponseHead) -> Result<Response<()>, Http1Error> {
        let Reading::Head { method, asks_upgrade, .. } =
            std::mem::replace(&mut self.reading, Reading::Nothing)
        else {
            unreachable!("called while a head is read")
        };
        response::check(head.status, &mut head.headers, asks_upgrade)?;
        if head.status == StatusCode::SWITCHING_PROTOCOLS && self.is_sending {
            return Err(Http1Error::Malformed(
                "the server switched protocols before it had the whole request".to_owned(),
            ));
        }
        let framing = head.framing(&method)?;
        self.is_last |= head.closes() || matches!(framing, Some(Framing::UntilClose));
        match framing {
            Some(framing) => self.reading = Reading::Content(framing),
            // What follows belongs to another protocol.
            None if head.status == StatusCode::SWITCHING_PROTOCOLS => self.is_last = true,
            None => self.finish(),
        }
        let mut response = Response::new(());
        *response.status_mut() = head.status;
        *response.headers_mut() = head.headers;
        Ok(response)
    }

    fn poll_content(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Http1Error>>> {
        let error = loop {
            let Reading::Content(framing) = &mut self.reading else { break self.broken() };
            let wanted = match framing.decode(&mut self.input) {
                Ok(Decoded::Data(data)) => {
                    if framing.is_over() {
                        self.finish();
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Ok(Decoded::Trailers(trailers)) => {
                    self.finish();
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
                Ok(Decoded::End) => {
                    self.finish();
                    return Poll::Ready(None);
                }
                Ok(Decoded::Incomplete(wanted)) => wanted,
                Err(error) => break error,
            };
            let ends_with_connection = matches!(framing, Framing::UntilClose);
            match ready!(self.poll_fill(wanted, cx)) {
                Ok(0) if ends_with_connection && self.failure.is_none() => {
                    self.finish();
                    return Poll::Ready(None);
                }
                Ok(0) => break self.broken(),
                Ok(_) => {}
                Err(error) => break error.into(),
            }
        };
        self.abort();
        Poll::Ready(Some(Err(error)))
    }

    /// Returns why there is nothing more to read.
    fn broken(&mut self) -> Http1Error {
        self.failure.take().unwrap_or(Http1Error::Incomplete)
    }

    /// Ends the reading of a complete response.
    fn finish(&mut self) {
        self.reading = Reading::Nothing;
        // Bytes behind the response belong to no request.
        self.is_last |= !self.input.is_empty();
        self.input = BytesMut::new();
        self.held = Charge::default();
        self.settle();
    }

    /// Called at the end of either direction.
    fn settle(&mut self) {
        if !self.is_idle() {
            return;
        }
        if self.is_last {
            self.close();
        }
        wake(&mut self.waiting);
        wake(&mut self.idle);
    }

    /// Closes an idle connection, with a TLS alert if the socket accepts it at once.
    fn close(&mut self) {
        if let Some(mut io) = self.io.take() {
            let _ = Pin::new(&mut io).poll_shutdown(&mut Context::from_waker(Waker::noop()));
        }
    }

    /// Closes the connection because the request cannot be sent to its end.
    fn fail(&mut self, failure: Http1Error) {
        self.failure = Some(failure);
        self.io = None;
    }

    fn abort(&mut self) {
        self.io = None;
        self.reading = Reading::Nothing;
        self.input = BytesMut::new();
        self.held = Charge::default();
        [&mut self.sender, &mut self.reader, &mut self.waiting, &mut self.idle]
            .into_iter()
            .for_each(wake);
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

fn set_waker(slot: &mut Option<Waker>, cx: &Context<'_>) {
    match slot {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *slot = Some(cx.waker().clone()),
    }
}

/// The body of a response. Dropping it before its end closes the connection, unless the rest has
/// already been received.
pub(crate) struct ResponseContent {
    connection: Rc<Http1>,
    /// The response is complete, so the connection belongs to the next exchange.
    is_over: bool,
}

impl ResponseContent {
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let state = &mut *self.connection.state.borrow_mut();
        let frame = ready!(state.poll_content(cx));
        self.is_over = !matches!(state.reading, Reading::Content(_));
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        if self.is_over {
            return SizeHint::with_exact(0);
        }
        match &self.connection.state.borrow().reading {
            Reading::Content(framing) => {
                framing.missing().map_or_else(SizeHint::default, SizeHint::with_exact)
            }
            _ => SizeHint::default(),
        }
    }
}

impl Drop for ResponseContent {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let state = &mut *self.connection.state.borrow_mut();
        while let Reading::Content(framing) = &mut state.reading
            && !state.is_sending
        {
            match framing.decode(&mut state.input) {
                Ok(Decoded::Data(_)) if framing.is_over() => state.finish(),
                Ok(Decoded::Data(_)) => {}
                Ok(Decoded::Trailers(_) | Decoded::End) => state.finish(),
                Ok(Decoded::Incomplete(_)) | Err(_) => break,
            }
        }
        if matches!(state.reading, Reading::Content(_)) {
            state.abort();
        }
    }
}
