//! Requests to the server as a whole, not to one of its resources.

use http::header::ALLOW;
use http::{HeaderValue, Method, StatusCode, Uri};
use pronghorn_engine::Response;

use crate::responses::text;

/// Returns the response to such a request. `may_tunnel` marks an extended CONNECT, which is for a
/// resource. `allow` lists the methods that the server supports.
pub(crate) fn answer(
    method: &Method,
    uri: &Uri,
    may_tunnel: bool,
    allow: &'static str,
) -> Option<Response> {
    if *method == Method::CONNECT && !may_tunnel {
        // RFC 9110, section 9.1: 501 is for methods that the server does not implement. 405 would
        // be about a resource, and none is named.
        return Some(text(
            StatusCode::NOT_IMPLEMENTED,
            "CONNECT is not supported: this server is not a forward proxy\n",
        ));
    }
    // RFC 9110, section 9.3.7: tests whether the server responds, and its capabilities.
    let is_asterisk = *method == Method::OPTIONS && uri.path() == "*";
    is_asterisk.then(|| {
        Response::new(StatusCode::NO_CONTENT).with_header(ALLOW, HeaderValue::from_static(allow))
    })
}
