//! Huffman coding of RFC 7541, both directions.

use pronghorn_qpack::huffman;

pub(crate) fn run(data: &[u8]) {
    let mut code = Vec::new();
    huffman::encode(data, &mut code);
    assert_eq!(code.len(), huffman::encoded_len(data));
    assert_eq!(decode(&code).as_deref(), Ok(data));
    // Each text has exactly one encoding, so encoding the decoded text restores the input.
    if let Ok(text) = decode(data) {
        let mut code = Vec::new();
        huffman::encode(&text, &mut code);
        assert_eq!(code, data);
    }
}

fn decode(code: &[u8]) -> Result<Vec<u8>, huffman::DecodeError> {
    let mut text = Vec::new();
    huffman::decode(code, &mut text).map(|()| text)
}
