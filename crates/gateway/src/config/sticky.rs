//! Clients that stay with a server of an upstream.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::Deserialize;

use super::admin::Token;
use super::load::Config;
use super::problem::Problem;
use super::source::Place;
use super::values::{Time, choice, written};

/// Fewer characters than this could be found by trying, and with them the addresses of servers.
const SECRET_CHARACTERS: usize = 16;

/// Has clients stay with the server that they came to first, by a cookie. It says which server that is to nobody who does not know the
/// secret, and is good for nothing else than choosing one.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct Sticky {
    /// The cookie's name.
    pub cookie: CookieName,
    /// What servers are made unrecognisable with: at least 16 characters, the same for all gateways of these servers, and kept, since with
    /// another one all clients are spread anew.
    #[schemars(with = "String")]
    pub secret: Token,
    /// How long a client keeps the cookie from when it got it; if it is left out, until the browser is closed.
    pub max_age: Option<Time>,
    /// Which requests from other sites bring it.
    #[serde(default)]
    pub same_site: SameSite,
}

choice! {
    /// Which requests from other sites bring a cookie.
    #[derive(Default)]
    SameSite: "same_site" {
        /// Only those that follow a link.
        #[default]
        Lax = "lax",
        /// None.
        Strict = "strict",
        /// All; browsers want TLS for that.
        None = "none",
    }
}

/// The name of a cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CookieName(pub(crate) String);

impl FromStr for CookieName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if text.is_empty() || text.len() > 64 || !text.bytes().all(is_token) {
            return Err(format!("{text:?} is no name of a cookie: take up to 64 letters, digits and -"));
        }
        Ok(Self(text.to_owned()))
    }
}
written!(CookieName, "cookie_name", "The name of a cookie.", "server");

pub(crate) fn check(config: &Config, sticky: Option<&Sticky>, place: &Place, problems: &mut Vec<Problem>) {
    let Some(sticky) = sticky else { return };
    if sticky.secret.reveal().chars().count() < SECRET_CHARACTERS {
        let problem = config.problem(&place.of(["sticky".into(), "secret".into()]), "the secret could be guessed");
        problems.push(problem.with_hint(format_args!(
            "take {SECRET_CHARACTERS} or more characters, as `openssl rand -hex 16` gives, from a file: \"${{file:sticky}}\""
        )));
    }
}
