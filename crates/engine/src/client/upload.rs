//! Content of a request that is still sent when its response is complete.
//!
//! RFC 9113, section 8.1, and RFC 9114, section 4.1, let a server answer before it has the whole request, and ask it to say then that it
//! wants no more. One that neither says so nor reads on would keep the request's place for ever, and so would a producer that has nothing
//! more to say: from there on, content has to move.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::{Frame, SizeHint};

use super::slots::{Response, UploadSlot};
use crate::http2::{Held, Outbox, pump};
use crate::limits::Limits;
use crate::progress::Progress;
use crate::runtime::{Handle, Sleep};
use crate::schedule::SHARED;
use crate::{Body, BodyError};

/// Larger pieces are handed over in parts, so that it is known how far they are.
const PIECE_BYTES: usize = 64 << 10;

/// Sends content on a stream of HTTP/2 as long as somebody wants the response. `place`: of the request.
pub(super) fn send(
    mut stream: SendStream<Held>,
    body: Body,
    outbox: Rc<Outbox>,
    place: Option<UploadSlot>,
    handle: &Handle,
    limits: &Limits,
) -> impl Future<Output = ()> + use<> {
    // Another protocol may be silent in one direction as long as it likes.
    let (body, mut patience) = if body.is_tunnel() {
        (body, None)
    } else {
        let (upload, patience) = Upload::new(body, handle, limits);
        (Body::stream(upload), Some(patience))
    };
    async move {
        let sent = {
            let place_in_outbox = outbox.place(stream.stream_id().as_u32(), SHARED, None, true);
            let mut sent = pin!(pump(&mut stream, body, &place_in_outbox, None));
            poll_fn(|cx| match (sent.as_mut().poll(cx), &place) {
                (Poll::Pending, Some(place)) => match (place.response(cx), &mut patience) {
                    // The stream lasts as long as it is sent on, and whoever asked has gone.
                    (Response::Dropped, _) => Poll::Ready(Err(Reason::CANCEL)),
                    (Response::Complete, Some(patience)) => patience.poll(cx).map(|()| Err(Reason::CANCEL)),
                    (Response::Complete | Response::Wanted, _) => Poll::Pending,
                },
                (sent, _) => sent,
            })
            .await
        };
        if let Err(reason) = sent {
            stream.send_reset(reason);
        }
    }
}

/// Content that counts what was taken of it.
struct Upload {
    body: Body,
    /// What was not handed over of a large piece.
    rest: Bytes,
    /// Bytes handed over last. They are sent when more is asked for.
    last: u64,
    sent: Rc<Cell<u64>>,
}

/// For how long content may not move when its response is complete.
struct Patience {
    handle: Handle,
    progress: Progress,
    sent: Rc<Cell<u64>>,
    /// How many bytes were sent when it was looked at last; there once the response is complete.
    seen: Option<u64>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Upload {
    fn new(body: Body, handle: &Handle, limits: &Limits) -> (Self, Patience) {
        let sent = Rc::<Cell<u64>>::default();
        let patience = Patience { handle: handle.clone(), progress: Progress::new(limits), sent: sent.clone(), seen: None, sleep: None };
        (Self { body, rest: Bytes::new(), last: 0, sent }, patience)
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

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
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

impl Patience {
    /// Called when the response is complete; ready when content has not moved as it should since.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (now, sent) = (self.handle.now(), self.sent.get());
        let before = self.seen.replace(sent).unwrap_or(sent);
        self.progress.on_moved(usize::try_from(sent - before).unwrap_or(usize::MAX));
        // Unless enough has moved it goes on from where it began.
        self.progress.on_blocked(now);
        let deadline = self.progress.deadline().expect("invariant: it was set just now");
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(self.handle.timers().sleep_until(deadline)));
        sleep.as_mut().get_mut().reset(deadline);
        sleep.as_mut().poll(cx)
    }
}
