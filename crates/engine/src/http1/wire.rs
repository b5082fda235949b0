//! What stands between the library and the connection: a reader that lets through only messages with one meaning, and a writer that
//! puts interim responses between the library's own, and has answers to pipelined requests leave together.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::chunked::Chunked;
use super::corked::Corked;
use super::head::{self, Framing, Malformed};
use super::shared::Shared;
use crate::tcp::Ends;

const READ_BYTES: usize = 16 << 10;
/// The most bytes of heads that the library is given together. Its buffer grows where it is filled, and stays so.
const GIVEN_BYTES: usize = 4 << 10;
/// Memory that a connection keeps for its next head.
const KEPT_BYTES: usize = 2 << 10;

/// A connection whose requests are checked on the way to the library.
///
/// A head is held until it is whole. One that is malformed is replaced by one that the library refuses as well, so that its answer
/// comes after those to the requests before it; content that is malformed ends as if the connection had.
pub(super) struct Wire<T>(Rc<RefCell<Inner<T>>>);

/// Shared, since the library reads and writes, and in between the connection looks for its peer's end.
struct Inner<T> {
    io: T,
    awaiting: Awaiting,
    /// Bytes read and not handed on.
    buffer: BytesMut,
    /// How many of them are checked.
    checked: usize,
    head_bytes: usize,
    /// Answers that leave together with those to the requests behind them.
    corked: Corked,
    shared: Rc<Shared>,
}

/// What a reader waits for.
enum Awaiting {
    /// The end of a head; bytes before `searched` do not have it.
    Head {
        searched: usize,
    },
    Content {
        left: u64,
    },
    Chunks(Chunked),
    /// What becomes of a request to go on in another protocol: whether what follows is a request is not known before.
    Decision,
    /// A head of many lines is there, and the library has no room for them: see [`Shared::wants_room`].
    Room,
    /// Content has ended with trailers: see [`Shared::keeps_content`].
    Successor,
    /// The message was refused. There is nothing more to read.
    Nothing,
}

impl<T> Wire<T> {
    /// `head_bytes`: the most that a head may have.
    pub(super) fn new(io: T, head_bytes: usize) -> (Self, Rc<Shared>) {
        let shared = Rc::<Shared>::default();
        let awaiting = Awaiting::Head { searched: 0 };
        let (buffer, corked) = (BytesMut::new(), Corked::default());
        let inner = Inner { io, awaiting, buffer, checked: 0, head_bytes, corked, shared: shared.clone() };
        (Self(Rc::new(RefCell::new(inner))), shared)
    }

    /// For the connection, beside the library's.
    pub(super) fn handle(&self) -> Self {
        Self(self.0.clone())
    }

    /// The connection, what was read of it and not handed on, and what was not written to it. There is no other handle left.
    pub(super) fn into_parts(self) -> (T, Bytes, Corked) {
        let Inner { io, buffer, corked, .. } = Rc::into_inner(self.0).expect("invariant: the last handle").into_inner();
        (io, buffer.freeze(), corked)
    }

    /// Takes back what the library was given and has not looked at.
    pub(super) fn give_back(&self, given: &[u8]) {
        if !given.is_empty() {
            let inner = &mut *self.0.borrow_mut();
            inner.checked += given.len();
            inner.buffer = [given, &inner.buffer].concat().as_slice().into();
        }
    }
}

impl<T> Inner<T> {
    /// Checks what was read as far as it goes.
    fn check(&mut self) {
        if self.checked > 0 || self.buffer.is_empty() {
            return;
        }
        match &mut self.awaiting {
            Awaiting::Head { .. } => self.check_head(),
            Awaiting::Content { left } => {
                self.checked = usize::try_from(*left).map_or(self.buffer.len(), |left| left.min(self.buffer.len()));
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
                        self.awaiting = if chunks.has_trailers() { Awaiting::Successor } else { Awaiting::Head { searched: 0 } };
                    }
                }
                Err(Malformed(_)) => self.refuse(&[]),
            },
            Awaiting::Decision | Awaiting::Room | Awaiting::Successor => {}
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
            Ok(None) if self.buffer.len() > self.head_bytes => self.refuse(&too_large(self.head_bytes)),
            Ok(None) => {}
            Ok(Some(end)) if end > self.head_bytes => self.refuse(&too_large(self.head_bytes)),
            Ok(Some(end)) => match head::check(&self.buffer[..end]) {
                Ok((_, lines)) if lines > self.shared.room.get() => {
                    self.shared.wants_room.set(true);
                    self.awaiting = Awaiting::Room;
                }
                Ok((framing, _)) => {
                    self.checked = end;
                    self.shared.add_heads(1);
                    if framing == Framing::Length(0) {
                        let together = self.buffer.len().min(GIVEN_BYTES).max(end);
                        self.checked += self.count_whole_requests(&self.buffer[end..together]);
                    }
                    // Chunks that have come are not looked at before they are wanted.
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

    /// Where the whole requests end that `bytes` begin with. They cost the library less when it has many at once.
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

/// No method has a NUL: 400.
const MALFORMED: &[u8] = b"\0\r\n\r\n";

/// A head of one byte more than the library takes: 431.
fn too_large(limit: usize) -> Vec<u8> {
    let mut head = b"GET / HTTP/1.1\r\nx: ".to_vec();
    head.resize(limit, b'x');
    head.extend_from_slice(b"\r\n\r\n");
    head
}

impl<T: AsyncRead + Ends + Unpin> Wire<T> {
    /// While a request is open: ready when the peer has ended, and nobody still reads what it had sent. Where what comes next is the library's,
    /// which takes it later or never, the end behind it is seen without reading. Elsewhere the library could look for it, too, and would ask for
    /// the memory of a head each time.
    pub(super) fn poll_end(&self, cx: &mut TaskContext<'_>) -> Poll<()> {
        let inner = &mut *self.0.borrow_mut();
        loop {
            inner.check();
            let may_read = match inner.awaiting {
                Awaiting::Head { .. } => true,
                Awaiting::Decision => inner.buffer.len() < READ_BYTES,
                Awaiting::Content { .. } | Awaiting::Chunks(_) | Awaiting::Room | Awaiting::Successor | Awaiting::Nothing => false,
            };
            if !may_read || inner.checked > 0 || inner.shared.heads != inner.shared.requests {
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
    /// Reads what has come. Returns how much that is.
    fn poll_fill(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<usize>> {
        let mut storage = [MaybeUninit::uninit(); READ_BYTES];
        let mut read = ReadBuf::uninit(&mut storage);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut read))?;
        self.buffer.extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Wire<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut TaskContext<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
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
                Awaiting::Decision if !this.shared.is_undecided.get() => this.awaiting = Awaiting::Head { searched: 0 },
                Awaiting::Room if !this.shared.wants_room.get() => this.awaiting = Awaiting::Head { searched: 0 },
                // The library is done with the message, and its answer.
                Awaiting::Successor => {
                    this.awaiting = Awaiting::Head { searched: 0 };
                    this.shared.keeps_content.set(true);
                    return Poll::Pending;
                }
                // The library asks again when the request is answered, or another one takes over.
                Awaiting::Decision | Awaiting::Room => return Poll::Pending,
                Awaiting::Nothing => return Poll::Ready(Ok(())),
                // Content of a known length goes straight to the library.
                Awaiting::Content { left } if this.buffer.is_empty() && *left >= out.remaining() as u64 => {
                    let before = out.filled().len();
                    ready!(Pin::new(&mut this.io).poll_read(cx, out))?;
                    *left -= (out.filled().len() - before) as u64;
                    if *left == 0 {
                        this.awaiting = Awaiting::Head { searched: 0 };
                        this.shared.is_partial.set(false);
                    }
                    return Poll::Ready(Ok(()));
                }
                // Where the library has room for an upload, what is more than a request would be too much to hold here.
                Awaiting::Head { searched: 0 } if this.buffer.is_empty() && out.remaining() <= READ_BYTES => {
                    let before = out.filled().len();
                    ready!(Pin::new(&mut this.io).poll_read(cx, out))?;
                    let read = &out.filled()[before..];
                    if read.is_empty() {
                        this.awaiting = Awaiting::Nothing;
                        return Poll::Ready(Ok(()));
                    }
                    // Mostly that is a request, or some, and nothing else: they are where they belong already.
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
                    // The library says what an end in the middle of a message means.
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
        if !self.corked.is_empty() || self.may_hold() {
            if let Some(taken) = self.corked.take(pieces) {
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

    /// Whether the answer to another request, which has come already, follows soon.
    fn may_hold(&mut self) -> bool {
        self.check();
        self.shared.may_hold()
    }

    /// Writes the answers that were held back.
    fn poll_uncork(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        ready!(self.corked.poll_write(&mut self.io, cx))?;
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

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Wire<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut TaskContext<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_write_with(cx, &[IoSlice::new(bytes)], |io, cx| io.poll_write(cx, bytes))
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut TaskContext<'_>, bytes: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().poll_write_with(cx, bytes, |io, cx| io.poll_write_vectored(cx, bytes))
    }

    fn is_write_vectored(&self) -> bool {
        self.0.borrow().io.is_write_vectored()
    }

    /// The library flushes when it has written all that it has, in every poll of the connection. So this is where an interim response
    /// is between two others, and where answers go that were held back for another one that is not made yet.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self.0.borrow_mut();
        ready!(this.poll_interim(cx))?;
        if !this.corked.is_empty() {
            if this.may_hold() {
                return Poll::Ready(Ok(()));
            }
            ready!(this.poll_uncork(cx))?;
        }
        Pin::new(&mut this.io).poll_flush(cx)
    }

    /// The library has written all that it has. The connection itself goes on, as a tunnel or until the peer has taken all, so that nothing but
    /// what was held back for more answers is due.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_uncork(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::io::AsyncReadExt;

    use super::*;

    /// What the library is given of a connection's bytes, which come in two pieces, and how many heads.
    fn given(bytes: &[u8], cut: usize, room: usize) -> (Vec<u8>, u32) {
        let (first, second) = bytes.split_at(cut);
        let (mut wire, shared) = Wire::new(AsyncReadExt::chain(first, second), 64 << 10);
        shared.set_room(usize::MAX);
        let mut all = Vec::new();
        loop {
            let mut room = vec![0; room];
            let mut out = ReadBuf::new(&mut room);
            let read = Pin::new(&mut wire).poll_read(&mut TaskContext::from_waker(Waker::noop()), &mut out);
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
        // What looks like requests is content here.
        let post = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n{get}{get}", 2 * get.len());
        let chunked = format!("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{get}\r\n0\r\n\r\n", get.len());
        let sound = [get, get, &post, get, &chunked, get, get].concat();
        // An empty line before a request is passed over.
        let all = ["\r\n", get, get, &post, "\r\n", get, &chunked, get, "\r\n", get, "GET /a HTTP/1.1\nhost: a\n\n", get].concat();
        for room in [1, 100, 8 << 10, 32 << 10] {
            for cut in 0..all.len() {
                let (bytes, heads) = given(all.as_bytes(), cut, room);
                assert_eq!(String::from_utf8_lossy(&bytes), sound.clone() + "\0\r\n\r\n", "cut at {cut}, {room} bytes at once");
                assert_eq!(heads, 7);
            }
        }
    }

    #[test]
    fn what_is_whole_is_given_at_once_and_the_rest_is_kept() {
        let get = "GET /a HTTP/1.1\r\nhost: a\r\n\r\n";
        let bytes = get.repeat(10) + "GET /b HT";
        let (mut wire, shared) = Wire::new(bytes.as_bytes(), 64 << 10);
        shared.set_room(usize::MAX);
        let mut room = vec![0; 8 << 10];
        let mut out = ReadBuf::new(&mut room);
        assert!(Pin::new(&mut wire).poll_read(&mut TaskContext::from_waker(Waker::noop()), &mut out).is_ready());
        assert_eq!((out.filled(), &wire.0.borrow().buffer[..], shared.heads.get()), (get.repeat(10).as_bytes(), &b"GET /b HT"[..], 10));
    }

    #[test]
    fn no_more_is_held_where_the_library_has_room_for_an_upload() {
        let requests = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".repeat(20_000);
        let (mut wire, shared) = Wire::new(&requests[..], 64 << 10);
        shared.set_room(usize::MAX);
        let mut room = vec![0; 400 << 10];
        let mut out = ReadBuf::new(&mut room);
        let read = Pin::new(&mut wire).poll_read(&mut TaskContext::from_waker(Waker::noop()), &mut out);
        assert!(matches!(read, Poll::Ready(Ok(()))));
        let held = out.filled().len() + wire.0.borrow().buffer.len();
        assert!(!out.filled().is_empty() && held <= READ_BYTES, "{held}");
    }
}
