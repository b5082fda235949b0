//! A client and a server of this project that perform arbitrary valid operations over streams that
//! deliver at any pace. Neither reports an error of the peer, and every complete message equals the
//! one sent.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use pronghorn_h3::{Config, Connection, ErrorCode, Event, FieldLine, Role, StreamId, UniStream};

use crate::input::Input;

/// Maximum number of requests of a client.
const REQUESTS: u64 = 8;

/// One endpoint, and the data in flight to the other.
struct Side {
    connection: Connection,
    wires: BTreeMap<StreamId, Wire>,
    /// Streams on which headers, the end or a reset were sent.
    sent: BTreeMap<StreamId, Sending>,
    /// Received message of each stream.
    received: BTreeMap<StreamId, Message>,
}

#[derive(Default)]
struct Wire {
    bytes: VecDeque<u8>,
    end: Option<End>,
    is_delivered: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Fin,
    Reset,
}

#[derive(Default)]
struct Sending {
    has_head: bool,
    has_trailers: bool,
    is_over: bool,
    message: Message,
}

#[derive(Clone, Default, Debug, PartialEq, Eq)]
struct Message {
    /// Names and values of the header and trailer fields, concatenated.
    fields: Vec<u8>,
    content: Vec<u8>,
    is_complete: bool,
}

pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut client = Side::new(Role::Client);
    let mut server = Side::new(Role::Server);
    let mut opened = 0;
    while !input.is_empty() {
        let choice = input.byte();
        let stream = StreamId(u64::from(choice >> 5) % REQUESTS * 4);
        let (from, to) =
            if choice & 16 == 0 { (&mut client, &mut server) } else { (&mut server, &mut client) };
        match choice & 15 {
            0 if choice & 16 == 0 && opened < REQUESTS => {
                if from.connection.open_request(StreamId(opened * 4)).is_ok() {
                    from.sent.insert(StreamId(opened * 4), Sending::default());
                    opened += 1;
                }
            }
            1 | 2 => from.head(stream, &mut input, choice & 16 == 0),
            3 | 4 => from.content(stream, input.piece()),
            5 => from.trailers(stream, input.piece()),
            6 | 7 => from.finish(stream, End::Fin),
            8 => from.finish(stream, End::Reset),
            9 if choice & 32 == 0 => from.connection.go_away(),
            10 => from.stop(stream, to),
            _ => {
                let place = input.below(from.wires.len().max(1));
                deliver(from, to, place, input.byte().into());
            }
        }
        client.collect(Role::Client);
        server.collect(Role::Server);
    }
    // Deliver all data in flight.
    for _ in 0..3 {
        for place in 0..client.wires.len() {
            deliver(&mut client, &mut server, place, usize::MAX);
        }
        server.collect(Role::Server);
        for place in 0..server.wires.len() {
            deliver(&mut server, &mut client, place, usize::MAX);
        }
        client.collect(Role::Client);
    }
    compare(&client, &server);
    compare(&server, &client);
}

impl Side {
    fn new(role: Role) -> Self {
        let connection = Connection::new(role, Config::default());
        let mut side = Self {
            connection,
            wires: BTreeMap::new(),
            sent: BTreeMap::new(),
            received: BTreeMap::new(),
        };
        side.collect(role);
        side
    }

    /// Returns the state of a stream that can still be sent on.
    fn sending(&mut self, stream: StreamId) -> Option<&mut Sending> {
        self.sent.get_mut(&stream).filter(|sending| !sending.is_over)
    }

    fn head(&mut self, stream: StreamId, input: &mut Input<'_>, is_request: bool) {
        if self.sending(stream).is_none_or(|sending| sending.has_head) {
            return;
        }
        let value: Vec<u8> = input.piece().iter().map(|byte| b'!' + byte % 90).collect();
        let mut lines: Vec<(&[u8], &[u8])> = if is_request {
            vec![
                (b":method", b"POST"),
                (b":scheme", b"https"),
                (b":authority", b"localhost"),
                (b":path", b"/"),
            ]
        } else {
            vec![(b":status", b"200")]
        };
        lines.push((b"x-value", &value));
        let mut wire = BytesMut::new();
        let lines = lines.iter().map(|(name, value)| FieldLine::new(name, value));
        if self.connection.encode_headers(stream, lines, &mut wire).is_ok() {
            self.write(stream, &wire);
            let sending = self.sending(stream).expect("invariant: it was there");
            sending.has_head = true;
            sending.message.fields.extend_from_slice(&value);
        }
    }

    fn content(&mut self, stream: StreamId, data: &[u8]) {
        if data.is_empty()
            || self.sending(stream).is_none_or(|sending| !sending.has_head || sending.has_trailers)
        {
            return;
        }
        let mut wire = BytesMut::new();
        self.connection.encode_data_header(stream, data.len() as u64, &mut wire);
        wire.extend_from_slice(data);
        self.write(stream, &wire);
        self.sending(stream)
            .expect("invariant: it was there")
            .message
            .content
            .extend_from_slice(data);
    }

    fn trailers(&mut self, stream: StreamId, value: &[u8]) {
        if self.sending(stream).is_none_or(|sending| !sending.has_head || sending.has_trailers) {
            return;
        }
        let value: Vec<u8> = value.iter().map(|byte| b'!' + byte % 90).collect();
        let mut wire = BytesMut::new();
        if self
            .connection
            .encode_headers(stream, [FieldLine::new(b"x-end", &value)], &mut wire)
            .is_ok()
        {
            self.write(stream, &wire);
            let sending = self.sending(stream).expect("invariant: it was there");
            sending.has_trailers = true;
            sending.message.fields.extend_from_slice(&value);
        }
    }

    fn finish(&mut self, stream: StreamId, end: End) {
        // A message without headers is invalid.
        if self.sending(stream).is_none_or(|sending| end == End::Fin && !sending.has_head) {
            return;
        }
        self.connection.finish_sending(stream);
        let wire = self.wires.entry(stream).or_default();
        wire.end = Some(end);
        if end == End::Reset {
            // Data in flight is lost.
            wire.bytes.clear();
        }
        let sending = self.sending(stream).expect("invariant: it was there");
        sending.is_over = true;
        sending.message.is_complete = end == End::Fin;
    }

    /// Stops reading a stream. The transport notifies the other endpoint.
    fn stop(&mut self, stream: StreamId, to: &mut Self) {
        let Some(wire) = to.wires.get_mut(&stream).filter(|wire| !wire.is_delivered) else {
            return;
        };
        if self.received.contains_key(&stream) {
            wire.is_delivered = true;
            self.connection.stop_receiving(stream);
            to.connection
                .handle_stop_sending(stream, ErrorCode::H3_NO_ERROR.0)
                .expect("a stream of ours is no critical one");
        }
    }

    fn write(&mut self, stream: StreamId, bytes: &[u8]) {
        self.wires.entry(stream).or_default().bytes.extend(bytes);
    }

    /// Handles events as documented, and puts the connection's output on the wires.
    fn collect(&mut self, role: Role) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Head { stream, head, end } => {
                    let fields = match &head {
                        pronghorn_h3::Head::Request(head) => head.fields(),
                        pronghorn_h3::Head::Response(head) => head.fields(),
                    };
                    let message = self.received.entry(stream).or_default();
                    fields
                        .filter(|line| line.name == b"x-value")
                        .for_each(|line| message.fields.extend_from_slice(line.value));
                    message.is_complete = end;
                    if role == Role::Server {
                        self.sent.entry(stream).or_default();
                    }
                }
                Event::Data { stream, data } => {
                    self.received.entry(stream).or_default().content.extend_from_slice(&data);
                }
                Event::Trailers { stream, section } => {
                    let message = self.received.entry(stream).or_default();
                    section.iter().for_each(|line| message.fields.extend_from_slice(line.value));
                }
                Event::Finished { stream } => {
                    self.received.entry(stream).or_default().is_complete = true;
                }
                Event::Reset { stream, .. } | Event::StopSending { stream, .. } => self.end(stream),
                Event::Unprocessed { stream } => {
                    self.connection.stop_receiving(stream);
                    self.end(stream);
                }
                Event::StreamError { stream, code, reason, .. } => {
                    assert_eq!(code, ErrorCode::H3_REQUEST_REJECTED, "stream {stream}: {reason}");
                    self.connection.stop_receiving(stream);
                    self.end(stream);
                }
                _ => {}
            }
        }
        while let Some((kind, bytes)) = self.connection.poll_uni_write() {
            let place = match kind {
                UniStream::Control => 0,
                UniStream::QpackEncoder => 4,
                UniStream::QpackDecoder => 8,
            };
            self.write(StreamId(if role == Role::Client { 2 } else { 3 } + place), &bytes);
        }
    }

    fn end(&mut self, stream: StreamId) {
        self.sent.entry(stream).or_default();
        self.finish(stream, End::Reset);
    }
}

/// Delivers at most `count` bytes of one stream, and its end if reached.
fn deliver(from: &mut Side, to: &mut Side, place: usize, count: usize) {
    let Some((&stream, wire)) = from.wires.iter_mut().nth(place) else { return };
    if wire.is_delivered {
        return;
    }
    let count = count.min(wire.bytes.len());
    let bytes: Vec<u8> = wire.bytes.drain(..count).collect();
    let end = wire.end.filter(|_| wire.bytes.is_empty());
    wire.is_delivered = end.is_some();
    if !bytes.is_empty() {
        to.connection.handle_data(stream, Bytes::from(bytes)).expect("our own bytes are valid");
    }
    let ended = match end {
        Some(End::Fin) => to.connection.handle_fin(stream),
        Some(End::Reset) => to.connection.handle_reset(stream, ErrorCode::H3_REQUEST_CANCELLED.0),
        None => Ok(()),
    };
    ended.expect("our own end is valid");
}

/// Checks that received equals sent, and that reset messages are not complete.
fn compare(from: &Side, to: &Side) {
    for (stream, received) in &to.received {
        let Some(sending) = from.sent.get(stream) else {
            panic!("stream {stream} came from nowhere")
        };
        let sent = &sending.message;
        assert!(sent.fields.starts_with(&received.fields), "stream {stream}");
        assert!(sent.content.starts_with(&received.content), "stream {stream}");
        if received.is_complete {
            assert_eq!(received, sent, "stream {stream}");
        }
    }
}
