//! What the requests of a connection have in common.

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Uri};

/// The authority of a connection's latest request: most name the same one, which is then neither parsed nor copied again.
#[derive(Default)]
pub(crate) struct LatestAuthority(Option<Box<Named>>);

/// What a request that was admitted named.
pub(crate) struct Named {
    pub(crate) authority: Authority,
    /// The same as the line `host`.
    pub(crate) host: HeaderValue,
}

impl LatestAuthority {
    /// What was noted.
    pub(crate) fn named(&self) -> Option<&Named> {
        self.0.as_deref()
    }

    /// The same, if it is written as `text`.
    pub(crate) fn get(&self, text: &[u8]) -> Option<&Named> {
        self.named().filter(|named| named.host.as_bytes() == text)
    }

    /// Notes what a request that was admitted named.
    pub(crate) fn note(&mut self, uri: &Uri, headers: &HeaderMap) {
        let Some(authority) = uri.authority().map(Authority::as_str) else { return };
        if self.get(authority.as_bytes()).is_some() {
            return;
        }
        let Some(host) = headers.get(HOST).filter(|host| host.as_bytes() == authority.as_bytes()) else { return };
        // Copies, because a connection at rest would keep the memory of many requests.
        let named = HeaderValue::from_bytes(host.as_bytes()).ok().zip(authority.parse().ok());
        self.0 = named.map(|(host, authority)| Box::new(Named { authority, host }));
    }
}
