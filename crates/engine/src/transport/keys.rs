//! Keys of QUIC endpoints, and the log of used tokens.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use aws_lc_rs::{hkdf, hmac};
use quinn_proto::crypto::{CryptoError, HmacKey};
use quinn_proto::{EndpointConfig, TokenLog, TokenReuseError};
use rand::RngCore;

use super::ConnectionIds;
use super::token_keys::TokenKeys;
use crate::stats::Stats;

/// RFC 9000, section 15.
const VERSION_1: u32 = 1;

/// The secret from which all keys of a server's QUIC endpoints are derived.
///
/// A server restarted with the same secret and the same number of workers ends connections that it
/// no longer knows at once (stateless reset), and accepts tokens issued before. Anyone with the
/// secret can do both in its name.
#[derive(Clone)]
pub struct Secret([u8; Self::BYTES]);

impl Secret {
    /// Length of a secret in bytes.
    pub const BYTES: usize = 32;

    /// Creates a secret from the caller's bytes, all of which must be random.
    pub fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Creates a random secret that is lost when the process ends.
    pub fn random() -> Self {
        let mut bytes = [0; Self::BYTES];
        rand::rng().fill_bytes(&mut bytes);
        Self(bytes)
    }

    /// Returns the bytes. Keep them where no other party can read them.
    pub fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// Derives the key for one purpose, from which no other key can be computed (RFC 5869).
    pub(super) fn derive<const N: usize>(&self, purpose: &str) -> [u8; N] {
        struct Length(usize);
        impl hkdf::KeyType for Length {
            fn len(&self) -> usize {
                self.0
            }
        }
        let mut key = [0; N];
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, b"pronghorn endpoint").extract(&self.0);
        let info = [purpose.as_bytes()];
        let expanded = secret.expand(&info, Length(N)).and_then(|okm| okm.fill(&mut key));
        expanded.expect("invariant: a key is far shorter than 255 hashes");
        key
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Keys shared by the endpoints of all workers of a group: each can verify a token issued by
/// another, and find the worker of a connection ID.
#[derive(Clone)]
pub(crate) struct EndpointKeys {
    /// The present secret, and earlier ones. Never empty.
    secrets: Arc<[Secret]>,
    /// Distinguishes machines that share secrets.
    node: Arc<str>,
    pub(super) token: Arc<TokenKeys>,
    pub(super) ids: ConnectionIds,
    used_tokens: Arc<Mutex<UsedTokens>>,
}

impl EndpointKeys {
    pub(crate) fn new(secret: &Secret) -> Self {
        Self::shared(secret, &[], usize::from(u8::MAX) + 1, "")
    }

    /// Creates the keys of `workers` workers on one of several machines that share secrets. Tokens
    /// and IDs made under `earlier` secrets are understood too. `node` is another one on each
    /// machine.
    pub(crate) fn shared(secret: &Secret, earlier: &[Secret], workers: usize, node: &str) -> Self {
        let older: Vec<_> = earlier.iter().map(|secret| secret.derive("connection ID")).collect();
        let ids = ConnectionIds::new(secret.derive("connection ID")).with_older(&older, workers);
        let secrets: Arc<[_]> = std::iter::once(secret).chain(earlier).cloned().collect();
        let token = Arc::new(TokenKeys::new(&secrets));
        Self { secrets, node: node.into(), token, ids, used_tokens: Arc::default() }
    }

    /// Replaces the secrets of tokens. Those of connection IDs and stateless resets stay as long as
    /// the process: its connections depend on them.
    pub(crate) fn set_token_secrets(&self, secrets: &[Secret]) {
        self.token.set(secrets);
    }

    /// Lets each endpoint answer for the connections of all others, whose packets it gets only
    /// after they have ended.
    pub(crate) fn answering_for_all(self) -> Self {
        Self { ids: self.ids.answering_for_all(), ..self }
    }

    /// Creates keys from a seeded generator, so that a run can be repeated.
    #[cfg(test)]
    pub(crate) fn from_rng(rng: &mut impl rand::CryptoRng) -> Self {
        let mut bytes = [0; Secret::BYTES];
        rng.fill_bytes(&mut bytes);
        Self::new(&Secret::new(bytes))
    }

    /// Returns the key of stateless resets on `address`.
    pub(super) fn reset_key(&self, address: SocketAddr) -> Arc<ResetKeys> {
        // RFC 9000, section 21.11: an endpoint that shares its key with another one, but not its connections, would reveal
        // the token that resets a connection when it is sent one of the other's connection IDs. So
        // each address of each machine has its own key.
        let purpose = match &*self.node {
            "" => format!("stateless reset {address}"),
            node => format!("stateless reset {address} of {node}"),
        };
        let key =
            |secret: &Secret| hmac::Key::new(hmac::HMAC_SHA256, &secret.derive::<32>(&purpose));
        Arc::new(ResetKeys { ids: self.ids.clone(), keys: self.secrets.iter().map(key).collect() })
    }

    /// Returns the configuration of endpoints with this key of stateless resets.
    pub(super) fn endpoint(reset_key: Arc<ResetKeys>) -> EndpointConfig {
        let mut endpoint = EndpointConfig::new(reset_key);
        // By default the library would also accept drafts of version 1.
        endpoint.supported_versions(vec![VERSION_1]);
        endpoint
    }

    pub(crate) fn ids(&self) -> &ConnectionIds {
        &self.ids
    }

    /// Returns the log for the endpoints of one worker, which counts in `stats`.
    pub(super) fn token_log(&self, capacity: u64, stats: Arc<Stats>) -> Arc<dyn TokenLog> {
        let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
        Arc::new(WorkerTokenLog { used: self.used_tokens.clone(), capacity, stats })
    }
}

/// Keys of stateless reset tokens. Each ID has the key of the secret that it was issued under.
pub(super) struct ResetKeys {
    ids: ConnectionIds,
    /// By secret, the present one first.
    keys: Vec<hmac::Key>,
}

impl ResetKeys {
    fn key(&self, id: &[u8]) -> &hmac::Key {
        &self.keys[self.ids.secret_of(id).unwrap_or(0)]
    }
}

impl HmacKey for ResetKeys {
    fn sign(&self, id: &[u8], token: &mut [u8]) {
        HmacKey::sign(self.key(id), id, token);
    }

    fn signature_len(&self) -> usize {
        HmacKey::signature_len(&self.keys[0])
    }

    fn verify(&self, id: &[u8], token: &[u8]) -> Result<(), CryptoError> {
        HmacKey::verify(self.key(id), id, token)
    }
}

/// The latest used tokens of NEW_TOKEN frames.
#[derive(Default)]
struct UsedTokens {
    nonces: HashSet<u128>,
    order: VecDeque<(u128, SystemTime)>,
    /// Tokens issued up to this time may have been used and dropped from the log.
    forgotten_until: Option<SystemTime>,
}

impl UsedTokens {
    /// Marks a token as used. Returns whether it was not used before.
    fn take(&mut self, nonce: u128, issued: SystemTime, capacity: usize) -> bool {
        if capacity == 0
            || self.forgotten_until.is_some_and(|until| issued <= until)
            || !self.nonces.insert(nonce)
        {
            return false;
        }
        self.order.push_back((nonce, issued));
        while self.order.len() > capacity {
            if let Some((nonce, issued)) = self.order.pop_front() {
                self.nonces.remove(&nonce);
                self.forgotten_until = self.forgotten_until.max(Some(issued));
            }
        }
        true
    }
}

struct WorkerTokenLog {
    /// Locked once per connection that presents a token.
    used: Arc<Mutex<UsedTokens>>,
    capacity: usize,
    stats: Arc<Stats>,
}

impl TokenLog for WorkerTokenLog {
    fn check_and_insert(
        &self,
        nonce: u128,
        issued: SystemTime,
        _: Duration,
    ) -> Result<(), TokenReuseError> {
        let is_new = self.used.lock().unwrap_or_else(PoisonError::into_inner).take(
            nonce,
            issued,
            self.capacity,
        );
        if is_new {
            self.stats.tokens_accepted.add(1);
            Ok(())
        } else {
            self.stats.tokens_refused.add(1);
            Err(TokenReuseError)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn keys_of_one_secret_are_the_same_and_of_two_are_not() {
        let secret = Secret::random();
        let again = Secret::new(*secret.as_bytes());
        assert_eq!(secret.derive::<32>("a"), again.derive::<32>("a"));
        assert_ne!(secret.derive::<32>("a"), secret.derive::<32>("b"));
        assert_ne!(secret.derive::<32>("a"), Secret::random().derive::<32>("a"));
    }

    #[test]
    fn secret_is_not_printed() {
        assert_eq!(format!("{:?}", Secret::new([7; 32])), "Secret(..)");
    }

    #[test]
    fn token_is_taken_once() {
        let mut used = UsedTokens::default();
        assert!(used.take(1, at(10), 100));
        assert!(!used.take(1, at(10), 100));
        assert!(used.take(2, at(10), 100));
    }

    #[test]
    fn forgotten_token_is_not_taken_again() {
        let mut used = UsedTokens::default();
        for nonce in 0..10 {
            assert!(used.take(nonce, at(100 + nonce as u64), 3));
        }
        assert_eq!((used.order.len(), used.nonces.len()), (3, 3), "the log is bounded");
        for nonce in 0..10 {
            assert!(
                !used.take(nonce, at(100 + nonce as u64), 3),
                "token {nonce} was accepted twice"
            );
        }
        assert!(used.take(10, at(110), 3));
    }

    #[test]
    fn full_log_accepts_no_token() {
        assert!(!UsedTokens::default().take(1, at(10), 0));
    }
}
