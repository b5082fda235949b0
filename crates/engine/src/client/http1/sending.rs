//! Sends a request.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body as _, Frame};
use tokio::io::AsyncWrite as _;

use super::error::Http1Error;
use super::head::write_fields;
use super::{Http1, Io, set_waker, wake};
use crate::Body;

/// Content up to this size is copied behind the bytes in front of it.
const COPIED_BYTES: usize = 4 << 10;

/// Number of gathered bytes from which small pieces are written without waiting for more.
const GATHERED_BYTES: usize = 16 << 10;

/// The last chunk, without trailers.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// A request that is being sent.
pub(super) struct Sending {
    pub(super) output: Output,
    /// `None` once the output contains its end.
    body: Option<Body>,
    is_chunked: bool,
}

/// Bytes that the socket has not accepted.
#[derive(Default)]
pub(super) struct Output {
    front: Vec<u8>,
    content: Bytes,
    /// Bytes behind the content.
    back: Vec<u8>,
    /// Bytes of `front` and `back` that were written.
    front_written: usize,
    back_written: usize,
    has_begun: bool,
}

impl Sending {
    pub(super) fn new(head: Vec<u8>, mut body: Body, is_chunked: bool) -> Self {
        let output = Output { front: head, ..Output::default() };
        let whole = body.take_full();
        let mut sending = Self { output, body: whole.is_none().then_some(body), is_chunked };
        if let Some(content) = whole {
            sending.push(content);
            sending.end(None);
        }
        sending
    }

    /// Whether the whole body is in the output.
    pub(super) fn has_all(&self) -> bool {
        self.body.is_none()
    }

    /// Writes and flushes a request whose whole body is in the output.
    pub(super) fn poll_all(
        &mut self,
        io: &mut Box<dyn Io>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.output.poll_write(io, cx))?;
        Pin::new(io).poll_flush(cx)
    }

    fn push(&mut self, content: Bytes) {
        if content.is_empty() {
            return;
        }
        if self.is_chunked {
            let size = format!("{:X}\r\n", content.len());
            self.output.front.extend_from_slice(size.as_bytes());
        }
        self.output.push(content);
        if self.is_chunked {
            self.output.push_back(b"\r\n");
        }
    }

    /// Adds the end of the body.
    fn end(&mut self, trailers: Option<&http::HeaderMap>) {
        self.body = None;
        if !self.is_chunked {
            return;
        }
        let Some(trailers) = trailers else { return self.output.push_back(LAST_CHUNK) };
        let mut section = b"0\r\n".to_vec();
        write_fields(trailers, &mut section);
        section.extend_from_slice(b"\r\n");
        self.output.push_back(&section);
    }

    fn on_frame(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(data) => self.push(data),
            // A body of a known length cannot have trailers.
            Err(frame) => self.end(frame.trailers_ref()),
        }
        // So that the end is sent with the last piece.
        if self.body.as_ref().is_some_and(http_body::Body::is_end_stream) {
            self.end(None);
        }
    }

    /// Sends the request, unless the connection closes first.
    pub(super) async fn run(mut self, connection: Rc<Http1>) {
        poll_fn(|cx| {
            set_waker(&mut connection.state.borrow_mut().sender, cx);
            let sent = self.poll(&connection, cx);
            // The task may have been woken for the reader's data.
            wake(&mut connection.state.borrow_mut().reader);
            sent
        })
        .await;
        // First, so that content returned by the drop is available when the end is known.
        drop(self);
        let state = &mut *connection.state.borrow_mut();
        (state.is_sending, state.sender) = (false, None);
        // Without this task, the socket wakes the reader itself.
        wake(&mut state.reader);
        state.settle();
    }

    fn poll(&mut self, connection: &Http1, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let mut waits = false;
            while self.output.takes_more()
                && let Some(body) = &mut self.body
            {
                match Pin::new(body).poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) => self.on_frame(frame),
                    Poll::Ready(None) => self.end(None),
                    Poll::Ready(Some(Err(error))) => {
                        connection.state.borrow_mut().fail(Http1Error::Content(error.to_string()));
                        return Poll::Ready(());
                    }
                    Poll::Pending => {
                        waits = true;
                        break;
                    }
                }
            }
            let state = &mut *connection.state.borrow_mut();
            let Some(io) = &mut state.io else { return Poll::Ready(()) };
            let mut written = self.output.poll_write(io, cx);
            if matches!(written, Poll::Ready(Ok(()))) && (waits || self.body.is_none()) {
                written = Pin::new(io).poll_flush(cx);
            }
            match ready!(written) {
                Ok(()) if self.body.is_none() => return Poll::Ready(()),
                Ok(()) if waits => return Poll::Pending,
                Ok(()) => {}
                Err(error) => {
                    if self.output.has_begun() {
                        // The server reads no more, but may have responded: reading will tell.
                        state.is_last = true;
                    } else {
                        state.fail(Http1Error::Refused(error.to_string()));
                    }
                    return Poll::Ready(());
                }
            }
        }
    }
}

impl Output {
    /// Whether the socket has accepted some of it.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether more can be sent with it: small pieces are gathered until the first byte is written.
    fn takes_more(&self) -> bool {
        self.front_written == 0 && self.content.is_empty() && self.front.len() < GATHERED_BYTES
    }

    /// Adds content behind the front.
    fn push(&mut self, content: Bytes) {
        if content.len() <= COPIED_BYTES {
            self.front.extend_from_slice(&content);
        } else {
            self.content = content;
        }
    }

    fn push_back(&mut self, bytes: &[u8]) {
        let behind = if self.content.is_empty() { &mut self.front } else { &mut self.back };
        behind.extend_from_slice(bytes);
    }

    /// Writes all of it, without flushing.
    pub(super) fn poll_write(
        &mut self,
        io: &mut Box<dyn Io>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let (front, back) =
                (&self.front[self.front_written..], &self.back[self.back_written..]);
            let pieces = [front, &self.content, back].map(IoSlice::new);
            if pieces.iter().all(|piece| piece.is_empty()) {
                break;
            }
            let written = if self.content.is_empty() && back.is_empty() {
                ready!(Pin::new(&mut *io).poll_write(cx, front))?
            } else {
                ready!(Pin::new(&mut *io).poll_write_vectored(cx, &pieces))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.on_written(written);
        }
        self.front.clear();
        self.back.clear();
        (self.front_written, self.back_written) = (0, 0);
        Poll::Ready(Ok(()))
    }

    fn on_written(&mut self, written: usize) {
        self.has_begun = true;
        let front = written.min(self.front.len() - self.front_written);
        self.front_written += front;
        let content = (written - front).min(self.content.len());
        self.content.advance(content);
        self.back_written += written - front - content;
    }
}
