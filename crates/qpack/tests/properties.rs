//! Properties of the codecs on any input.

use bytes::BytesMut;
use pronghorn_qpack::{
    Decoded, Decoder, DecompressionError, Encoder, FieldLine, FieldSection, huffman, integer,
};
use proptest::{collection::vec, prelude::*, sample};

#[derive(Clone, Debug)]
struct Line {
    name: Vec<u8>,
    value: Vec<u8>,
    never_index: bool,
}

/// Names and values, some of them from the static table.
fn line() -> impl Strategy<Value = Line> {
    let entry = sample::select((0..99_u8).collect::<Vec<_>>());
    let name = prop_oneof![
        entry.clone().prop_map(|index| pronghorn_qpack::static_table::name(index).to_vec()),
        vec(any::<u8>(), 0..40),
    ];
    let value = prop_oneof![
        entry.prop_map(|index| pronghorn_qpack::static_table::value(index).to_vec()),
        "[ -~]{0,200}".prop_map(String::into_bytes),
        vec(any::<u8>(), 0..300),
    ];
    (name, value, any::<bool>()).prop_map(|(name, value, never_index)| Line {
        name,
        value,
        never_index,
    })
}

fn encode(lines: &[Line]) -> BytesMut {
    let mut section = BytesMut::new();
    let lines = lines.iter().map(|line| FieldLine {
        name: &line.name,
        value: &line.value,
        never_index: line.never_index,
    });
    Encoder::new().encode(4, lines, &mut section);
    section
}

fn decode(section: &[u8]) -> Result<Vec<Line>, DecompressionError> {
    let mut lines = FieldSection::new();
    assert_eq!(Decoder::new().decode(4, section, u64::MAX, &mut lines)?, Decoded::Complete);
    Ok(lines
        .iter()
        .map(|line| Line {
            name: line.name.to_vec(),
            value: line.value.to_vec(),
            never_index: line.never_index,
        })
        .collect())
}

fn same(a: &[Line], b: &[Line]) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a.name == b.name && a.value == b.value && a.never_index == b.never_index)
}

proptest! {
    #[test]
    fn sections_survive_the_round_trip(lines in vec(line(), 0..20)) {
        let decoded = decode(&encode(&lines)).unwrap();
        prop_assert!(same(&decoded, &lines), "{:?}", decoded);
    }

    /// A cut between two lines gives exactly the lines before it; any other cut is an error.
    #[test]
    fn truncated_sections_give_whole_lines_or_an_error(lines in vec(line(), 1..6)) {
        let section = encode(&lines);
        let ends: Vec<usize> = (0..=lines.len()).map(|count| encode(&lines[..count]).len()).collect();
        for cut in 0..section.len() {
            match decode(&section[..cut]) {
                Ok(decoded) => {
                    let count = ends.iter().position(|end| *end == cut);
                    prop_assert_eq!(count, Some(decoded.len()));
                    prop_assert!(same(&decoded, &lines[..decoded.len()]));
                }
                Err(error) => {
                    prop_assert_eq!(error, DecompressionError::Truncated);
                    prop_assert!(!ends.contains(&cut));
                }
            }
        }
    }

    #[test]
    fn random_sections_never_panic(mut section in vec(any::<u8>(), 0..500), plain_prefix: bool) {
        if plain_prefix && section.len() >= 2 {
            section[0] = 0;
            section[1] = 0;
        }
        let mut lines = FieldSection::new();
        if Decoder::new().decode(0, &section, 2000, &mut lines).is_ok() {
            prop_assert!(lines.size() <= 2000);
        }
    }

    #[test]
    fn split_instruction_streams_give_the_same_result(bytes in vec(any::<u8>(), 0..60), cut in 0..60_usize) {
        let (front, back) = bytes.split_at(cut.min(bytes.len()));
        let mut cut_decoder = Decoder::new();
        let cut_result = cut_decoder.handle_encoder_stream(front).and_then(|()| cut_decoder.handle_encoder_stream(back));
        prop_assert_eq!(cut_result, Decoder::new().handle_encoder_stream(&bytes));
        let mut cut_encoder = Encoder::new();
        let cut_result = cut_encoder.handle_decoder_stream(front).and_then(|()| cut_encoder.handle_decoder_stream(back));
        prop_assert_eq!(cut_result, Encoder::new().handle_decoder_stream(&bytes));
    }

    #[test]
    fn huffman_code_survives_the_round_trip(text in vec(any::<u8>(), 0..300)) {
        let mut code = Vec::new();
        huffman::encode(&text, &mut code);
        prop_assert_eq!(code.len(), huffman::encoded_len(&text));
        let mut out = Vec::new();
        prop_assert_eq!(huffman::decode(&code, &mut out), Ok(()));
        prop_assert_eq!(out, text);
    }

    /// A decoded string encodes to the same bytes: each string has one code.
    #[test]
    fn decoded_huffman_code_is_canonical(code in vec(any::<u8>(), 0..60)) {
        let mut text = Vec::new();
        if huffman::decode(&code, &mut text).is_ok() {
            let mut again = Vec::new();
            huffman::encode(&text, &mut again);
            prop_assert_eq!(again, code);
        }
    }

    #[test]
    fn integers_survive_the_round_trip(value in 0..=integer::MAX, shift in 0..62_u32, prefix_bits in 1..=8_u32) {
        let value = value >> shift;
        let mut bytes = Vec::new();
        integer::encode(0, prefix_bits, value, &mut bytes);
        let mut input = &bytes[..];
        prop_assert_eq!(integer::decode(prefix_bits, &mut input), Ok(value));
        prop_assert!(input.is_empty());
        for cut in 0..bytes.len() {
            prop_assert_eq!(integer::decode(prefix_bits, &mut &bytes[..cut]), Err(integer::DecodeError::Truncated));
        }
    }
}
