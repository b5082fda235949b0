//! Conversion of a server's response.

use http_body::Body as _;
use pronghorn_engine::Response;

use super::balance::OpenRequest;
use super::fields;
use super::response_body::{Content, FailureContext, Tracked};
use crate::buffering::ResponseBuffering;

/// Converts a server's response to the client's. With `buffering`, the body is buffered if the
/// client is slow, unless the response disables that.
pub(super) fn answer(
    response: http::Response<Content>,
    open: OpenRequest,
    context: Option<FailureContext>,
    buffering: Option<&ResponseBuffering>,
) -> Response {
    let (mut head, content) = response.into_parts();
    let buffering = buffering.filter(|_| fields::may_buffer(&mut head.headers));
    match &content {
        Content::Http(_) => fields::to_client(&mut head.headers, head.version),
        Content::FastCgi(_) => fields::from_application(&mut head.headers),
    }
    let mut answer = Response::new(head.status);
    // The engine checks the body against its content-length.
    answer.headers = head.headers;
    if !content.is_end_stream() {
        answer.body = Tracked::new(content, open, context).into_body(buffering);
    }
    answer
}
