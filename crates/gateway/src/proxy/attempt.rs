//! A request that is sent to one server after the other.

use bytes::Bytes;
use http::header::EXPECT;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Uri};
use pronghorn_engine::{BodyError, Request};

use super::client_info::ClientInfo;
use super::failure_log::RequestLine;
use super::replayable_body::ReplayableBody;
use crate::access_log::Note;
use crate::tunnels::Tunnel;

/// The head of a request to an upstream.
#[derive(Clone)]
pub(super) struct Head {
    pub(super) method: Method,
    pub(super) path: PathAndQuery,
    pub(super) headers: HeaderMap,
}

impl Head {
    /// `headers` is the fields for the upstream.
    pub(super) fn new(method: Method, uri: &Uri, headers: HeaderMap) -> Self {
        let path = uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        Self { method, path, headers }
    }
}

/// A request to forward.
pub(crate) struct Forwarded<'a> {
    /// The prefix that was stripped from the path.
    pub(crate) prefix: Option<&'a HeaderValue>,
    pub(crate) request: Request,
    /// The tunnel slot of an upgrade request.
    pub(crate) tunnel: Option<Tunnel>,
    /// Whether the peer is a trusted proxy.
    pub(crate) is_trusted: bool,
    pub(crate) note: Option<Note>,
}

/// A request as sent to one server after the other. It is not moved while the request runs.
pub(super) struct OutgoingRequest<B> {
    pub(super) head: Head,
    pub(super) line: RequestLine,
    pub(super) content: Option<ReplayableBody<B>>,
    pub(super) client: ClientInfo,
    /// Whether the client waits for 100 (Continue) before it sends the body.
    pub(super) expects_continue: bool,
}

impl<B> OutgoingRequest<B> {
    pub(super) fn new(
        mut head: Head,
        line: RequestLine,
        content: Option<ReplayableBody<B>>,
        client: ClientInfo,
        expects_continue: bool,
    ) -> Self {
        let expects_continue = expects_continue && content.is_some();
        if expects_continue {
            //= RFC 9110 section 10.1.1
            //# A client that will wait for a 100 (Continue) response before sending the request content MUST send an Expect header field
            //# containing a 100-continue expectation.
            head.headers.insert(EXPECT, HeaderValue::from_static("100-continue"));
        }
        Self { head, line, content, client, expects_continue }
    }
}

/// Returns a request body that successive attempts can borrow, unless it is empty.
pub(super) fn borrow<B>(body: B) -> Option<ReplayableBody<B>>
where
    B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin + 'static,
{
    (!body.is_end_stream()).then(|| ReplayableBody::new(body))
}
