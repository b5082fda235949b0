//! An encoder and a decoder connected by three streams that deliver at any pace: each section
//! arrives unchanged.

use std::collections::VecDeque;

use bytes::BytesMut;
use pronghorn_qpack::{Decoded, Decoder, Encoder, FieldLine, FieldSection};

use crate::input::Input;

type Line = (Vec<u8>, Vec<u8>);

/// A section in flight.
struct Section {
    encoded: Vec<u8>,
    lines: Vec<Line>,
}

struct Pair {
    encoder: Encoder,
    decoder: Decoder,
    encoder_stream: VecDeque<u8>,
    decoder_stream: VecDeque<u8>,
    /// Outstanding sections of each stream, in order. The first may be blocked.
    requests: [VecDeque<Section>; 6],
    blocked: [bool; 6],
    /// Stream IDs. A cancelled stream is replaced by a new one.
    ids: [u64; 6],
    capacity: u64,
}

pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let capacity = u64::from(input.byte()) * 4;
    let blocked_streams = u64::from(input.byte() & 7);
    let mut encoder = Encoder::with_max_table_capacity(4096);
    encoder.set_peer_settings(capacity, blocked_streams);
    let mut pair = Pair {
        encoder,
        decoder: Decoder::with_table(capacity, blocked_streams),
        encoder_stream: VecDeque::new(),
        decoder_stream: VecDeque::new(),
        requests: Default::default(),
        blocked: [false; 6],
        ids: [0, 1, 2, 3, 4, 5],
        capacity,
    };
    while !input.is_empty() {
        pair.step(&mut input);
    }
    pair.finish();
}

impl Pair {
    fn step(&mut self, input: &mut Input<'_>) {
        let choice = input.byte();
        let stream = usize::from(choice >> 4) % self.requests.len();
        match choice & 7 {
            0 => self.deliver_instructions(input.byte().into()),
            1 => self.deliver_feedback(input.byte().into()),
            2 | 3 => self.deliver_section(stream),
            4 => self.cancel(stream),
            5 => self.encoder.set_backlogged(choice & 8 == 0),
            _ => self.send(stream, input),
        }
        self.collect();
    }

    fn send(&mut self, stream: usize, input: &mut Input<'_>) {
        const NAMES: [&[u8]; 8] = [
            b":path",
            b"cookie",
            b"x-a",
            b"x-b",
            b"x-long-name-that-fills-a-small-table",
            b"user-agent",
            b"te",
            b"",
        ];
        let lines: Vec<Line> = (0..=input.below(4))
            .map(|_| (NAMES[input.below(8)].to_vec(), input.piece().to_vec()))
            .collect();
        let sensitive = input.below(4) == 0;
        let fields = lines.iter().map(|(name, value)| FieldLine {
            never_index: sensitive,
            ..FieldLine::new(name, value)
        });
        let mut encoded = BytesMut::new();
        self.encoder.encode(self.ids[stream], fields, &mut encoded);
        self.requests[stream].push_back(Section { encoded: encoded.to_vec(), lines });
    }

    fn deliver_instructions(&mut self, count: usize) {
        let count = count.min(self.encoder_stream.len());
        let bytes: Vec<u8> = self.encoder_stream.drain(..count).collect();
        self.decoder.handle_encoder_stream(&bytes).expect("our own encoder's instructions");
        while let Some(id) = self.decoder.poll_unblocked() {
            let stream = self
                .ids
                .iter()
                .position(|known| *known == id)
                .expect("a stream that was cancelled, or never there");
            assert!(std::mem::take(&mut self.blocked[stream]), "stream {id} was not blocked");
            self.deliver_section(stream);
            assert!(!self.blocked[stream], "stream {id} is blocked again");
        }
    }

    fn deliver_section(&mut self, stream: usize) {
        if self.blocked[stream] {
            return;
        }
        let Some(section) = self.requests[stream].front() else { return };
        let mut lines = FieldSection::new();
        match self
            .decoder
            .decode(self.ids[stream], &section.encoded, u64::MAX, &mut lines)
            .expect("our own encoder's section")
        {
            Decoded::Blocked => self.blocked[stream] = true,
            Decoded::Complete => {
                let lines: Vec<Line> =
                    lines.iter().map(|line| (line.name.to_vec(), line.value.to_vec())).collect();
                assert_eq!(lines, section.lines);
                self.requests[stream].pop_front();
            }
        }
    }

    fn deliver_feedback(&mut self, count: usize) {
        let count = count.min(self.decoder_stream.len());
        let bytes: Vec<u8> = self.decoder_stream.drain(..count).collect();
        self.encoder.handle_decoder_stream(&bytes).expect("our own decoder's instructions");
    }

    /// Resets the stream, with all sections on it.
    fn cancel(&mut self, stream: usize) {
        self.decoder.cancel_stream(self.ids[stream]);
        self.ids[stream] += self.ids.len() as u64;
        self.requests[stream].clear();
        self.blocked[stream] = false;
    }

    fn collect(&mut self) {
        self.encoder_stream.extend(self.encoder.take_instructions().unwrap_or_default());
        self.decoder_stream.extend(self.decoder.take_instructions().unwrap_or_default());
        assert!(
            self.encoder.table_size() <= self.capacity
                && self.decoder.table_size() <= self.capacity
        );
    }

    /// Checks that no stream is blocked and both sides agree once all data has arrived.
    fn finish(&mut self) {
        self.deliver_instructions(usize::MAX);
        for stream in 0..self.requests.len() {
            while !self.requests[stream].is_empty() {
                self.deliver_section(stream);
                assert!(!self.blocked[stream], "blocked although all instructions have arrived");
            }
        }
        self.collect();
        self.deliver_feedback(usize::MAX);
        assert_eq!(self.encoder.table_size(), self.decoder.table_size());
    }
}
