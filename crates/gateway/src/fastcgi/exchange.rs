//! A request and its response on one connection.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body as _, Frame};
use pronghorn_client::{Error, Phase};
use pronghorn_engine::{Body, BodyError, Error as Broken, Handle, Sleep};
use pronghorn_fastcgi::{
    Decoder, Ended, Event, Head, HeadError, MAX_HEAD_BYTES, MAX_HEAD_LINES, Parameters, request,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection_slots::ConnectionSlot;
use super::error_output::ErrorOutput;

/// Number of bytes read at a time.
const READ_BYTES: usize = 16 << 10;

/// A connection's byte stream.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

/// A running request and its response. The application may respond before it has read the whole
/// request.
pub(super) struct Exchange {
    stream: Box<dyn Stream>,
    handle: Handle,
    /// Encoded records that are not written yet.
    outgoing: BytesMut,
    content: Upload,
    decoder: Decoder,
    complaints: ErrorOutput,
    /// Timer of the current wait for the application.
    patience: Option<Pin<Box<Sleep>>>,
}

/// State of the request body.
enum Upload {
    /// The rest of the body, and the received bytes that are not encoded yet.
    Running(Body, Bytes),
    Over,
    /// The application accepts no more.
    Unwanted,
}

/// An event for the client.
enum Answer {
    Output(Bytes),
    End(Ended),
}

impl Exchange {
    pub(super) fn new(
        stream: Box<dyn Stream>,
        handle: Handle,
        parameters: &Parameters,
        content: Body,
        complaints: ErrorOutput,
    ) -> Self {
        let mut outgoing = BytesMut::with_capacity(parameters.encoded().len() + 64);
        request::begin(&mut outgoing);
        request::parameters(&mut outgoing, parameters);
        let content = Upload::Running(content, Bytes::new());
        Self {
            stream,
            handle,
            outgoing,
            content,
            decoder: Decoder::default(),
            complaints,
            patience: None,
        }
    }

    /// Returns the response head with the received part of the body.
    ///
    /// `timeout` is the time for the application to accept more of the request or to send
    /// something.
    pub(super) async fn head(&mut self, timeout: Duration) -> Result<http::Response<Bytes>, Error> {
        let mut head = Head::default();
        loop {
            match poll_fn(|cx| self.poll_answer(cx, timeout, Phase::Head)).await? {
                Answer::Output(piece) => {
                    if let Some(response) = head.push(&piece).map_err(wrong_head)? {
                        return Ok(response);
                    }
                }
                Answer::End(Ended::Overloaded) => {
                    return Err(broken(Broken::Refused(
                        "the application is overloaded".to_owned(),
                    )));
                }
                Answer::End(Ended::Refused) => {
                    return Err(broken(Broken::Refused(
                        "the application does not support the FastCGI responder role".to_owned(),
                    )));
                }
                Answer::End(Ended::Complete) => {
                    return Err(broken(Broken::Exchange(
                        "the request ended without a response".to_owned(),
                    )));
                }
            }
        }
    }

    /// Polls for the next piece of the response body; `None` at its end.
    pub(super) fn poll_content(
        &mut self,
        cx: &mut Context<'_>,
        timeout: Duration,
    ) -> Poll<Option<Result<Bytes, Error>>> {
        Poll::Ready(match ready!(self.poll_answer(cx, timeout, Phase::Body)) {
            Ok(Answer::Output(piece)) => Some(Ok(piece)),
            Ok(Answer::End(Ended::Complete)) => None,
            Ok(Answer::End(_)) => {
                Some(Err(broken(Broken::Reset("the application aborted the request".to_owned()))))
            }
            Err(error) => Some(Err(error)),
        })
    }

    fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
        timeout: Duration,
        phase: Phase,
    ) -> Poll<Result<Answer, Error>> {
        let has_moved = match self.poll_write(cx) {
            Ok(has_moved) => has_moved,
            Err(error) => {
                return Poll::Ready(Err(broken(Broken::Exchange(format!(
                    "the request body was cut off: {error}"
                )))));
            }
        };
        while let Poll::Ready(event) = self.poll_read(cx) {
            let answer = match event? {
                // Error output does not reset the timeout: an application that only logs still
                // times out.
                Event::Complaint(text) => {
                    self.complaints.add(&text);
                    continue;
                }
                Event::Output(piece) => Answer::Output(piece),
                Event::End(ended) => Answer::End(ended),
            };
            self.patience = None;
            return Poll::Ready(Ok(answer));
        }
        // While the client's body is incomplete and nothing is left to write, the client is waited
        // for, not the application.
        let waits_for_client =
            matches!(self.content, Upload::Running(..)) && self.outgoing.is_empty();
        if has_moved || waits_for_client {
            self.patience = None;
        }
        if waits_for_client {
            return Poll::Pending;
        }
        let patience = self.patience.get_or_insert_with(|| Box::pin(self.handle.sleep(timeout)));
        patience.as_mut().poll(cx).map(|()| Err(Error::TimedOut(phase)))
    }

    /// Writes pending data. Returns whether some was written, or an error if the request body was
    /// cut off.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<bool, BodyError> {
        let mut has_moved = false;
        loop {
            while !self.outgoing.is_empty() {
                match Pin::new(&mut self.stream).poll_write(cx, &self.outgoing) {
                    Poll::Ready(Ok(count)) if count > 0 => {
                        self.outgoing.advance(count);
                        has_moved = true;
                    }
                    // The application may have responded anyway; reading decides.
                    Poll::Ready(_) => {
                        self.outgoing.clear();
                        self.content = Upload::Unwanted;
                    }
                    Poll::Pending => return Ok(has_moved),
                }
            }
            let Upload::Running(content, rest) = &mut self.content else { return Ok(has_moved) };
            if rest.is_empty() {
                match Pin::new(content).poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) => *rest = frame.into_data().unwrap_or_default(),
                    Poll::Ready(Some(Err(error))) => return Err(error),
                    Poll::Ready(None) => {
                        request::content(&mut self.outgoing, b"");
                        self.content = Upload::Over;
                    }
                    Poll::Pending => return Ok(has_moved),
                }
            } else {
                let piece = rest.split_to(rest.len().min(request::MAX_CONTENT_BYTES));
                request::content(&mut self.outgoing, &piece);
            }
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, Error>> {
        loop {
            match self.decoder.read() {
                Ok(Some(event)) => return Poll::Ready(Ok(event)),
                Ok(None) => {}
                Err(wrong) => return Poll::Ready(Err(broken(Broken::Exchange(wrong.to_string())))),
            }
            let buffer = self.decoder.buffer();
            let filled = buffer.len();
            buffer.resize(filled + READ_BYTES, 0);
            let mut room = ReadBuf::new(&mut buffer[filled..]);
            let read = Pin::new(&mut self.stream).poll_read(cx, &mut room);
            let count = room.filled().len();
            buffer.truncate(filled + count);
            match ready!(read) {
                Ok(()) if count > 0 => {}
                Ok(()) => {
                    return Poll::Ready(Err(broken(Broken::Closed(
                        "the application closed the connection".to_owned(),
                    ))));
                }
                Err(error) => return Poll::Ready(Err(broken(Broken::Closed(error.to_string())))),
            }
        }
    }
}

fn wrong_head(wrong: HeadError) -> Error {
    broken(match wrong {
        HeadError::Long => Broken::HeadTooLarge(format!(
            "more than {MAX_HEAD_BYTES} bytes or {MAX_HEAD_LINES} field lines"
        )),
        wrong => Broken::Exchange(wrong.to_string()),
    })
}

pub(super) fn broken(error: Broken) -> Error {
    error.into()
}

/// A response body.
pub(crate) struct Content {
    /// The exchange and its connection slot; dropped at the end.
    running: Option<(Exchange, ConnectionSlot)>,
    timeout: Duration,
    /// The part of the body received with the head.
    first: Bytes,
    /// Remaining bytes according to `content-length`, if present.
    left: Option<u64>,
}

impl Content {
    pub(super) fn new(
        exchange: Exchange,
        timeout: Duration,
        first: Bytes,
        length: Option<u64>,
        place: ConnectionSlot,
    ) -> Self {
        Self { running: Some((exchange, place)), timeout, first, left: length }
    }

    /// Checks the body against its `content-length`.
    fn measured(&mut self, piece: Option<Result<Bytes, Error>>) -> Option<Result<Bytes, Error>> {
        let Some(left) = &mut self.left else { return piece };
        let wrong = |how: &str| {
            Some(Err(broken(Broken::Exchange(format!(
                "the response is {how} than its content-length"
            )))))
        };
        match piece {
            Some(Ok(piece)) => match left.checked_sub(piece.len() as u64) {
                Some(rest) => {
                    *left = rest;
                    Some(Ok(piece))
                }
                None => wrong("longer"),
            },
            None if *left > 0 => wrong("shorter"),
            other => other,
        }
    }
}

impl http_body::Body for Content {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let timeout = self.timeout;
        let first = std::mem::take(&mut self.first);
        let piece = if first.is_empty() {
            let Some((exchange, _)) = &mut self.running else { return Poll::Ready(None) };
            ready!(exchange.poll_content(cx, timeout))
        } else {
            Some(Ok(first))
        };
        let piece = self.measured(piece);
        if !matches!(piece, Some(Ok(_))) {
            self.running = None;
        }
        Poll::Ready(piece.map(|piece| piece.map(Frame::data).map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.running.is_none() && self.first.is_empty()
    }
}
