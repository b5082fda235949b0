//! Sticky sessions: clients that stay with one server of an upstream.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::Deserialize;

use super::admin::Token;
use super::values::{Time, string_enum, string_type};

/// Keeps clients on the server that they reached first, with a cookie. Without the secret the
/// cookie does not reveal the server, and it has no use other than choosing one.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct Sticky {
    /// Name of the cookie.
    pub cookie: CookieName,
    /// Secret that hides the server in the cookie: at least 16 characters, the same for all
    /// gateways of these servers. Keep it: with another secret all clients are distributed again.
    #[schemars(with = "String")]
    pub secret: Token,
    /// Lifetime of the cookie from when the client got it; if left out, until the browser is
    /// closed.
    pub max_age: Option<Time>,
    /// Cross-site requests that send the cookie.
    #[serde(default)]
    pub same_site: SameSite,
}

string_enum! {
    /// Cross-site requests that send a cookie.
    #[derive(Default)]
    SameSite: "same_site" {
        /// Only requests that follow a link.
        #[default]
        Lax = "lax",
        /// No cross-site requests.
        Strict = "strict",
        /// All requests; browsers require TLS for it.
        None = "none",
    }
}

/// The name of a cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CookieName(pub(crate) String);

impl FromStr for CookieName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if text.is_empty() || text.len() > 64 || !text.bytes().all(is_token) {
            return Err(format!(
                "invalid cookie name {text:?}: use up to 64 letters, digits and -"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}
string_type!(CookieName, "cookie_name", "The name of a cookie.", "server");
