//! Encodes field lines without the dynamic table.

use bytes::BytesMut;

use super::policy::{self, Insertion};
use crate::{
    field::FieldLine,
    huffman, integer,
    static_table::{self, Match},
};

/// Returns whether the encoding of the line is independent of the dynamic table. `found`: its match
/// in the static table.
pub(crate) fn is_static(line: &FieldLine<'_>, found: Match) -> bool {
    match found {
        Match::Full(_) => true,
        Match::Name(index) => {
            line.never_index || policy::insertion(line.name, Some(index)) == Insertion::Never
        }
    }
}

/// Encodes a field line without the dynamic table (RFC 9204 sections 4.5.2, 4.5.4 and 4.5.6).
pub(crate) fn encode_static_line(line: &FieldLine<'_>, out: &mut BytesMut) {
    let never_index = line.never_index;
    match static_table::find(line.name, line.value) {
        // A secret value cannot equal an entry of the public table in any relevant way, but the N
        // bit must reach the next hop, and an indexed line cannot carry it.
        Some(Match::Full(index)) if !never_index => {
            integer::encode(0b1100_0000, 6, index.into(), out);
        }
        Some(Match::Full(index) | Match::Name(index)) => encode_value(index, line, out),
        None => {
            let flags = if never_index { 0b0011_0000 } else { 0b0010_0000 };
            encode_string(flags, 3, line.name, out);
            encode_string(0, 7, line.value, out);
        }
    }
}

/// A literal with the name of a static entry.
//= RFC 9204 section 4.5.4
//# When the 'N' bit is set, the encoded field line MUST always be encoded with a literal representation.
pub(super) fn encode_value(static_name: u8, line: &FieldLine<'_>, out: &mut BytesMut) {
    let flags = if line.never_index { 0b0111_0000 } else { 0b0101_0000 };
    integer::encode(flags, 4, static_name.into(), out);
    encode_string(0, 7, line.value, out);
}

/// Encodes a string literal: the H bit precedes the length's prefix (RFC 9204 section 4.1.2). Uses
/// Huffman coding only if shorter.
pub(super) fn encode_string(flags: u8, prefix_bits: u32, text: &[u8], out: &mut BytesMut) {
    // Each code has at least five bits, so two bytes never become one.
    let huffman_len = if text.len() <= 2 { text.len() } else { huffman::encoded_len(text) };
    if huffman_len < text.len() {
        integer::encode(flags | 1 << prefix_bits, prefix_bits, huffman_len as u64, out);
        huffman::encode(text, out);
    } else {
        integer::encode(flags, prefix_bits, text.len() as u64, out);
        out.extend_from_slice(text);
    }
}
