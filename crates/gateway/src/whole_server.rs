//! Requests that are for the server as a whole, and for none of its resources.

use http::header::ALLOW;
use http::{HeaderValue, Method, StatusCode, Uri};
use pronghorn_engine::Response;

use crate::plan::text;

/// The answer to such a request. `may_tunnel`: it is an extended CONNECT, which asks for a resource. `allow`: the methods that the server has.
pub(crate) fn answer(method: &Method, uri: &Uri, may_tunnel: bool, allow: &'static str) -> Option<Response> {
    if *method == Method::CONNECT && !may_tunnel {
        // RFC 9110, section 9.1: 501 is for methods that the server does not implement. No resource is named of which 405 could speak.
        return Some(text(StatusCode::NOT_IMPLEMENTED, "CONNECT is not implemented: this server is no forward proxy\n"));
    }
    // RFC 9110, section 9.3.7: it tests whether the server is there, and what it has.
    let is_asterisk = *method == Method::OPTIONS && uri.path() == "*";
    is_asterisk.then(|| Response::new(StatusCode::NO_CONTENT).with_header(ALLOW, HeaderValue::from_static(allow)))
}
