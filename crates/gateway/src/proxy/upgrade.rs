//! Requests that go on in another protocol, such as WebSocket.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION};
use http::{HeaderValue, StatusCode};
use pronghorn_engine::{Body, Incoming, Peer, Protocol, Responder, Response, Upgrade, websocket};

use super::content::{Content, Lent, Tracked, Watch};
use super::{Asker, Cause, Failure, Head, RequestLine, Then, WorkerUpstream, fields, refusal};
use crate::plan::text;
use crate::tunnels::Tunnel;

/// Asks a server for what the client asks for, and joins the two if it is granted.
#[expect(clippy::too_many_arguments, reason = "the parts of a request")]
pub(super) async fn run(
    upstream: Rc<WorkerUpstream>,
    mut head: Head,
    asked: RequestLine,
    (upgrade, tunnel): (Upgrade, Tunnel),
    peer: Peer,
    body: Incoming,
    mut responder: Responder,
    finish: impl FnOnce(Response) -> Response + 'static,
) {
    let movement = tunnel.begin(responder.handle());
    let handshake = Handshake::new(&mut head, &upgrade, &peer);
    let client = Asker::of(&peer, &head.headers, upstream.cookies.is_some());
    let brought = upstream.brought(&head.headers);
    let Some(open) = upstream.balance.choose(upstream.key(&head, peer.remote.ip()), brought, &[]) else {
        return responder.send(finish(upstream.nobody(&asked)));
    };
    if let Some(note) = &asked.note {
        note.asks(open.address());
    }
    // What the client sends comes only when it is granted, so that nothing of it is lost when it is not.
    let lent = Lent::new(body);
    let mut request = upstream.request(&mut head, open.address(), Body::stream(movement.of(lent.lend())));
    request.extensions_mut().insert(upgrade);
    let answered = {
        let mut sent = pin!(upstream.pool.send_observed(request, None));
        poll_fn(|cx| match sent.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => responder.poll_closed(cx).map(|()| None),
        })
        .await
    };
    let response = match answered {
        Some(Ok(mut response)) => {
            open.answered(response.status());
            upstream.keep_client(&open, brought, client, response.headers_mut());
            response
        }
        Some(Err(error)) => {
            let answer = refusal(&error);
            upstream.failed(&open, &asked, &error, true, Then::Answered(answer.status));
            return responder.send(finish(answer));
        }
        None => return responder.abort(),
    };
    let is_http1 = response.version() < http::Version::HTTP_2;
    let is_granted = if is_http1 { response.status() == StatusCode::SWITCHING_PROTOCOLS } else { response.status().is_success() };
    if !is_granted && peer.protocol != Protocol::Http1 && response.status().is_success() {
        // To the client it would say that the other protocol begins, and what follows is a resource that nobody has asked for.
        let answer = text(StatusCode::BAD_GATEWAY, "the upstream does not speak this protocol\n");
        let (then, server) = (Then::Answered(answer.status), open.address());
        let reason = &format_args!("{} is no answer to a request for another protocol", response.status().as_u16());
        upstream.plan.trouble.failed(Failure { cause: Some(Cause::Unsupported), server: Some(server), asked: &asked, reason, then });
        return responder.send(finish(answer));
    }
    if !is_granted {
        let watch = Watch { upstream: upstream.clone(), asked, upload: None };
        return responder.send(finish(super::answer(response.map(Content::Http), open, Some(watch), None)));
    }
    let (mut granted, content) = response.into_parts();
    fields::to_client(&mut granted.headers, granted.version);
    if !handshake.conclude(&mut granted.headers, is_http1) {
        let answer = text(StatusCode::BAD_GATEWAY, "the upstream's WebSocket handshake is wrong\n");
        let (then, server) = (Then::Answered(answer.status), open.address());
        let reason = &"sec-websocket-accept is not what belongs to the key";
        upstream.plan.trouble.failed(Failure { cause: Some(Cause::Malformed), server: Some(server), asked: &asked, reason, then });
        return responder.send(finish(answer));
    }
    // As a response, so that it is logged as one and its fields are changed as the route says.
    let status = if peer.protocol == Protocol::Http1 { StatusCode::SWITCHING_PROTOCOLS } else { StatusCode::OK };
    let content = movement.of(Tracked::new(Content::Http(content), open, None));
    let mut response = Response::new(status).with_body(Body::stream(content));
    response.headers = granted.headers;
    let mut response = finish(response);
    let headers = std::mem::take(response.fields_mut());
    responder.upgrade(headers, response.body);
}

/// The keys of a WebSocket handshake, which only HTTP/1.1 has.
struct Handshake {
    /// The client's, if it sent one.
    client: Option<HeaderValue>,
    /// What the server gets.
    server: Option<HeaderValue>,
}

impl Handshake {
    fn new(head: &mut Head, upgrade: &Upgrade, peer: &Peer) -> Self {
        if upgrade.protocol() != "websocket" {
            return Self { client: None, server: None };
        }
        let client = head.headers.remove(SEC_WEBSOCKET_KEY).filter(|_| peer.protocol == Protocol::Http1);
        // Which protocol the server speaks is not known yet; one that is not asked over HTTP/1.1 has no use for the key.
        let key = BASE64_STANDARD.encode(rand::random::<[u8; 16]>());
        let server = client.clone().or_else(|| HeaderValue::try_from(key).ok());
        if let Some(key) = &server {
            head.headers.insert(SEC_WEBSOCKET_KEY, key.clone());
        }
        head.headers.entry(SEC_WEBSOCKET_VERSION).or_insert(HeaderValue::from_static("13"));
        Self { client, server }
    }

    /// Makes the server's answer the client's. `false` if the server did not understand the key.
    fn conclude(&self, headers: &mut http::HeaderMap, is_http1: bool) -> bool {
        let Some(server) = &self.server else { return true };
        let accept = |key: &HeaderValue| HeaderValue::try_from(websocket::accept(key.to_str().unwrap_or_default())).ok();
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
