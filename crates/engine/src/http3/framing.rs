//! Encodes what the application sends as HTTP/3 frames.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, Method};
use http_body::Body as _;
use pronghorn_h3::{self as h3, ErrorCode, FieldLine, OutgoingLine, SendError, StreamId};

use super::fields;
use super::outbound::{Outbound, RequestHead};
use super::stream::Stream;
use super::worker_state::WorkerState;
use crate::connection_fields::remove_connection_fields_of_response;
use crate::context::Context;
use crate::qlog::{Direction, Trace};
use crate::schedule::priority_field;
use crate::{Body, Response};

/// Content below this size is copied behind its head: a separate piece costs more, in the transport
/// and until it is acknowledged.
const COPIED_BELOW: usize = 512;
/// Content that is polled before its body becomes a task. A single larger frame is buffered until
/// the client accepts it.
const EAGER_BYTES: usize = 4 << 10;

/// Encodes frames for one stream of a connection.
pub(super) struct Framer<'a> {
    pub(super) id: StreamId,
    pub(super) h3: &'a mut h3::Connection,
    /// Memory for field sections, frame headers and small content, split off piece by piece.
    pub(super) encoded: &'a mut BytesMut,
    pub(super) alt_svc: Option<&'a HeaderValue>,
    pub(super) context: &'a Rc<Context>,
    pub(super) state: &'a WorkerState,
    pub(super) trace: Option<&'a Trace>,
}

/// What follows the frames.
pub(super) enum Framed {
    More,
    /// The frames begin a response with this `priority` field. Nothing follows if `last`, otherwise
    /// more.
    Response {
        priority: Option<Bytes>,
        last: bool,
    },
    /// Nothing: the stream ends after the frames.
    Last,
    /// A reset instead of the frames.
    Abort(ErrorCode),
    /// Nothing: the request cannot be sent.
    Unsendable(SendError),
}

impl Framer<'_> {
    /// Appends the frames of one item to `wire`. Content is not copied, except for small pieces.
    pub(super) fn frame(
        &mut self,
        stream: &Rc<Stream>,
        outbound: Outbound,
        wire: &mut VecDeque<Bytes>,
    ) -> Framed {
        let framed = match outbound {
            Outbound::Request(head) => {
                Ok(self.request(&head).map_or_else(Framed::Unsendable, |()| Framed::More))
            }
            Outbound::Interim(interim) => {
                let (status, headers) = &*interim;
                let line = FieldLine::new(b":status", status.as_str().as_bytes());
                self.h3
                    .encode_headers(
                        self.id,
                        std::iter::once(line).chain(fields::lines(headers)),
                        self.encoded,
                    )
                    .map(|()| Framed::More)
            }
            Outbound::Response(response) => self.response(stream, response, wire),
            Outbound::Data(data) => {
                self.data(data, wire);
                Ok(Framed::More)
            }
            Outbound::Trailers(trailers) => self.trailers(*trailers).map(|()| Framed::More),
            Outbound::End => Ok(Framed::Last),
            Outbound::Abort(code) => Ok(Framed::Abort(code)),
        };
        self.give(wire);
        // The item cannot be expressed in HTTP/3, or exceeds a limit of the peer.
        framed.unwrap_or(Framed::Abort(ErrorCode::H3_INTERNAL_ERROR))
    }

    fn request(&mut self, head: &RequestHead) -> Result<(), SendError> {
        let RequestHead { method, uri, headers, upgrade } = head;
        let method = if upgrade.is_some() { &Method::CONNECT } else { method };
        let scheme = uri.scheme_str().unwrap_or("https");
        let authority = uri.authority().map_or("", Authority::as_str);
        let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        let pseudo = [
            (":method", method.as_str()),
            (":scheme", scheme),
            (":authority", authority),
            (":path", path),
        ];
        let lines = pseudo
            .into_iter()
            .map(|(name, value)| FieldLine::new(name.as_bytes(), value.as_bytes()));
        let protocol = upgrade
            .iter()
            .map(|upgrade| FieldLine::new(b":protocol", upgrade.protocol().as_bytes()));
        self.headers(lines.chain(protocol).chain(fields::lines(headers)).map(OutgoingLine::from))
    }

    fn response(
        &mut self,
        stream: &Rc<Stream>,
        mut response: Box<Response>,
        wire: &mut VecDeque<Bytes>,
    ) -> Result<Framed, SendError> {
        let added = self.context.complete(&stream.method, self.alt_svc, &mut response);
        let status = FieldLine::new(b":status", response.status.as_str().as_bytes());
        let mut digits = itoa::Buffer::new();
        let length = added
            .content_length
            .map(|length| FieldLine::new(b"content-length", digits.format(length).as_bytes()));
        let alt_svc = added.alt_svc.map(|value| FieldLine::new(b"alt-svc", value.as_bytes()));
        let date = added.date.as_ref().map(|value| FieldLine::new(b"date", value.as_bytes()));
        let server = added.server.map(|value| FieldLine::new(b"server", value.as_bytes()));
        let own = [server, alt_svc, date, length].into_iter().flatten();
        // A response has either own or shared fields.
        let given = fields::lines(&response.headers);
        let shared = response.shared.iter().flat_map(|shared| shared.outgoing());
        let lines = std::iter::once(status).chain(given).map(OutgoingLine::from).chain(shared);
        self.headers(lines.chain(own.map(OutgoingLine::checked)))?;
        let said = response.shared.as_ref().map_or(&response.headers, |shared| shared.lines());
        let priority = if added.has_priority { priority_field(said) } else { None };
        let begun = if added.has_content {
            self.body(stream, &mut response.body, wire)?
        } else {
            Some(true)
        };
        self.state.memory.keep_response(response);
        Ok(begun.map_or(Framed::Abort(ErrorCode::H3_INTERNAL_ERROR), |last| Framed::Response {
            priority,
            last,
        }))
    }

    fn headers<'l>(
        &mut self,
        lines: impl Iterator<Item = OutgoingLine<'l>>,
    ) -> Result<(), SendError> {
        let Some(trace) = self.trace else {
            return self.h3.encode_headers(self.id, lines, self.encoded);
        };
        let lines: Vec<_> = lines.collect();
        trace.headers(
            self.context.handle.now(),
            Direction::Sent,
            self.id,
            lines.iter().map(|outgoing| outgoing.line),
        );
        self.h3.encode_headers(self.id, lines, self.encoded)
    }

    /// Sends the body, at least its beginning. Returns whether that was all of it, or `None` if the
    /// body failed.
    fn body(
        &mut self,
        stream: &Rc<Stream>,
        body: &mut Body,
        wire: &mut VecDeque<Bytes>,
    ) -> Result<Option<bool>, SendError> {
        if let Some(data) = body.take_full() {
            self.data(data, wire);
            return Ok(Some(true));
        }
        let mut taken = 0;
        // Most bodies have all their data at once, and a task for that costs more than the rest of
        // the response.
        while !body.is_tunnel() && taken < EAGER_BYTES && self.context.handle.take_eager_poll() {
            // No waker is needed: a pending body is polled again by the task.
            let poll =
                || Pin::new(&mut *body).poll_frame(&mut TaskContext::from_waker(Waker::noop()));
            match catch_unwind(AssertUnwindSafe(poll)) {
                Ok(Poll::Pending) => break,
                Ok(Poll::Ready(None)) => return Ok(Some(true)),
                Ok(Poll::Ready(Some(Ok(frame)))) => match frame.into_data() {
                    Ok(data) => {
                        taken += data.len();
                        self.data(data, wire);
                    }
                    Err(frame) => {
                        if let Ok(trailers) = frame.into_trailers() {
                            self.trailers(trailers)?;
                        }
                    }
                },
                Ok(Poll::Ready(Some(Err(_)))) => return Ok(None),
                Err(_) => {
                    self.context.stats.handler_panics.add(1);
                    return Ok(None);
                }
            }
            if body.is_end_stream() {
                return Ok(Some(true));
            }
        }
        self.context.handle.spawn(stream.clone().pump(std::mem::take(body)));
        Ok(Some(false))
    }

    /// Sends nothing if no trailers are allowed: an empty section has no meaning, and some peers
    /// reject it.
    fn trailers(&mut self, mut trailers: HeaderMap) -> Result<(), SendError> {
        remove_connection_fields_of_response(&mut trailers);
        if trailers.is_empty() {
            return Ok(());
        }
        self.headers(fields::lines(&trailers).map(OutgoingLine::from))
    }

    fn data(&mut self, data: Bytes, wire: &mut VecDeque<Bytes>) {
        if !data.is_empty() {
            if let Some(trace) = self.trace {
                trace.data_sent(self.context.handle.now(), self.id, data.len() as u64);
            }
            self.h3.encode_data_header(self.id, data.len() as u64, self.encoded);
            if data.len() < COPIED_BELOW {
                self.encoded.extend_from_slice(&data);
            } else {
                self.give(wire);
                wire.push_back(data);
            }
        }
    }

    fn give(&mut self, wire: &mut VecDeque<Bytes>) {
        if !self.encoded.is_empty() {
            wire.push_back(self.encoded.split().freeze());
        }
    }
}
