//! Signature schemes: in TLS, in the protocol, and in the cryptography library.

use std::borrow::Cow;

use aws_lc_rs::digest::{self, Digest};
use rustls::SignatureScheme;

use super::protocol::Opcode;

/// A hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hash {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

/// A way to sign a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// RSASSA-PKCS1-v1_5, in TLS 1.2 only.
    RsaPkcs1(Hash),
    /// RSASSA-PSS with a salt of the digest's size.
    RsaPss(Hash),
    /// ECDSA, with the signature in DER form.
    Ecdsa(Hash),
}

/// A kind of key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// RSA.
    Rsa,
    /// ECDSA on P-256.
    P256,
    /// ECDSA on P-384.
    P384,
}

/// In the order in which rustls prefers them.
const RSA_SCHEMES: [SignatureScheme; 6] = [
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PKCS1_SHA512,
    SignatureScheme::RSA_PKCS1_SHA384,
    SignatureScheme::RSA_PKCS1_SHA256,
];

impl KeyKind {
    /// Returns the schemes of TLS that a key of this kind can use, the preferred one first.
    pub fn tls_schemes(self) -> &'static [SignatureScheme] {
        match self {
            Self::Rsa => &RSA_SCHEMES,
            Self::P256 => &[SignatureScheme::ECDSA_NISTP256_SHA256],
            Self::P384 => &[SignatureScheme::ECDSA_NISTP384_SHA384],
        }
    }

    /// Returns the size of a coordinate, which is that of the digest that ECDSA signs; `None` for
    /// RSA.
    pub(crate) fn coordinate_bytes(self) -> Option<usize> {
        match self {
            Self::Rsa => None,
            Self::P256 => Some(32),
            Self::P384 => Some(48),
        }
    }

    /// Returns whether keys of this kind can use the scheme.
    pub fn supports(self, scheme: Scheme) -> bool {
        matches!(scheme, Scheme::Ecdsa(_)) == self.coordinate_bytes().is_some()
    }
}

impl Hash {
    /// Returns the size of a digest.
    pub fn digest_bytes(self) -> usize {
        self.algorithm().output_len()
    }

    pub(crate) fn algorithm(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
            Self::Sha512 => &digest::SHA512,
        }
    }
}

impl Scheme {
    /// Returns the scheme behind one of TLS, or `None` if it is not supported.
    pub fn of_tls(scheme: SignatureScheme) -> Option<Self> {
        Some(match scheme {
            SignatureScheme::RSA_PKCS1_SHA256 => Self::RsaPkcs1(Hash::Sha256),
            SignatureScheme::RSA_PKCS1_SHA384 => Self::RsaPkcs1(Hash::Sha384),
            SignatureScheme::RSA_PKCS1_SHA512 => Self::RsaPkcs1(Hash::Sha512),
            SignatureScheme::RSA_PSS_SHA256 => Self::RsaPss(Hash::Sha256),
            SignatureScheme::RSA_PSS_SHA384 => Self::RsaPss(Hash::Sha384),
            SignatureScheme::RSA_PSS_SHA512 => Self::RsaPss(Hash::Sha512),
            SignatureScheme::ECDSA_NISTP256_SHA256 => Self::Ecdsa(Hash::Sha256),
            SignatureScheme::ECDSA_NISTP384_SHA384 => Self::Ecdsa(Hash::Sha384),
            _ => return None,
        })
    }

    /// Returns the scheme that an operation asks for, or `None` if it is none that is supported.
    pub fn of_opcode(opcode: Opcode) -> Option<Self> {
        Some(match opcode {
            Opcode::RSA_SIGN_SHA256 => Self::RsaPkcs1(Hash::Sha256),
            Opcode::RSA_SIGN_SHA384 => Self::RsaPkcs1(Hash::Sha384),
            Opcode::RSA_SIGN_SHA512 => Self::RsaPkcs1(Hash::Sha512),
            Opcode::RSA_PSS_SIGN_SHA256 => Self::RsaPss(Hash::Sha256),
            Opcode::RSA_PSS_SIGN_SHA384 => Self::RsaPss(Hash::Sha384),
            Opcode::RSA_PSS_SIGN_SHA512 => Self::RsaPss(Hash::Sha512),
            Opcode::ECDSA_SIGN_SHA256 => Self::Ecdsa(Hash::Sha256),
            Opcode::ECDSA_SIGN_SHA384 => Self::Ecdsa(Hash::Sha384),
            Opcode::ECDSA_SIGN_SHA512 => Self::Ecdsa(Hash::Sha512),
            _ => return None,
        })
    }

    /// Returns the operation that signs so.
    pub fn opcode(self) -> Opcode {
        match self {
            Self::RsaPkcs1(Hash::Sha256) => Opcode::RSA_SIGN_SHA256,
            Self::RsaPkcs1(Hash::Sha384) => Opcode::RSA_SIGN_SHA384,
            Self::RsaPkcs1(Hash::Sha512) => Opcode::RSA_SIGN_SHA512,
            Self::RsaPss(Hash::Sha256) => Opcode::RSA_PSS_SIGN_SHA256,
            Self::RsaPss(Hash::Sha384) => Opcode::RSA_PSS_SIGN_SHA384,
            Self::RsaPss(Hash::Sha512) => Opcode::RSA_PSS_SIGN_SHA512,
            Self::Ecdsa(Hash::Sha256) => Opcode::ECDSA_SIGN_SHA256,
            Self::Ecdsa(Hash::Sha384) => Opcode::ECDSA_SIGN_SHA384,
            Self::Ecdsa(Hash::Sha512) => Opcode::ECDSA_SIGN_SHA512,
        }
    }

    /// Returns the hash function.
    pub fn hash(self) -> Hash {
        match self {
            Self::RsaPkcs1(hash) | Self::RsaPss(hash) | Self::Ecdsa(hash) => hash,
        }
    }

    /// Returns the digest of a message.
    pub fn digest(self, message: &[u8]) -> Digest {
        digest::digest(self.hash().algorithm(), message)
    }
}

/// Returns the digest that ECDSA signs on a curve whose coordinates have `size` bytes, in the form
/// of a digest of that size. ECDSA uses the leftmost bits of a longer digest, and a shorter one as
/// a number (FIPS 186-5, section 6.4.1), so the signature is the same.
pub(crate) fn fitted(digest: &[u8], size: usize) -> Cow<'_, [u8]> {
    if let Some(leftmost) = digest.get(..size) {
        return leftmost.into();
    }
    let mut padded = vec![0; size - digest.len()];
    padded.extend_from_slice(digest);
    padded.into()
}

/// Returns the digest, and the hash whose size it has, as ECDSA on this curve signs it.
pub(crate) fn ecdsa_digest(kind: KeyKind, digest: &[u8]) -> Option<Digest> {
    let size = kind.coordinate_bytes()?;
    let algorithm = if size == 32 { &digest::SHA256 } else { &digest::SHA384 };
    Digest::import_less_safe(&fitted(digest, size), algorithm).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheme_of_an_opcode_has_that_opcode() {
        let schemes: Vec<_> =
            (0..=255).filter_map(|code| Scheme::of_opcode(Opcode(code))).collect();
        assert_eq!(schemes.len(), 9);
        assert!(schemes.iter().all(|scheme| Scheme::of_opcode(scheme.opcode()) == Some(*scheme)));
    }

    #[test]
    fn schemes_of_a_key_are_supported_by_it() {
        for kind in [KeyKind::Rsa, KeyKind::P256, KeyKind::P384] {
            for scheme in kind.tls_schemes() {
                assert!(kind.supports(Scheme::of_tls(*scheme).unwrap()));
            }
        }
        assert!(!KeyKind::Rsa.supports(Scheme::Ecdsa(Hash::Sha256)));
        assert!(!KeyKind::P256.supports(Scheme::RsaPss(Hash::Sha256)));
    }

    #[test]
    fn digest_is_cut_on_the_right_and_padded_on_the_left() {
        assert_eq!(fitted(&[1, 2, 3], 2)[..], [1, 2]);
        assert_eq!(fitted(&[1, 2], 4)[..], [0, 0, 1, 2]);
    }
}
