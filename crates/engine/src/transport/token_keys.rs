//! Keys of address-validation tokens.

use std::sync::{Arc, PoisonError, RwLock};

use aws_lc_rs::hkdf;
use quinn_proto::crypto::{AeadKey, CryptoError, HandshakeTokenKey};

use super::Secret;

/// Keys of the present secret and of earlier ones, whose tokens are still accepted.
pub(super) struct TokenKeys(RwLock<Arc<[hkdf::Prk]>>);

impl TokenKeys {
    /// Creates the keys of `secrets`, of which the first is the present one.
    pub(super) fn new(secrets: &[Secret]) -> Self {
        Self(RwLock::new(derive(secrets)))
    }

    pub(super) fn set(&self, secrets: &[Secret]) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = derive(secrets);
    }
}

fn derive(secrets: &[Secret]) -> Arc<[hkdf::Prk]> {
    let key = |secret: &Secret| {
        hkdf::Salt::new(hkdf::HKDF_SHA256, &[])
            .extract(&secret.derive::<32>("address validation token"))
    };
    secrets.iter().map(key).collect()
}

impl HandshakeTokenKey for TokenKeys {
    fn aead_from_hkdf(&self, random_bytes: &[u8]) -> Box<dyn AeadKey> {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        match &*keys {
            [only] => only.aead_from_hkdf(random_bytes),
            keys => {
                Box::new(AnyOf(keys.iter().map(|key| key.aead_from_hkdf(random_bytes)).collect()))
            }
        }
    }
}

/// Seals with the first key, and opens with any.
struct AnyOf(Vec<Box<dyn AeadKey>>);

impl AeadKey for AnyOf {
    fn seal(&self, data: &mut Vec<u8>, additional_data: &[u8]) -> Result<(), CryptoError> {
        self.0.first().ok_or(CryptoError)?.seal(data, additional_data)
    }

    fn open<'a>(
        &self,
        data: &'a mut [u8],
        additional_data: &[u8],
    ) -> Result<&'a mut [u8], CryptoError> {
        // A failed attempt leaves the data in an unknown state.
        let sealed = data.to_vec();
        for key in &self.0 {
            data.copy_from_slice(&sealed);
            if let Ok(opened) = key.open(data, additional_data) {
                let len = opened.len();
                return Ok(&mut data[..len]);
            }
        }
        Err(CryptoError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_all_secrets_are_opened_and_the_first_seals() {
        let secrets = [Secret::random(), Secret::random(), Secret::random()];
        let seal = |keys: &TokenKeys| {
            let mut token = b"a token".to_vec();
            keys.aead_from_hkdf(b"nonce").seal(&mut token, b"more").unwrap();
            token
        };
        let opens = |keys: &TokenKeys, token: &[u8]| {
            let mut token = token.to_vec();
            let opened =
                keys.aead_from_hkdf(b"nonce").open(&mut token, b"more").map(|text| text.to_vec());
            opened.is_ok_and(|text| text == b"a token")
        };
        let (old, both) = (TokenKeys::new(&secrets[1..2]), TokenKeys::new(&secrets[..2]));
        assert!(opens(&both, &seal(&old)) && opens(&both, &seal(&both)));
        assert!(!opens(&old, &seal(&both)), "sealed with the new one");
        both.set(&[secrets[2].clone(), secrets[0].clone()]);
        assert!(!opens(&both, &seal(&old)), "the oldest is gone");
        assert!(opens(&both, &seal(&TokenKeys::new(&secrets[..1]))));
    }
}
