//! Upgrade requests, such as for WebSocket.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION};
use http::{HeaderValue, StatusCode};
use pronghorn_engine::{Body, Incoming, Peer, Protocol, Responder, Response, Upgrade, websocket};

use super::attempt::Head;
use super::client_info::ClientInfo;
use super::failure::refusal;
use super::failure_log::{Cause, Failure, Outcome, RequestLine};
use super::fields;
use super::replayable_body::ReplayableBody;
use super::response::answer as client_response;
use super::response_body::{Content, FailureContext, Tracked};
use super::worker_upstream::WorkerUpstream;
use crate::responses::text;
use crate::tunnels::Tunnel;

/// Forwards an upgrade request, and connects client and server if the upgrade is granted.
#[expect(clippy::too_many_arguments, reason = "the parts of a request")]
pub(super) async fn run(
    upstream: Rc<WorkerUpstream>,
    mut head: Head,
    request_line: RequestLine,
    (upgrade, tunnel): (Upgrade, Tunnel),
    peer: Peer,
    body: Incoming,
    mut responder: Responder,
    finish: impl FnOnce(Response) -> Response + 'static,
) {
    let activity = tunnel.begin(responder.handle());
    let handshake = Handshake::new(&mut head, &upgrade, &peer);
    let client = ClientInfo::of(&peer, &head.headers, upstream.cookies.is_some());
    let cookie_server = upstream.cookie_server(&head.headers);
    let Some(open) =
        upstream.balance.choose(upstream.key(&head, peer.remote.ip()), cookie_server, &[])
    else {
        return responder.send(finish(upstream.no_server(&request_line)));
    };
    if let Some(note) = &request_line.note {
        note.tries(open.address());
    }
    // The client's data is read only after the upgrade is granted, so that none is lost if it is
    // refused.
    let replayable = ReplayableBody::new(body);
    let mut request =
        upstream.request(&mut head, open.address(), Body::stream(activity.of(replayable.borrow())));
    request.extensions_mut().insert(upgrade);
    let answered = {
        let mut sent = pin!(upstream.pool.send(request));
        poll_fn(|cx| match sent.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => responder.poll_closed(cx).map(|()| None),
        })
        .await
    };
    let response = match answered {
        Some(Ok(mut response)) => {
            open.answered(response.status());
            upstream.set_cookie(&open, cookie_server, client, response.headers_mut());
            response
        }
        Some(Err(error)) => {
            let answer = refusal(&error);
            upstream.failed(&open, &request_line, &error, true, Outcome::Answered(answer.status));
            return responder.send(finish(answer));
        }
        None => return responder.abort(),
    };
    let is_http1 = response.version() < http::Version::HTTP_2;
    let is_granted = if is_http1 {
        response.status() == StatusCode::SWITCHING_PROTOCOLS
    } else {
        response.status().is_success()
    };
    if !is_granted && peer.protocol != Protocol::Http1 && response.status().is_success() {
        // Over HTTP/2 and 3 the client would treat a success as a granted upgrade, but the body is
        // an ordinary resource.
        let answer = text(StatusCode::BAD_GATEWAY, "the upstream does not support this protocol\n");
        let (outcome, server) = (Outcome::Answered(answer.status), open.address());
        let reason = &format_args!(
            "unexpected status {} for an upgrade request",
            response.status().as_u16()
        );
        upstream.plan.failures.log_failure(Failure {
            cause: Some(Cause::Unsupported),
            server: Some(server),
            request_line: &request_line,
            reason,
            outcome,
        });
        return responder.send(finish(answer));
    }
    if !is_granted {
        let context = FailureContext { upstream: upstream.clone(), request_line, upload: None };
        return responder.send(finish(client_response(
            response.map(Content::Http),
            open,
            Some(context),
            None,
        )));
    }
    let (mut granted, content) = response.into_parts();
    fields::to_client(&mut granted.headers, granted.version);
    if !handshake.conclude(&mut granted.headers, is_http1) {
        let answer =
            text(StatusCode::BAD_GATEWAY, "invalid WebSocket handshake from the upstream\n");
        let (outcome, server) = (Outcome::Answered(answer.status), open.address());
        let reason = &"sec-websocket-accept does not match the key";
        upstream.plan.failures.log_failure(Failure {
            cause: Some(Cause::Malformed),
            server: Some(server),
            request_line: &request_line,
            reason,
            outcome,
        });
        return responder.send(finish(answer));
    }
    // Sent as a response, so that it is logged and the route's field rules apply.
    let status = if peer.protocol == Protocol::Http1 {
        StatusCode::SWITCHING_PROTOCOLS
    } else {
        StatusCode::OK
    };
    let content = activity.of(Tracked::new(Content::Http(content), open, None));
    let mut response = Response::new(status).with_body(Body::stream(content));
    response.headers = granted.headers;
    let mut response = finish(response);
    let headers = std::mem::take(response.fields_mut());
    responder.upgrade(headers, response.body);
}

/// The keys of a WebSocket handshake, which only HTTP/1.1 has.
struct Handshake {
    /// The client's key, if it sent one.
    client: Option<HeaderValue>,
    /// The key sent to the server.
    server: Option<HeaderValue>,
}

impl Handshake {
    fn new(head: &mut Head, upgrade: &Upgrade, peer: &Peer) -> Self {
        if upgrade.protocol() != "websocket" {
            return Self { client: None, server: None };
        }
        let client =
            head.headers.remove(SEC_WEBSOCKET_KEY).filter(|_| peer.protocol == Protocol::Http1);
        // The server's HTTP version is not known yet; the key is ignored over HTTP/2 and 3.
        let key = BASE64_STANDARD.encode(rand::random::<[u8; 16]>());
        let server = client.clone().or_else(|| HeaderValue::try_from(key).ok());
        if let Some(key) = &server {
            head.headers.insert(SEC_WEBSOCKET_KEY, key.clone());
        }
        head.headers.entry(SEC_WEBSOCKET_VERSION).or_insert(HeaderValue::from_static("13"));
        Self { client, server }
    }

    /// Converts the server's response for the client. Returns `false` if the server's accept value
    /// does not match the key.
    fn conclude(&self, headers: &mut http::HeaderMap, is_http1: bool) -> bool {
        let Some(server) = &self.server else { return true };
        let accept = |key: &HeaderValue| {
            HeaderValue::try_from(websocket::accept(key.to_str().unwrap_or_default())).ok()
        };
        let given = headers.remove(SEC_WEBSOCKET_ACCEPT);
        if is_http1 && given != accept(server) {
            return false;
        }
        if let Some(accept) = self.client.as_ref().and_then(accept) {
            headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
        }
        true
    }
}
