//! Encoding of a request.

use bytes::{BufMut, BytesMut};

use crate::Parameters;
use crate::record::kind::{BEGIN_REQUEST, PARAMS, STDIN};
use crate::record::{REQUEST, VERSION};

/// The role of the application: it answers requests.
const RESPONDER: u16 = 1;

/// Maximum content of one record, in bytes; a multiple of eight, as the specification recommends.
pub const MAX_CONTENT_BYTES: usize = 0xFFF8;

/// Writes the begin-request record. The application closes the connection after the request.
pub fn begin(out: &mut BytesMut) {
    header(out, BEGIN_REQUEST, 8);
    out.put_u16(RESPONDER);
    out.put_bytes(0, 6);
}

/// Writes all parameters and the record that ends them.
pub fn parameters(out: &mut BytesMut, parameters: &Parameters) {
    for part in parameters.encoded().chunks(MAX_CONTENT_BYTES) {
        header(out, PARAMS, part.len());
        out.extend_from_slice(part);
    }
    header(out, PARAMS, 0);
}

/// Writes a piece of the request body; an empty piece ends the body.
///
/// # Panics
///
/// If the piece is longer than [`MAX_CONTENT_BYTES`].
pub fn content(out: &mut BytesMut, piece: &[u8]) {
    header(out, STDIN, piece.len());
    out.extend_from_slice(piece);
}

fn header(out: &mut BytesMut, kind: u8, length: usize) {
    assert!(length <= MAX_CONTENT_BYTES, "a record's length field has 16 bits");
    out.put_u8(VERSION);
    out.put_u8(kind);
    out.put_u16(REQUEST);
    out.put_u16(length as u16);
    out.put_u16(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, value: &str) -> Parameters {
        let mut parameters = Parameters::default();
        parameters.put(name, value);
        parameters
    }

    #[test]
    fn request_is_encoded_as_specified() {
        let mut out = BytesMut::new();
        begin(&mut out);
        parameters(&mut out, &of("a", "b"));
        content(&mut out, b"xyz");
        content(&mut out, b"");
        let wanted: &[&[u8]] = &[
            &[1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0],
            &[1, 4, 0, 1, 0, 4, 0, 0, 1, 1, b'a', b'b'],
            &[1, 4, 0, 1, 0, 0, 0, 0],
            &[1, 5, 0, 1, 0, 3, 0, 0, b'x', b'y', b'z'],
            &[1, 5, 0, 1, 0, 0, 0, 0],
        ];
        assert_eq!(out, wanted.concat());
    }

    #[test]
    fn large_parameters_are_split_into_several_records() {
        let mut out = BytesMut::new();
        // Five bytes of length fields, and the name.
        parameters(&mut out, &of("a", &"v".repeat(MAX_CONTENT_BYTES - 5)));
        assert_eq!(out.len(), MAX_CONTENT_BYTES + 1 + 3 * 8);
        assert_eq!(out[4..6], (MAX_CONTENT_BYTES as u16).to_be_bytes());
        assert_eq!(out[MAX_CONTENT_BYTES + 12..MAX_CONTENT_BYTES + 14], [0, 1]);
    }
}
