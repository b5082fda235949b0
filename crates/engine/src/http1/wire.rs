//! The layer between hyper and the connection: a reader that passes only messages with one meaning,
//! and a writer that inserts interim responses between hyper's own and sends responses to pipelined
//! requests together.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::chunked::Chunked;
use super::head::{self, Framing, Malformed};
use super::response_buffer::HeldResponses;
use super::wire_state::WireState;
use crate::tcp::PeerEnd;

const READ_BYTES: usize = 16 << 10;
/// Maximum bytes of heads passed to hyper together. Its buffer grows when it is full and does not
/// shrink.
const GIVEN_BYTES: usize = 4 << 10;
/// Buffer capacity that a connection keeps for its next head.
const KEPT_BYTES: usize = 2 << 10;

/// A connection whose requests are checked on the way to hyper.
///
/// A head is buffered until it is complete. A malformed head is replaced by one that hyper refuses
/// too, so that its response follows those to the requests before it. Malformed content ends like a
/// closed connection.
pub(super) struct CheckedIo<T>(Rc<RefCell<Inner<T>>>);

/// Shared, since hyper reads and writes, and the connection checks in between whether the peer has
/// ended.
struct Inner<T> {
    io: T,
    awaiting: Awaiting,
    /// Bytes read and not passed on.
    buffer: BytesMut,
    /// Number of checked bytes in `buffer`.
    checked: usize,
    head_bytes: usize,
    /// Responses that are sent together with those to the requests behind them.
    held_responses: HeldResponses,
    shared: Rc<WireState>,
}

/// What the reader waits for.
enum Awaiting {
    /// The end of a head, which is not in the bytes before `searched`.
    Head {
        searched: usize,
    },
    Content {
        left: u64,
    },
    Chunks(Chunked),
    /// The decision on an upgrade request. Only then is it known whether another request follows.
    Decision,
    /// A hyper instance that accepts as many lines as a complete head has: see
    /// [`WireState::wants_more_lines`].
    LargerParser,
    /// Another hyper instance, after content with trailers: see [`WireState::has_unread_trailers`].
    NextInstance,
    /// Nothing. The message was refused, and nothing more is read.
    Nothing,
}

impl<T> CheckedIo<T> {
    /// Creates a wire. `head_bytes`: maximum size of a head.
    pub(super) fn new(io: T, head_bytes: usize) -> (Self, Rc<WireState>) {
        let shared = Rc::<WireState>::default();
        let awaiting = Awaiting::Head { searched: 0 };
        let (buffer, held_responses) = (BytesMut::new(), HeldResponses::default());
        let inner = Inner {
            io,
            awaiting,
            buffer,
            checked: 0,
            head_bytes,
            held_responses,
            shared: shared.clone(),
        };
        (Self(Rc::new(RefCell::new(inner))), shared)
    }

    /// Returns another handle for the connection, beside hyper's.
    pub(super) fn handle(&self) -> Self {
        Self(self.0.clone())
    }

    /// Returns the connection, the bytes read from it and not passed on, and those not written to
    /// it. No other handle may exist.
    pub(super) fn into_parts(self) -> (T, Bytes, HeldResponses) {
        let Inner { io, buffer, held_responses, .. } =
            Rc::into_inner(self.0).expect("invariant: the last handle").into_inner();
        (io, buffer.freeze(), held_responses)
    }

    /// Takes back bytes that were passed to hyper and not read by it.
    pub(super) fn give_back(&self, given: &[u8]) {
        if !given.is_empty() {
            let inner = &mut *self.0.borrow_mut();
            inner.checked += given.len();
            inner.buffer = [given, &inner.buffer].concat().as_slice().into();
        }
    }
}

impl<T> Inner<T> {
    /// Checks the bytes read so far.
    fn check(&mut self) {
        if self.checked > 0 || self.buffer.is_empty() {
            return;
        }
        match &mut self.awaiting {
            Awaiting::Head { .. } => self.check_head(),
            Awaiting::Content { left } => {
                self.checked = usize::try_from(*left)
                    .map_or(self.buffer.len(), |left| left.min(self.buffer.len()));
                *left -= self.checked as u64;
                if *left == 0 {
                    self.awaiting = Awaiting::Head { searched: 0 };
                    self.shared.is_partial.set(false);
                }
            }
            Awaiting::Chunks(chunks) => match chunks.follow(&self.buffer) {
                Ok(taken) => {
                    self.checked = taken;
                    if chunks.is_over() {
                        self.shared.is_partial.set(false);
                        self.awaiting = if chunks.has_trailers() {
                            Awaiting::NextInstance
                        } else {
                            Awaiting::Head { searched: 0 }
                        };
                    }
                }
                Err(Malformed(_)) => self.refuse(&[]),
            },
            Awaiting::Decision | Awaiting::LargerParser | Awaiting::NextInstance => {}
            Awaiting::Nothing => self.buffer.clear(),
        }
    }

    fn check_head(&mut self) {
        let Awaiting::Head { searched } = &mut self.awaiting else { return };
        //= RFC 9112 section 2.2
        //# In the interest of robustness, a server that is expecting to receive and parse a request-line SHOULD ignore at least one
        //# empty line (CRLF) received prior to the request-line.
        if *searched < 2 && self.buffer.starts_with(b"\r\n") {
            self.buffer.advance(2);
            *searched = 0;
        }
        let searched_from = *searched;
        *searched = self.buffer.len();
        match head::end_of_head(&self.buffer, searched_from) {
            Ok(None) if self.buffer.len() > self.head_bytes => {
                self.refuse(&too_large(self.head_bytes));
            }
            Ok(None) => {}
            Ok(Some(end)) if end > self.head_bytes => self.refuse(&too_large(self.head_bytes)),
            Ok(Some(end)) => match head::check(&self.buffer[..end]) {
                Ok((_, lines)) if lines > self.shared.room.get() => {
                    self.shared.wants_more_lines.set(true);
                    self.awaiting = Awaiting::LargerParser;
                }
                Ok((framing, _)) => {
                    self.checked = end;
                    self.shared.add_heads(1);
                    if framing == Framing::Length(0) {
                        let together = self.buffer.len().min(GIVEN_BYTES).max(end);
                        self.checked += self.count_whole_requests(&self.buffer[end..together]);
                    }
                    // Chunks that have arrived are not parsed before they are needed.
                    let is_partial = match framing {
                        Framing::Upgrade | Framing::Length(0) => false,
                        Framing::Length(left) => ((self.buffer.len() - end) as u64) < left,
                        Framing::Chunked => !self.buffer.ends_with(b"0\r\n\r\n"),
                    };
                    self.shared.is_partial.set(is_partial);
                    self.awaiting = match framing {
                        Framing::Upgrade => {
                            self.shared.is_undecided.set(true);
                            Awaiting::Decision
                        }
                        Framing::Length(0) => Awaiting::Head { searched: 0 },
                        Framing::Length(left) => Awaiting::Content { left },
                        Framing::Chunked => Awaiting::Chunks(Chunked::new()),
                    };
                }
                Err(Malformed(_)) => self.refuse(MALFORMED),
            },
            Err(Malformed(_)) => self.refuse(MALFORMED),
        }
    }

    /// Returns the end of the complete requests that `bytes` begin with. hyper handles many at once
    /// at a lower cost.
    fn count_whole_requests(&self, bytes: &[u8]) -> usize {
        let together = &bytes[..bytes.len().min(GIVEN_BYTES)];
        let (count, end) = head::whole_requests(together, self.head_bytes, self.shared.room.get());
        self.shared.add_heads(count);
        end
    }

    fn refuse(&mut self, instead: &[u8]) {
        self.shared.refused.set(true);
        self.awaiting = Awaiting::Nothing;
        self.checked = instead.len();
        self.buffer = BytesMut::from(instead);
    }
}

/// A NUL is invalid in a method: 400.
const MALFORMED: &[u8] = b"\0\r\n\r\n";

/// Returns a head that is one byte larger than hyper accepts: 431.
fn too_large(limit: usize) -> Vec<u8> {
    let mut head = b"GET / HTTP/1.1\r\nx: ".to_vec();
    head.resize(limit, b'x');
    head.extend_from_slice(b"\r\n\r\n");
    head
}

impl<T: AsyncRead + PeerEnd + Unpin> CheckedIo<T> {
    /// Ready when the peer has ended while a request is open, and no reader of received content is
    /// left. If the next bytes are meant for hyper, which takes them later or never, the end behind
    /// them is detected without reading. Elsewhere hyper could detect it too, but would request the
    /// memory of a head each time.
    pub(super) fn poll_end(&self, cx: &mut TaskContext<'_>) -> Poll<()> {
        let inner = &mut *self.0.borrow_mut();
        loop {
            inner.check();
            let may_read = match inner.awaiting {
                Awaiting::Head { .. } => true,
                Awaiting::Decision => inner.buffer.len() < READ_BYTES,
                Awaiting::Content { .. }
                | Awaiting::Chunks(_)
                | Awaiting::LargerParser
                | Awaiting::NextInstance
                | Awaiting::Nothing => false,
            };
            if !may_read || inner.checked > 0 || inner.shared.heads != inner.shared.requests {
                // A request in early data may wait for it, with its content unread.
                inner.io.poll_handshake(cx);
                ready!(inner.io.poll_ended(cx));
                break;
            }
            if !matches!(ready!(inner.poll_fill(cx)), Ok(1..)) {
                break;
            }
        }
        if inner.shared.contents.get() > 0 {
            inner.shared.wait_for_content(cx);
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

impl<T: AsyncRead + Unpin> Inner<T> {
    /// Reads available bytes. Returns their number.
    fn poll_fill(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<usize>> {
        let mut storage = [MaybeUninit::uninit(); READ_BYTES];
        let mut read = ReadBuf::uninit(&mut storage);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut read))?;
        self.buffer.extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for CheckedIo<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self.0.borrow_mut();
        loop {
            this.check();
            if this.checked > 0 {
                let given = this.checked.min(out.remaining());
                out.put_slice(&this.buffer[..given]);
                this.buffer.advance(given);
                this.checked -= given;
                if this.buffer.is_empty() && this.buffer.capacity() > KEPT_BYTES {
                    this.buffer = BytesMut::new();
                }
                return Poll::Ready(Ok(()));
            }
            match &mut this.awaiting {
                Awaiting::Decision if !this.shared.is_undecided.get() => {
                    this.awaiting = Awaiting::Head { searched: 0 }
                }
                Awaiting::LargerParser if !this.shared.wants_more_lines.get() => {
                    this.awaiting = Awaiting::Head { searched: 0 }
                }
                // hyper is done with the message and its response.
                Awaiting::NextInstance => {
                    this.awaiting = Awaiting::Head { searched: 0 };
                    this.shared.has_unread_trailers.set(true);
                    return Poll::Pending;
                }
                // hyper asks again when the request is answered, or another instance takes over.
                Awaiting::Decision | Awaiting::LargerParser => return Poll::Pending,
                Awaiting::Nothing => return Poll::Ready(Ok(())),
                // Content of a known length goes straight to hyper.
                Awaiting::Content { left }
                    if this.buffer.is_empty() && *left >= out.remaining() as u64 =>
                {
                    let before = out.filled().len();
                    ready!(Pin::new(&mut this.io).poll_read(cx, out))?;
                    *left -= (out.filled().len() - before) as u64;
                    if *left == 0 {
                        this.awaiting = Awaiting::Head { searched: 0 };
                        this.shared.is_partial.set(false);
                    }
                    return Poll::Ready(Ok(()));
                }
                // If hyper has space for an upload, bytes beyond a request would be too many to
                // buffer here.
                Awaiting::Head { searched: 0 }
                    if this.buffer.is_empty() && out.remaining() <= READ_BYTES =>
                {
                    let before = out.filled().len();
                    ready!(Pin::new(&mut this.io).poll_read(cx, out))?;
                    let read = &out.filled()[before..];
                    if read.is_empty() {
                        this.awaiting = Awaiting::Nothing;
                        return Poll::Ready(Ok(()));
                    }
                    // Usually these bytes are whole requests and nothing else, and already in the
                    // right buffer.
                    let end = this.count_whole_requests(read);
                    this.buffer.extend_from_slice(&read[end..]);
                    out.set_filled(before + end);
                    if end > 0 {
                        return Poll::Ready(Ok(()));
                    }
                }
                _ => {
                    if ready!(this.poll_fill(cx))? > 0 {
                        continue;
                    }
                    // hyper decides what an end within a message means.
                    this.checked = this.buffer.len();
                    this.awaiting = Awaiting::Nothing;
                    if this.checked == 0 {
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
    }
}

impl<T: AsyncWrite + Unpin> Inner<T> {
    fn poll_write_with(
        &mut self,
        cx: &mut TaskContext<'_>,
        pieces: &[IoSlice<'_>],
        write: impl FnOnce(Pin<&mut T>, &mut TaskContext<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.shared.blocked.set(true);
        if self.shared.begun.get() {
            ready!(self.poll_interim(cx))?;
        }
        if !self.held_responses.is_empty() || self.may_hold() {
            if let Some(taken) = self.held_responses.take(pieces) {
                self.shared.hold();
                self.shared.blocked.set(false);
                return Poll::Ready(Ok(taken));
            }
            ready!(self.poll_uncork(cx))?;
        }
        let written = ready!(write(Pin::new(&mut self.io), cx));
        self.shared.blocked.set(false);
        Poll::Ready(written)
    }

    /// Whether the response to another received request follows soon.
    fn may_hold(&mut self) -> bool {
        self.check();
        self.shared.may_hold()
    }

    /// Writes the responses that were held back.
    fn poll_uncork(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        ready!(self.held_responses.poll_write(&mut self.io, cx))?;
        self.shared.holding.set(false);
        Poll::Ready(Ok(()))
    }

    fn poll_interim(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        if self.shared.interim.borrow().is_empty() {
            self.shared.wake_informed();
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_uncork(cx))?;
        let mut interim = self.shared.interim.borrow_mut();
        while !interim.is_empty() {
            let written = ready!(Pin::new(&mut self.io).poll_write(cx, &interim))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            interim.advance(written);
            self.shared.begun.set(!interim.is_empty());
        }
        drop(interim);
        self.shared.wake_informed();
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for CheckedIo<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0
            .borrow_mut()
            .poll_write_with(cx, &[IoSlice::new(bytes)], |io, cx| io.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_write_with(cx, bytes, |io, cx| io.poll_write_vectored(cx, bytes))
    }

    fn is_write_vectored(&self) -> bool {
        self.0.borrow().io.is_write_vectored()
    }

    /// hyper flushes in every poll of the connection, when it has written all that it has. So this
    /// is the point between two responses for an interim response, and for responses that were held
    /// back for another one that is not ready.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self.0.borrow_mut();
        ready!(this.poll_interim(cx))?;
        if !this.held_responses.is_empty() {
            if this.may_hold() {
                return Poll::Ready(Ok(()));
            }
            ready!(this.poll_uncork(cx))?;
        }
        Pin::new(&mut this.io).poll_flush(cx)
    }

    /// Called when hyper has written all that it has. The connection itself goes on, as a tunnel or
    /// until the peer has taken all data, so only responses that were held back are due.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_uncork(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::io::AsyncReadExt;

    use super::*;

    /// Returns the bytes of a connection, arriving in two pieces, that are passed to hyper, and the
    /// number of heads.
    fn given(bytes: &[u8], cut: usize, room: usize) -> (Vec<u8>, u32) {
        let (first, second) = bytes.split_at(cut);
        let (mut wire, shared) = CheckedIo::new(AsyncReadExt::chain(first, second), 64 << 10);
        shared.set_max_lines(usize::MAX);
        let mut all = Vec::new();
        loop {
            let mut room = vec![0; room];
            let mut out = ReadBuf::new(&mut room);
            let read = Pin::new(&mut wire)
                .poll_read(&mut TaskContext::from_waker(Waker::noop()), &mut out);
            assert!(matches!(read, Poll::Ready(Ok(()))));
            if out.filled().is_empty() {
                return (all, shared.heads.get());
            }
            all.extend_from_slice(out.filled());
        }
    }

    #[test]
    fn requests_that_come_together_are_given_on_as_they_are_up_to_a_malformed_one() {
        let get = "GET /a HTTP/1.1\r\nhost: a\r\n\r\n";
        // These look like requests but are content.
        let post = format!(
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{get}{get}",
            2 * get.len()
        );
        let chunked = format!(
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: \
                chunked\r\n\r\n{:x}\r\n{get}\r\n0\r\n\r\n",
            get.len()
        );
        let sound = [get, get, &post, get, &chunked, get, get].concat();
        // An empty line before a request is skipped.
        let all = [
            "\r\n",
            get,
            get,
            &post,
            "\r\n",
            get,
            &chunked,
            get,
            "\r\n",
            get,
            "GET /a HTTP/1.1\nhost: a\n\n",
            get,
        ]
        .concat();
        for room in [1, 100, 8 << 10, 32 << 10] {
            for cut in 0..all.len() {
                let (bytes, heads) = given(all.as_bytes(), cut, room);
                assert_eq!(
                    String::from_utf8_lossy(&bytes),
                    sound.clone() + "\0\r\n\r\n",
                    "cut at {cut}, {room} bytes at once"
                );
                assert_eq!(heads, 7);
            }
        }
    }

    #[test]
    fn what_is_whole_is_given_at_once_and_the_rest_is_kept() {
        let get = "GET /a HTTP/1.1\r\nhost: a\r\n\r\n";
        let bytes = get.repeat(10) + "GET /b HT";
        let (mut wire, shared) = CheckedIo::new(bytes.as_bytes(), 64 << 10);
        shared.set_max_lines(usize::MAX);
        let mut room = vec![0; 8 << 10];
        let mut out = ReadBuf::new(&mut room);
        assert!(
            Pin::new(&mut wire)
                .poll_read(&mut TaskContext::from_waker(Waker::noop()), &mut out)
                .is_ready()
        );
        assert_eq!(
            (out.filled(), &wire.0.borrow().buffer[..], shared.heads.get()),
            (get.repeat(10).as_bytes(), &b"GET /b HT"[..], 10)
        );
    }

    #[test]
    fn large_read_buffer_limits_buffered_bytes() {
        let requests = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".repeat(20_000);
        let (mut wire, shared) = CheckedIo::new(&requests[..], 64 << 10);
        shared.set_max_lines(usize::MAX);
        let mut room = vec![0; 400 << 10];
        let mut out = ReadBuf::new(&mut room);
        let read =
            Pin::new(&mut wire).poll_read(&mut TaskContext::from_waker(Waker::noop()), &mut out);
        assert!(matches!(read, Poll::Ready(Ok(()))));
        let held = out.filled().len() + wire.0.borrow().buffer.len();
        assert!(!out.filled().is_empty() && held <= READ_BYTES, "{held}");
    }
}
