//! Additional processing on a route: rewrites, early hints, error pages and the cache lifetime of
//! responses.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE,
    CONTENT_LENGTH, CONTENT_TYPE, ETAG, LAST_MODIFIED, LINK, TRAILER, TRANSFER_ENCODING, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use pronghorn_engine::{Protocol, Request, Response};

use crate::config::ErrorStatus;

const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Fields that describe the body that an error page replaces.
const OF_THE_CONTENT: [HeaderName; 9] = [
    ACCEPT_RANGES,
    CONTENT_DISPOSITION,
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_LENGTH,
    ETAG,
    LAST_MODIFIED,
    TRAILER,
    TRANSFER_ENCODING,
];

/// Characters that are special in a query but not in a path.
const SPECIAL_IN_QUERIES: &AsciiSet = &CONTROLS.add(b'&').add(b'+').add(b';');

/// Error pages in memory.
#[derive(Default)]
pub(crate) struct Pages {
    pub(crate) pages: Vec<(ErrorStatus, HeaderValue, Bytes)>,
    /// Whether the pages also replace errors of upstreams.
    pub(crate) for_upstreams: bool,
}

/// Additional processing of a route; nearly all routes have none.
#[derive(Default)]
pub(crate) struct RoutePostprocessing {
    pub(crate) rewrite: Option<String>,
    /// The field lines of early hints.
    pub(crate) hints: HeaderMap,
    pub(crate) cache_control: Option<HeaderValue>,
    /// Error pages of the route, then those of its site.
    pub(crate) pages: Vec<Arc<Pages>>,
    /// The error status that the route sends with its own body.
    pub(crate) own: Option<StatusCode>,
}

impl RoutePostprocessing {
    pub(crate) fn is_empty(&self) -> bool {
        self.rewrite.is_none()
            && self.hints.is_empty()
            && self.cache_control.is_none()
            && self.pages.is_empty()
    }

    /// Rewrites the target of a request. Returns `false` if the result is not a valid target.
    pub(crate) fn rewrite(&self, request: &mut Request) -> bool {
        let Some(rewrite) = &self.rewrite else { return true };
        let path = request.uri.path();
        let target = match rewrite.split_once('?') {
            // In a query the path is one value and must not add others.
            Some((before, query)) => {
                let value = utf8_percent_encode(path, SPECIAL_IN_QUERIES).to_string();
                format!("{}?{}", before.replace("{path}", path), query.replace("{path}", &value))
            }
            None => rewrite.replace("{path}", path),
        };
        // Some servers would parse the text after two leading slashes as a host.
        let target = format!("/{}", target.trim_start_matches('/'));
        let target = match request.uri.query() {
            Some(query) if !target.contains('?') => format!("{target}?{query}"),
            _ => target,
        };
        let mut parts = request.uri.clone().into_parts();
        parts.path_and_query = target.parse().ok();
        if parts.path_and_query.is_none() {
            return false;
        }
        match Uri::from_parts(parts) {
            Ok(uri) => request.uri = uri,
            Err(_) => return false,
        }
        true
    }

    /// Returns the early hints for the client, if the request is for a page.
    pub(crate) fn hints(&self, request: &Request) -> Option<&HeaderMap> {
        if self.hints.is_empty() || request.method != Method::GET {
            return None;
        }
        // Some HTTP/1.1 clients treat an interim response as the final one (RFC 8297, section 3).
        let understands = request.peer.protocol != Protocol::Http1;
        let is_page = request.headers.get(SEC_FETCH_MODE).is_none_or(|mode| mode == "navigate");
        Some(&self.hints).filter(|_| understands && is_page)
    }

    /// Applies the route's processing to the response.
    pub(crate) fn finish(&self, response: Response) -> Response {
        let status = response.status;
        if status.is_client_error() || status.is_server_error() {
            return if self.own == Some(status) {
                response
            } else {
                with_page(&self.pages, response)
            };
        }
        let mut response = response;
        if status == StatusCode::OK {
            for link in self.hints.get_all(LINK) {
                response.fields_mut().append(LINK, link.clone());
            }
        }
        let is_kept = status.is_success() || status == StatusCode::NOT_MODIFIED;
        if let Some(value) = self.cache_control.as_ref().filter(|_| is_kept) {
            response.fields_mut().entry(CACHE_CONTROL).or_insert_with(|| value.clone());
        }
        response
    }
}

/// Replaces the body of an error with the first matching page.
pub(crate) fn with_page(pages: &[Arc<Pages>], mut response: Response) -> Response {
    let code = response.status.as_u16();
    if code < 400 || pages.is_empty() {
        return response;
    }
    // Responses of upstreams carry `via`.
    let is_own = !response.fields_mut().contains_key(VIA);
    let of = |wanted: ErrorStatus| {
        let mut allowed = pages
            .iter()
            .filter(|pages| is_own || pages.for_upstreams)
            .flat_map(|pages| &pages.pages);
        allowed.find(|(status, ..)| *status == wanted)
    };
    let Some((_, content_type, content)) =
        of(ErrorStatus::One(code)).or_else(|| of(ErrorStatus::All(code / 100)))
    else {
        return response;
    };
    let fields = response.fields_mut();
    for name in &OF_THE_CONTENT {
        fields.remove(name);
    }
    fields.insert(CONTENT_TYPE, content_type.clone());
    response.with_body(content.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(status: ErrorStatus, content: &'static str) -> (ErrorStatus, HeaderValue, Bytes) {
        (status, HeaderValue::from_static("text/html"), content.into())
    }

    fn sent(pages: &[Arc<Pages>], response: Response) -> Option<u64> {
        use http_body::Body as _;
        with_page(pages, response).body.size_hint().exact()
    }

    #[test]
    fn nearest_page_is_the_one_for_the_status_itself() {
        let pages = [
            Arc::new(Pages { pages: vec![page(ErrorStatus::All(4), "1")], for_upstreams: false }),
            Arc::new(Pages {
                pages: vec![page(ErrorStatus::One(404), "22"), page(ErrorStatus::All(4), "333")],
                for_upstreams: true,
            }),
        ];
        assert_eq!(sent(&pages, Response::new(StatusCode::NOT_FOUND)), Some(2));
        assert_eq!(sent(&pages, Response::new(StatusCode::GONE)), Some(1));
        assert_eq!(sent(&pages, Response::new(StatusCode::BAD_GATEWAY)), Some(0));
        let passed_on = Response::new(StatusCode::GONE)
            .with_header(VIA, HeaderValue::from_static("1.1 pronghorn"));
        assert_eq!(sent(&pages, passed_on), Some(3));
    }

    #[test]
    fn page_leaves_nothing_of_what_it_takes_the_place_of() {
        let pages = [Arc::new(Pages {
            pages: vec![page(ErrorStatus::One(401), "x")],
            for_upstreams: false,
        })];
        let refused = Response::new(StatusCode::UNAUTHORIZED)
            .with_header(CONTENT_ENCODING, HeaderValue::from_static("gzip"))
            .with_header(CONTENT_LENGTH, 5.into())
            .with_header(CACHE_CONTROL, HeaderValue::from_static("no-store"))
            .with_header(http::header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic"));
        let refused = with_page(&pages, refused);
        let mut left: Vec<_> = refused.headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["cache-control", "content-type", "www-authenticate"]);
    }
}
