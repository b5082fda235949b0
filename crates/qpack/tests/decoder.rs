//! The decoder's dynamic table: accepted and refused instructions and references, and memory.

use pronghorn_qpack::{Decoded, Decoder, DecompressionError, EncoderStreamError, FieldSection};

const CAPACITY: u64 = 200;

fn decoder() -> Decoder {
    Decoder::with_table(CAPACITY, 2)
}

/// Returns a decoder whose peer has set the full capacity and inserted these lines with literal
/// names.
fn with_entries(lines: &[(&str, &str)]) -> Decoder {
    let mut decoder = decoder();
    decoder.handle_encoder_stream(&capacity(CAPACITY)).expect("the capacity is allowed");
    for (name, value) in lines {
        decoder.handle_encoder_stream(&insertion(name, value)).expect("the entry is valid");
    }
    decoder
}

fn capacity(capacity: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    pronghorn_qpack::integer::encode(0x20, 5, capacity, &mut bytes);
    bytes
}

fn insertion(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    pronghorn_qpack::integer::encode(0x40, 5, name.len() as u64, &mut bytes);
    bytes.extend(name.as_bytes());
    pronghorn_qpack::integer::encode(0, 7, value.len() as u64, &mut bytes);
    bytes.extend(value.as_bytes());
    bytes
}

fn decode(
    decoder: &mut Decoder,
    stream_id: u64,
    section: &[u8],
) -> Result<Option<FieldSection>, DecompressionError> {
    let mut lines = FieldSection::new();
    let decoded = decoder.decode(stream_id, section, 10_000, &mut lines)?;
    Ok((decoded == Decoded::Complete).then_some(lines))
}

fn section(lines: &[(&str, &str, bool)]) -> FieldSection {
    let mut section = FieldSection::new();
    for (name, value, never_index) in lines {
        section.push(name.as_bytes(), value.as_bytes(), *never_index);
    }
    section
}

/// Processes the bytes in one piece and byte by byte; both give the same result.
fn encoder_stream(lines: &[(&str, &str)], bytes: &[u8]) -> Result<u64, EncoderStreamError> {
    let mut decoder = with_entries(lines);
    let whole = decoder.handle_encoder_stream(bytes);
    let mut in_bytes = with_entries(lines);
    assert_eq!(bytes.iter().try_for_each(|byte| in_bytes.handle_encoder_stream(&[*byte])), whole);
    assert!(whole.is_err() || decoder.table_size() == in_bytes.table_size());
    whole.map(|()| decoder.table_size())
}

#[test]
fn every_representation_finds_its_entry() {
    let mut decoder = with_entries(&[("x-a", "1"), ("user-agent", "2")]);
    // Base 1: entry 0 has relative index 0, entry 1 has post-base index 0. In order: indexed,
    // indexed post-base, literals with the names of both, without and with the N bit.
    let bytes = [3, 0x80, 0x80, 0x10, 0x40, 1, b'b', 0x60, 1, b'c', 0x00, 1, b'd', 0x08, 1, b'e'];
    let expected = [
        ("x-a", "1", false),
        ("user-agent", "2", false),
        ("x-a", "b", false),
        ("x-a", "c", true),
        ("user-agent", "d", false),
        ("user-agent", "e", true),
    ];
    let decoded = decode(&mut decoder, 0, &bytes).unwrap().unwrap();
    assert_eq!(decoded, section(&expected));
    assert_eq!(decoded.get(1).unwrap().static_name_index(), Some(95));
}

#[test]
fn truncated_sections_are_errors_at_every_byte() {
    let bytes = [3, 0x80, 0x80, 0x10, 0x40, 1, b'b', 0x60, 1, b'c', 0x00, 1, b'd', 0x08, 1, b'e'];
    let ends = [2, 3, 4, 7, 10, 13];
    for cut in 0..bytes.len() {
        let mut decoder = with_entries(&[("x-a", "1"), ("user-agent", "2")]);
        let outcome = decode(&mut decoder, 0, &bytes[..cut]);
        assert_eq!(outcome.is_ok(), ends.contains(&cut), "{cut}");
        assert!(outcome.is_ok() || outcome == Err(DecompressionError::Truncated));
    }
}

//= RFC 9204 section 2.2.3
//# If the decoder encounters a reference in a field line representation to a dynamic table entry that has already been
//# evicted or that has an absolute index greater than or equal to the declared Required Insert Count (Section 4.5.1), it
//# MUST treat this as a connection error of type QPACK_DECOMPRESSION_FAILED.
#[test]
fn invalid_references_are_refused() {
    let long = "v".repeat(60);
    // Two of three entries with 95 bytes each fit.
    let entries = [("x-a", &long[..]), ("x-b", &long[..]), ("x-c", &long[..])];
    let refused = Err(DecompressionError::InvalidDynamicIndex);
    for bytes in [
        // Required Insert Count 3, Base 3: evicted; below zero; by post-base index beyond the
        // count.
        &[4, 0x00, 0x82][..],
        &[4, 0x00, 0x83],
        &[4, 0x00, 0x10],
        // As the name of a literal.
        &[4, 0x00, 0x42, 0],
        &[4, 0x00, 0x00, 0],
        // An index beyond the range of any entry.
        &[4, 0x00, 0xbf, 0xff, 0xff, 0xff, 0x7f],
        &[4, 0x00, 0x1f, 0xff, 0xff, 0xff, 0x7f],
    ] {
        assert_eq!(decode(&mut with_entries(&entries), 0, bytes), refused, "{bytes:x?}");
    }
    assert!(decode(&mut with_entries(&entries), 0, &[4, 0x00, 0x81, 0x80]).is_ok());
}

//= RFC 9204 section 2.2.1
//# If it encounters a Required Insert Count smaller than expected, it MUST treat this as a connection error of type
//# QPACK_DECOMPRESSION_FAILED; see Section 2.2.3.
#[test]
fn required_insert_count_smaller_than_needed_is_refused() {
    let entries = [("x-a", "1"), ("x-b", "2")];
    let refused = Err(DecompressionError::InvalidDynamicIndex);
    // Count 1, Base 2: index 0 is entry 1. Then by post-base indices, and with a count of zero.
    for bytes in [
        &[2, 0x01, 0x80][..],
        &[2, 0x80, 0x11],
        &[2, 0x00, 0x10],
        &[0, 0x00, 0x80],
        &[0, 0x02, 0x80],
        &[0, 0, 0x10],
    ] {
        assert_eq!(decode(&mut with_entries(&entries), 0, bytes), refused, "{bytes:x?}");
    }
}

#[test]
fn blocked_section_is_decoded_when_its_insertions_arrive() {
    let mut decoder = with_entries(&[("x-a", "1")]);
    let bytes = [3, 0x00, 0x80, 0x81];
    assert_eq!(decode(&mut decoder, 4, &bytes), Ok(None));
    assert_eq!(decoder.poll_unblocked(), None);
    assert_eq!(decoder.take_instructions().unwrap()[..], [0x01]);
    decoder.handle_encoder_stream(&insertion("x-b", "2")).unwrap();
    assert_eq!(decoder.poll_unblocked(), Some(4));
    assert_eq!(decoder.poll_unblocked(), None);
    assert_eq!(
        decode(&mut decoder, 4, &bytes).unwrap().unwrap(),
        section(&[("x-b", "2", false), ("x-a", "1", false)])
    );
    assert_eq!(decoder.take_instructions().unwrap()[..], [0x84]);
    assert_eq!(decoder.take_instructions(), None);
}

//= RFC 9204 section 2.1.2
//# If a decoder encounters more blocked streams than it promised to support, it MUST treat this as a connection error of
//# type QPACK_DECOMPRESSION_FAILED.
#[test]
fn more_blocked_streams_than_promised_are_refused() {
    let mut decoder = with_entries(&[]);
    let blocked = [2, 0x00, 0x80];
    assert_eq!(decode(&mut decoder, 0, &blocked), Ok(None));
    assert_eq!(decode(&mut decoder, 4, &blocked), Ok(None));
    assert_eq!(
        decode(&mut decoder, 8, &blocked),
        Err(DecompressionError::TooManyBlockedStreams { limit: 2 })
    );
    // The same stream counts once; a cancelled one does not count.
    assert_eq!(decode(&mut decoder, 4, &blocked), Ok(None));
    decoder.cancel_stream(0);
    assert_eq!(decode(&mut decoder, 8, &blocked), Ok(None));
    let mut decoder = Decoder::with_table(CAPACITY, 0);
    assert_eq!(
        decode(&mut decoder, 0, &blocked),
        Err(DecompressionError::TooManyBlockedStreams { limit: 0 })
    );
}

//= RFC 9204 section 2.2.2.1
//# After the decoder finishes decoding a field section encoded using representations containing dynamic table
//# references, it MUST emit a Section Acknowledgment instruction (Section 4.4.1).
#[test]
fn sections_with_dynamic_references_are_acknowledged() {
    let mut decoder = with_entries(&[("x-a", "1")]);
    decode(&mut decoder, 0, &[0, 0, 0xd1]).unwrap().unwrap();
    decode(&mut decoder, 4, &[2, 0, 0x80]).unwrap().unwrap();
    decode(&mut decoder, 4, &[2, 0, 0x80]).unwrap().unwrap();
    decode(&mut decoder, 1000, &[2, 0, 0x80]).unwrap().unwrap();
    // Three acknowledgments and no increment, because they cover the insertion.
    assert_eq!(decoder.take_instructions().unwrap()[..], [0x84, 0x84, 0xff, 0xe9, 0x06]);
}

#[test]
fn insertions_are_acknowledged_in_one_increment() {
    let mut decoder = with_entries(&[("x-a", ""), ("x-b", "")]);
    assert_eq!(decoder.take_instructions().unwrap()[..], [0x02]);
    decoder.handle_encoder_stream(&[0x00, 0x00]).unwrap();
    // One section needs three of the four insertions.
    decode(&mut decoder, 0, &[4, 0x00, 0x80]).unwrap().unwrap();
    assert_eq!(decoder.take_instructions().unwrap()[..], [0x80, 0x01]);
}

#[test]
fn cancellation_is_omitted_without_a_table() {
    let mut decoder = Decoder::new();
    decoder.cancel_stream(4);
    assert_eq!(decoder.take_instructions(), None);
}

/// A short section that decodes to many copies of an entry is limited by its decoded size.
#[test]
fn repeated_references_count_with_their_decoded_size() {
    let long = "v".repeat(100);
    let mut decoder = with_entries(&[("x-a", &long)]);
    let mut bytes = vec![2, 0];
    bytes.extend([0x80; 1000]);
    let mut lines = FieldSection::new();
    let outcome = decoder.decode(0, &bytes, 1350, &mut lines);
    assert_eq!(outcome, Err(DecompressionError::SectionTooLarge { limit: 1350 }));
    // Ten lines of 135 bytes; no more was stored.
    assert_eq!((lines.len(), lines.size()), (10, 1350));
    // Not acknowledged: the stream has to be cancelled.
    assert_eq!(decoder.take_instructions().unwrap()[..], [0x01]);
}

//= RFC 9204 section 4.3.1
//# The decoder MUST treat a new dynamic table capacity value that exceeds this limit as a connection error of type
//# QPACK_ENCODER_STREAM_ERROR.
#[test]
fn capacity_above_the_limit_is_refused() {
    assert_eq!(encoder_stream(&[], &capacity(CAPACITY)), Ok(0));
    let error =
        EncoderStreamError::CapacityExceedsLimit { capacity: CAPACITY + 1, limit: CAPACITY };
    assert_eq!(encoder_stream(&[], &capacity(CAPACITY + 1)), Err(error));
}

#[test]
fn smaller_capacity_evicts() {
    let entries = [("x-a", "1"), ("x-b", "2"), ("x-c", "3")];
    assert_eq!(encoder_stream(&entries, &[]), Ok(108));
    assert_eq!(encoder_stream(&entries, &capacity(107)), Ok(72));
    assert_eq!(encoder_stream(&entries, &capacity(0)), Ok(0));
}

//= RFC 9204 section 3.2.2
//# It is an error if the encoder attempts to add an entry that is larger than the dynamic table capacity; the decoder MUST
//# treat this as a connection error of type QPACK_ENCODER_STREAM_ERROR.
#[test]
fn entry_larger_than_the_capacity_is_refused() {
    let fits = "v".repeat(CAPACITY as usize - 35);
    assert_eq!(encoder_stream(&[("x-b", "2")], &insertion("x-a", &fits)), Ok(CAPACITY));
    let refused = Err(EncoderStreamError::EntryTooLarge);
    assert_eq!(encoder_stream(&[], &insertion("x-ab", &fits)), refused);
    // With a name of the static table.
    let mut bytes = vec![0xc0 | 32, 0x7f, 0x30];
    bytes.extend(fits.as_bytes());
    assert_eq!(encoder_stream(&[], &bytes), refused);
    // An entry that no longer fits cannot be duplicated: it was evicted before.
    assert_eq!(
        encoder_stream(&[("x-a", "1")], &[&capacity(35)[..], &[0x00]].concat()),
        Err(EncoderStreamError::InvalidIndex)
    );
}

/// Only the announced length counts: nothing of the string has arrived.
#[test]
fn string_larger_than_the_capacity_is_refused_before_it_arrives() {
    let refused = Err(EncoderStreamError::EntryTooLarge);
    // A name of 169 bytes; a value of 161 bytes after a name of 8; lengths of 2^61; 586 bytes of
    // Huffman code stand for at least 156 characters, 585 for 155, and the name has 13.
    assert_eq!(encoder_stream(&[], &[0x40 | 31, 0x8a, 0x01]), refused);
    assert_eq!(encoder_stream(&[], &[b"\x48x-a-name".as_slice(), &[0x7f, 34]].concat()), refused);
    assert_eq!(
        encoder_stream(&[], &[0xc0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f]),
        refused
    );
    assert_eq!(encoder_stream(&[], &[0xc0 | 32, 0xff, 0xcb, 0x03]), refused);
    assert!(encoder_stream(&[], &[0xc0 | 32, 0xff, 0xca, 0x03]).is_ok());
}

/// Short Huffman code for a long string: the decoded string is limited too.
#[test]
fn huffman_text_larger_than_the_capacity_is_refused() {
    // 152 characters of five bits each, then 184.
    let code = [0_u8; 95];
    let bytes = [&[0x40 | 0x20 | 31, 64][..], &code].concat();
    assert_eq!(encoder_stream(&[], &bytes), Ok(0));
    let bytes = [&[0x40 | 0x20 | 31, 64 + 20][..], &code, &[0; 20]].concat();
    assert_eq!(encoder_stream(&[], &bytes), Err(EncoderStreamError::EntryTooLarge));
}

//= RFC 9204 section 2.2.3
//# If the decoder encounters a reference in an encoder instruction to a dynamic table entry that has already been evicted,
//# it MUST treat this as a connection error of type QPACK_ENCODER_STREAM_ERROR.
#[test]
fn instruction_with_an_invalid_index_is_refused() {
    let long = "v".repeat(60);
    let entries = [("x-a", &long[..]), ("x-b", &long[..]), ("x-c", &long[..])];
    for bytes in [&[0x02][..], &[0x82], &[0x1f, 0xff, 0xff, 0x7f], &[0xbf, 0xff, 0xff, 0x7f]] {
        assert_eq!(encoder_stream(&entries, bytes), Err(EncoderStreamError::InvalidIndex));
    }
    assert_eq!(encoder_stream(&entries, &[0x01]), Ok(190));
}

//= RFC 9204 section 3.1
//# If this index is received on the encoder stream, this MUST be treated as a connection error of type
//# QPACK_ENCODER_STREAM_ERROR.
#[test]
fn instruction_with_an_invalid_static_index_is_refused() {
    assert_eq!(encoder_stream(&[], &[0xff, 99 - 63]), Err(EncoderStreamError::InvalidStaticIndex));
    assert_eq!(encoder_stream(&[], &[0xff, 98 - 63, 0]), Ok(47));
}

//= RFC 9204 section 3.2
//# Therefore, duplicate entries MUST NOT be treated as an error by the decoder.
#[test]
fn duplicates_are_separate_entries() {
    let mut decoder = with_entries(&[("x-a", "1")]);
    decoder.handle_encoder_stream(&insertion("x-a", "1")).unwrap();
    decoder.handle_encoder_stream(&[0x00]).unwrap();
    assert_eq!(decoder.table_size(), 3 * 36);
    let lines = [("x-a", "1", false); 3];
    assert_eq!(
        decode(&mut decoder, 0, &[4, 0, 0x80, 0x81, 0x82]).unwrap().unwrap(),
        section(&lines)
    );
}

/// RFC 9204 section 3.2.2: an entry may be copied, or its name referenced, by the insertion that
/// evicts it.
#[test]
fn entry_may_be_evicted_by_its_copy() {
    let long = "v".repeat(150);
    let mut decoder = with_entries(&[("x-a", &long)]);
    decoder.handle_encoder_stream(&[0x00]).unwrap();
    assert_eq!(
        decode(&mut decoder, 0, &[3, 0, 0x80]).unwrap().unwrap(),
        section(&[("x-a", &long, false)])
    );
    decoder.handle_encoder_stream(&[0x80, 0x03, b'n', b'e', b'w']).unwrap();
    assert_eq!(
        decode(&mut decoder, 0, &[4, 0, 0x80]).unwrap().unwrap(),
        section(&[("x-a", "new", false)])
    );
}

#[test]
fn invalid_huffman_code_on_the_encoder_stream_is_refused() {
    assert!(matches!(
        encoder_stream(&[], &[0xc0, 0x81, 0x00]),
        Err(EncoderStreamError::Huffman(_))
    ));
    assert!(matches!(encoder_stream(&[], &[0x61, 0x00]), Err(EncoderStreamError::Huffman(_))));
}
