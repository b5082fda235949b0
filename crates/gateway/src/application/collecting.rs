//! Collecting of whole request bodies in memory.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use pronghorn_engine::BodyError;

use crate::memory_limit::{Reservation, SharedLimit};

/// Limit of all requests, over all workers, as a multiple of one request's limit.
const AT_ONE_TIME: u64 = 64;

/// Limits for the requests of a route.
pub(crate) struct BodyCollector {
    /// Maximum bytes of one request in memory.
    most: u64,
    /// Maximum bytes of one request on disk, if it has no content-length.
    on_disk: u64,
    of_all: Arc<SharedLimit>,
}

/// The collected body of one request; its bytes count until it is dropped.
pub(crate) struct CollectedBody {
    content: BytesMut,
    reservation: Reservation,
}

/// The limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitReached {
    /// The limit of one request.
    Request,
    /// The limit of all requests.
    All,
}

impl BodyCollector {
    /// `most` is bytes of one request in memory, `on_disk` bytes of one without a content-length on
    /// disk.
    pub(crate) fn new(most: u64, on_disk: u64) -> Self {
        Self { most, on_disk, of_all: Arc::new(SharedLimit::new(most.saturating_mul(AT_ONE_TIME))) }
    }

    /// Returns the maximum bytes of one request in memory.
    pub(crate) fn most(&self) -> u64 {
        self.most
    }

    /// Returns the maximum bytes of one request on disk.
    pub(crate) fn on_disk(&self) -> u64 {
        self.on_disk
    }

    pub(crate) fn begin(&self) -> CollectedBody {
        CollectedBody { content: BytesMut::new(), reservation: self.of_all.begin() }
    }

    /// Adds a piece, if the limits allow it.
    pub(crate) fn add(
        &self,
        collected: &mut CollectedBody,
        piece: &[u8],
    ) -> Result<(), LimitReached> {
        let (length, before) = (piece.len() as u64, collected.content.len() as u64);
        if before + length > self.most {
            return Err(LimitReached::Request);
        }
        if !collected.reservation.grow(length) {
            return Err(LimitReached::All);
        }
        collected.content.extend_from_slice(piece);
        Ok(())
    }
}

impl CollectedBody {
    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for CollectedBody {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
}

/// A body of which only the beginning was collected.
pub(crate) struct PartlyCollectedBody<B> {
    /// Collected pieces, in reverse order.
    pieces: Vec<Bytes>,
    rest: B,
}

impl<B> PartlyCollectedBody<B> {
    /// `piece` is the piece that exceeded the limit.
    pub(crate) fn new(collected: CollectedBody, piece: Bytes, rest: B) -> Self {
        Self { pieces: vec![piece, collected.into_bytes()], rest }
    }
}

impl<B> http_body::Body for PartlyCollectedBody<B>
where
    B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
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
        let collector = BodyCollector::new(10, 0);
        let mut collected = collector.begin();
        assert_eq!(collector.add(&mut collected, b"one "), Ok(()));
        let mut begun = PartlyCollectedBody::new(
            collected,
            Bytes::from_static(b"two "),
            Body::from(Bytes::from_static(b"three")),
        );
        let mut whole = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(frame)) =
            http_body::Body::poll_frame(Pin::new(&mut begun), &mut cx)
        {
            whole.extend_from_slice(
                &frame.expect("it does not break off").into_data().expect("data"),
            );
        }
        assert_eq!(whole, b"one two three");
        assert_eq!(collector.of_all.held(), 0, "the reservation is released");
    }

    #[test]
    fn request_has_a_bound_and_all_together_have_one() {
        let collector = BodyCollector::new(10, 0);
        let mut one = collector.begin();
        assert_eq!(collector.add(&mut one, &[1; 10]), Ok(()));
        assert_eq!(collector.add(&mut one, &[1]), Err(LimitReached::Request));
        let full = || {
            let mut full = collector.begin();
            collector.add(&mut full, &[2; 10]).map(|()| full)
        };
        let others: Vec<_> = (1..AT_ONE_TIME).filter_map(|_| full().ok()).collect();
        assert_eq!((others.len() as u64, full().err()), (AT_ONE_TIME - 1, Some(LimitReached::All)));
        let bytes = one.into_bytes();
        assert_eq!((&bytes[..], full().err()), (&[1; 10][..], Some(LimitReached::All)));
        let part = bytes.slice(9..);
        drop(bytes);
        assert_eq!(full().err(), Some(LimitReached::All), "the first part is reserved");
        drop(part);
        assert!(full().is_ok() && full().is_ok(), "dropping releases the reservation");
        drop(others);
        assert_eq!(collector.of_all.held(), 0);
    }
}
