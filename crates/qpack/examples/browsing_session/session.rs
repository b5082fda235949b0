//! A browsing session, replayed through an encoder and a decoder per direction.

use std::fmt;

use bytes::BytesMut;
use pronghorn_qpack::{Decoded, Decoder, Encoder, FieldLine, FieldSection};

const SESSION: &str = include_str!("session.txt");

/// Larger than any field section of the session.
const LIMIT: u64 = 16 * 1024;

/// Settings of both endpoints.
#[derive(Clone, Copy)]
pub(crate) struct Allowed {
    pub(crate) table_capacity: u64,
    pub(crate) blocked_streams: u64,
}

/// Bytes of one direction's field sections.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cost {
    pub(crate) heads: usize,
    /// Uncompressed names and values.
    pub(crate) text: usize,
    /// Encoded field sections.
    pub(crate) sections: usize,
    /// Encoder stream.
    pub(crate) insertions: usize,
    /// Decoder stream, in the opposite direction.
    pub(crate) acknowledgments: usize,
    /// Maximum size of the dynamic table.
    pub(crate) table: u64,
}

impl Cost {
    /// Returns all bytes on the wire for this direction's sections, including the decoder stream.
    pub(crate) const fn total(&self) -> usize {
        self.sections + self.insertions + self.acknowledgments
    }
}

/// One direction: an encoder and its peer's decoder.
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
        self.cost.text +=
            lines.iter().map(|line| line.name.len() + line.value.len()).sum::<usize>();
        self.cost.sections += section.len();
        self.cost.table = self.cost.table.max(self.encoder.table_size());
        self.under_way.push((stream_id, section.to_vec(), lines));
    }

    /// Delivers everything sent, and then the decoder's instructions.
    fn round_trip(&mut self) {
        if let Some(instructions) = self.encoder.take_instructions() {
            self.cost.insertions += instructions.len();
            self.decoder
                .handle_encoder_stream(&instructions)
                .expect("our own instructions are valid");
        }
        for (stream_id, section, lines) in self.under_way.drain(..) {
            let mut decoded = FieldSection::new();
            let outcome = self.decoder.decode(stream_id, &section, LIMIT, &mut decoded);
            assert_eq!(outcome, Ok(Decoded::Complete), "all insertions have arrived");
            assert!(
                decoded.iter().map(FieldLine::from).eq(lines),
                "the section changed in transit"
            );
        }
        if let Some(instructions) = self.decoder.take_instructions() {
            self.cost.acknowledgments += instructions.len();
            self.encoder
                .handle_decoder_stream(&instructions)
                .expect("our own instructions are valid");
        }
    }
}

/// Replays the session and returns the costs of requests and of responses.
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
        let stream_id = stream_id.parse().expect("a section has a stream ID");
        let lines = text.by_ref().take_while(|line| !line.is_empty()).map(field_line).collect();
        directions[direction].send(stream_id, lines);
    }
    directions.iter_mut().for_each(Direction::round_trip);
    directions.map(|direction| direction.cost)
}

fn field_line(line: &'static str) -> FieldLine<'static> {
    let (name, value) = line.split_once('\t').expect("a tab separates name and value");
    let is_secret = matches!(name, "cookie" | "set-cookie" | "authorization");
    FieldLine { name: name.as_bytes(), value: value.as_bytes(), never_index: is_secret }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { heads, text, sections, insertions, acknowledgments, table } = self;
        write!(
            f,
            "{heads:>5} {text:>8} {sections:>8} {insertions:>8} {acknowledgments:>8} {:>8} \
                {table:>8}",
            self.total()
        )
    }
}
