//! RFC 9204 Appendix B, as far as it needs no dynamic table.

use pronghorn_qpack::{Decoded, Decoder, FieldSection};

/// B.1: a literal field line with a name reference into the static table.
#[test]
fn literal_with_name_reference_is_decoded() {
    let section = [0x00, 0x00, 0x51, 0x0b, 0x2f, 0x69, 0x6e, 0x64, 0x65, 0x78, 0x2e, 0x68, 0x74, 0x6d, 0x6c];
    let mut lines = FieldSection::new();
    assert_eq!(Decoder::new().decode(0, &section, 1000, &mut lines), Ok(Decoded::Complete));
    assert_eq!(lines.len(), 1);
    let line = lines.get(0).unwrap();
    assert_eq!((line.name, line.value, line.never_index), (&b":path"[..], &b"/index.html"[..], false));
    assert_eq!(line.static_name_index(), Some(1));
}
