//! `basic-auth`: authentication by user name and password (RFC 7617).

mod check_queue;

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

use self::check_queue::Checks;
use super::{
    Around, Client, Layer, LayerContext, LocalService, Request, Response, WorkerContext,
    from_engine, remove_in_all_spellings,
};
use crate::config::FieldName;
use crate::fields::client_address::network_of;
use crate::responses::text;

/// Options of `basic-auth`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Options {
    /// User names with password hashes, of bcrypt or Argon2.
    users: BTreeMap<String, String>,
    /// A file with a line `name:hash` for each user, as written by `htpasswd -B`. Read at the start
    /// and at each reload.
    file: Option<PathBuf>,
    /// The realm that browsers show.
    realm: String,
    /// Request header that passes the user name on; a client's own value is removed.
    #[schemars(example = "x-user")]
    user_header: Option<FieldName>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            users: BTreeMap::new(),
            file: None,
            realm: "restricted".to_owned(),
            user_header: None,
        }
    }
}

pub(super) struct BasicAuth(Arc<Users>);

struct Users {
    hashes: HashMap<String, Hash>,
    challenge: HeaderValue,
    user_header: Option<http::HeaderName>,
    /// Verified credentials, as a MAC of name and password under a random key: a check that takes a
    /// tenth of a second is not repeated for each request. At most one entry for each name.
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
            return parts
                .map(|_| Self::Bcrypt(text.to_owned()))
                .map_err(|error| format!("invalid bcrypt hash: {error}"));
        }
        if text.starts_with("$argon2") {
            return PasswordHash::new(text)
                .map(|_| Self::Argon2(text.to_owned()))
                .map_err(|error| format!("invalid Argon2 hash: {error}"));
        }
        Err("unsupported password hash: create one with `htpasswd -B`, or use Argon2".to_owned())
    }

    fn is_of(&self, password: &[u8]) -> bool {
        match self {
            Self::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            Self::Argon2(hash) => PasswordHash::new(hash)
                .is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok()),
        }
    }
}

impl BasicAuth {
    pub(super) fn new(options: &Options, context: &LayerContext<'_>) -> Result<Self, String> {
        let mut users: Vec<(String, String)> = options.users.clone().into_iter().collect();
        if let Some(file) = &options.file {
            let file = context.path(file);
            let text = std::fs::read_to_string(&file).map_err(|error| {
                format!(
                    "cannot read {}: {error}; name a file that this user may read",
                    file.display()
                )
            })?;
            for (number, line) in text
                .lines()
                .enumerate()
                .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
            {
                let (name, hash) = line
                    .trim()
                    .split_once(':')
                    .ok_or_else(|| format!("{}:{}: missing colon", file.display(), number + 1))?;
                users.push((name.to_owned(), hash.to_owned()));
            }
        }
        if users.is_empty() {
            return Err("no users: set `users` or `file`".to_owned());
        }
        let read = |(name, hash): (String, String)| match Hash::read(&hash) {
            Ok(_) if name.contains(':') => {
                Err(format!("invalid user name {name:?}: contains a colon"))
            }
            Ok(hash) => Ok((name, hash)),
            Err(error) => Err(format!("user {name:?}: {error}")),
        };
        let quoted = options.realm.replace('\\', "\\\\").replace('"', "\\\"");
        let challenge =
            HeaderValue::try_from(format!("Basic realm=\"{quoted}\", charset=\"UTF-8\""));
        let key = hmac::Key::new(hmac::HMAC_SHA256, &rand::random::<[u8; 32]>());
        Ok(Self(Arc::new(Users {
            hashes: users.into_iter().map(read).collect::<Result<_, _>>()?,
            challenge: challenge.map_err(|_| {
                format!("invalid realm {:?}: not a valid header value", options.realm)
            })?,
            user_header: options.user_header.as_ref().map(FieldName::name),
            right: Mutex::default(),
            key,
            checks: Arc::default(),
        })))
    }
}

impl Layer for BasicAuth {
    fn around(&self, inner: LocalService, _: &WorkerContext) -> LocalService {
        LocalService::around(WorkerLayer(self.0.clone()), inner)
    }
}

struct WorkerLayer(Arc<Users>);

impl Around for WorkerLayer {
    async fn call(
        self: Rc<Self>,
        mut request: Request,
        mut inner: LocalService,
    ) -> Result<Response, BodyError> {
        let users = &self.0;
        if let Some(name) = &users.user_header {
            remove_in_all_spellings(request.headers_mut(), name);
        }
        let Some((name, password)) = credentials(request.headers()) else {
            return Ok(users.refusal());
        };
        let tag = hmac::sign(&users.key, &message(&name, &password));
        if !users.is_known_to_be_right(&name, tag) {
            let client =
                request.extensions().get::<Client>().map(|client| network_of(client.0, 64));
            let check = {
                let (users, name) = (users.clone(), name.clone());
                move || users.check(&name, &password, tag)
            };
            match users.checks.ask(tag.as_ref().to_vec(), client, check).await {
                Some(true) => {}
                Some(false) => return Ok(users.refusal()),
                None => {
                    let answer = text(
                        StatusCode::SERVICE_UNAVAILABLE,
                        "too many password checks are waiting\n",
                    );
                    return Ok(from_engine(answer.with_header(RETRY_AFTER, 1.into())));
                }
            }
        }
        if let Some(header) = &users.user_header {
            let Ok(value) = HeaderValue::from_bytes(name.as_bytes()) else {
                return Ok(users.refusal());
            };
            request.headers_mut().insert(header, value);
        }
        inner.call(request).await
    }
}

impl Users {
    fn refusal(&self) -> Response {
        let answer = text(StatusCode::UNAUTHORIZED, "a user name and a password are required\n");
        from_engine(answer.with_header(WWW_AUTHENTICATE, self.challenge.clone()))
    }

    fn is_known_to_be_right(&self, name: &str, tag: hmac::Tag) -> bool {
        let right = self.right.lock().unwrap_or_else(PoisonError::into_inner);
        right
            .get(name)
            .is_some_and(|known| verify_slices_are_equal(known.as_ref(), tag.as_ref()).is_ok())
    }

    /// Verifies a password. Slow: must not run on a worker.
    fn check(&self, name: &str, password: &[u8], tag: hmac::Tag) -> bool {
        let Some(hash) = self.hashes.get(name) else {
            // An unknown name takes as long as a known one.
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

/// Returns the input of the MAC. It is unambiguous, since names contain no colon.
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
    fn weak_or_damaged_password_hashes_are_refused() {
        assert!(Hash::read("$apr1$x$y").is_err_and(|error| error.contains("htpasswd -B")));
        assert!(Hash::read("{SHA}x").is_err());
        assert!(Hash::read("antler").is_err());
        assert!(
            Hash::read("$2y$04$short").is_err_and(|error| error.contains("invalid bcrypt hash"))
        );
        let hash = bcrypt::hash("antler", 4).expect("a hash");
        assert!(Hash::read(&hash).is_ok_and(|hash| hash.is_of(b"antler") && !hash.is_of(b"horn")));
    }

    #[test]
    fn credentials_are_read_whatever_they_hold() {
        let read = |value: &str| {
            credentials(
                &[(AUTHORIZATION, HeaderValue::from_str(value).expect("a value"))]
                    .into_iter()
                    .collect(),
            )
        };
        let token = BASE64_STANDARD.encode("deer:a:b");
        assert_eq!(read(&format!("bAsIc {token}")), Some(("deer".to_owned(), b"a:b".to_vec())));
        assert_eq!(read(&format!("Bearer {token}")), None);
        assert_eq!(read("Basic ?"), None);
        assert_eq!(read(&format!("Basic {}", BASE64_STANDARD.encode("deer"))), None);
    }
}
