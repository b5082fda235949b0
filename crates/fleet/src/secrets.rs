//! Secrets that all servers of a fleet share.
//!
//! The first of [`Secrets`] is the current one: it protects what is made now. What the others
//! protected is still understood, so that secrets are rotated without a gap:
//!
//! 1. Add the new secret at the end, on all servers: each now understands it.
//! 2. Move it to the front, on all servers: each now uses it.
//! 3. Remove the old one when nothing that it protects is valid any more; for sessions that is
//!    after their lifetime.
//!
//! All servers need the secrets before they start. [`Secrets::from_file`] reads a file that the
//! operator distributes. [`Secrets::from_redis`] keeps them in Redis, where the first server puts a
//! random one.

use std::fmt;

use aws_lc_rs::hkdf;
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use pronghorn_engine::Secret;

mod file;
mod in_redis;

/// Number of secrets that may be valid at once. A lookup of a session tries each.
pub const MAX_SECRETS: usize = 4;

/// Padding may be left out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// One to [`MAX_SECRETS`] secrets, the current one first.
#[derive(Clone)]
pub struct Secrets(Vec<Secret>);

/// Why there are no valid secrets. Never contains a secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretsError {
    /// There is no secret at all.
    #[error("no secret; write one in a line, for example the output of `openssl rand -hex 32`")]
    None,
    /// There are more than are needed for a rotation.
    #[error(
        "{0} secrets, at most {MAX_SECRETS} are allowed; remove the oldest, which are the last"
    )]
    TooMany(usize),
    /// A line is no secret.
    #[error(
        "invalid secret in line {line}: {characters} characters, expected 64 hexadecimal digits or \
         44 characters of base64"
    )]
    Malformed {
        /// Number of the line, from 1.
        line: usize,
        /// Number of characters in it.
        characters: usize,
    },
    /// A secret was not drawn at random.
    #[error("weak secret in line {0}: its bytes are all the same; use `openssl rand -hex 32`")]
    Weak(usize),
    /// The same secret stands twice.
    #[error("the secret in line {0} stands in an earlier line; remove one of them")]
    Repeated(usize),
    /// The file of the secrets cannot be used.
    #[error("cannot read the secrets in {}: {source}", path.display())]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The file's content is no list of secrets.
    #[error("invalid secrets in {}: {source}", path.display())]
    Content {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong.
        #[source]
        source: Box<SecretsError>,
    },
    /// Other users may read or write the file.
    #[error(
        "the secrets in {} are accessible to other users (mode {mode:o}); run chmod 600 on it",
        path.display()
    )]
    OpenToOthers {
        /// The file.
        path: std::path::PathBuf,
        /// Mode of the file.
        mode: u32,
    },
    /// The file belongs to another user, who knows the secrets.
    #[error("the secrets in {} belong to another user; chown it to the server's", path.display())]
    ForeignOwner {
        /// The file.
        path: std::path::PathBuf,
    },
    /// What Redis has is no list of secrets.
    #[error("invalid secrets in the key `{key}` of Redis: {source}")]
    Stored {
        /// The key in Redis.
        key: String,
        /// What is wrong.
        #[source]
        source: Box<SecretsError>,
    },
    /// Redis could not be used.
    #[error("cannot read the secrets in the key `{key}` of Redis: {reason}")]
    Redis {
        /// The key in Redis.
        key: String,
        /// What failed.
        reason: String,
    },
}

impl Secrets {
    /// Creates the list from secrets, the current one first.
    pub fn new(secrets: Vec<Secret>) -> Result<Self, SecretsError> {
        match secrets.len() {
            0 => return Err(SecretsError::None),
            1..=MAX_SECRETS => {}
            more => return Err(SecretsError::TooMany(more)),
        }
        for (at, secret) in secrets.iter().enumerate() {
            let bytes = secret.as_bytes();
            if bytes.iter().all(|byte| *byte == bytes[0]) {
                return Err(SecretsError::Weak(at + 1));
            }
            if secrets[..at].iter().any(|earlier| earlier.as_bytes() == bytes) {
                return Err(SecretsError::Repeated(at + 1));
            }
        }
        Ok(Self(secrets))
    }

    /// Parses the content of a file: one secret a line, in hexadecimal digits or base64, or one
    /// secret of 32 bytes and nothing else. Empty lines and lines that start with `#` are skipped.
    pub fn parse(content: &[u8]) -> Result<Self, SecretsError> {
        // No secret in text form is that short.
        if let Ok(raw) = <[u8; Secret::BYTES]>::try_from(content) {
            return Self::new(vec![Secret::new(raw)]);
        }
        let mut secrets = Vec::new();
        for (at, line) in content.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let malformed = SecretsError::Malformed { line: at + 1, characters: line.len() };
            secrets.push(from_text(line).ok_or(malformed)?);
        }
        Self::new(secrets)
    }

    /// Returns the secret that protects what is made now.
    pub fn current(&self) -> &Secret {
        &self.0[0]
    }

    /// Returns all secrets, the current one first.
    pub fn all(&self) -> &[Secret] {
        &self.0
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({} secrets)", self.0.len())
    }
}

/// Derives a key for one purpose, from which neither the secret nor another key can be computed
/// (HKDF with SHA-256, RFC 5869). `purpose` is the label: equal labels give equal keys.
pub fn derive<const N: usize>(secret: &Secret, purpose: &str) -> [u8; N] {
    let mut key = [0; N];
    expand(&extract(secret), &[purpose.as_bytes()], &mut key);
    key
}

/// The part of the derivation that is the same for all purposes.
pub(crate) fn extract(secret: &Secret) -> hkdf::Prk {
    hkdf::Salt::new(hkdf::HKDF_SHA256, b"pronghorn fleet").extract(secret.as_bytes())
}

pub(crate) fn expand(secret: &hkdf::Prk, info: &[&[u8]], key: &mut [u8]) {
    struct Length(usize);
    impl hkdf::KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    let expanded = secret.expand(info, Length(key.len())).and_then(|okm| okm.fill(key));
    expanded.expect("invariant: a key is far shorter than 255 hashes");
}

fn from_text(line: &[u8]) -> Option<Secret> {
    let bytes: Vec<u8> = if line.len() == 2 * Secret::BYTES {
        line.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
    } else {
        BASE64.decode(line).ok()
    }?;
    Some(Secret::new(bytes.try_into().ok()?))
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1B1C1D1E1F";
    const IN_BASE64: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn counting() -> [u8; 32] {
        std::array::from_fn(|at| at as u8)
    }

    #[test]
    fn each_form_of_a_secret_is_parsed() {
        let unpadded = IN_BASE64.trim_end_matches('=');
        let commented = format!("# current\r\n\r\n {HEX} \r\n");
        for content in [HEX.as_bytes(), IN_BASE64.as_bytes(), unpadded.as_bytes(), &counting()[..]]
            .into_iter()
            .chain([commented.as_bytes()])
        {
            let secrets = Secrets::parse(content).unwrap();
            assert_eq!(secrets.current().as_bytes(), &counting());
        }
    }

    #[test]
    fn first_line_is_the_current_secret() {
        let other = "ff".repeat(31) + "00";
        let secrets = Secrets::parse(format!("{other}\n{HEX}\n").as_bytes()).unwrap();
        assert_eq!(secrets.current().as_bytes()[0], 0xff);
        assert_eq!(secrets.all()[1].as_bytes(), &counting());
    }

    #[test]
    fn invalid_secrets_are_refused_without_being_printed() {
        let other = |digit: char| digit.to_string().repeat(63) + "0";
        let many: Vec<_> = "abcde".chars().map(other).collect();
        for (content, reason) in [
            (String::new(), "no secret"),
            ("# nothing\n".to_owned(), "no secret"),
            (format!("{HEX}\n{}", &HEX[..62]), "line 2: 62 characters"),
            (HEX.replace(['f', 'F'], "x"), "line 1: 64 characters"),
            ("00".repeat(32), "weak"),
            (format!("{HEX}\n{IN_BASE64}"), "earlier line"),
            (many.join("\n"), "5 secrets"),
        ] {
            let error = Secrets::parse(content.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
            assert!(!error.contains("0102") && !error.contains("aaaa"), "{error}");
        }
        assert!(!format!("{:?}", Secrets::parse(HEX.as_bytes()).unwrap()).contains("01"));
    }

    #[test]
    fn keys_for_different_purposes_and_secrets_differ() {
        let secret = Secret::new(counting());
        let first: [u8; 32] = derive(&secret, "a");
        assert_eq!(first, derive(&secret, "a"));
        assert_ne!(first, derive(&secret, "b"));
        assert_ne!(first, derive(&Secret::random(), "a"));
    }
}
