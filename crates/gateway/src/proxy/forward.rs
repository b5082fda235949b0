//! Forwarding of requests, to one server after the other.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use pronghorn_client::{ClientRequest, Error};
use pronghorn_engine::{Body, BodyError, Peer, Protocol, Request, Responder, Response};

use super::attempt::{Forwarded, Head, OutgoingRequest, borrow};
use super::balance::OpenRequest;
use super::client_info::ClientInfo;
use super::expect_continue::Gate;
use super::failure::{self, refusal};
use super::failure_log::{Outcome, RequestLine};
use super::methods::{is_never_passed_on, not_passed_on};
use super::replayable_body::ReplayableBody;
use super::response::answer;
use super::response_body::{Content, FailureContext};
use super::worker_upstream::WorkerUpstream;
use super::{fields, upgrade};
use crate::fastcgi;
use crate::interim_responses::InterimQueue;
use crate::responses::text;

impl WorkerUpstream {
    /// Forwards a request and sends the server's response; `finish` changes each response before it
    /// is sent.
    pub(crate) fn forward(
        self: Rc<Self>,
        forwarded: Forwarded<'_>,
        responder: Responder,
        finish: impl FnOnce(Response) -> Response + 'static,
    ) {
        let Forwarded { prefix, request, tunnel, is_trusted, note } = forwarded;
        let Request { method, uri, mut headers, peer, upgrade, body } = request;
        let upgrade = upgrade.zip(tunnel);
        if upgrade.is_none() && is_never_passed_on(&method) {
            return responder.send(finish(not_passed_on()));
        }
        let expects_continue =
            fields::to_upstream(&self.clients, &mut headers, &peer, &uri, prefix, is_trusted);
        let client = ClientInfo::of(&peer, &headers, self.cookies.is_some());
        let head = Head::new(method.clone(), &uri, headers);
        let request_line = RequestLine { method, uri, note };
        if let Some((upgrade, tunnel)) = upgrade {
            let handle = responder.handle().clone();
            handle.spawn(upgrade::run(
                self,
                head,
                request_line,
                (upgrade, tunnel),
                peer,
                body,
                responder,
                finish,
            ));
            return;
        }
        let mut outgoing =
            OutgoingRequest::new(head, request_line, borrow(body), client, expects_continue);
        if peer.protocol == Protocol::Http1 {
            // Some HTTP/1.1 clients treat an interim response as the final one.
            responder.respond(async move {
                finish(pin!(self.exchange(&mut outgoing, None, None)).await)
            });
        } else {
            let handle = responder.handle().clone();
            handle.spawn(Box::pin(self.forward_informing(outgoing, responder, finish)));
        }
    }

    /// Forwards a request, with interim responses. Not an `async fn`, whose future would store its
    /// arguments twice.
    fn forward_informing<B>(
        self: Rc<Self>,
        mut outgoing: OutgoingRequest<B>,
        responder: Responder,
        finish: impl FnOnce(Response) -> Response,
    ) -> impl Future<Output = ()>
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin + 'static,
    {
        let responder = RefCell::new(responder);
        async move {
            let answered = {
                let inform = |status, headers| {
                    fields::interim(status, headers, |headers| {
                        responder.borrow_mut().send_interim(status, headers);
                    });
                };
                let mut exchange = pin!(self.exchange(&mut outgoing, Some(&inform), None));
                poll_fn(|cx| match exchange.as_mut().poll(cx) {
                    Poll::Ready(answer) => Poll::Ready(Some(answer)),
                    Poll::Pending => responder.borrow_mut().poll_closed(cx).map(|()| None),
                })
                .await
            };
            let responder = responder.into_inner();
            match answered {
                Some(answer) => responder.send(finish(answer)),
                None => responder.abort(),
            }
        }
    }

    /// Forwards a request without an upgrade that came through layers.
    #[expect(clippy::too_many_arguments, reason = "the parts of a request")]
    pub(crate) async fn answer(
        self: &Rc<Self>,
        prefix: Option<&HeaderValue>,
        request_line: RequestLine,
        mut headers: HeaderMap,
        peer: Peer,
        body: Body,
        is_trusted: bool,
        interim: Option<&InterimQueue>,
    ) -> Response {
        if is_never_passed_on(&request_line.method) {
            return not_passed_on();
        }
        let expects_continue = fields::to_upstream(
            &self.clients,
            &mut headers,
            &peer,
            &request_line.uri,
            prefix,
            is_trusted,
        );
        let client = ClientInfo::of(&peer, &headers, self.cookies.is_some());
        let head = Head::new(request_line.method.clone(), &request_line.uri, headers);
        let inform = interim.map(|interim| {
            move |status, headers| {
                fields::interim(status, headers, |headers| interim.inform(status, headers.clone()));
            }
        });
        let inform = inform.as_ref().map(|inform| inform as &dyn Fn(StatusCode, HeaderMap));
        let mut outgoing =
            OutgoingRequest::new(head, request_line, borrow(body), client, expects_continue);
        self.exchange(&mut outgoing, inform, None).await
    }

    /// Sends a request to an application. `prefix` is the prefix that was stripped from the path.
    pub(crate) async fn run(
        self: &Rc<Self>,
        prefix: Option<&HeaderValue>,
        request_line: RequestLine,
        mut headers: HeaderMap,
        peer: &Peer,
        content: Body,
        application: &fastcgi::RequestInfo,
    ) -> Response {
        // The body was collected before, so no client waits for 100 (Continue) here.
        fields::to_upstream(
            &self.clients,
            &mut headers,
            peer,
            &request_line.uri,
            prefix,
            application.is_trusted,
        );
        let client = ClientInfo::of(peer, &headers, self.cookies.is_some());
        let head = Head::new(request_line.method.clone(), &request_line.uri, headers);
        let mut outgoing = OutgoingRequest::new(head, request_line, borrow(content), client, false);
        self.exchange(&mut outgoing, None, Some(application)).await
    }

    /// Tries one server after the other, as long as no server can have processed the request.
    /// `outgoing` is consumed.
    async fn exchange<B>(
        self: &Rc<Self>,
        outgoing: &mut OutgoingRequest<B>,
        inform: Option<&dyn Fn(StatusCode, HeaderMap)>,
        application: Option<&fastcgi::RequestInfo>,
    ) -> Response
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin + 'static,
    {
        let is_idempotent = outgoing.head.method.is_idempotent();
        let cookie_server = self.cookie_server(&outgoing.head.headers);
        self.budget.count();
        let mut tried = Vec::new();
        let mut failure = None;
        loop {
            let Some(open) = self.balance.choose(
                self.key(&outgoing.head, outgoing.client.address),
                cookie_server,
                &tried,
            ) else {
                return failure.as_ref().map_or_else(
                    || self.no_server(&outgoing.line),
                    |error| self.no_further_server(&outgoing.line, error),
                );
            };
            if let Some(note) = &outgoing.line.note {
                note.tries(open.address());
            }
            let gate = outgoing.expects_continue.then(|| Rc::new(Gate::new(&self.handle)));
            let content = outgoing
                .content
                .as_ref()
                .map_or_else(Body::empty, |content| content.borrow_behind(gate.clone()));
            let attempts = tried.len() + 1;
            let is_last =
                attempts > self.plan.settings.retries as usize || attempts >= self.balance.len();
            let spare = if is_last { None } else { Some(Box::new(outgoing.head.clone())) };
            // Pinned in place: passing the future on by value would move all of it. The rarer one
            // is boxed.
            let answered = if let (Some(fastcgi), Some(application)) = (&self.fastcgi, application)
            {
                Box::pin(self.send_to_application(
                    fastcgi,
                    application,
                    &mut outgoing.head,
                    &open,
                    content,
                ))
                .await
            } else {
                let request = self.request(&mut outgoing.head, open.address(), content);
                let hear = |status, headers| match (&gate, inform) {
                    (Some(gate), _) if status == StatusCode::CONTINUE => gate.open(),
                    (_, Some(inform)) => inform(status, headers),
                    (_, None) => {}
                };
                let mut on_interim = (inform.is_some() || gate.is_some()).then_some(hear);
                let mut request = ClientRequest::new(request);
                if let Some(on_interim) = &mut on_interim {
                    request = request.on_interim(on_interim);
                }
                pin!(self.pool.send(request)).await.map(|response| response.map(Content::Http))
            };
            let is_broken =
                || outgoing.content.as_ref().is_some_and(|content| content.upload().is_broken());
            match answered {
                Ok(mut response) => {
                    open.answered(response.status());
                    // A server that refuses the request needs no body. Other servers may need it
                    // after their response has begun, such as one that echoes it.
                    let is_refusal =
                        response.status().is_client_error() || response.status().is_server_error();
                    if let Some(gate) = gate {
                        if is_refusal { gate.close() } else { gate.open() }
                    }
                    if outgoing.client.protocol == Protocol::Http2 {
                        self.values.detach(response.headers_mut());
                    }
                    self.set_cookie(&open, cookie_server, outgoing.client, response.headers_mut());
                    let upload = outgoing.content.as_ref().map(ReplayableBody::upload);
                    let context = FailureContext {
                        upstream: self.clone(),
                        request_line: std::mem::take(&mut outgoing.line),
                        upload,
                    };
                    return answer(response, open, Some(context), self.buffering.as_ref());
                }
                // The client cut the body off; the server is not at fault.
                Err(_) if is_broken() => {
                    return text(StatusCode::BAD_REQUEST, "request body cut off\n");
                }
                Err(error) => {
                    let is_whole = outgoing.content.as_ref().is_none_or(ReplayableBody::is_whole);
                    let may_repeat = (error.is_unprocessed()
                        || is_idempotent && error.is_connection_closed())
                        && is_whole;
                    let again = spare.filter(|_| may_repeat && self.may_retry());
                    let outcome = if again.is_some() {
                        Outcome::Retried
                    } else {
                        Outcome::Answered(failure::status(&error))
                    };
                    self.failed(&open, &outgoing.line, &error, outgoing.content.is_some(), outcome);
                    let Some(again) = again else { return refusal(&error) };
                    tried.push(open.index());
                    (outgoing.head, failure) = (*again, Some(error));
                }
            }
        }
    }

    async fn send_to_application(
        &self,
        fastcgi: &fastcgi::Client,
        info: &fastcgi::RequestInfo,
        head: &mut Head,
        open: &OpenRequest,
        content: Body,
    ) -> Result<http::Response<Content>, Error> {
        let (method, mut headers) =
            (std::mem::take(&mut head.method), std::mem::take(&mut head.headers));
        if let Some(host) = self.host(open.address()) {
            headers.insert(http::header::HOST, host);
        }
        let (uri, server) = (Uri::from(head.path.clone()), open.address());
        let request =
            fastcgi::Request { info, method: &method, uri: &uri, headers: &headers, content };
        Ok(fastcgi.ask(open.index(), server, request).await?.map(Content::FastCgi))
    }
}
