//! Sessions as they are stored: encrypted, under names that only servers with the secret know.
//!
//! A value is a version byte, the key's ID (4 bytes), a salt (24 bytes) and the sealed record. The
//! salt gives each record an AES-256-GCM key of its own, so that no number of records wears a key
//! out; the nonce is zero. All that stands before the record, and the name in Redis, are
//! authenticated with it. The record of a session is the stamp of the server (16 bytes), when it was
//! written and how long it lives (8 bytes each, in milliseconds), and the session. The settings of a
//! server are sealed in the same way, with keys for another purpose.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{hkdf, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use pronghorn_engine::SessionName;
use rand::RngCore;

use super::stamp::Stamp;
use crate::secrets::{Secrets, derive, expand, extract};

const VERSION: u8 = 1;
const ID_BYTES: usize = 4;
const SALT_BYTES: usize = 24;
const PREFIX_BYTES: usize = 1 + ID_BYTES + SALT_BYTES;
const HEADER_BYTES: usize = Stamp::BYTES + 8 + 8;
const TAG_BYTES: usize = 16;
/// Purposes of keys: a record of one is never opened as another.
const SESSION: &[u8] = b"session record";
const SETTINGS: &[u8] = b"settings record";
/// Part of the hashed name that is the name in Redis, in bytes: too long to be guessed.
const NAME_BYTES: usize = 24;

/// How far the clocks of two servers may be apart. The same as rustls allows a client's.
pub(super) const CLOCK_SKEW: Duration = Duration::from_secs(60);
/// Largest session in bytes. The engine stores none of more than 4 KiB.
pub(super) const SESSION_BYTES: usize = 16 << 10;
/// Largest settings of a server in bytes, sealed.
pub(super) const SETTINGS_BYTES: usize = 16 << 10;
/// Bytes that sealing adds to a record.
pub(super) const SEAL_BYTES: usize = PREFIX_BYTES + TAG_BYTES;
/// Longest life of a session: RFC 8446 section 4.6.1 allows a ticket no more.
pub(super) const LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// The keys of one secret.
struct Keyring {
    id: [u8; ID_BYTES],
    names: hmac::Key,
    records: hkdf::Prk,
}

/// The keys of all secrets, the current one first.
pub(super) struct Keys(Vec<Keyring>);

/// An opened record.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Opened {
    pub(super) stamp: Stamp,
    pub(super) session: Vec<u8>,
}

/// Why a record is no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// It was changed, moved to another name, or sealed by another secret or format.
    Unopened,
    /// It has expired, or is from the future.
    Expired,
}

impl Keys {
    pub(super) fn new(secrets: &Secrets) -> Self {
        let keyring = |secret| Keyring {
            id: derive(secret, "session key id"),
            names: hmac::Key::new(hmac::HMAC_SHA256, &derive::<32>(secret, "session names")),
            records: extract(secret),
        };
        Self(secrets.all().iter().map(keyring).collect())
    }

    /// Returns the names in Redis under which a session may be stored, that of the current secret
    /// first.
    pub(super) fn names(&self, prefix: &str, name: &SessionName) -> Vec<Vec<u8>> {
        let of = |keyring: &Keyring| {
            let hash = hmac::sign(&keyring.names, name);
            let name = URL_SAFE_NO_PAD.encode(&hash.as_ref()[..NAME_BYTES]);
            [prefix.as_bytes(), name.as_bytes()].concat()
        };
        self.0.iter().map(of).collect()
    }

    /// Seals a session with the current secret.
    pub(super) fn seal(
        &self,
        name: &[u8],
        stamp: Stamp,
        now: SystemTime,
        lifetime: Duration,
        session: &[u8],
    ) -> Vec<u8> {
        let written = milliseconds(now).to_be_bytes();
        let lifetime = (lifetime.as_millis() as u64).to_be_bytes();
        self.seal_record(SESSION, name, &[stamp.as_bytes(), &written, &lifetime, session])
    }

    /// Seals the settings of a server with the current secret.
    pub(super) fn seal_settings(&self, name: &[u8], settings: &[u8]) -> Vec<u8> {
        self.seal_record(SETTINGS, name, &[settings])
    }

    /// Opens the settings of a server, unless they were changed, moved to another name, or sealed by
    /// another secret or format.
    pub(super) fn open_settings(&self, name: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        self.open_record(SETTINGS, name, value, SETTINGS_BYTES)
    }

    /// Seals a record of several parts with the current secret.
    fn seal_record(&self, purpose: &[u8], name: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        let keyring = &self.0[0];
        let length = parts.iter().map(|part| part.len()).sum::<usize>() + SEAL_BYTES;
        let mut value = Vec::with_capacity(length);
        value.push(VERSION);
        value.extend_from_slice(&keyring.id);
        value.resize(PREFIX_BYTES, 0);
        rand::rng().fill_bytes(&mut value[1 + ID_BYTES..]);
        let key = keyring.record_key(purpose, &value[1 + ID_BYTES..]);
        let associated = [&value[..], name].concat();
        for part in parts {
            value.extend_from_slice(part);
        }
        let tag = key
            .seal_in_place_separate_tag(nonce(), Aad::from(associated), &mut value[PREFIX_BYTES..])
            .expect("invariant: a record is far smaller than AES-GCM allows");
        value.extend_from_slice(tag.as_ref());
        value
    }

    /// Opens a record of at most `largest` bytes, sealed.
    fn open_record(
        &self,
        purpose: &[u8],
        name: &[u8],
        value: &[u8],
        largest: usize,
    ) -> Option<Vec<u8>> {
        if value.len() > largest {
            return None;
        }
        let (prefix, record) = value.split_at_checked(PREFIX_BYTES)?;
        let id = &prefix[1..=ID_BYTES];
        let keyring = self.0.iter().find(|keyring| keyring.id == id)?;
        // The version is authenticated: a later format is not mistaken for this one.
        if prefix[0] != VERSION {
            return None;
        }
        let key = keyring.record_key(purpose, &prefix[1 + ID_BYTES..]);
        let associated = Aad::from([prefix, name].concat());
        let mut record = record.to_vec();
        let length = key.open_in_place(nonce(), associated, &mut record).ok()?.len();
        record.truncate(length);
        Some(record)
    }

    /// Opens what is stored under `name`.
    pub(super) fn open(
        &self,
        name: &[u8],
        now: SystemTime,
        value: &[u8],
    ) -> Result<Opened, Refused> {
        let largest = HEADER_BYTES + SESSION_BYTES + SEAL_BYTES;
        let opened = self.open_record(SESSION, name, value, largest).ok_or(Refused::Unopened)?;
        let (header, session) =
            opened.split_first_chunk::<HEADER_BYTES>().ok_or(Refused::Unopened)?;
        let (stamp, times) = header.split_first_chunk().ok_or(Refused::Unopened)?;
        let (written, lifetime) = times.split_first_chunk().ok_or(Refused::Unopened)?;
        let lifetime = <[u8; 8]>::try_from(lifetime).map_err(|_| Refused::Unopened)?;
        let (written, lifetime) = (u64::from_be_bytes(*written), u64::from_be_bytes(lifetime));
        let (now, skew) = (milliseconds(now), CLOCK_SKEW.as_millis() as u64);
        let is_early = written > now.saturating_add(skew);
        if is_early || now > written.saturating_add(lifetime).saturating_add(skew) {
            return Err(Refused::Expired);
        }
        Ok(Opened { stamp: Stamp::from_bytes(*stamp), session: session.to_vec() })
    }
}

impl Keyring {
    /// Returns the key of the record that has this purpose and salt.
    fn record_key(&self, purpose: &[u8], salt: &[u8]) -> LessSafeKey {
        let mut key = [0; 32];
        expand(&self.records, &[purpose, salt], &mut key);
        let key = UnboundKey::new(&AES_256_GCM, &key);
        LessSafeKey::new(key.expect("invariant: the key is as long as AES-256 needs"))
    }
}

/// The only nonce of a key that seals one record.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

/// Returns a time in milliseconds since 1970.
pub(super) fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use pronghorn_engine::Secret;

    use super::*;

    const NAME: SessionName = [7; 32];
    const HOUR: Duration = Duration::from_secs(3600);

    fn secrets(numbers: &[u8]) -> Secrets {
        let secret = |number: &u8| Secret::new(std::array::from_fn(|at| at as u8 ^ number));
        Secrets::new(numbers.iter().map(secret).collect()).unwrap()
    }

    fn keys(numbers: &[u8]) -> Keys {
        Keys::new(&secrets(numbers))
    }

    fn stamp() -> Stamp {
        Stamp::new("run", "replication")
    }

    fn sealed(keys: &Keys, now: SystemTime) -> (Vec<u8>, Vec<u8>) {
        let name = keys.names("p:", &NAME).swap_remove(0);
        let value = keys.seal(&name, stamp(), now, HOUR, b"the session");
        (name, value)
    }

    #[test]
    fn session_is_opened_with_its_stamp() {
        let (keys, now) = (keys(&[1]), SystemTime::now());
        let (name, value) = sealed(&keys, now);
        let opened = keys.open(&name, now, &value).unwrap();
        assert_eq!(opened, Opened { stamp: stamp(), session: b"the session".to_vec() });
        assert!(name.starts_with(b"p:") && name.len() == 2 + 32, "{name:?}");
        assert_ne!(value, sealed(&keys, now).1, "each record has a salt of its own");
    }

    #[test]
    fn each_changed_or_missing_byte_is_noticed() {
        let (keys, now) = (keys(&[1]), SystemTime::now());
        let (name, value) = sealed(&keys, now);
        for at in 0..value.len() {
            let mut changed = value.clone();
            changed[at] ^= 1;
            assert_eq!(keys.open(&name, now, &changed), Err(Refused::Unopened), "byte {at}");
            assert_eq!(keys.open(&name, now, &value[..at]), Err(Refused::Unopened), "cut at {at}");
        }
        let long = [&value[..], &[0; SESSION_BYTES]].concat();
        assert_eq!(keys.open(&name, now, &long), Err(Refused::Unopened));
    }

    #[test]
    fn record_under_another_name_is_not_opened() {
        let (keys, now) = (keys(&[1]), SystemTime::now());
        let (_, value) = sealed(&keys, now);
        let other = keys.names("p:", &[8; 32]).swap_remove(0);
        assert_eq!(keys.open(&other, now, &value), Err(Refused::Unopened));
    }

    #[test]
    fn settings_and_sessions_are_not_opened_as_each_other() {
        let (keys, now) = (keys(&[2, 1]), SystemTime::now());
        let (name, session) = sealed(&keys, now);
        assert_eq!(keys.open_settings(&name, &session), None);
        let settings = keys.seal_settings(&name, &[7; 64]);
        assert_eq!(keys.open_settings(&name, &settings), Some(vec![7; 64]));
        assert_eq!(keys.open_settings(b"other", &settings), None);
        assert_eq!(keys.open(&name, now, &settings), Err(Refused::Unopened));
        let older = Keys::new(&secrets(&[1])).seal_settings(&name, b"old");
        assert_eq!(keys.open_settings(&name, &older), Some(b"old".to_vec()));
    }

    #[test]
    fn older_secret_opens_and_an_unknown_one_does_not() {
        let now = SystemTime::now();
        let (name, value) = sealed(&keys(&[1]), now);
        let rotated = keys(&[2, 1]);
        assert_eq!(rotated.names("p:", &NAME)[1], name);
        assert!(rotated.open(&name, now, &value).is_ok());
        let unknown = keys(&[2]);
        assert!(!unknown.names("p:", &NAME).contains(&name));
        assert_eq!(unknown.open(&name, now, &value), Err(Refused::Unopened));
    }

    #[test]
    fn clocks_may_differ_by_the_skew_and_no_more() {
        let (keys, written) = (keys(&[1]), SystemTime::now());
        let (name, value) = sealed(&keys, written);
        let at = |now| keys.open(&name, now, &value).is_ok();
        let second = Duration::from_secs(1);
        assert!(at(written - CLOCK_SKEW));
        assert!(!at(written - CLOCK_SKEW - second));
        assert!(at(written + HOUR + CLOCK_SKEW));
        assert!(!at(written + HOUR + CLOCK_SKEW + second));
        assert!(!at(UNIX_EPOCH));
    }
}
