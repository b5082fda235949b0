//! Memory of requests that are over, for those to come.

use std::cell::{RefCell, RefMut};
use std::collections::VecDeque;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode};
use pronghorn_h3::StreamId;

use super::stream::{Dirty, Stream};
use crate::transport::ConnectionKey;
use crate::{Body, Response};

/// How many pieces of each kind a worker keeps: as many as there are requests in a turn when ten connections have a hundred streams. All of
/// them together are some 4 MB at the most.
const MAX_SPARES: usize = 1 << 10;
/// Queues and maps that have grown beyond this are not kept.
const MAX_PIECES: usize = 8;
const MAX_LINES: usize = 24;
/// Enough for the text of some tens of requests.
const TEXT_BYTES: usize = 4 << 10;

/// What the requests of a worker over HTTP/3 are made of. With it, the allocator is asked only while there are more of them than before:
/// what it has at hand for each size is less than a connection has requests, and what lies deeper costs it more.
#[derive(Default)]
pub(crate) struct Spares {
    streams: Pool<Rc<Stream>>,
    wires: Pool<VecDeque<Bytes>>,
    responses: Pool<Box<Response>>,
    maps: Pool<HeaderMap>,
    texts: RefCell<BytesMut>,
}

impl Spares {
    /// Memory for the text of field lines, a piece for each section. A piece that somebody holds keeps all of the [`TEXT_BYTES`] that it is
    /// cut from.
    pub(super) fn text(&self) -> RefMut<'_, BytesMut> {
        let mut text = self.texts.borrow_mut();
        if text.capacity() == 0 {
            // Made at this size, so that it is what the next pieces are cut from, too: it grows again by what it began with.
            *text = BytesMut::with_capacity(TEXT_BYTES);
        }
        text
    }

    /// [`Stream::new`], in the memory of an earlier one if there is any.
    pub(super) fn stream(&self, connection: ConnectionKey, id: StreamId, method: Method, dirty: &Rc<Dirty>) -> Rc<Stream> {
        match self.streams.take() {
            Some(mut spare) => {
                Rc::get_mut(&mut spare).expect("invariant: a spare has no other owner").renew(connection, id, method, dirty);
                spare
            }
            None => Rc::new(Stream::new(connection, Some(id), method, dirty.clone())),
        }
    }

    /// Keeps a stream's memory, unless somebody still has a handle of it.
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

    /// Moves a response to a place where it stays on its way to the driver; what is left is empty.
    pub(crate) fn place(&self, response: &mut Response) -> Box<Response> {
        let mut place = self.responses.take().unwrap_or_else(|| Box::new(Response::new(StatusCode::OK)));
        std::mem::swap(&mut *place, response);
        place
    }

    /// Keeps the memory of a response that has been sent.
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
        // A request's map has room for all its lines, though those of a name that occurs again lie elsewhere: there is no more of these.
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
    fn kept_memory_is_empty_and_has_limits() {
        let spares = Spares::default();
        for _ in 0..2 * MAX_SPARES {
            spares.keep_map(HeaderMap::from_iter([(VIA, VALUE)]));
            spares.keep_wire(VecDeque::from([Bytes::from_static(b"frame")]));
        }
        assert_eq!((spares.maps.0.borrow().len(), spares.wires.0.borrow().len()), (MAX_SPARES, MAX_SPARES));
        assert!(spares.map().is_empty() && spares.wire().is_empty());
        assert!(spares.maps.0.borrow().iter().all(HeaderMap::is_empty) && spares.wires.0.borrow().iter().all(VecDeque::is_empty));
    }

    #[test]
    fn what_has_grown_is_not_kept() {
        let spares = Spares::default();
        let name = |number: usize| HeaderName::try_from(format!("name-{number}")).unwrap();
        spares.keep_map((0..=MAX_LINES).map(|number| (name(number), VALUE)).collect());
        let mut repeated = HeaderMap::new();
        repeated.extend([(COOKIE, VALUE), (COOKIE, VALUE)]);
        spares.keep_map(repeated);
        spares.keep_map(HeaderMap::new());
        spares.keep_wire(VecDeque::with_capacity(MAX_PIECES + 1));
        spares.keep_wire(VecDeque::new());
        assert!(spares.maps.0.borrow().is_empty() && spares.wires.0.borrow().is_empty());
    }
}
