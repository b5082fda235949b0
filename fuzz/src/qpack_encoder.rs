//! Arbitrary bytes on the decoder stream, received by an encoder with outstanding sections.

use bytes::BytesMut;
use pronghorn_qpack::{Encoder, FieldLine};

use crate::input::Input;

const CAPACITY: u64 = 300;

pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut encoder = Encoder::new();
    encoder.set_peer_settings(CAPACITY, input.byte().into());
    let mut section = BytesMut::new();
    while !input.is_empty() {
        let choice = input.byte();
        match choice & 3 {
            0 => {
                if encoder.handle_decoder_stream(input.piece()).is_err() {
                    return;
                }
            }
            1 => encoder.set_backlogged(choice & 4 == 0),
            _ => {
                let names: [&[u8]; 4] = [b"x-one", b"x-two", b"cookie", b"user-agent"];
                let lines: Vec<_> = (0..=choice >> 6)
                    .map(|_| FieldLine::new(names[input.below(4)], input.piece()))
                    .collect();
                section.clear();
                encoder.encode(u64::from(choice >> 2 & 15), lines, &mut section);
            }
        }
        assert!(encoder.table_size() <= CAPACITY);
        encoder.take_instructions();
    }
}
