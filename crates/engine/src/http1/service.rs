//! The requests of a connection, as hyper delivers them.

use std::cell::RefCell;
use std::rc::Rc;

use http::header::{CONNECTION, HOST};
use http::{HeaderValue, Version};
use http_body::Body as _;
use hyper::service::Service;

use super::exchange::Http1Exchange;
use super::request_body::Http1BodyLink;
use super::response::{Aborted, AcceptedUpgrade, GuardedBody, ResponseFuture};
use super::wire_state::WireState;
use crate::admission::{AuthorityCache, Head};
use crate::dispatch::Dispatcher;
use crate::message::Protocol;
use crate::tcp::{Activity, Connected};
use crate::{Incoming, Request, Responder, Response};

/// Passes the requests of a connection to the handler.
pub(super) struct RequestService {
    pub(super) peer: Connected,
    pub(super) alt_svc: Option<HeaderValue>,
    pub(super) activity: Rc<Activity>,
    pub(super) wire: Rc<WireState>,
    /// Where an upgrade is left for the connection.
    pub(super) granted: Rc<RefCell<Option<AcceptedUpgrade>>>,
    pub(super) latest: RefCell<AuthorityCache>,
    pub(super) dispatcher: Rc<Dispatcher>,
}

impl Service<hyper::Request<hyper::body::Incoming>> for RequestService {
    type Response = hyper::Response<GuardedBody>;
    type Error = Aborted;
    type Future = ResponseFuture;

    fn call(&self, request: hyper::Request<hyper::body::Incoming>) -> ResponseFuture {
        let context = &self.dispatcher.context;
        let (head, body) = request.into_parts();
        context.stats.requests_http1.add(1);
        let awaited = self.wire.on_request(context.handle.turn());
        let exchange = Rc::new(Http1Exchange::new(head.version, self.wire.clone(), awaited));
        let guard = self.activity.begin_exchange();
        let content = (!body.is_end_stream()).then(|| Http1BodyLink {
            wire: self.wire.clone(),
            number: self.wire.requests.get(),
            guard: guard.clone(),
            has_begun: false,
            _held: Http1BodyLink::hold(&context.memory),
        });
        let answer = ResponseFuture {
            exchange: exchange.clone(),
            method: head.method.clone(),
            alt_svc: self.alt_svc.clone(),
            guard: Some(guard),
            granted: self.granted.clone(),
            context: context.clone(),
        };
        let (peer, early) = self.peer.now();
        let mut latest = self.latest.borrow_mut();
        let mut head = Head {
            protocol: Protocol::Http1,
            version: head.version,
            secure: peer.secure,
            method: head.method,
            uri: head.uri,
            headers: head.headers,
            upgrade: None,
            latest: latest.named(),
        };
        // RFC 9112, section 3.3: an HTTP/1.0 request may come without an authority, as health
        // checks do. The connection's address stands in for it.
        if head.version < Version::HTTP_11
            && head.uri.authority().is_none()
            && !head.headers.contains_key(HOST)
        {
            let host = self.peer.authority().and_then(|host| HeaderValue::try_from(host).ok());
            head.headers.extend(host.map(|host| (HOST, host)));
        }
        match head.admit_in_place() {
            Ok(_) => {
                let Head { method, uri, headers, upgrade, .. } = head;
                latest.note(&uri, &headers);
                drop(latest);
                let upgrade = upgrade.filter(|_| awaited);
                let body = if let Some(upgrade) = &upgrade {
                    Incoming::tunnel(exchange.offer(upgrade.clone()))
                } else {
                    exchange.decline();
                    content.map_or_else(Incoming::empty, |content| Incoming::http1(body, content))
                };
                let request = Request { method, uri, headers, peer, upgrade, body };
                let responder = Responder::http1(exchange, context).with_handshake(early);
                self.dispatcher.dispatch(request, responder);
            }
            Err(refusal) => {
                context.stats.requests_refused.add(1);
                if let Some(content) = content {
                    content.give_up();
                }
                // After one invalid head, the beginning of the next one cannot be trusted.
                exchange.respond(
                    Response::new(refusal.status)
                        .with_header(CONNECTION, HeaderValue::from_static("close")),
                );
            }
        }
        answer
    }
}
