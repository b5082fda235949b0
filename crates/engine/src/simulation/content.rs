//! Content whose every byte is determined by its offset, produced and read at a given pace.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;

use super::plan::{Reading, Stream};
use crate::runtime::{Handle, Sleep};
use crate::{Body, Incoming};

/// Returns bytes of message `tag`.
fn bytes(tag: u64, from: u64, length: u64) -> Bytes {
    (from..from + length)
        .map(|at| (at ^ (at >> 8).wrapping_mul(29) ^ tag.wrapping_mul(101)) as u8)
        .collect()
}

pub(crate) fn trailers(tag: u64) -> HeaderMap {
    HeaderMap::from_iter([(http::HeaderName::from_static("x-end"), HeaderValue::from(tag))])
}

/// Counts the bytes between producer and reader, to detect missing back-pressure.
#[derive(Clone, Default)]
pub(crate) struct Gauge(Rc<Cell<Levels>>);

#[derive(Clone, Copy, Default)]
struct Levels {
    now: u64,
    most: u64,
    /// The reader has dropped the content. Data that still arrives is discarded until the response
    /// is over, so it is not buffered.
    left: bool,
}

impl Gauge {
    fn produced(&self, count: u64) {
        let mut levels = self.0.get();
        levels.now += count;
        if !levels.left {
            levels.most = levels.most.max(levels.now);
        }
        self.0.set(levels);
    }

    fn read(&self, count: u64) {
        let levels = self.0.get();
        self.0.set(Levels { now: levels.now.saturating_sub(count), ..levels });
    }

    /// Marks the content as dropped by the reader.
    pub(crate) fn leave(&self) {
        self.0.set(Levels { left: true, ..self.0.get() });
    }

    pub(crate) fn most(&self) -> u64 {
        self.0.get().most
    }
}

/// Returns the body of message `tag` according to `stream`.
pub(crate) fn body(handle: &Handle, tag: u64, stream: &Stream, gauge: &Gauge) -> Body {
    if stream.whole {
        return Body::from(bytes(tag, 0, stream.size));
    }
    Body::stream(Producer {
        handle: handle.clone(),
        tag,
        stream: stream.clone(),
        sent: 0,
        pause: None,
        is_over: false,
        gauge: gauge.clone(),
    })
}

struct Producer {
    handle: Handle,
    tag: u64,
    stream: Stream,
    sent: u64,
    pause: Option<Pin<Box<Sleep>>>,
    is_over: bool,
    gauge: Gauge,
}

impl http_body::Body for Producer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        if let Some(pause) = &mut this.pause {
            ready!(pause.as_mut().poll(cx));
            this.pause = None;
        }
        let end = this.stream.fails_at.unwrap_or(this.stream.size);
        if this.sent < end {
            let length = this.stream.chunk.min(end - this.sent);
            let data = bytes(this.tag, this.sent, length);
            this.sent += length;
            this.gauge.produced(length);
            if !this.stream.pause.is_zero() {
                this.pause = Some(Box::pin(this.handle.sleep(this.stream.pause)));
            }
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if this.stream.fails_at.is_some() {
            return Poll::Ready(Some(Err(io::Error::other("planned failure of the producer"))));
        }
        if this.stream.trailers && !std::mem::replace(&mut this.is_over, true) {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers(this.tag)))));
        }
        Poll::Ready(None)
    }

    fn size_hint(&self) -> SizeHint {
        // Every other body has a known size.
        if self.tag & 4 == 0 { SizeHint::with_exact(self.stream.size) } else { SizeHint::default() }
    }
}

/// Outcome of reading a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Complete and correct, with this many bytes.
    Whole(u64),
    /// Abandoned, as planned.
    Left,
    Failed(String),
}

/// Reads a message, and checks each byte if `tag` gives its expected content.
///
/// # Panics
///
/// When the content or the trailers are not those that were sent.
pub(crate) async fn read(
    handle: Handle,
    mut incoming: Incoming,
    tag: u64,
    has_trailers: bool,
    reading: Reading,
    gauge: Gauge,
) -> Received {
    if !reading.waits.is_zero() {
        handle.sleep(reading.waits).await;
    }
    let mut count = 0;
    let mut rested_at = 0;
    let mut trailers_seen = false;
    loop {
        if reading.leaves_at.is_some_and(|enough| count >= enough) {
            gauge.leave();
            return Received::Left;
        }
        match incoming.frame().await {
            None => {
                assert_eq!(trailers_seen, has_trailers, "message {tag}: trailers");
                assert!(incoming.is_end_stream());
                return Received::Whole(count);
            }
            Some(Err(error)) => return Received::Failed(error.to_string()),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    assert!(
                        !data.is_empty() && !trailers_seen,
                        "message {tag}: unexpected content"
                    );
                    assert_eq!(
                        data,
                        bytes(tag, count, data.len() as u64),
                        "message {tag}: wrong content at {count}"
                    );
                    count += data.len() as u64;
                    gauge.read(data.len() as u64);
                }
                Err(frame) => {
                    assert_eq!(frame.into_trailers().ok(), Some(trailers(tag)), "message {tag}");
                    trailers_seen = true;
                }
            },
        }
        if count - rested_at >= reading.rest_every && !reading.rest.is_zero() {
            rested_at = count;
            handle.sleep(reading.rest).await;
        }
    }
}
