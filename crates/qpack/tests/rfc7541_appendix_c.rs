//! The Huffman-coded strings of RFC 7541 Appendix C.

use pronghorn_qpack::huffman;

const VECTORS: [(&str, &str); 10] = [
    ("www.example.com", "f1e3c2e5f23a6ba0ab90f4ff"),
    ("no-cache", "a8eb10649cbf"),
    ("custom-key", "25a849e95ba97d7f"),
    ("custom-value", "25a849e95bb8e8b4bf"),
    ("302", "6402"),
    ("private", "aec3771a4b"),
    ("Mon, 21 Oct 2013 20:13:21 GMT", "d07abe941054d444a8200595040b8166e082a62d1bff"),
    ("https://www.example.com", "9d29ad171863c78f0b97c8e9ae82ae43d3"),
    ("gzip", "9bd9ab"),
    (
        "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
        "94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
    ),
];

fn bytes(hex: &str) -> Vec<u8> {
    let byte = |at| {
        u8::from_str_radix(&hex[at..at + 2], 16).expect("invariant: the vectors are hexadecimal")
    };
    (0..hex.len()).step_by(2).map(byte).collect()
}

#[test]
fn strings_are_encoded_as_in_the_rfc() {
    for (text, hex) in VECTORS {
        let mut code = Vec::new();
        huffman::encode(text.as_bytes(), &mut code);
        assert_eq!(code, bytes(hex), "{text}");
        assert_eq!(huffman::encoded_len(text.as_bytes()), code.len());
    }
}

#[test]
fn strings_are_decoded_as_in_the_rfc() {
    for (text, hex) in VECTORS {
        let mut out = Vec::new();
        huffman::decode(&bytes(hex), &mut out).unwrap();
        assert_eq!(out, text.as_bytes());
    }
}
