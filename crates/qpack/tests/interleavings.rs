//! Encoder and decoder over reliable streams without mutual order, with cancellations at any time;
//! and the decoder compared with a simple model of the table.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use pronghorn_qpack::{Decoded, Decoder, Encoder, FieldLine, FieldSection, integer};
use proptest::{collection::vec, prelude::*};

/// A step of a run.
#[derive(Clone, Debug)]
enum Step {
    /// Encodes a section on this stream.
    Encode { stream: u64, lines: Vec<Line> },
    /// Delivers up to this many bytes of the encoder stream.
    Insert(usize),
    /// Delivers the oldest section in flight on one of the streams.
    Deliver(usize),
    /// Delivers up to this many bytes of the decoder stream.
    Acknowledge(usize),
    /// The receiver cancels this stream.
    Cancel { stream: u64 },
    /// The encoder stream becomes backlogged, or not any more.
    HoldUp(bool),
    /// Both sides are idle and release memory.
    Rest,
}

#[derive(Clone, Debug, PartialEq)]
struct Line {
    name: &'static str,
    value: String,
    never_index: bool,
}

impl Line {
    fn to_field_line(&self) -> FieldLine<'_> {
        FieldLine {
            name: self.name.as_bytes(),
            value: self.value.as_bytes(),
            never_index: self.never_index,
        }
    }
}

const STREAMS: u64 = 6;

fn line() -> impl Strategy<Value = Line> {
    let names = vec![
        "user-agent",
        ":authority",
        "x-a",
        "x-longer-name",
        ":path",
        "accept",
        "cookie",
        "server",
    ];
    let value = (0..12_u32, prop_oneof![Just(0_usize), Just(3), Just(60)])
        .prop_map(|(number, padding)| format!("{number}{}", "v".repeat(padding)));
    (prop::sample::select(names), value, prop::bool::weighted(0.1))
        .prop_map(|(name, value, never_index)| Line { name, value, never_index })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..STREAMS, vec(line(), 0..6)).prop_map(|(stream, lines)| Step::Encode { stream, lines }),
        3 => (1..80_usize).prop_map(Step::Insert),
        4 => any::<usize>().prop_map(Step::Deliver),
        3 => (1..6_usize).prop_map(Step::Acknowledge),
        1 => (0..STREAMS).prop_map(|stream| Step::Cancel { stream }),
        1 => prop::bool::weighted(0.3).prop_map(Step::HoldUp),
        1 => Just(Step::Rest),
    ]
}

/// A request stream: its sections in flight, in order.
#[derive(Default)]
struct Stream {
    id: u64,
    under_way: VecDeque<(Bytes, Vec<Line>)>,
    is_blocked: bool,
}

struct Run {
    encoder: Encoder,
    decoder: Decoder,
    capacity: u64,
    to_decoder: VecDeque<u8>,
    to_encoder: VecDeque<u8>,
    streams: Vec<Stream>,
    next_id: u64,
}

impl Run {
    fn new(own_capacity: u64, capacity: u64, blocked_streams: u64) -> Self {
        let mut encoder = Encoder::with_max_table_capacity(own_capacity);
        encoder.set_peer_settings(capacity, blocked_streams);
        let streams = (0..STREAMS).map(|id| Stream { id: id * 4, ..Stream::default() }).collect();
        Self {
            encoder,
            decoder: Decoder::with_table(capacity, blocked_streams),
            capacity,
            to_decoder: VecDeque::new(),
            to_encoder: VecDeque::new(),
            streams,
            next_id: STREAMS * 4,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Encode { stream, lines } => {
                let stream = &mut self.streams[stream as usize];
                let mut section = BytesMut::new();
                self.encoder.encode(stream.id, lines.iter().map(Line::to_field_line), &mut section);
                stream.under_way.push_back((section.freeze(), lines));
                self.to_decoder.extend(self.encoder.take_instructions().unwrap_or_default());
            }
            Step::Rest => {
                self.encoder.release_memory();
                self.decoder.release_memory();
            }
            Step::Insert(count) => {
                let bytes: Vec<u8> =
                    self.to_decoder.drain(..count.min(self.to_decoder.len())).collect();
                self.decoder.handle_encoder_stream(&bytes).expect("our own instructions are valid");
                while let Some(id) = self.decoder.poll_unblocked() {
                    let place = self
                        .streams
                        .iter()
                        .position(|stream| stream.id == id)
                        .expect("only known streams are blocked");
                    assert!(std::mem::take(&mut self.streams[place].is_blocked));
                    self.deliver(place);
                    assert!(
                        !self.streams[place].is_blocked,
                        "the stream was reported as unblocked"
                    );
                }
            }
            Step::Deliver(choice) => self.deliver(choice % self.streams.len()),
            Step::Acknowledge(count) => {
                self.to_encoder.extend(self.decoder.take_instructions().unwrap_or_default());
                let bytes: Vec<u8> =
                    self.to_encoder.drain(..count.min(self.to_encoder.len())).collect();
                self.encoder.handle_decoder_stream(&bytes).expect("our own instructions are valid");
            }
            Step::Cancel { stream } => {
                let stream = &mut self.streams[stream as usize];
                self.decoder.cancel_stream(stream.id);
                *stream = Stream { id: self.next_id, ..Stream::default() };
                self.next_id += 4;
            }
            Step::HoldUp(is_backlogged) => self.encoder.set_backlogged(is_backlogged),
        }
        assert!(
            self.encoder.table_size() <= self.capacity
                && self.decoder.table_size() <= self.capacity
        );
    }

    fn deliver(&mut self, place: usize) {
        let stream = &mut self.streams[place];
        if stream.is_blocked {
            return;
        }
        let Some((section, lines)) = stream.under_way.front() else { return };
        let mut decoded = FieldSection::new();
        match self
            .decoder
            .decode(stream.id, section, u64::MAX, &mut decoded)
            .expect("our own sections are valid")
        {
            Decoded::Blocked => stream.is_blocked = true,
            Decoded::Complete => {
                assert!(
                    decoded.iter().map(FieldLine::from).eq(lines.iter().map(Line::to_field_line)),
                    "{decoded:?} is not {lines:?}"
                );
                stream.under_way.pop_front();
            }
        }
    }

    /// Delivers everything.
    fn finish(&mut self) {
        self.step(Step::Insert(usize::MAX));
        for place in 0..self.streams.len() {
            while !self.streams[place].under_way.is_empty() {
                self.deliver(place);
                assert!(!self.streams[place].is_blocked, "all insertions have arrived");
            }
        }
        self.step(Step::Acknowledge(usize::MAX));
    }
}

/// An instruction of any valid encoder.
#[derive(Clone, Debug)]
enum Instruction {
    Capacity(u64),
    /// Inserts an entry with a static name, a dynamic name if there is one, or a literal name.
    Insert {
        name: Name,
        value: String,
    },
    Duplicate(usize),
    /// A section with references to these entries, and this distance between Required Insert Count
    /// and Base.
    Section {
        references: Vec<usize>,
        base_shift: i64,
    },
}

#[derive(Clone, Debug)]
enum Name {
    Static(u8),
    Dynamic(usize),
    Spelled(String),
}

fn instruction() -> impl Strategy<Value = Instruction> {
    let name = prop_oneof![
        (0..99_u8).prop_map(Name::Static),
        any::<usize>().prop_map(Name::Dynamic),
        "[a-z-]{0,12}".prop_map(Name::Spelled),
    ];
    prop_oneof![
        1 => (0..=400_u64).prop_map(Instruction::Capacity),
        5 => (name, "[ -~]{0,40}").prop_map(|(name, value)| Instruction::Insert { name, value }),
        2 => any::<usize>().prop_map(Instruction::Duplicate),
        4 => (vec(any::<usize>(), 1..8), -9..9_i64).prop_map(|(references, base_shift)| Instruction::Section { references, base_shift }),
    ]
}

/// The table as described in the RFC, without regard to cost.
#[derive(Default)]
struct Model {
    entries: Vec<(String, String)>,
    evicted: usize,
    capacity: u64,
}

impl Model {
    fn size(&self) -> u64 {
        self.live().iter().map(|(name, value)| (name.len() + value.len() + 32) as u64).sum()
    }

    fn live(&self) -> &[(String, String)] {
        &self.entries[self.evicted..]
    }

    fn evict(&mut self) {
        while self.size() > self.capacity {
            self.evicted += 1;
        }
    }

    /// Inserts an entry; returns whether it fits.
    fn insert(&mut self, name: String, value: String) -> bool {
        let fits = (name.len() + value.len() + 32) as u64 <= self.capacity;
        if fits {
            self.entries.push((name, value));
            self.evict();
        }
        fits
    }
}

fn plain_string(flags: u8, prefix_bits: u32, text: &str, out: &mut Vec<u8>) {
    integer::encode(flags, prefix_bits, text.len() as u64, out);
    out.extend(text.as_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    //= RFC 9204 section 2.1
    //# An encoder MUST emit field representations in the order they appear in the input field section.
    //= RFC 9204 section 2.2
    //# The decoder MUST emit field lines in the order their representations appear in the encoded field section.
    #[test]
    fn sections_survive_any_interleaving(
        own_capacity in prop_oneof![Just(4096_u64), Just(300), Just(150)],
        capacity in prop_oneof![Just(0_u64), Just(150), Just(500), Just(4096), Just(65536)],
        blocked_streams in prop_oneof![Just(0_u64), Just(1), Just(3), Just(100)],
        steps in vec(step(), 0..200),
    ) {
        let mut run = Run::new(own_capacity, capacity, blocked_streams);
        for step in steps {
            run.step(step);
        }
        run.finish();
    }

    /// Any valid sequence of instructions and references, in pieces of any size.
    #[test]
    fn decoder_agrees_with_the_model(instructions in vec(instruction(), 0..60), piece in 1..20_usize) {
        const LIMIT: u64 = 400;
        let mut decoder = Decoder::with_table(LIMIT, 0);
        let mut model = Model::default();
        for instruction in instructions {
            let mut bytes = Vec::new();
            match instruction {
                Instruction::Capacity(capacity) => {
                    integer::encode(0x20, 5, capacity, &mut bytes);
                    model.capacity = capacity;
                    model.evict();
                }
                Instruction::Insert { name, value } => {
                    let name = match name {
                        Name::Static(index) => {
                            integer::encode(0xc0, 6, index.into(), &mut bytes);
                            String::from_utf8(pronghorn_qpack::static_table::name(index).to_vec()).expect("names are ASCII")
                        }
                        Name::Dynamic(choice) if !model.live().is_empty() => {
                            let relative = choice % model.live().len();
                            integer::encode(0x80, 6, relative as u64, &mut bytes);
                            model.entries[model.entries.len() - 1 - relative].0.clone()
                        }
                        Name::Dynamic(_) => continue,
                        Name::Spelled(name) => {
                            plain_string(0x40, 5, &name, &mut bytes);
                            name
                        }
                    };
                    plain_string(0, 7, &value, &mut bytes);
                    if !model.insert(name, value) {
                        continue;
                    }
                }
                Instruction::Duplicate(choice) => {
                    if model.live().is_empty() {
                        continue;
                    }
                    let relative = choice % model.live().len();
                    integer::encode(0, 5, relative as u64, &mut bytes);
                    let (name, value) = model.entries[model.entries.len() - 1 - relative].clone();
                    model.insert(name, value);
                }
                Instruction::Section { references, base_shift } => {
                    if model.live().is_empty() {
                        continue;
                    }
                    let absolutes: Vec<usize> = references.iter().map(|choice| model.evicted + choice % model.live().len()).collect();
                    let required = absolutes.iter().max().map_or(0, |newest| newest + 1) as i64;
                    let base = (required + base_shift).max(0);
                    integer::encode(0, 8, required as u64 % (2 * (LIMIT / 32)) + 1, &mut bytes);
                    if base >= required {
                        integer::encode(0, 7, (base - required) as u64, &mut bytes);
                    } else {
                        integer::encode(0x80, 7, (required - base - 1) as u64, &mut bytes);
                    }
                    for absolute in &absolutes {
                        let absolute = *absolute as i64;
                        if absolute < base {
                            integer::encode(0x80, 6, (base - absolute - 1) as u64, &mut bytes);
                        } else {
                            integer::encode(0x10, 4, (absolute - base) as u64, &mut bytes);
                        }
                    }
                    let mut lines = FieldSection::new();
                    prop_assert_eq!(decoder.decode(0, &bytes, u64::MAX, &mut lines), Ok(Decoded::Complete));
                    let expected = absolutes.iter().map(|absolute| &model.entries[*absolute]);
                    prop_assert!(lines.iter().map(|line| (line.name, line.value)).eq(expected.map(|(n, v)| (n.as_bytes(), v.as_bytes()))));
                    continue;
                }
            }
            for piece in bytes.chunks(piece) {
                prop_assert_eq!(decoder.handle_encoder_stream(piece), Ok(()));
            }
            prop_assert_eq!(decoder.table_size(), model.size());
        }
    }

    /// Invalid bytes with a table in use.
    #[test]
    fn random_bytes_never_panic_with_a_table(
        pieces in vec((any::<bool>(), vec(any::<u8>(), 0..60)), 0..20),
        limit in 100..5000_u64,
    ) {
        let mut decoder = Decoder::with_table(500, 2);
        decoder.handle_encoder_stream(&[0x3f, 0xd5, 0x03, 0xc0, 0x01, b'a', 0x41, b'x', 0x01, b'y']).expect("valid instructions");
        for (is_section, mut bytes) in pieces {
            let mut lines = FieldSection::new();
            if is_section {
                // A Required Insert Count that is sometimes plausible.
                if let Some(first) = bytes.first_mut() {
                    *first %= 8;
                }
                if decoder.decode(4, &bytes, limit, &mut lines).is_ok() {
                    prop_assert!(lines.size() <= limit);
                }
            } else if decoder.handle_encoder_stream(&bytes).is_err() {
                break;
            }
            prop_assert!(decoder.table_size() <= 500);
        }
        let mut encoder = Encoder::new();
        encoder.set_peer_settings(500, 2);
        let _ = encoder.handle_decoder_stream(&limit.to_be_bytes());
    }
}
