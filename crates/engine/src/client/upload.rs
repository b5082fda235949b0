//! Request bodies that are still being sent when the response is complete.
//!
//! RFC 9113, section 8.1, and RFC 9114, section 4.1, let a server respond before it has the whole
//! request, and ask it to tell the client to stop. A server that neither does so nor reads on would
//! occupy the request's slot forever, and so would a producer that has no more data: from then on,
//! the body has to make progress.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::{Frame, SizeHint};

use super::slots::{Response, UploadSlot};
use crate::http2::{BufferedBytes, SendBuffer, pump};
use crate::limits::Limits;
use crate::progress::WriteProgress;
use crate::runtime::{Handle, Sleep};
use crate::schedule::SHARED;
use crate::{Body, BodyError};

/// Larger pieces are handed over in parts, so that their progress is known.
const PIECE_BYTES: usize = 64 << 10;

/// Sends a body on an HTTP/2 stream until the response is dropped. `upload_slot`: the request's
/// slot.
pub(super) fn send(
    mut stream: SendStream<BufferedBytes>,
    body: Body,
    send_buffer: Rc<SendBuffer>,
    upload_slot: Option<UploadSlot>,
    handle: &Handle,
    limits: &Limits,
) -> impl Future<Output = ()> + use<> {
    // A tunnel may be silent in one direction for as long as it likes.
    let (body, mut stall_timer) = if body.is_tunnel() {
        (body, None)
    } else {
        let (upload, stall_timer) = Upload::new(body, handle, limits);
        (Body::stream(upload), Some(stall_timer))
    };
    async move {
        let sent = {
            let slot = send_buffer.slot(stream.stream_id().as_u32(), SHARED, None, true);
            let mut sent = pin!(pump(&mut stream, body, &slot, None));
            poll_fn(|cx| match (sent.as_mut().poll(cx), &upload_slot) {
                (Poll::Pending, Some(upload_slot)) => {
                    match (upload_slot.response(cx), &mut stall_timer) {
                        // The stream is open as long as it is sent on, but the client has dropped
                        // the response.
                        (Response::Dropped, _) => Poll::Ready(Err(Reason::CANCEL)),
                        (Response::Complete, Some(stall_timer)) => {
                            stall_timer.poll(cx).map(|()| Err(Reason::CANCEL))
                        }
                        (Response::Complete | Response::Wanted, _) => Poll::Pending,
                    }
                }
                (sent, _) => sent,
            })
            .await
        };
        if let Err(reason) = sent {
            stream.send_reset(reason);
        }
    }
}

/// A body that counts how much of it was taken.
struct Upload {
    body: Body,
    /// The remaining part of a large piece.
    rest: Bytes,
    /// Size of the part handed over last. It was sent when more is requested.
    last: u64,
    sent: Rc<Cell<u64>>,
}

/// Limits how long an upload may make no progress after its response is complete.
struct StallTimer {
    handle: Handle,
    progress: WriteProgress,
    sent: Rc<Cell<u64>>,
    /// Bytes sent when this was last checked; `None` until the response is complete.
    seen: Option<u64>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Upload {
    fn new(body: Body, handle: &Handle, limits: &Limits) -> (Self, StallTimer) {
        let sent = Rc::<Cell<u64>>::default();
        let stall_timer = StallTimer {
            handle: handle.clone(),
            progress: WriteProgress::new(limits),
            sent: sent.clone(),
            seen: None,
            sleep: None,
        };
        (Self { body, rest: Bytes::new(), last: 0, sent }, stall_timer)
    }

    fn hand_over(&mut self) -> Frame<Bytes> {
        let data = self.rest.split_to(self.rest.len().min(PIECE_BYTES));
        self.last = data.len() as u64;
        Frame::data(data)
    }
}

impl http_body::Body for Upload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        this.sent.set(this.sent.get() + std::mem::take(&mut this.last));
        if !this.rest.is_empty() {
            return Poll::Ready(Some(Ok(this.hand_over())));
        }
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        Poll::Ready(frame.map(|frame| {
            frame.map(|frame| match frame.into_data() {
                Ok(data) => {
                    this.rest = data;
                    this.hand_over()
                }
                Err(frame) => frame,
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.body.size_hint().exact() {
            Some(left) => SizeHint::with_exact(left + self.rest.len() as u64),
            None => SizeHint::default(),
        }
    }
}

impl StallTimer {
    /// Called once the response is complete. Ready when the upload has made no progress since.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (now, sent) = (self.handle.now(), self.sent.get());
        let before = self.seen.replace(sent).unwrap_or(sent);
        self.progress.on_moved(usize::try_from(sent - before).unwrap_or(usize::MAX));
        // The period goes on from its beginning unless enough bytes have moved.
        self.progress.on_blocked(now);
        let deadline = self.progress.deadline().expect("invariant: on_blocked has set it");
        let sleep =
            self.sleep.get_or_insert_with(|| Box::pin(self.handle.timers().sleep_until(deadline)));
        sleep.as_mut().get_mut().reset(deadline);
        sleep.as_mut().poll(cx)
    }
}
