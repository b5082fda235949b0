//! Field sections and instruction streams: accepted and refused input, and the errors.

use bytes::BytesMut;
use pronghorn_qpack::{
    Decoded, Decoder, DecoderStreamError, DecompressionError, Encoder, EncoderStreamError,
    FieldLine, FieldSection,
};

fn decode(section: &[u8]) -> Result<FieldSection, DecompressionError> {
    let mut lines = FieldSection::new();
    assert_eq!(Decoder::new().decode(0, section, 10_000, &mut lines)?, Decoded::Complete);
    Ok(lines)
}

fn encode(lines: &[FieldLine<'_>]) -> BytesMut {
    let mut section = BytesMut::new();
    Encoder::new().encode(0, lines.iter().copied(), &mut section);
    section
}

#[test]
fn static_lines_take_one_byte_each() {
    let lines = [
        FieldLine::new(b":method", b"GET"),
        FieldLine::new(b":scheme", b"https"),
        FieldLine::new(b":path", b"/"),
    ];
    assert_eq!(&encode(&lines)[..], [0, 0, 0xc0 + 17, 0xc0 + 23, 0xc0 + 1]);
}

#[test]
fn static_entry_beyond_the_prefix_survives() {
    let section = encode(&[FieldLine::new(b"x-frame-options", b"sameorigin")]);
    assert_eq!(&section[..], [0, 0, 0xff, 98 - 63]);
    assert_eq!(decode(&section).unwrap().get(0).unwrap().value, b"sameorigin");
}

//= RFC 9204 section 4.5.4
//# In particular, when a peer sends a field line that it received represented as a literal field line with the 'N' bit set,
//# it MUST use a literal representation to forward this field line.
//= RFC 9204 section 7.1.3
//# An intermediary MUST NOT re-encode a value that uses a literal representation with the 'N' bit set with another
//# representation that would index it.
//= RFC 9204 section 7.1.3
//# If QPACK is used for re-encoding, a literal representation with the 'N' bit set MUST be used.
#[test]
fn secret_lines_keep_their_mark() {
    let lines = [
        FieldLine::never_indexed(b"cookie", b"secret"),
        FieldLine::never_indexed(b"x-token", b"secret"),
        FieldLine::never_indexed(b":method", b"GET"),
    ];
    let section = decode(&encode(&lines)).unwrap();
    assert!(section.iter().all(|line| line.never_index));
    assert_eq!(section.iter().map(FieldLine::from).collect::<Vec<_>>(), lines);
    assert!(!format!("{section:?}").contains("secret"));
}

#[test]
fn size_counts_each_line_with_its_overhead() {
    let lines = [FieldLine::new(b"age", b"0"), FieldLine::new(b"a", b"bc")];
    let mut out = BytesMut::new();
    assert_eq!(Encoder::new().encode(0, lines, &mut out), 36 + 35);
    assert_eq!(decode(&out).unwrap().size(), 36 + 35);
}

#[test]
fn section_above_the_limit_is_its_own_error() {
    let section = encode(&[FieldLine::new(b"age", b"0"), FieldLine::new(b"a", b"bc")]);
    let mut lines = FieldSection::new();
    assert_eq!(Decoder::new().decode(0, &section, 71, &mut lines), Ok(Decoded::Complete));
    lines.clear();
    let error = Decoder::new().decode(0, &section, 70, &mut lines);
    assert_eq!(error, Err(DecompressionError::SectionTooLarge { limit: 70 }));
}

//= RFC 9204 section 3.1
//# When the decoder encounters an invalid static table index in a field line representation, it MUST treat this as a
//# connection error of type QPACK_DECOMPRESSION_FAILED.
#[test]
fn invalid_static_index_is_refused() {
    assert_eq!(decode(&[0, 0, 0xff, 99 - 63]), Err(DecompressionError::InvalidStaticIndex));
    assert_eq!(
        decode(&[0, 0, 0xff, 0xff, 0xff, 0x7f]),
        Err(DecompressionError::InvalidStaticIndex)
    );
    assert_eq!(
        decode(&[0, 0, 0x5f, 99 - 15, 1, b'a']),
        Err(DecompressionError::InvalidStaticIndex)
    );
}

#[test]
fn dynamic_references_are_refused() {
    for line in [0x80, 0x40, 0x10, 0x00] {
        assert_eq!(
            decode(&[0, 0, line, 1, b'a']),
            Err(DecompressionError::InvalidDynamicIndex),
            "{line:#x}"
        );
    }
    assert_eq!(decode(&[1, 0, 0xc1]), Err(DecompressionError::InvalidRequiredInsertCount));
    assert_eq!(decode(&[0, 0x80, 0xc1]), Err(DecompressionError::NegativeBase));
}

#[test]
fn impossible_lengths_are_refused() {
    let mut section = vec![0, 0, 0x51, 0x7f];
    section.extend([0xff; 8]);
    section.push(0x01);
    assert_eq!(decode(&section), Err(DecompressionError::Truncated));
    section.truncate(4);
    section.extend([0xff; 12]);
    assert_eq!(decode(&section), Err(DecompressionError::IntegerOverflow));
    assert_eq!(decode(&[]), Err(DecompressionError::Truncated));
    assert_eq!(decode(&[0]), Err(DecompressionError::Truncated));
}

#[test]
fn cleared_section_keeps_its_memory() {
    let bytes = encode(&[FieldLine::new(b"x-a", b"some value of some length")]);
    let mut lines = decode(&bytes).unwrap();
    let held = lines.capacity_bytes();
    for _ in 0..10 {
        lines.clear();
        assert!(lines.is_empty());
        assert_eq!(lines.size(), 0);
        Decoder::new().decode(0, &bytes, 1000, &mut lines).unwrap();
    }
    assert_eq!(lines.capacity_bytes(), held);
}

#[test]
fn pushed_lines_equal_decoded_lines() {
    let mut pushed = FieldSection::new();
    pushed.push(b":status", b"200", false);
    pushed.push(b"x-a", b"b", false);
    pushed.push(b"set-cookie", b"c", true);
    assert_eq!(pushed.get(0).unwrap().static_name_index(), Some(24));
    let mut bytes = BytesMut::new();
    Encoder::new().encode(0, pushed.iter().map(FieldLine::from), &mut bytes);
    assert_eq!(decode(&bytes).unwrap(), pushed);
}

/// Processes the bytes in one piece and byte by byte; both give the same result.
fn encoder_stream(bytes: &[u8]) -> Result<(), EncoderStreamError> {
    let whole = Decoder::new().handle_encoder_stream(bytes);
    let mut decoder = Decoder::new();
    assert_eq!(bytes.iter().try_for_each(|byte| decoder.handle_encoder_stream(&[*byte])), whole);
    whole
}

fn decoder_stream(bytes: &[u8]) -> Result<(), DecoderStreamError> {
    let whole = Encoder::new().handle_decoder_stream(bytes);
    let mut encoder = Encoder::new();
    assert_eq!(bytes.iter().try_for_each(|byte| encoder.handle_decoder_stream(&[*byte])), whole);
    whole
}

#[test]
fn capacity_zero_is_accepted_in_any_form() {
    assert_eq!(encoder_stream(&[0x20, 0x20]), Ok(()));
}

#[test]
fn capacity_above_the_limit_is_refused() {
    assert_eq!(
        encoder_stream(&[0x21]),
        Err(EncoderStreamError::CapacityExceedsLimit { capacity: 1, limit: 0 })
    );
    // 31 + 1 + 31 * 128: the prefix, then two more bytes.
    let error = EncoderStreamError::CapacityExceedsLimit { capacity: 4000, limit: 0 };
    assert_eq!(encoder_stream(&[0x20, 0x3f, 0x81, 0x1f]), Err(error));
    let mut endless = vec![0x3f];
    endless.extend([0xff; 20]);
    assert_eq!(encoder_stream(&endless), Err(EncoderStreamError::IntegerOverflow));
}

#[test]
fn insertions_without_a_table_are_refused() {
    assert_eq!(encoder_stream(&[0xc0]), Err(EncoderStreamError::EntryTooLarge));
    assert_eq!(encoder_stream(&[0x41]), Err(EncoderStreamError::EntryTooLarge));
    assert_eq!(encoder_stream(&[0x00]), Err(EncoderStreamError::InvalidIndex));
}

#[test]
fn stream_cancellation_is_accepted() {
    assert_eq!(decoder_stream(&[0x40, 0x44, 0x7f, 0x80, 0x01]), Ok(()));
}

//= RFC 9204 section 4.4.3
//# An encoder that receives an Increment field equal to zero, or one that increases the Known Received Count beyond what
//# the encoder has sent, MUST treat this as a connection error of type QPACK_DECODER_STREAM_ERROR.
#[test]
fn insert_count_increment_is_refused() {
    assert_eq!(decoder_stream(&[0x00]), Err(DecoderStreamError::IncrementIsZero));
    assert_eq!(decoder_stream(&[0x44, 0x01]), Err(DecoderStreamError::IncrementExceedsInserts));
}

#[test]
fn unexpected_acknowledgment_is_refused() {
    let error = DecoderStreamError::UnexpectedAcknowledgment { stream_id: 131 };
    assert_eq!(decoder_stream(&[0xff, 0x04]), Err(error));
    let mut endless = vec![0xff];
    endless.extend([0xff; 20]);
    assert_eq!(decoder_stream(&endless), Err(DecoderStreamError::IntegerOverflow));
}

#[test]
fn shared_values_equal_the_lines_and_outlive_them() {
    let mut lines = FieldSection::new();
    lines.push(b"x-spelled", b"value", false);
    lines.push(b":path", b"/index.html", false);
    lines.push(b"x-empty", b"", true);
    let before = lines.clone();
    let mut pool = BytesMut::new();
    let memory = lines.share(&mut pool);
    assert_eq!(lines, before);
    let values: Vec<_> = lines.iter().map(|line| line.value_in(&memory)).collect();
    lines.clear();
    lines.push(b"x-other", b"other", false);
    lines.share(&mut pool);
    assert_eq!(values, [&b"value"[..], b"/index.html", b""]);
    assert_eq!(lines.get(0).unwrap().value, b"other");
    lines.clear();
    // Too large to be copied.
    lines.push(b"x-large", &[b'a'; 5000], false);
    let memory = lines.share(&mut pool);
    assert_eq!(lines.get(0).unwrap().value_in(&memory), [b'a'; 5000][..]);
}
