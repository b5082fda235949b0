//! Content that is held until all of it is there.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use pronghorn_engine::BodyError;

use crate::room::{Bound, Room};

/// So many times what one request may have is held of all requests, over all workers.
const AT_ONE_TIME: u64 = 64;

/// What is collected for the requests of a route.
pub(crate) struct Collecting {
    /// Of one request.
    most: u64,
    /// The same on the disk, of one that comes without its length.
    on_disk: u64,
    of_all: Arc<Bound>,
}

/// What was collected for one request, until it is dropped.
pub(crate) struct Collected {
    content: BytesMut,
    room: Room,
}

/// Why no more is collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// That would be more than one request may have.
    Request,
    /// All of them have too much.
    All,
}

impl Collecting {
    /// `most`: bytes of one request; `on_disk`: the same of one that comes without its length.
    pub(crate) fn new(most: u64, on_disk: u64) -> Self {
        Self { most, on_disk, of_all: Arc::new(Bound::new(most.saturating_mul(AT_ONE_TIME))) }
    }

    /// Bytes of one request.
    pub(crate) fn most(&self) -> u64 {
        self.most
    }

    /// Bytes of one request on the disk.
    pub(crate) fn on_disk(&self) -> u64 {
        self.on_disk
    }

    pub(crate) fn begin(&self) -> Collected {
        Collected { content: BytesMut::new(), room: self.of_all.begin() }
    }

    /// Adds to what was collected, if there is room.
    pub(crate) fn add(&self, collected: &mut Collected, piece: &[u8]) -> Result<(), Full> {
        let (length, before) = (piece.len() as u64, collected.content.len() as u64);
        if before + length > self.most {
            return Err(Full::Request);
        }
        if !collected.room.grow(length) {
            return Err(Full::All);
        }
        collected.content.extend_from_slice(piece);
        Ok(())
    }
}

impl Collected {
    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Collected {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
}

/// Content of which only the beginning was collected.
pub(crate) struct Begun<B> {
    /// The last one first.
    pieces: Vec<Bytes>,
    rest: B,
}

impl<B> Begun<B> {
    /// `piece`: what there was no room for.
    pub(crate) fn new(collected: Collected, piece: Bytes, rest: B) -> Self {
        Self { pieces: vec![piece, collected.into_bytes()], rest }
    }
}

impl<B> http_body::Body for Begun<B>
where
    B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        while let Some(piece) = self.pieces.pop() {
            if !piece.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
        }
        Pin::new(&mut self.rest).poll_frame(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use pronghorn_engine::Body;

    use super::*;

    #[test]
    fn what_was_begun_comes_whole_and_in_order() {
        let collecting = Collecting::new(10, 0);
        let mut collected = collecting.begin();
        assert_eq!(collecting.add(&mut collected, b"one "), Ok(()));
        let mut begun = Begun::new(collected, Bytes::from_static(b"two "), Body::from(Bytes::from_static(b"three")));
        let mut whole = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(frame)) = http_body::Body::poll_frame(Pin::new(&mut begun), &mut cx) {
            whole.extend_from_slice(&frame.expect("it does not break off").into_data().expect("data"));
        }
        assert_eq!(whole, b"one two three");
        assert_eq!(collecting.of_all.held(), 0, "what was sent leaves room");
    }

    #[test]
    fn request_has_a_bound_and_all_together_have_one() {
        let collecting = Collecting::new(10, 0);
        let mut one = collecting.begin();
        assert_eq!(collecting.add(&mut one, &[1; 10]), Ok(()));
        assert_eq!(collecting.add(&mut one, &[1]), Err(Full::Request));
        let full = || {
            let mut full = collecting.begin();
            collecting.add(&mut full, &[2; 10]).map(|()| full)
        };
        let others: Vec<_> = (1..AT_ONE_TIME).filter_map(|_| full().ok()).collect();
        assert_eq!((others.len() as u64, full().err()), (AT_ONE_TIME - 1, Some(Full::All)));
        let bytes = one.into_bytes();
        assert_eq!((&bytes[..], full().err()), (&[1; 10][..], Some(Full::All)));
        let part = bytes.slice(9..);
        drop(bytes);
        assert_eq!(full().err(), Some(Full::All), "a part of it is held");
        drop(part);
        assert!(full().is_ok() && full().is_ok(), "what is dropped leaves room");
        drop(others);
        assert_eq!(collecting.of_all.held(), 0);
    }
}
