//! Public keys of certificates: identifier and verification.

use std::fmt;

use aws_lc_rs::digest::{self, Digest};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, UnparsedPublicKey, VerificationAlgorithm,
};
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer, alg_id};
use rustls::sign::public_key_to_spki;
use x509_parser::oid_registry::{
    OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384, OID_PKCS1_RSAENCRYPTION,
};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::SubjectPublicKeyInfo;

use super::protocol::Ski;
use super::scheme::{Hash, KeyKind, Scheme, ecdsa_digest};

/// A public key: RSA, or ECDSA on P-256 or P-384.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    kind: KeyKind,
    /// The contents of the key's bit string: an `RSAPublicKey`, or an uncompressed point.
    bits: Vec<u8>,
}

/// The reason why a public key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublicKeyError {
    /// The certificate or its public key cannot be parsed.
    #[error("the certificate cannot be parsed")]
    Malformed,
    /// The key is of another kind.
    #[error("unsupported kind of key: use RSA, ECDSA P-256 or ECDSA P-384")]
    Unsupported,
}

impl PublicKey {
    /// Returns the key of a certificate.
    ///
    /// # Errors
    ///
    /// Returns an error if the certificate is malformed or has a key of another kind.
    pub fn of_certificate(certificate: &CertificateDer<'_>) -> Result<Self, PublicKeyError> {
        let (_, parsed) =
            X509Certificate::from_der(certificate).map_err(|_| PublicKeyError::Malformed)?;
        Self::of_info(parsed.public_key())
    }

    /// Returns the key in a `SubjectPublicKeyInfo`.
    ///
    /// # Errors
    ///
    /// Returns an error if it is malformed or a key of another kind.
    pub fn of_spki(spki: &[u8]) -> Result<Self, PublicKeyError> {
        let (_, info) =
            SubjectPublicKeyInfo::from_der(spki).map_err(|_| PublicKeyError::Malformed)?;
        Self::of_info(&info)
    }

    fn of_info(info: &SubjectPublicKeyInfo<'_>) -> Result<Self, PublicKeyError> {
        let algorithm = &info.algorithm;
        let kind = if algorithm.algorithm == OID_PKCS1_RSAENCRYPTION {
            KeyKind::Rsa
        } else if algorithm.algorithm == OID_KEY_TYPE_EC_PUBLIC_KEY {
            let curve =
                algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
            match curve {
                Some(curve) if curve == OID_EC_P256 => KeyKind::P256,
                Some(curve) if curve == OID_NIST_EC_P384 => KeyKind::P384,
                _ => return Err(PublicKeyError::Unsupported),
            }
        } else {
            return Err(PublicKeyError::Unsupported);
        };
        Ok(Self::of_bits(kind, info.subject_public_key.data.to_vec()))
    }

    /// `bits`: an `RSAPublicKey` in DER form, or an uncompressed point.
    pub(crate) fn of_bits(kind: KeyKind, bits: Vec<u8>) -> Self {
        Self { kind, bits }
    }

    /// Returns the kind of the key.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Returns the identifier by which signers find the key.
    pub fn ski(&self) -> Ski {
        let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &self.bits);
        Ski(hash.as_ref().try_into().expect("invariant: SHA-1 has 20 bytes"))
    }

    /// Returns the key as a `SubjectPublicKeyInfo`.
    pub fn spki(&self) -> SubjectPublicKeyInfoDer<'static> {
        let algorithm = match self.kind {
            KeyKind::Rsa => alg_id::RSA_ENCRYPTION,
            KeyKind::P256 => alg_id::ECDSA_P256,
            KeyKind::P384 => alg_id::ECDSA_P384,
        };
        public_key_to_spki(&algorithm, &self.bits)
    }

    /// Returns whether the signature of a digest is by this key.
    pub fn verifies(&self, scheme: Scheme, digest: &[u8], signature: &[u8]) -> bool {
        let Some((algorithm, digest)) = self.verification(scheme, digest) else { return false };
        UnparsedPublicKey::new(algorithm, &self.bits).verify_digest(&digest, signature).is_ok()
    }

    fn verification(
        &self,
        scheme: Scheme,
        digest: &[u8],
    ) -> Option<(&'static dyn VerificationAlgorithm, Digest)> {
        let algorithm: &'static dyn VerificationAlgorithm = match (self.kind, scheme) {
            (KeyKind::Rsa, Scheme::RsaPkcs1(hash)) => match hash {
                Hash::Sha256 => &RSA_PKCS1_2048_8192_SHA256,
                Hash::Sha384 => &RSA_PKCS1_2048_8192_SHA384,
                Hash::Sha512 => &RSA_PKCS1_2048_8192_SHA512,
            },
            (KeyKind::Rsa, Scheme::RsaPss(hash)) => match hash {
                Hash::Sha256 => &RSA_PSS_2048_8192_SHA256,
                Hash::Sha384 => &RSA_PSS_2048_8192_SHA384,
                Hash::Sha512 => &RSA_PSS_2048_8192_SHA512,
            },
            (KeyKind::P256, Scheme::Ecdsa(_)) => &ECDSA_P256_SHA256_ASN1,
            (KeyKind::P384, Scheme::Ecdsa(_)) => &ECDSA_P384_SHA384_ASN1,
            _ => return None,
        };
        let digest = match self.kind {
            KeyKind::Rsa => Digest::import_less_safe(digest, scheme.hash().algorithm()).ok()?,
            curve => ecdsa_digest(curve, digest)?,
        };
        Some((algorithm, digest))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({:?}, {})", self.kind, self.ski())
    }
}
