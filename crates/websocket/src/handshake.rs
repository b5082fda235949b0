//! Values of the handshake's header fields (RFC 6455 sections 4.1 and 4.2, RFC 8441 section 5).

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The only version, for `sec-websocket-version`.
pub const VERSION: &str = "13";

/// Returns `sec-websocket-accept` for a client's `sec-websocket-key`. HTTP/2 and HTTP/3 use
/// neither.
//= RFC 6455 section 4.2.2
//# is constructed by concatenating /key/, defined above in step 4 in Section 4.2.2, with the string
//# "258EAFA5-E914-47DA-95CA-C5AB0DC85B11", taking the SHA-1 hash of this concatenated value to obtain a 20-byte value and
//# base64-encoding (see Section 4 of [RFC4648]) this 20-byte hash.
pub fn accept(key: &str) -> String {
    let mut hash = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key.as_bytes());
    hash.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    STANDARD.encode(hash.finish())
}

/// Returns whether a `sec-websocket-key` is valid: sixteen bytes in base64.
pub fn is_key(key: &str) -> bool {
    STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16)
}

/// Returns a client's `sec-websocket-key`.
pub fn key(random: [u8; 16]) -> String {
    STANDARD.encode(random)
}

/// Iterates over the subprotocols in `sec-websocket-protocol` lines, in the client's order.
pub fn protocols<'a>(lines: impl IntoIterator<Item = &'a str>) -> impl Iterator<Item = &'a str> {
    lines
        .into_iter()
        .flat_map(|line| line.split(','))
        .map(str::trim_ascii)
        .filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc6455_example_handshake_matches() {
        // RFC 6455, section 1.3.
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert!(is_key("dGhlIHNhbXBsZSBub25jZQ=="));
        assert!(!is_key("dGhlIHNhbXBsZSBub25jZQ") && !is_key("") && !is_key("AAAA"));
        assert_eq!(key(*b"the sample nonce"), "dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(
            protocols(["chat, superchat", " v2 ,"]).collect::<Vec<_>>(),
            ["chat", "superchat", "v2"]
        );
    }
}
