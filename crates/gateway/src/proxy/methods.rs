//! Methods that are forwarded.

use http::header::ALLOW;
use http::{HeaderValue, Method, StatusCode};
use pronghorn_engine::Response;

use crate::responses::text;

/// Returns whether a method is never forwarded. TRACE would show clients the fields that are added
/// on the way, and CONNECT is not a request for an upstream.
pub(super) fn is_never_passed_on(method: &Method) -> bool {
    matches!(*method, Method::TRACE | Method::CONNECT)
}

/// Methods that are forwarded, and that a server with any kind of routes supports.
pub(crate) const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

pub(crate) fn not_passed_on() -> Response {
    let answer = text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
    answer.with_header(ALLOW, HeaderValue::from_static(METHODS))
}
