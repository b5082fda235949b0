//! `basic-auth`: a name and a password (RFC 7617).

mod checks;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use argon2::password_hash::PasswordVerifier as _;
use argon2::{Argon2, PasswordHash};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use pronghorn_engine::BodyError;
use schemars::JsonSchema;
use serde::Deserialize;
use tower_service::Service;

use self::checks::Checks;
use super::{Around, Client, Layer, LocalService, OnWorker, Request, Response, Surroundings, from_engine, take_away};
use crate::client_address::network_of;
use crate::config::FieldName;
use crate::plan::text;

/// Options of `basic-auth`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Options {
    /// Names with the hashes of their passwords, of bcrypt or Argon2.
    users: BTreeMap<String, String>,
    /// A file of them, a line `name:hash` each, as `htpasswd -B` writes it. Read at the start and at each reload.
    file: Option<PathBuf>,
    /// What is asked for, as browsers show it.
    realm: String,
    /// The field in which whatever answers learns the name; what a client says in it is taken away.
    #[schemars(example = "x-user")]
    user_header: Option<FieldName>,
}

impl Default for Options {
    fn default() -> Self {
        Self { users: BTreeMap::new(), file: None, realm: "restricted".to_owned(), user_header: None }
    }
}

pub(super) struct BasicAuth(Arc<Users>);

struct Users {
    hashes: HashMap<String, Hash>,
    challenge: HeaderValue,
    user_header: Option<http::HeaderName>,
    /// Passwords that were right, as the MAC of name and password under a key that nobody knows: what takes a tenth of a second to check is
    /// not checked for each request. One for each name at most.
    right: Mutex<HashMap<String, hmac::Tag>>,
    key: hmac::Key,
    checks: Arc<Checks>,
}

#[derive(Clone)]
enum Hash {
    Bcrypt(String),
    Argon2(String),
}

impl Hash {
    fn read(text: &str) -> Result<Self, String> {
        if ["$2a$", "$2b$", "$2x$", "$2y$"].iter().any(|start| text.starts_with(start)) {
            let parts: Result<bcrypt::HashParts, _> = text.parse();
            return parts.map(|_| Self::Bcrypt(text.to_owned())).map_err(|error| format!("its hash of bcrypt is damaged: {error}"));
        }
        if text.starts_with("$argon2") {
            return PasswordHash::new(text)
                .map(|_| Self::Argon2(text.to_owned()))
                .map_err(|error| format!("its hash of Argon2 is damaged: {error}"));
        }
        Err("its hash is of no kind that withstands guessing: make one with `htpasswd -B`, or one of Argon2".to_owned())
    }

    fn is_of(&self, password: &[u8]) -> bool {
        match self {
            Self::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            Self::Argon2(hash) => PasswordHash::new(hash).is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok()),
        }
    }
}

impl BasicAuth {
    pub(super) fn new(options: &Options, surroundings: &Surroundings<'_>) -> Result<Self, String> {
        let mut users: Vec<(String, String)> = options.users.clone().into_iter().collect();
        if let Some(file) = &options.file {
            let file = surroundings.path(file);
            let text = std::fs::read_to_string(&file)
                .map_err(|error| format!("{}: {error}; name a file that this user may read", file.display()))?;
            for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#')) {
                let (name, hash) =
                    line.trim().split_once(':').ok_or_else(|| format!("{}:{}: there is no colon", file.display(), number + 1))?;
                users.push((name.to_owned(), hash.to_owned()));
            }
        }
        if users.is_empty() {
            return Err("there are no users: give it `users` or a `file`".to_owned());
        }
        let read = |(name, hash): (String, String)| match Hash::read(&hash) {
            Ok(_) if name.contains(':') => Err(format!("the name {name:?} has a colon")),
            Ok(hash) => Ok((name, hash)),
            Err(error) => Err(format!("the user {name:?}: {error}")),
        };
        let quoted = options.realm.replace('\\', "\\\\").replace('"', "\\\"");
        let challenge = HeaderValue::try_from(format!("Basic realm=\"{quoted}\", charset=\"UTF-8\""));
        let key = hmac::Key::new(hmac::HMAC_SHA256, &rand::random::<[u8; 32]>());
        Ok(Self(Arc::new(Users {
            hashes: users.into_iter().map(read).collect::<Result<_, _>>()?,
            challenge: challenge.map_err(|_| format!("the realm {:?} cannot stand in a field", options.realm))?,
            user_header: options.user_header.as_ref().map(FieldName::name),
            right: Mutex::default(),
            key,
            checks: Arc::default(),
        })))
    }
}

impl Layer for BasicAuth {
    fn around(&self, inner: LocalService, _: &OnWorker) -> LocalService {
        LocalService::around(OfWorker(self.0.clone()), inner)
    }
}

struct OfWorker(Arc<Users>);

impl Around for OfWorker {
    async fn call(self: Rc<Self>, mut request: Request, mut inner: LocalService) -> Result<Response, BodyError> {
        let users = &self.0;
        if let Some(name) = &users.user_header {
            take_away(request.headers_mut(), name);
        }
        let Some((name, password)) = credentials(request.headers()) else { return Ok(users.refusal()) };
        let tag = hmac::sign(&users.key, &message(&name, &password));
        if !users.is_known_to_be_right(&name, tag) {
            let client = request.extensions().get::<Client>().map(|client| network_of(client.0, 64));
            let check = {
                let (users, name) = (users.clone(), name.clone());
                move || users.check(&name, &password, tag)
            };
            match users.checks.ask(tag.as_ref().to_vec(), client, check).await {
                Some(true) => {}
                Some(false) => return Ok(users.refusal()),
                None => {
                    let answer = text(StatusCode::SERVICE_UNAVAILABLE, "too many passwords to check\n");
                    return Ok(from_engine(answer.with_header(RETRY_AFTER, 1.into())));
                }
            }
        }
        if let Some(header) = &users.user_header {
            let Ok(value) = HeaderValue::from_bytes(name.as_bytes()) else { return Ok(users.refusal()) };
            request.headers_mut().insert(header, value);
        }
        inner.call(request).await
    }
}

impl Users {
    fn refusal(&self) -> Response {
        let answer = text(StatusCode::UNAUTHORIZED, "a name and a password are needed\n");
        from_engine(answer.with_header(WWW_AUTHENTICATE, self.challenge.clone()))
    }

    fn is_known_to_be_right(&self, name: &str, tag: hmac::Tag) -> bool {
        let right = self.right.lock().unwrap_or_else(PoisonError::into_inner);
        right.get(name).is_some_and(|known| verify_slices_are_equal(known.as_ref(), tag.as_ref()).is_ok())
    }

    /// Takes a while: not for a worker's thread.
    fn check(&self, name: &str, password: &[u8], tag: hmac::Tag) -> bool {
        let Some(hash) = self.hashes.get(name) else {
            // A name that there is not takes as long as one that there is.
            if let Some(other) = self.hashes.values().next() {
                other.is_of(password);
            }
            return false;
        };
        let is_right = hash.is_of(password);
        if is_right {
            self.right.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), tag);
        }
        is_right
    }
}

/// No name has a colon.
fn message(name: &str, password: &[u8]) -> Vec<u8> {
    [name.as_bytes(), b":", password].concat()
}

fn credentials(headers: &HeaderMap) -> Option<(String, Vec<u8>)> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = BASE64_STANDARD.decode(token.trim()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some((String::from_utf8(decoded[..colon].to_vec()).ok()?, decoded[colon + 1..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_that_do_not_withstand_guessing_are_refused() {
        assert!(Hash::read("$apr1$x$y").is_err_and(|error| error.contains("htpasswd -B")));
        assert!(Hash::read("{SHA}x").is_err());
        assert!(Hash::read("antler").is_err());
        assert!(Hash::read("$2y$04$short").is_err_and(|error| error.contains("damaged")));
        let hash = bcrypt::hash("antler", 4).expect("a hash");
        assert!(Hash::read(&hash).is_ok_and(|hash| hash.is_of(b"antler") && !hash.is_of(b"horn")));
    }

    #[test]
    fn credentials_are_read_whatever_they_hold() {
        let read = |value: &str| credentials(&[(AUTHORIZATION, HeaderValue::from_str(value).expect("a value"))].into_iter().collect());
        let token = BASE64_STANDARD.encode("deer:a:b");
        assert_eq!(read(&format!("bAsIc {token}")), Some(("deer".to_owned(), b"a:b".to_vec())));
        assert_eq!(read(&format!("Bearer {token}")), None);
        assert_eq!(read("Basic ?"), None);
        assert_eq!(read(&format!("Basic {}", BASE64_STANDARD.encode("deer"))), None);
    }
}
