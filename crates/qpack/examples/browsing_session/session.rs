//! A recorded session, replayed through encoders and decoders of both sides.

use std::fmt;

use bytes::BytesMut;
use pronghorn_qpack::{Decoded, Decoder, Encoder, FieldLine, FieldSection};

const SESSION: &str = include_str!("session.txt");

/// Field sections larger than this do not occur.
const LIMIT: u64 = 16 * 1024;

/// What the endpoints allow each other.
#[derive(Clone, Copy)]
pub(crate) struct Allowed {
    pub(crate) table_capacity: u64,
    pub(crate) blocked_streams: u64,
}

/// Bytes of one direction's heads.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cost {
    pub(crate) heads: usize,
    /// Names and values, without any compression.
    pub(crate) text: usize,
    /// Encoded field sections.
    pub(crate) sections: usize,
    /// Instructions of the encoder.
    pub(crate) insertions: usize,
    /// Instructions of the decoder, which go the other way.
    pub(crate) acknowledgments: usize,
    /// The largest dynamic table.
    pub(crate) table: u64,
}

impl Cost {
    /// All that this direction's heads put on the wire, in both directions.
    pub(crate) const fn total(&self) -> usize {
        self.sections + self.insertions + self.acknowledgments
    }
}

/// One direction: an encoder and the decoder it talks to.
struct Direction {
    encoder: Encoder,
    decoder: Decoder,
    under_way: Vec<(u64, Vec<u8>, Vec<FieldLine<'static>>)>,
    cost: Cost,
}

impl Direction {
    fn new(allowed: Allowed) -> Self {
        let mut encoder = Encoder::with_max_table_capacity(allowed.table_capacity);
        encoder.set_peer_settings(allowed.table_capacity, allowed.blocked_streams);
        let decoder = Decoder::with_table(allowed.table_capacity, allowed.blocked_streams);
        Self { encoder, decoder, under_way: Vec::new(), cost: Cost::default() }
    }

    fn send(&mut self, stream_id: u64, lines: Vec<FieldLine<'static>>) {
        let mut section = BytesMut::new();
        self.encoder.encode(stream_id, lines.iter().copied(), &mut section);
        self.cost.heads += 1;
        self.cost.text += lines.iter().map(|line| line.name.len() + line.value.len()).sum::<usize>();
        self.cost.sections += section.len();
        self.cost.table = self.cost.table.max(self.encoder.table_size());
        self.under_way.push((stream_id, section.to_vec(), lines));
    }

    /// All that was sent arrives, and what the decoder has to say arrives at the encoder.
    fn round_trip(&mut self) {
        if let Some(instructions) = self.encoder.take_instructions() {
            self.cost.insertions += instructions.len();
            self.decoder.handle_encoder_stream(&instructions).expect("our own instructions are valid");
        }
        for (stream_id, section, lines) in self.under_way.drain(..) {
            let mut decoded = FieldSection::new();
            let outcome = self.decoder.decode(stream_id, &section, LIMIT, &mut decoded);
            assert_eq!(outcome, Ok(Decoded::Complete), "all insertions have arrived");
            assert!(decoded.iter().map(FieldLine::from).eq(lines), "a head was changed on its way");
        }
        if let Some(instructions) = self.decoder.take_instructions() {
            self.cost.acknowledgments += instructions.len();
            self.encoder.handle_decoder_stream(&instructions).expect("our own instructions are valid");
        }
    }
}

/// Replays the session; the first cost is that of requests, the second that of responses.
pub(crate) fn replay(allowed: Allowed) -> [Cost; 2] {
    let mut directions = [Direction::new(allowed), Direction::new(allowed)];
    let mut text = SESSION.lines().filter(|line| !line.starts_with('#'));
    while let Some(line) = text.next() {
        let (kind, stream_id) = line.split_once(' ').unwrap_or((line, ""));
        let direction = match kind {
            "request" => 0,
            "response" => 1,
            "--" => {
                directions.iter_mut().for_each(Direction::round_trip);
                continue;
            }
            _ => continue,
        };
        let stream_id = stream_id.parse().expect("a section has a stream's number");
        let lines = text.by_ref().take_while(|line| !line.is_empty()).map(field_line).collect();
        directions[direction].send(stream_id, lines);
    }
    directions.iter_mut().for_each(Direction::round_trip);
    directions.map(|direction| direction.cost)
}

fn field_line(line: &'static str) -> FieldLine<'static> {
    let (name, value) = line.split_once('\t').expect("a tab stands between name and value");
    let is_secret = matches!(name, "cookie" | "set-cookie" | "authorization");
    FieldLine { name: name.as_bytes(), value: value.as_bytes(), never_index: is_secret }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { heads, text, sections, insertions, acknowledgments, table } = self;
        write!(f, "{heads:>5} {text:>8} {sections:>8} {insertions:>8} {acknowledgments:>8} {:>8} {table:>8}", self.total())
    }
}
