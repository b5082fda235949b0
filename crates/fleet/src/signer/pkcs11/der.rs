//! DER of `DigestInfo` (RFC 8017 section 9.2) and of ECDSA signatures, for modules that sign
//! neither themselves.

use crate::signer::scheme::Hash;

/// Returns the `DigestInfo` that RSASSA-PKCS1-v1_5 pads.
pub(crate) fn digest_info(hash: Hash, digest: &[u8]) -> Vec<u8> {
    // The last byte of the hash's object identifier, 2.16.840.1.101.3.4.2.
    let last = match hash {
        Hash::Sha256 => 1,
        Hash::Sha384 => 2,
        Hash::Sha512 => 3,
    };
    let size = digest.len() as u8;
    let mut info = vec![0x30, size + 17, 0x30, 13, 6, 9, 0x60, 0x86, 0x48, 1, 101, 3, 4, 2, last];
    info.extend([5, 0, 4, size]);
    info.extend_from_slice(digest);
    info
}

/// Returns an ECDSA signature in DER form. `fixed` has both numbers, each of half its size.
pub(crate) fn ecdsa_der(fixed: &[u8]) -> Vec<u8> {
    let (r, s) = fixed.split_at(fixed.len() / 2);
    let mut numbers = Vec::with_capacity(fixed.len() + 6);
    put_integer(&mut numbers, r);
    put_integer(&mut numbers, s);
    let mut der = Vec::with_capacity(numbers.len() + 3);
    put_item(&mut der, 0x30, &numbers);
    der
}

/// Returns an `RSAPublicKey` (RFC 8017 appendix A.1.1).
pub(crate) fn rsa_public_key(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    let mut numbers = Vec::with_capacity(modulus.len() + 16);
    put_integer(&mut numbers, modulus);
    put_integer(&mut numbers, exponent);
    let mut der = Vec::with_capacity(numbers.len() + 4);
    put_item(&mut der, 0x30, &numbers);
    der
}

/// Appends an unsigned number as an `INTEGER`: without leading zeros, except where the first bit
/// would make it negative.
fn put_integer(out: &mut Vec<u8>, number: &[u8]) {
    let first = number.iter().position(|byte| *byte != 0).unwrap_or(number.len());
    let mut value = Vec::with_capacity(number.len() + 1);
    if number.get(first).is_none_or(|byte| *byte >= 0x80) {
        value.push(0);
    }
    value.extend_from_slice(&number[first..]);
    put_item(out, 2, &value);
}

fn put_item(out: &mut Vec<u8>, tag: u8, value: &[u8]) {
    out.push(tag);
    match value.len() {
        length @ 0..0x80 => out.push(length as u8),
        length @ 0x80..0x100 => out.extend([0x81, length as u8]),
        length => out.extend([0x82, (length >> 8) as u8, length as u8]),
    }
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_info_has_the_published_prefixes() {
        // RFC 8017, section 9.2, note 1.
        let prefix = [
            0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02,
            0x01, 0x05, 0x00, 0x04, 0x20,
        ];
        assert_eq!(digest_info(Hash::Sha256, &[7; 32]), [&prefix[..], &[7; 32]].concat());
        assert_eq!(digest_info(Hash::Sha384, &[0; 48])[..2], [0x30, 0x41]);
        assert_eq!(digest_info(Hash::Sha512, &[0; 64])[..2], [0x30, 0x51]);
    }

    #[test]
    fn integers_are_minimal_and_positive() {
        assert_eq!(ecdsa_der(&[0, 1, 0x80, 2]), [0x30, 8, 2, 1, 1, 2, 3, 0, 0x80, 2]);
        assert_eq!(ecdsa_der(&[0, 0, 0, 0]), [0x30, 6, 2, 1, 0, 2, 1, 0]);
        let key = rsa_public_key(&[0xff; 256], &[1, 0, 1]);
        assert_eq!(key[..8], [0x30, 0x82, 1, 10, 2, 0x82, 1, 1]);
        assert_eq!(key[key.len() - 5..], [2, 3, 1, 0, 1]);
    }
}
