//! What the requests of a connection have in common.

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Uri};

/// The authority of a connection's latest request. Most requests repeat it, so it is neither parsed
/// nor copied again.
#[derive(Default)]
pub(crate) struct AuthorityCache(Option<Box<NamedAuthority>>);

/// The authority of an admitted request.
pub(crate) struct NamedAuthority {
    pub(crate) authority: Authority,
    /// The same authority as the value of `host`.
    pub(crate) host: HeaderValue,
}

impl AuthorityCache {
    /// Returns the noted authority.
    pub(crate) fn named(&self) -> Option<&NamedAuthority> {
        self.0.as_deref()
    }

    /// Returns the noted authority if it is spelled like `text`.
    pub(crate) fn get(&self, text: &[u8]) -> Option<&NamedAuthority> {
        self.named().filter(|named| named.host.as_bytes() == text)
    }

    /// Notes the authority of an admitted request.
    pub(crate) fn note(&mut self, uri: &Uri, headers: &HeaderMap) {
        let Some(authority) = uri.authority().map(Authority::as_str) else { return };
        if self.get(authority.as_bytes()).is_some() {
            return;
        }
        let Some(host) = headers.get(HOST).filter(|host| host.as_bytes() == authority.as_bytes())
        else {
            return;
        };
        // Copies, because a slice would keep the memory of many requests alive on an idle
        // connection.
        let named = HeaderValue::from_bytes(host.as_bytes()).ok().zip(authority.parse().ok());
        self.0 = named.map(|(host, authority)| Box::new(NamedAuthority { authority, host }));
    }
}
