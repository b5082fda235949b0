//! RFC 9204 Appendix B: all exchanges in order with one decoder, and its acknowledgments.

use bytes::BytesMut;
use pronghorn_qpack::{Decoded, Decoder, Encoder, FieldLine, FieldSection};

/// Returns a decoder with the examples' table capacity of 220 bytes.
fn decoder() -> Decoder {
    Decoder::with_table(220, 16)
}

fn bytes(hex: &str) -> Vec<u8> {
    let hex: String = hex.split_whitespace().collect();
    let byte = |at| {
        u8::from_str_radix(&hex[at..at + 2], 16).expect("invariant: the vectors are hexadecimal")
    };
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// Returns the decoded lines, `blocked`, or the error.
fn decode(decoder: &mut Decoder, stream_id: u64, hex: &str) -> String {
    let mut lines = FieldSection::new();
    match decoder.decode(stream_id, &bytes(hex), 1000, &mut lines) {
        Ok(Decoded::Complete) => format!("{lines:?}"),
        Ok(Decoded::Blocked) => "blocked".into(),
        Err(error) => error.to_string(),
    }
}

fn insert(decoder: &mut Decoder, hex: &str) {
    decoder.handle_encoder_stream(&bytes(hex)).expect("the instructions are valid");
}

fn instructions(decoder: &mut Decoder) -> Vec<u8> {
    decoder.take_instructions().map(|bytes| bytes.to_vec()).unwrap_or_default()
}

/// B.1: a literal field line with a name reference into the static table.
const LITERAL: &str = "0000 510b 2f69 6e64 6578 2e68 746d 6c";
/// B.2: the capacity and two insertions; a section with two post-base references.
const FIRST_INSERTIONS: &str =
    "3fbd01 c00f 7777 772e 6578 616d 706c 652e 636f 6d c10c 2f73 616d 706c 652f 7061 7468";
const POST_BASE: &str = "0381 10 11";
/// B.3: an insertion with a literal name.
const LITERAL_NAME: &str = "4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565";
/// B.4: a duplicate; a section with references to it, to the static table and to another entry.
const DUPLICATE: &str = "02";
const RELATIVE: &str = "0500 80 c1 81";
/// B.5: an insertion with the name of an entry, which evicts the oldest one.
const DYNAMIC_NAME: &str = "810d 6375 7374 6f6d 2d76 616c 7565 32";

#[test]
fn exchanges_are_decoded_as_in_the_rfc() {
    let mut decoder = decoder();
    assert_eq!(decode(&mut decoder, 0, LITERAL), "[:path: /index.html]");
    assert!(instructions(&mut decoder).is_empty());

    insert(&mut decoder, FIRST_INSERTIONS);
    assert_eq!(decoder.table_size(), 106);
    let expected = "[:authority: www.example.com, :path: /sample/path]";
    assert_eq!(decode(&mut decoder, 4, POST_BASE), expected);
    // The acknowledgment covers both insertions, so no increment follows.
    assert_eq!(instructions(&mut decoder), [0x84]);

    insert(&mut decoder, LITERAL_NAME);
    assert_eq!(decoder.table_size(), 160);
    assert_eq!(instructions(&mut decoder), [0x01]);

    // The duplicate is late: the section is blocked, and the stream is cancelled.
    assert_eq!(decode(&mut decoder, 8, RELATIVE), "blocked");
    decoder.cancel_stream(8);
    assert_eq!(instructions(&mut decoder), [0x48]);

    insert(&mut decoder, DUPLICATE);
    assert_eq!(decoder.table_size(), 217);
    assert_eq!(decoder.poll_unblocked(), None);
    let expected = "[:authority: www.example.com, :path: /, custom-key: custom-value]";
    assert_eq!(decode(&mut decoder, 12, RELATIVE), expected);

    insert(&mut decoder, DYNAMIC_NAME);
    assert_eq!(decoder.table_size(), 215);
    // The newest, and the oldest that is left: index 0 and index 3 before a base of 5.
    let expected = "[custom-key: custom-value2, :path: /sample/path]";
    assert_eq!(decode(&mut decoder, 16, "0600 80 83"), expected);
}

/// The instructions and the section of B.2, as written by our encoder. It uses Huffman coding where
/// the RFC does not, and inserts no `:path`.
#[test]
fn insertion_and_its_reference_are_encoded_as_in_the_rfc() {
    let mut encoder = Encoder::with_max_table_capacity(220);
    encoder.set_peer_settings(220, 16);
    let mut section = BytesMut::new();
    encoder.encode(4, [FieldLine::new(b":authority", b"www.example.com")], &mut section);
    let instructions = encoder.take_instructions().unwrap();
    assert_eq!(instructions[..], bytes("3fbd01 c08c f1e3c2e5f23a6ba0ab90f4ff"));
    assert_eq!(section[..], bytes("0280 10"));
    encoder.handle_decoder_stream(&[0x84]).unwrap();

    section.clear();
    encoder.encode(8, [FieldLine::new(b":authority", b"www.example.com")], &mut section);
    assert_eq!(encoder.take_instructions(), None);
    assert_eq!(section[..], bytes("0200 80"));
    encoder.handle_decoder_stream(&[0x48]).unwrap();
}
