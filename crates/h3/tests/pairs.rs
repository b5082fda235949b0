//! Sent messages arrive: a client and a server with a transport that splits and delays arbitrarily,
//! and operations in any order.

#[expect(dead_code, reason = "each test file uses a part of it")]
mod support;

use std::collections::BTreeMap;

use bytes::BytesMut;
use pronghorn_h3::{
    Config, Connection, ErrorCode, Event, FieldLine, Role, StreamId, UniStream, varint,
};
use proptest::{collection::vec, prelude::*};
use support::{GET, describe, uni_ids};

/// More than the bytes in flight on any stream.
const MAX_DELIVERED: usize = 1 << 20;

/// An operation of one side. The stream is drawn separately.
#[derive(Clone, Debug)]
enum Operation {
    Open { method: &'static str, announce: bool },
    Interim(&'static str),
    Respond { announce: bool },
    Content { side: Side, len: u16 },
    Reserved { side: Side, number: u16, len: u8 },
    Trailers(Side),
    Finish(Side),
    Reset(Side),
    StopReading(Side),
    GoAway(Side),
    Deliver { side: Side, len: u16 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

impl Side {
    const BOTH: [Self; 2] = [Self::Client, Self::Server];

    const fn role(self) -> Role {
        match self {
            Self::Client => Role::Client,
            Self::Server => Role::Server,
        }
    }
}

fn operation() -> impl Strategy<Value = Operation> {
    let side = prop_oneof![Just(Side::Client), Just(Side::Server)];
    prop_oneof![
        4 => (prop_oneof![Just("GET"), Just("POST"), Just("HEAD"), Just("CONNECT")], any::<bool>())
            .prop_map(|(method, announce)| Operation::Open { method, announce }),
        1 => prop_oneof![Just("100"), Just("103")].prop_map(Operation::Interim),
        4 => any::<bool>().prop_map(|announce| Operation::Respond { announce }),
        6 => (side.clone(), 0..5000_u16).prop_map(|(side, len)| Operation::Content { side, len }),
        2 => (side.clone(), any::<u16>(), any::<u8>()).prop_map(|(side, number, len)| Operation::Reserved { side, number, len }),
        2 => side.clone().prop_map(Operation::Trailers),
        4 => side.clone().prop_map(Operation::Finish),
        1 => side.clone().prop_map(Operation::Reset),
        1 => side.clone().prop_map(Operation::StopReading),
        1 => side.clone().prop_map(Operation::GoAway),
        10 => (side, 1..3000_u16).prop_map(|(side, len)| Operation::Deliver { side, len }),
    ]
}

/// One direction of a stream: the data sent, and the progress of its delivery.
#[derive(Debug, Default)]
struct Half {
    wire: BytesMut,
    end: Option<End>,
    end_delivered: bool,
    /// The receiver has stopped reading, and the sender has not been notified yet.
    stopped: bool,
    /// Expected events of the receiver with joined content, unless the exchange is cut short.
    said: Vec<String>,
    heard: Vec<String>,
    phase: Phase,
    /// Remaining announced content.
    announced: Option<u64>,
    without_content: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Fin,
    Reset,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    #[default]
    Head,
    Content,
    Trailers,
    Done,
}

#[derive(Debug, Default)]
struct Exchange {
    method: &'static str,
    to_server: Half,
    to_client: Half,
    /// A side has aborted, so only a prefix has to arrive.
    is_cut_short: bool,
    /// The server has received the request's headers.
    server_knows: bool,
}

struct World {
    client: Connection,
    server: Connection,
    /// Pending data of unidirectional streams, by stream ID and whether the client sends it.
    uni: BTreeMap<(u64, bool), BytesMut>,
    exchanges: BTreeMap<StreamId, Exchange>,
    next: StreamId,
    client_may_open: bool,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            client: Connection::new(Role::Client, Config::default()),
            server: Connection::new(Role::Server, Config::default()),
            uni: BTreeMap::new(),
            exchanges: BTreeMap::new(),
            next: StreamId(0),
            client_may_open: true,
        };
        world.collect_uni();
        world
    }

    fn connection(&mut self, side: Side) -> &mut Connection {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    fn collect_uni(&mut self) {
        for side in Side::BOTH {
            let ids = uni_ids(side.role());
            while let Some((uni, bytes)) = self.connection(side).poll_uni_write() {
                let stream = match uni {
                    UniStream::Control => ids.control,
                    UniStream::QpackEncoder => ids.encoder,
                    UniStream::QpackDecoder => ids.decoder,
                };
                self.uni
                    .entry((stream.0, side == Side::Client))
                    .or_default()
                    .extend_from_slice(&bytes);
            }
        }
    }

    fn act(&mut self, pick: usize, operation: &Operation) {
        if let Operation::Open { method, announce } = *operation {
            return self.open(method, announce);
        }
        if let Operation::GoAway(side) = *operation {
            self.connection(side).go_away();
            return self.collect_uni();
        }
        if let Operation::Deliver { side, len } = *operation {
            return self.deliver(pick, side, usize::from(len));
        }
        let count = self.exchanges.len();
        let Some(&stream) = self.exchanges.keys().nth(pick % count.max(1)) else { return };
        match *operation {
            Operation::Interim(status) => self.interim(stream, status),
            Operation::Respond { announce } => self.respond(stream, announce),
            Operation::Content { side, len } => self.content(stream, side, u64::from(len)),
            Operation::Reserved { side, number, len } => self.reserved(stream, side, number, len),
            Operation::Trailers(side) => self.trailers(stream, side),
            Operation::Finish(side) => self.finish(stream, side),
            Operation::Reset(side) => self.reset(stream, side),
            Operation::StopReading(side) => self.stop_reading(stream, side),
            Operation::Open { .. } | Operation::GoAway(_) | Operation::Deliver { .. } => {
                unreachable!("handled above")
            }
        }
    }

    fn half(&mut self, stream: StreamId, from: Side) -> &mut Half {
        let exchange = self.exchanges.get_mut(&stream).expect("the stream was opened");
        match from {
            Side::Client => &mut exchange.to_server,
            Side::Server => &mut exchange.to_client,
        }
    }

    /// Returns the half on which the side may send, if it is in this phase.
    fn sending(&mut self, stream: StreamId, side: Side, phase: Phase) -> Option<&mut Half> {
        if side == Side::Server && !self.exchanges[&stream].server_knows {
            return None;
        }
        Some(self.half(stream, side)).filter(|half| half.phase == phase && half.end.is_none())
    }

    fn send_head(&mut self, stream: StreamId, side: Side, lines: &[(&str, &str)]) {
        let mut out = BytesMut::new();
        let encoded =
            lines.iter().map(|(name, value)| FieldLine::new(name.as_bytes(), value.as_bytes()));
        self.connection(side)
            .encode_headers(stream, encoded, &mut out)
            .expect("the head is valid at this point");
        self.collect_uni();
        self.half(stream, side).wire.extend_from_slice(&out);
    }

    fn open(&mut self, method: &'static str, announce: bool) {
        let stream = self.next;
        let result = self.client.open_request(stream);
        assert_eq!(result.is_ok(), self.client_may_open);
        if result.is_err() {
            return;
        }
        self.next = StreamId(stream.0 + 4);
        let mut lines = match method {
            "CONNECT" => vec![(":method", method), (":authority", "example.com:443")],
            _ => vec![(":method", method), GET[1], GET[2], GET[3]],
        };
        let target = if method == "CONNECT" {
            "-://example.com:443-"
        } else {
            "https://example.com/index.html"
        };
        let mut said = format!("{stream} {method} {target}");
        let mut exchange = Exchange { method, ..Exchange::default() };
        if announce && method == "POST" {
            lines.push(("content-length", "700"));
            said.push_str(" content-length=700");
            exchange.to_server.announced = Some(700);
        }
        exchange.to_server.said.push(said);
        exchange.to_server.phase = Phase::Content;
        self.exchanges.insert(stream, exchange);
        self.send_head(stream, Side::Client, &lines);
    }

    fn interim(&mut self, stream: StreamId, status: &'static str) {
        if let Some(half) = self.sending(stream, Side::Server, Phase::Head) {
            half.said.push(format!("{stream} {status}"));
            self.send_head(stream, Side::Server, &[(":status", status)]);
        }
    }

    fn respond(&mut self, stream: StreamId, announce: bool) {
        let method = self.exchanges[&stream].method;
        let Some(half) = self.sending(stream, Side::Server, Phase::Head) else { return };
        half.phase = Phase::Content;
        half.without_content = method == "HEAD";
        let mut lines = vec![(":status", "200")];
        let mut said = format!("{stream} 200");
        if announce && method != "CONNECT" {
            lines.push(("content-length", "900"));
            said.push_str(" content-length=900");
            half.announced = (method != "HEAD").then_some(900);
        }
        half.said.push(said);
        self.send_head(stream, Side::Server, &lines);
    }

    fn content(&mut self, stream: StreamId, side: Side, len: u64) {
        let Some(half) = self.sending(stream, side, Phase::Content) else { return };
        let len = half.announced.map_or(len, |left| left.min(len));
        if half.without_content {
            return;
        }
        half.announced = half.announced.map(|left| left - len);
        let content: Vec<u8> = (0..len).map(|place| b'a' + (place % 26) as u8).collect();
        if len > 0 {
            let text = String::from_utf8(content.clone()).expect("letters");
            match half.said.last_mut() {
                Some(last) if last.starts_with(&format!("{stream} data ")) => last.push_str(&text),
                _ => half.said.push(format!("{stream} data {text}")),
            }
        }
        let mut out = BytesMut::new();
        self.connection(side).encode_data_header(stream, len, &mut out);
        out.extend_from_slice(&content);
        self.half(stream, side).wire.extend_from_slice(&out);
    }

    /// Sends a frame of reserved type at a frame boundary.
    fn reserved(&mut self, stream: StreamId, side: Side, number: u16, len: u8) {
        if self.half(stream, side).end.is_none()
            && (side == Side::Client || self.exchanges[&stream].server_knows)
        {
            let mut out = Vec::new();
            varint::encode(0x1f * u64::from(number) + 0x21, &mut out);
            varint::encode(u64::from(len), &mut out);
            out.resize(out.len() + usize::from(len), 0xff);
            self.half(stream, side).wire.extend_from_slice(&out);
        }
    }

    fn trailers(&mut self, stream: StreamId, side: Side) {
        let is_tunnel = self.exchanges[&stream].method == "CONNECT";
        let Some(half) = self.sending(stream, side, Phase::Content) else { return };
        if is_tunnel || half.announced.is_some_and(|left| left > 0) {
            return;
        }
        half.phase = Phase::Trailers;
        half.said.push(format!("{stream} trailers x-sum=1"));
        self.send_head(stream, side, &[("x-sum", "1")]);
    }

    fn finish(&mut self, stream: StreamId, side: Side) {
        let half = self.half(stream, side);
        if half.phase < Phase::Content
            || half.end.is_some()
            || half.announced.is_some_and(|left| left > 0)
        {
            return;
        }
        half.phase = Phase::Done;
        half.end = Some(End::Fin);
        half.said.push(format!("{stream} finished"));
        self.connection(side).finish_sending(stream);
    }

    fn reset(&mut self, stream: StreamId, side: Side) {
        let half = self.half(stream, side);
        if half.end.is_some() || (side == Side::Server && !self.exchanges[&stream].server_knows) {
            return;
        }
        self.cut_short(stream, side);
    }

    /// Resets the side's sending direction, unless it has ended.
    fn cut_short(&mut self, stream: StreamId, side: Side) {
        self.exchanges.get_mut(&stream).expect("the stream was opened").is_cut_short = true;
        let half = self.half(stream, side);
        if half.end.is_none() {
            half.phase = Phase::Done;
            half.end = Some(End::Reset);
            // Data in flight is lost.
            half.wire.clear();
            self.connection(side).finish_sending(stream);
        }
    }

    /// Stops reading. The transport notifies the sender at the next delivery.
    fn stop_reading(&mut self, stream: StreamId, side: Side) {
        let from = if side == Side::Client { Side::Server } else { Side::Client };
        if side == Side::Server && !self.exchanges[&stream].server_knows {
            return;
        }
        let half = self.half(stream, from);
        if half.end_delivered || half.stopped {
            return;
        }
        half.stopped = true;
        self.exchanges.get_mut(&stream).expect("the stream was opened").is_cut_short = true;
        self.connection(side).stop_receiving(stream);
    }

    /// Delivers up to `len` bytes of one stream from this side to the other.
    fn deliver(&mut self, pick: usize, from: Side, len: usize) {
        let to = if from == Side::Client { Side::Server } else { Side::Client };
        let is_from_client = from == Side::Client;
        let uni: Vec<u64> = self
            .uni
            .iter()
            .filter(|((_, sender), bytes)| *sender == is_from_client && !bytes.is_empty())
            .map(|(key, _)| key.0)
            .collect();
        let streams: Vec<StreamId> = self.exchanges.keys().copied().collect();
        if uni.len() + streams.len() == 0 {
            return;
        }
        let place = pick % (uni.len() + streams.len());
        match uni.get(place) {
            Some(&stream) => self.deliver_uni(stream, from, to, len),
            None => self.deliver_request(streams[place - uni.len()], from, to, len),
        }
    }

    fn deliver_uni(&mut self, stream: u64, from: Side, to: Side, len: usize) {
        let Some(waiting) = self.uni.get_mut(&(stream, from == Side::Client)) else { return };
        let piece = waiting.split_to(len.min(waiting.len())).freeze();
        self.connection(to).handle_data(StreamId(stream), piece).expect("our own bytes are valid");
        self.poll_events(to, len);
        self.collect_uni();
    }

    fn deliver_request(&mut self, stream: StreamId, from: Side, to: Side, len: usize) {
        let server_knows = self.exchanges[&stream].server_knows;
        let half = self.half(stream, from);
        if half.stopped {
            // The transport keeps a STOP_SENDING that arrives before the stream's data.
            if from == Side::Server && !server_knows {
                return;
            }
            if !std::mem::replace(&mut half.end_delivered, true) {
                half.wire.clear();
                self.connection(from)
                    .handle_stop_sending(stream, ErrorCode::H3_REQUEST_CANCELLED.0)
                    .expect("no limit is near");
                self.poll_events(from, 0);
                self.cut_short(stream, from);
            }
            return;
        }
        if half.end_delivered {
            return;
        }
        // Data of a blocked stream stays in the transport; a reset is delivered.
        let is_reset = half.end == Some(End::Reset);
        if self.connection(to).is_blocked(stream) && !is_reset {
            return;
        }
        let half = self.half(stream, from);
        let piece = half.wire.split_to(len.min(half.wire.len())).freeze();
        let end = half.end.filter(|_| half.wire.is_empty());
        half.end_delivered = end.is_some();
        if piece.is_empty() && end.is_none() {
            return;
        }
        let connection = self.connection(to);
        connection.handle_data(stream, piece).expect("our own bytes are valid");
        match end {
            Some(End::Fin) => connection.handle_fin(stream).expect("the message is whole"),
            Some(End::Reset) => connection
                .handle_reset(stream, ErrorCode::H3_REQUEST_CANCELLED.0)
                .expect("no limit is near"),
            None => {}
        }
        self.poll_events(to, len);
        self.collect_uni();
    }

    /// Records the events of a side, and reacts as an engine has to.
    fn poll_events(&mut self, side: Side, delivered: usize) {
        let from = if side == Side::Client { Side::Server } else { Side::Client };
        let events: Vec<Event> =
            std::iter::from_fn(|| self.connection(side).poll_event()).collect();
        let open = self.exchanges.len();
        assert!(
            events.len() <= 2 * delivered / 1024 + 200 + open,
            "{} events of {delivered} bytes",
            events.len()
        );
        for event in events {
            match event {
                Event::Settings | Event::StopSending { .. } => {}
                Event::GoAway { .. } => self.client_may_open &= side == Side::Server,
                Event::Unprocessed { stream } => {
                    self.give_up(stream, side);
                }
                Event::StreamError { stream, code, .. } => {
                    assert_eq!(
                        (side, code),
                        (Side::Server, ErrorCode::H3_REQUEST_REJECTED),
                        "our messages fail only after GOAWAY"
                    );
                    self.give_up(stream, side);
                }
                Event::Reset { stream, .. } => self.cut_short(stream, side),
                Event::StopUni { .. } | Event::Session(_) => {
                    panic!("we open no stream of unknown type")
                }
                Event::PriorityUpdate { .. } => panic!("we send no such frame"),
                Event::Head { stream, .. } if side == Side::Server => {
                    self.exchanges.get_mut(&stream).expect("the stream was opened").server_knows =
                        true;
                    self.half(stream, from).hear(stream, &event);
                }
                Event::Head { stream, .. }
                | Event::Data { stream, .. }
                | Event::Trailers { stream, .. }
                | Event::Finished { stream } => {
                    self.half(stream, from).hear(stream, &event);
                }
            }
        }
    }

    /// Ends both directions of a stream.
    fn give_up(&mut self, stream: StreamId, side: Side) {
        self.exchanges.get_mut(&stream).expect("the stream was opened").server_knows |=
            side == Side::Server;
        self.stop_reading(stream, side);
        self.cut_short(stream, side);
        self.connection(side).stop_receiving(stream);
    }

    /// Ends every message and delivers everything.
    fn settle(&mut self) {
        for stream in self.exchanges.keys().copied().collect::<Vec<_>>() {
            for _ in 0..3 {
                for side in Side::BOTH {
                    if side == Side::Server {
                        self.deliver_all();
                        self.respond(stream, false);
                    }
                    if let Some(left) = self.half(stream, side).announced {
                        self.content(stream, side, left);
                    }
                    self.finish(stream, side);
                }
            }
        }
        self.deliver_all();
    }

    fn deliver_all(&mut self) {
        for _ in 0..3 {
            for (from, to) in [(Side::Client, Side::Server), (Side::Server, Side::Client)] {
                for (stream, _) in self.uni.keys().copied().collect::<Vec<_>>() {
                    self.deliver_uni(stream, from, to, MAX_DELIVERED);
                }
                for stream in self.exchanges.keys().copied().collect::<Vec<_>>() {
                    self.deliver_request(stream, from, to, MAX_DELIVERED);
                }
            }
        }
    }
}

impl Half {
    fn hear(&mut self, stream: StreamId, event: &Event) {
        let text = describe(event);
        let prefix = format!("{stream} data ");
        match (text.strip_prefix(&prefix), self.heard.last_mut()) {
            (Some(more), Some(last)) if last.starts_with(&prefix) => last.push_str(more),
            _ => match text.strip_suffix(" end") {
                Some(head) => self.heard.extend([head.to_owned(), format!("{stream} finished")]),
                None => self.heard.push(text),
            },
        }
    }

    /// Checks that the received events equal the sent ones, or are a prefix if cut short.
    fn check(&self, is_cut_short: bool) {
        if is_cut_short {
            let (said, heard) = (self.said.concat(), self.heard.concat());
            assert!(said.starts_with(&heard), "sent {said}\nreceived {heard}");
        } else {
            assert_eq!(self.heard, self.said);
        }
    }
}

proptest! {
    #[test]
    fn sent_messages_arrive(operations in vec((any::<usize>(), operation()), 0..120)) {
        let mut world = World::new();
        for (pick, operation) in &operations {
            world.act(*pick, operation);
        }
        world.settle();
        for exchange in world.exchanges.values() {
            exchange.to_server.check(exchange.is_cut_short);
            exchange.to_client.check(exchange.is_cut_short);
        }
        prop_assert_eq!((world.client.open_streams(), world.server.open_streams()), (0, 0));
    }
}

/// Runs the model by hand: it exchanges messages, and its checks can fail.
#[test]
fn property_test_model_exchanges_messages() {
    let mut world = World::new();
    for operation in [
        Operation::Open { method: "POST", announce: true },
        Operation::Content { side: Side::Client, len: 700 },
        Operation::Trailers(Side::Client),
    ] {
        world.act(0, &operation);
    }
    world.settle();
    let exchange = &world.exchanges[&StreamId(0)];
    assert_eq!(exchange.to_server.heard.len(), 4);
    assert_eq!(exchange.to_client.heard, ["0 200", "0 finished"]);
    let half = Half { said: vec!["a".into()], ..Half::default() };
    assert!(std::panic::catch_unwind(|| half.check(false)).is_err());
}
