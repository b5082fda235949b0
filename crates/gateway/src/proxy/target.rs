//! Targets of requests to servers.

use http::Uri;
use http::uri::{Authority, Parts, PathAndQuery, Scheme};

pub(crate) fn target(secure: bool, authority: &Authority, path: &PathAndQuery) -> Uri {
    let scheme = if secure { Scheme::HTTPS } else { Scheme::HTTP };
    let mut parts = Parts::default();
    (parts.scheme, parts.authority, parts.path_and_query) =
        (Some(scheme), Some(authority.clone()), Some(path.clone()));
    Uri::from_parts(parts).expect("invariant: all parts are there")
}
