//! Memory of finished requests, kept for later ones.

use std::cell::{RefCell, RefMut};
use std::collections::VecDeque;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode};
use pronghorn_h3::StreamId;

use super::stream::{Stream, WorkQueue};
use crate::transport::ConnectionKey;
use crate::{Body, Response};

/// Number of pieces of each kind that a worker keeps: as many as the requests in a turn when ten
/// connections have a hundred streams each. Together they take at most some 4 MB.
const MAX_SPARES: usize = 1 << 10;
/// Larger queues and maps are not kept.
const MAX_PIECES: usize = 8;
const MAX_LINES: usize = 24;
/// Enough for the text of some tens of requests.
const TEXT_BYTES: usize = 4 << 10;

/// Memory for the HTTP/3 requests of a worker. It spares the allocator except when there are more
/// requests than before: the allocator's caches for each size hold less than a connection has
/// requests, and its slower paths cost more.
#[derive(Default)]
pub(crate) struct MemoryPool {
    streams: Pool<Rc<Stream>>,
    wires: Pool<VecDeque<Bytes>>,
    responses: Pool<Box<Response>>,
    maps: Pool<HeaderMap>,
    texts: RefCell<BytesMut>,
}

impl MemoryPool {
    /// Returns memory for the text of field lines, a piece for each section. A piece keeps all of
    /// the [`TEXT_BYTES`] alive that it is part of.
    pub(super) fn text(&self) -> RefMut<'_, BytesMut> {
        let mut text = self.texts.borrow_mut();
        if text.capacity() == 0 {
            // Allocated at this size, so that later pieces come from it too: `BytesMut` grows again
            // by its initial capacity.
            *text = BytesMut::with_capacity(TEXT_BYTES);
        }
        text
    }

    /// Creates a stream as [`Stream::new`] does, in the memory of an earlier one if there is any.
    pub(super) fn stream(
        &self,
        connection: ConnectionKey,
        id: StreamId,
        method: Method,
        work_queue: &Rc<WorkQueue>,
    ) -> Rc<Stream> {
        match self.streams.take() {
            Some(mut spare) => {
                Rc::get_mut(&mut spare)
                    .expect("invariant: a spare has no other owner")
                    .renew(connection, id, method, work_queue);
                spare
            }
            None => Rc::new(Stream::new(connection, Some(id), method, work_queue.clone())),
        }
    }

    /// Keeps a stream's memory, unless a handle to it still exists.
    pub(super) fn keep_stream(&self, mut stream: Rc<Stream>) {
        if let Some(owned) = Rc::get_mut(&mut stream) {
            owned.clear();
            self.streams.keep(stream);
        }
    }

    pub(super) fn wire(&self) -> VecDeque<Bytes> {
        self.wires.take().unwrap_or_default()
    }

    pub(super) fn keep_wire(&self, mut wire: VecDeque<Bytes>) {
        if (1..=MAX_PIECES).contains(&wire.capacity()) {
            wire.clear();
            self.wires.keep(wire);
        }
    }

    /// Moves a response into a box that stays in place on its way to the driver; `response` is left
    /// empty.
    pub(crate) fn boxed_response(&self, response: &mut Response) -> Box<Response> {
        let mut boxed =
            self.responses.take().unwrap_or_else(|| Box::new(Response::new(StatusCode::OK)));
        std::mem::swap(&mut *boxed, response);
        boxed
    }

    /// Keeps the memory of a sent response.
    pub(super) fn keep_response(&self, mut response: Box<Response>) {
        self.keep_map(std::mem::take(&mut response.headers));
        response.body = Body::empty();
        response.shared = None;
        self.responses.keep(response);
    }

    pub(super) fn map(&self) -> HeaderMap {
        self.maps.take().unwrap_or_default()
    }

    pub(super) fn keep_map(&self, mut map: HeaderMap) {
        // A map's capacity covers distinct names only; further values of a repeated name are stored
        // elsewhere. Maps that have such values are not kept.
        if (1..=MAX_LINES).contains(&map.capacity()) && map.len() == map.keys_len() {
            map.clear();
            self.maps.keep(map);
        }
    }
}

struct Pool<T>(RefCell<Vec<T>>);

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<T> Pool<T> {
    fn take(&self) -> Option<T> {
        self.0.borrow_mut().pop()
    }

    fn keep(&self, piece: T) {
        let mut pieces = self.0.borrow_mut();
        if pieces.len() < MAX_SPARES {
            pieces.push(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use http::header::{COOKIE, VIA};
    use http::{HeaderName, HeaderValue};

    use super::*;

    const VALUE: HeaderValue = HeaderValue::from_static("value");

    #[test]
    fn pooled_memory_is_empty_and_bounded() {
        let pool = MemoryPool::default();
        for _ in 0..2 * MAX_SPARES {
            pool.keep_map(HeaderMap::from_iter([(VIA, VALUE)]));
            pool.keep_wire(VecDeque::from([Bytes::from_static(b"frame")]));
        }
        assert_eq!(
            (pool.maps.0.borrow().len(), pool.wires.0.borrow().len()),
            (MAX_SPARES, MAX_SPARES)
        );
        assert!(pool.map().is_empty() && pool.wire().is_empty());
        assert!(
            pool.maps.0.borrow().iter().all(HeaderMap::is_empty)
                && pool.wires.0.borrow().iter().all(VecDeque::is_empty)
        );
    }

    #[test]
    fn grown_memory_is_not_pooled() {
        let pool = MemoryPool::default();
        let name = |number: usize| HeaderName::try_from(format!("name-{number}")).unwrap();
        pool.keep_map((0..=MAX_LINES).map(|number| (name(number), VALUE)).collect());
        let mut repeated = HeaderMap::new();
        repeated.extend([(COOKIE, VALUE), (COOKIE, VALUE)]);
        pool.keep_map(repeated);
        pool.keep_map(HeaderMap::new());
        pool.keep_wire(VecDeque::with_capacity(MAX_PIECES + 1));
        pool.keep_wire(VecDeque::new());
        assert!(pool.maps.0.borrow().is_empty() && pool.wires.0.borrow().is_empty());
    }
}
