//! Keys in the memory of this process.

use std::fmt;
use std::path::Path;

use aws_lc_rs::digest::Digest;
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, KeyPair,
    RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384,
    RSA_PSS_SHA512, RsaEncoding,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::{self, PemObject};

use super::error::SignError;
use super::public_key::PublicKey;
use super::scheme::{Hash, KeyKind, Scheme, ecdsa_digest};
use super::source::KeySource;

/// A private key in the memory of this process. It signs on the calling thread.
pub struct LocalKey {
    name: String,
    pair: Pair,
    public: PublicKey,
}

enum Pair {
    Rsa(rsa::KeyPair),
    Ecdsa(EcdsaKeyPair),
}

/// The reason why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LocalKeyError {
    /// The file cannot be read.
    #[error("{0}")]
    File(std::io::Error),
    /// There is no private key in PEM form.
    #[error("contains no usable private key in PEM form ({0})")]
    Malformed(String),
    /// The key is encrypted with a passphrase.
    #[error("the key is encrypted with a passphrase")]
    Encrypted,
    /// The key is of another kind or size.
    #[error("unsupported kind or size of key: use RSA of 2048 to 8192 bits, ECDSA P-256 or P-384")]
    Unsupported,
}

impl LocalKey {
    /// Reads a key from a file in PEM form.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or has no supported key.
    pub fn from_file(path: &Path) -> Result<Self, LocalKeyError> {
        let text = std::fs::read(path).map_err(LocalKeyError::File)?;
        Self::from_pem(path.display().to_string(), &text)
    }

    /// Reads a key from PEM text. `name` is for messages.
    ///
    /// # Errors
    ///
    /// Returns an error if the text has no supported key.
    pub fn from_pem(name: impl Into<String>, text: &[u8]) -> Result<Self, LocalKeyError> {
        let key = PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
            _ if is_encrypted(text) => LocalKeyError::Encrypted,
            pem::Error::NoItemsFound => LocalKeyError::Malformed("none found".to_owned()),
            other => LocalKeyError::Malformed(other.to_string()),
        })?;
        Self::from_der(name, &key)
    }

    /// Uses a key in DER form. `name` is for messages.
    ///
    /// # Errors
    ///
    /// Returns an error if it is no supported key.
    pub fn from_der(
        name: impl Into<String>,
        key: &PrivateKeyDer<'_>,
    ) -> Result<Self, LocalKeyError> {
        let der = key.secret_der();
        let (pair, kind) = rsa_pair(key)
            .map(|pair| (Pair::Rsa(pair), KeyKind::Rsa))
            .or_else(|| {
                let p256 = EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_ASN1_SIGNING, der);
                Some((Pair::Ecdsa(p256.ok()?), KeyKind::P256))
            })
            .or_else(|| {
                let p384 = EcdsaKeyPair::from_private_key_der(&ECDSA_P384_SHA384_ASN1_SIGNING, der);
                Some((Pair::Ecdsa(p384.ok()?), KeyKind::P384))
            })
            .ok_or(LocalKeyError::Unsupported)?;
        let bits = match &pair {
            Pair::Rsa(pair) => pair.public_key().as_ref().to_vec(),
            Pair::Ecdsa(pair) => pair.public_key().as_ref().to_vec(),
        };
        Ok(Self { name: name.into(), pair, public: PublicKey::of_bits(kind, bits) })
    }
}

fn rsa_pair(key: &PrivateKeyDer<'_>) -> Option<rsa::KeyPair> {
    match key {
        PrivateKeyDer::Pkcs1(key) => rsa::KeyPair::from_der(key.secret_pkcs1_der()).ok(),
        PrivateKeyDer::Pkcs8(key) => rsa::KeyPair::from_pkcs8(key.secret_pkcs8_der()).ok(),
        _ => None,
    }
}

/// Returns whether a PEM text contains a key encrypted with a passphrase, in PKCS #8 form (RFC
/// 7468, section 11) or OpenSSL's older form (RFC 1421).
fn is_encrypted(text: &[u8]) -> bool {
    let marks: [&[u8]; 2] = [b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED"];
    marks.iter().any(|mark| text.windows(mark.len()).any(|window| window == *mark))
}

impl KeySource for LocalKey {
    fn name(&self) -> &str {
        &self.name
    }

    fn may_block(&self) -> bool {
        false
    }

    fn public_key(&self) -> &PublicKey {
        &self.public
    }

    fn sign(&self, scheme: Scheme, digest: &[u8]) -> Result<Vec<u8>, SignError> {
        let failed = |_| SignError::Failed("the key did not sign".to_owned());
        match (&self.pair, rsa_encoding(scheme)) {
            (Pair::Rsa(pair), Some(encoding)) => {
                let digest = Digest::import_less_safe(digest, scheme.hash().algorithm())
                    .map_err(|_| wrong_digest(digest))?;
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign_digest(encoding, &digest, &mut signature).map_err(failed)?;
                Ok(signature)
            }
            (Pair::Ecdsa(pair), None) => {
                let digest =
                    ecdsa_digest(self.public.kind(), digest).ok_or_else(|| wrong_digest(digest))?;
                Ok(pair.sign_digest(&digest).map_err(failed)?.as_ref().to_vec())
            }
            _ => Err(SignError::Unsupported(scheme)),
        }
    }
}

fn wrong_digest(digest: &[u8]) -> SignError {
    SignError::Failed(format!("a digest of {} bytes is not of the scheme", digest.len()))
}

/// Returns the encoding of an RSA scheme, and `None` for ECDSA.
fn rsa_encoding(scheme: Scheme) -> Option<&'static dyn RsaEncoding> {
    Some(match scheme {
        Scheme::RsaPkcs1(Hash::Sha256) => &RSA_PKCS1_SHA256,
        Scheme::RsaPkcs1(Hash::Sha384) => &RSA_PKCS1_SHA384,
        Scheme::RsaPkcs1(Hash::Sha512) => &RSA_PKCS1_SHA512,
        Scheme::RsaPss(Hash::Sha256) => &RSA_PSS_SHA256,
        Scheme::RsaPss(Hash::Sha384) => &RSA_PSS_SHA384,
        Scheme::RsaPss(Hash::Sha512) => &RSA_PSS_SHA512,
        Scheme::Ecdsa(_) => return None,
    })
}

impl fmt::Debug for LocalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalKey({}, {:?})", self.name, self.public)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(algorithm: &'static rcgen::SignatureAlgorithm) -> (LocalKey, PublicKey) {
        let pair = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let certificate =
            rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&pair);
        let public = PublicKey::of_certificate(certificate.unwrap().der()).unwrap();
        (LocalKey::from_pem("test", pair.serialize_pem().as_bytes()).unwrap(), public)
    }

    #[test]
    fn signature_of_each_scheme_verifies_with_the_certificate() {
        let hashes = [Hash::Sha256, Hash::Sha384, Hash::Sha512];
        for algorithm in [
            &rcgen::PKCS_RSA_SHA256,
            &rcgen::PKCS_ECDSA_P256_SHA256,
            &rcgen::PKCS_ECDSA_P384_SHA384,
        ] {
            let (key, public) = key(algorithm);
            assert_eq!(*key.public_key(), public);
            assert_eq!(PublicKey::of_spki(&public.spki()), Ok(public.clone()));
            let all = hashes.iter().flat_map(|hash| {
                [Scheme::RsaPkcs1(*hash), Scheme::RsaPss(*hash), Scheme::Ecdsa(*hash)]
            });
            for scheme in all {
                let digest = scheme.digest(b"message");
                if !public.kind().supports(scheme) {
                    assert_eq!(
                        key.sign(scheme, digest.as_ref()),
                        Err(SignError::Unsupported(scheme))
                    );
                    continue;
                }
                let mut signature = key.sign(scheme, digest.as_ref()).unwrap();
                assert!(public.verifies(scheme, digest.as_ref(), &signature));
                assert!(!public.verifies(scheme, scheme.digest(b"other").as_ref(), &signature));
                let last = signature.len() - 1;
                signature[last] ^= 1;
                assert!(!public.verifies(scheme, digest.as_ref(), &signature));
                assert!(!public.verifies(scheme, digest.as_ref(), &[]));
            }
        }
    }

    #[test]
    fn digest_of_another_size_is_refused_for_rsa() {
        let (key, _) = key(&rcgen::PKCS_RSA_SHA256);
        assert!(key.sign(Scheme::RsaPss(Hash::Sha256), &[0; 31]).is_err());
        assert!(key.sign(Scheme::RsaPkcs1(Hash::Sha384), &[0; 32]).is_err());
    }

    #[test]
    fn unusable_keys_are_told_apart() {
        let load = |text: &str| LocalKey::from_pem("x", text.as_bytes()).unwrap_err();
        assert!(matches!(load("nothing"), LocalKeyError::Malformed(_)));
        let encrypted =
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        assert!(matches!(load(encrypted), LocalKeyError::Encrypted));
        let ed25519 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        assert!(matches!(load(&ed25519.serialize_pem()), LocalKeyError::Unsupported));
    }
}
