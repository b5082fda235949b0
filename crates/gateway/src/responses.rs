//! Responses that files and routes share.

use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderValue, StatusCode, Uri};
use pronghorn_engine::Response;

/// Returns a text response with its content type.
pub(crate) fn text(status: StatusCode, text: &'static str) -> Response {
    Response::new(status)
        .with_header(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"))
        .with_body(text)
}

pub(crate) fn not_found() -> Response {
    text(StatusCode::NOT_FOUND, "not found\n")
}

/// Redirects to the path with a trailing slash. The location is relative, since a prefix of the
/// client's path may have been stripped.
pub(crate) fn redirect_to_folder(uri: &Uri) -> Response {
    // Browsers treat a backslash as a slash.
    let name = uri.path().rsplit('/').next().unwrap_or_default().replace('\\', "%5C");
    // Without the dot, text before a colon would be a scheme, and text after two slashes of either
    // kind a host.
    let target =
        uri.query().map_or_else(|| format!("./{name}/"), |query| format!("./{name}/?{query}"));
    let target = HeaderValue::from_str(&target).expect("invariant: a target is visible ASCII");
    text(StatusCode::MOVED_PERMANENTLY, "moved\n").with_header(LOCATION, target)
}
