//! The servers that a route forwards to.

use super::short_form::{ShortForm, short_or_table};
use super::upstream::Upstream;

/// The servers that a route forwards to: the name of one of `[upstreams]`, the address of a server,
/// or a table with the keys of an upstream.
#[derive(Clone, Debug)]
pub enum Proxy {
    /// The upstream of this name.
    Named(String),
    /// An upstream of this route alone.
    Own(Box<Upstream>),
}

impl ShortForm for Proxy {
    type Table = Upstream;

    const EXPECTED: &'static str = "the name of an upstream, an address such as \
        \"http://127.0.0.1:3000\", or { servers = […] }";

    fn from_text(text: &str) -> Result<Self, String> {
        // An address such as `127.0.0.1:9000`, as other servers accept it, fails with a hint on how
        // to write it.
        if text.contains(':') {
            return Ok(Self::Own(Box::new(Upstream::of(text.parse()?))));
        }
        Ok(Self::Named(text.to_owned()))
    }

    fn from_table(table: Upstream) -> Self {
        Self::Own(Box::new(table))
    }
}
short_or_table!(
    Proxy,
    "proxy",
    "app",
    "http://127.0.0.1:3000",
    "https://app.internal",
    "unix:/run/app.sock"
);
