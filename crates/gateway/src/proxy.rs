//! Requests passed on to other servers.

mod balance;
mod budget;
mod check;
mod content;
mod expecting;
mod failure;
mod fields;
mod health;
mod sticky;
mod trouble;
mod upgrade;
mod values;

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use bytes::Bytes;
use http::header::{ALLOW, EXPECT, RETRY_AFTER, SET_COOKIE};
use http::uri::{Authority, Parts, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_body::Body as _;
use pronghorn_client::{Error, Http3, Options, Pool, Roots};
use pronghorn_engine::{Body, BodyError, Connector, Handle, Peer, Protocol, Request, Responder, Response};
use rustc_hash::{FxHashMap, FxHashSet};

use self::balance::{Balance, Key, Open};
use self::budget::{Budget, WorkerBudget};
pub(crate) use self::check::Checks;
use self::content::{Content, Lent, Tracked, Watch};
use self::expecting::Gate;
use self::failure::{Reason, refusal};
use self::fields::Clients;
pub(crate) use self::fields::to_client;
pub(crate) use self::health::Observer;
use self::health::ServerHealth;
pub(crate) use self::health::now;
pub use self::health::{ServerCondition, ServerState, UpstreamCounts};
use self::sticky::Cookies;
pub(crate) use self::trouble::{Cause, Failure, RequestLine, Then, Trouble, Troubles};
use self::values::Latest;
use crate::access_log::Note;
use crate::buffering::Buffering;
use crate::config::{Policy, ServerAddress, Upstream, UpstreamHost, UpstreamProtocol};
use crate::fastcgi;
use crate::forwarding;
use crate::informing::Informer;
use crate::plan::text;
use crate::spool::Spool;
use crate::tunnels::Tunnel;

/// An upstream, as all workers share it.
pub(crate) struct UpstreamPlan {
    name: Arc<str>,
    pub(crate) settings: Upstream,
    roots: Roots,
    /// What the file in `tls.trust` said.
    trust: Option<Arc<[u8]>>,
    /// Of each server.
    health: Vec<Arc<ServerHealth>>,
    budget: Arc<Budget>,
    observer: Arc<Observer>,
    trouble: Arc<Trouble>,
}

impl UpstreamPlan {
    /// `before`: plans from which what is known of the same servers is taken.
    pub(crate) fn new(
        name: &str,
        settings: Upstream,
        (roots, trust): (Roots, Option<Arc<[u8]>>),
        before: &[Arc<Self>],
        observer: &Arc<Observer>,
    ) -> Self {
        let name: Arc<str> = name.into();
        let asked_alike = |before: &&Arc<Self>| {
            let Upstream { health, check, protocol, host, runs_scripts, .. } = &before.settings;
            before.name == name
                && (health, check, protocol, host) == (&settings.health, &settings.check, &settings.protocol, &settings.host)
                && *runs_scripts == settings.runs_scripts
                && (before.settings.servers.len() == 1) == (settings.servers.len() == 1)
        };
        let before = before.iter().find(asked_alike);
        let health_of = |server: &crate::config::UpstreamServer| {
            let address = server.0.address.to_string();
            let known = before.and_then(|before| before.health.iter().find(|health| health.server() == address)).cloned();
            known.unwrap_or_else(|| Arc::new(ServerHealth::new(&name, address, observer)))
        };
        let health = settings.servers.iter().map(health_of).collect();
        let budget = Arc::new(Budget::new(&settings.retry_budget, health::now()));
        let trouble = observer.troubles.of(&name);
        Self { name, settings, roots, trust, health, budget, observer: observer.clone(), trouble }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether it is this one, wherever that stands, with this text in `tls.trust`.
    pub(crate) fn is_of(&self, name: &str, settings: &Upstream, trust: Option<&Arc<[u8]>>) -> bool {
        *self.name == *name && self.settings.is_same(settings) && self.trust.as_ref() == trust
    }

    pub(crate) fn servers(&self) -> impl Iterator<Item = ServerState> {
        self.health.iter().map(|health| health.state())
    }

    fn balance(&self) -> Balance {
        let is_counted = self.settings.servers.len() > 1 && self.settings.health.failures > 0;
        let is_watched = is_counted || self.settings.check.is_some() || self.settings.requests.is_some();
        Balance::new(&self.settings, if is_watched { &self.health } else { &[] })
    }

    /// How its servers are asked.
    fn options(&self) -> Options {
        let Upstream { protocol, connect_timeout, head_timeout, body_timeout, idle_timeout, connections, long_responses, waiting, .. } =
            &self.settings;
        Options {
            roots: self.roots.clone(),
            http3: if *protocol == UpstreamProtocol::Http3 { Http3::Only } else { Http3::Off },
            tcp: match protocol {
                UpstreamProtocol::Http1 => Some(Protocol::Http1),
                UpstreamProtocol::Http2 => Some(Protocol::Http2),
                UpstreamProtocol::Auto | UpstreamProtocol::Http3 | UpstreamProtocol::FastCgi => None,
            },
            connect_timeout: connect_timeout.0,
            head_timeout: head_timeout.0,
            body_timeout: body_timeout.0,
            idle_timeout: idle_timeout.0,
            connections_per_origin: *connections,
            long_responses_per_origin: *long_responses,
            waiting_per_origin: *waiting,
            // Once on another connection to the same server; after that another server is asked.
            retries: self.settings.retries.min(1),
            resolve_every: Some(self.settings.resolve.0).filter(|every| !every.is_zero()),
            ..Options::default()
        }
    }
}

/// The upstreams of one worker, with their connections, made when they are first asked. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Upstreams(Rc<RefCell<FxHashMap<usize, Rc<WorkerUpstream>>>>);

impl Upstreams {
    /// What this worker has of `plan`.
    ///
    /// # Errors
    ///
    /// When nobody is trusted.
    pub(crate) fn of(&self, plan: &Arc<UpstreamPlan>, connector: &Connector) -> io::Result<Rc<WorkerUpstream>> {
        let mut upstreams = self.0.borrow_mut();
        // It holds the plan, so that no other can come to be where it is.
        let key = Arc::as_ptr(plan).addr();
        if let Some(upstream) = upstreams.get(&key) {
            return Ok(upstream.clone());
        }
        let made = WorkerUpstream::new(plan.clone(), connector);
        let upstream = Rc::new(made.inspect_err(|error| plan.trouble.said(&"this worker", error.to_string().as_bytes()))?);
        upstreams.insert(key, upstream.clone());
        Ok(upstream)
    }

    /// Lets go of those that are not among `plans` any more. What runs over them goes on.
    pub(crate) fn keep_only(&self, plans: &[Arc<UpstreamPlan>]) {
        let mut upstreams = self.0.borrow_mut();
        if upstreams.is_empty() {
            return;
        }
        let kept: FxHashSet<_> = plans.iter().map(Arc::as_ptr).collect();
        upstreams.retain(|_, upstream| kept.contains(&Arc::as_ptr(&upstream.plan)));
    }
}

/// An upstream on one worker.
pub(crate) struct WorkerUpstream {
    plan: Arc<UpstreamPlan>,
    handle: Handle,
    pool: Pool,
    /// In place of the pool, where that is spoken.
    fastcgi: Option<fastcgi::Client>,
    balance: Balance,
    cookies: Option<Cookies>,
    budget: WorkerBudget,
    buffering: Option<Buffering>,
    clients: Clients,
    latest: Latest,
}

/// The head of a request on its way to an upstream.
#[derive(Clone)]
struct Head {
    method: Method,
    path: PathAndQuery,
    headers: HeaderMap,
}

impl Head {
    /// `headers`: what the upstream gets.
    fn new(method: Method, uri: &Uri, headers: HeaderMap) -> Self {
        let path = uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        Self { method, path, headers }
    }
}

/// A request on its way, with what is known of it here.
pub(crate) struct Forwarded<'a> {
    /// What was taken away from the path.
    pub(crate) prefix: Option<&'a HeaderValue>,
    pub(crate) request: Request,
    /// Its place among those that go on in another protocol, if it asks for that.
    pub(crate) tunnel: Option<Tunnel>,
    /// Whether the peer is a proxy that is believed.
    pub(crate) is_trusted: bool,
    pub(crate) note: Option<Note>,
}

/// What servers are asked, one after the other. It stays in one place as long as the request takes.
struct Asking<B> {
    head: Head,
    line: RequestLine,
    content: Option<Lent<B>>,
    client: Asker,
    /// The client waits for 100 (Continue), and sends nothing before.
    expects_continue: bool,
}

impl<B> Asking<B> {
    fn new(mut head: Head, line: RequestLine, content: Option<Lent<B>>, client: Asker, expects_continue: bool) -> Self {
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

/// What counts of the client when a server is chosen for it.
#[derive(Clone, Copy)]
struct Asker {
    address: IpAddr,
    /// Whether it came over TLS.
    secure: bool,
    protocol: Protocol,
}

impl Asker {
    /// `headers`: as they go to the server, where `x-forwarded-proto` says how the client came. Only cookies depend on that.
    fn of(peer: &Peer, headers: &HeaderMap, has_cookies: bool) -> Self {
        let secure = if has_cookies { forwarding::is_secure(headers).unwrap_or(peer.secure) } else { peer.secure };
        Self { address: peer.remote.ip(), secure, protocol: peer.protocol }
    }
}

impl WorkerUpstream {
    fn new(plan: Arc<UpstreamPlan>, connector: &Connector) -> io::Result<Self> {
        let pool = Pool::with_connector(connector, plan.options())?;
        let balance = plan.balance();
        let cookies = Cookies::new(&plan.settings);
        let budget = WorkerBudget::new(&plan.budget);
        let is_fastcgi = plan.settings.speaks_fastcgi();
        let trouble = plan.trouble.clone();
        let listener = Rc::new(move |server: &ServerAddress, text: &[u8]| trouble.said(server, text));
        let fastcgi = is_fastcgi.then(|| fastcgi::Client::new(connector, &plan.settings, listener));
        let buffering = plan.settings.buffers().map(|most| {
            let (trouble, buffers) = (plan.trouble.clone(), plan.observer.buffers.clone());
            let tell = Box::new(move |line| trouble.once(line));
            Buffering::new(connector.handle().clone(), most, buffers, tell)
        });
        let handle = connector.handle().clone();
        Ok(Self {
            plan,
            handle,
            pool,
            fastcgi,
            balance,
            cookies,
            budget,
            buffering,
            clients: Clients::default(),
            latest: Latest::default(),
        })
    }

    /// Answers a request with what a server says; `finish` is given each response before it is sent.
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
        let expects_continue = fields::to_upstream(&self.clients, &mut headers, &peer, &uri, prefix, is_trusted);
        let client = Asker::of(&peer, &headers, self.cookies.is_some());
        let head = Head::new(method.clone(), &uri, headers);
        let asked = RequestLine { method, uri, note };
        if let Some((upgrade, tunnel)) = upgrade {
            let handle = responder.handle().clone();
            handle.spawn(upgrade::run(self, head, asked, (upgrade, tunnel), peer, body, responder, finish));
            return;
        }
        let mut asking = Asking::new(head, asked, lend(body), client, expects_continue);
        if peer.protocol == Protocol::Http1 {
            // Some clients take an interim response for the answer there.
            responder.respond(async move { finish(pin!(self.exchange(&mut asking, None, None)).await) });
        } else {
            let handle = responder.handle().clone();
            handle.spawn(Box::pin(self.forward_informing(asking, responder, finish)));
        }
    }

    /// Passes on interim responses too. No `async fn`, which has room twice for what it is given.
    fn forward_informing<B>(
        self: Rc<Self>,
        mut asking: Asking<B>,
        responder: Responder,
        finish: impl FnOnce(Response) -> Response,
    ) -> impl Future<Output = ()>
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin + 'static,
    {
        let responder = RefCell::new(responder);
        async move {
            let answered = {
                let inform = |status, headers| fields::interim(status, headers, |headers| responder.borrow_mut().inform(status, headers));
                let mut exchange = pin!(self.exchange(&mut asking, Some(&inform), None));
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

    /// The same for a request without an upgrade that came through layers.
    #[expect(clippy::too_many_arguments, reason = "the parts of a request")]
    pub(crate) async fn answer(
        self: &Rc<Self>,
        prefix: Option<&HeaderValue>,
        asked: RequestLine,
        mut headers: HeaderMap,
        peer: Peer,
        body: Body,
        is_trusted: bool,
        informer: Option<&Informer>,
    ) -> Response {
        if is_never_passed_on(&asked.method) {
            return not_passed_on();
        }
        let expects_continue = fields::to_upstream(&self.clients, &mut headers, &peer, &asked.uri, prefix, is_trusted);
        let client = Asker::of(&peer, &headers, self.cookies.is_some());
        let head = Head::new(asked.method.clone(), &asked.uri, headers);
        let inform = informer
            .map(|informer| move |status, headers| fields::interim(status, headers, |headers| informer.inform(status, headers.clone())));
        let inform = inform.as_ref().map(|inform| inform as &dyn Fn(StatusCode, HeaderMap));
        let mut asking = Asking::new(head, asked, lend(body), client, expects_continue);
        self.exchange(&mut asking, inform, None).await
    }

    /// Holds content of a request on the disk, of so many bytes at the most.
    pub(crate) fn spool(&self, most: u64) -> Spool {
        let buffers = &self.plan.observer.buffers;
        Spool::new(most, buffers.room_on_disk(), buffers.folder())
    }

    /// Tells the operator that the disk refused it.
    pub(crate) fn tell_of_spool(&self, error: &io::Error) {
        let folder = self.plan.observer.buffers.folder();
        let hint = "make room there, or name another folder as `buffering.folder` in [server]";
        let line = format!("requests without a length cannot be held in {}: {error}; {hint}", folder.display());
        self.plan.trouble.said(&"this worker", line.as_bytes());
    }

    /// Has an application answer a request. `prefix`: what was taken away from the path.
    pub(crate) async fn run(
        self: &Rc<Self>,
        prefix: Option<&HeaderValue>,
        asked: RequestLine,
        mut headers: HeaderMap,
        peer: &Peer,
        content: Body,
        application: &fastcgi::Asked,
    ) -> Response {
        // Its content is collected before, so that nobody waits any more.
        fields::to_upstream(&self.clients, &mut headers, peer, &asked.uri, prefix, application.is_trusted);
        let client = Asker::of(peer, &headers, self.cookies.is_some());
        let head = Head::new(asked.method.clone(), &asked.uri, headers);
        let mut asking = Asking::new(head, asked, lend(content), client, false);
        self.exchange(&mut asking, None, Some(application)).await
    }

    /// Asks one server after the other, as long as nothing can have happened for the request. What is asked is gone then.
    async fn exchange<B>(
        self: &Rc<Self>,
        asking: &mut Asking<B>,
        inform: Option<&dyn Fn(StatusCode, HeaderMap)>,
        application: Option<&fastcgi::Asked>,
    ) -> Response
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin + 'static,
    {
        let is_idempotent = asking.head.method.is_idempotent();
        let brought = self.brought(&asking.head.headers);
        self.budget.count();
        let mut tried = Vec::new();
        let mut failure = None;
        loop {
            let Some(open) = self.balance.choose(self.key(&asking.head, asking.client.address), brought, &tried) else {
                return failure.as_ref().map_or_else(|| self.nobody(&asking.line), |error| self.nobody_else(&asking.line, error));
            };
            if let Some(note) = &asking.line.note {
                note.asks(open.address());
            }
            let gate = asking.expects_continue.then(|| Rc::new(Gate::new(&self.handle)));
            let content = asking.content.as_ref().map_or_else(Body::empty, |content| content.lend_behind(gate.clone()));
            let attempts = tried.len() + 1;
            let is_last = attempts > self.plan.settings.retries as usize || attempts >= self.balance.len();
            let spare = if is_last { None } else { Some(Box::new(asking.head.clone())) };
            // Waited for where it is: handed on as it is, all of a future is moved. And the rarer one has a place of its own.
            let answered = if let (Some(fastcgi), Some(application)) = (&self.fastcgi, application) {
                Box::pin(self.ask_application(fastcgi, application, &mut asking.head, &open, content)).await
            } else {
                let request = self.request(&mut asking.head, open.address(), content);
                let hear = |status, headers| match (&gate, inform) {
                    (Some(gate), _) if status == StatusCode::CONTINUE => gate.open(),
                    (_, Some(inform)) => inform(status, headers),
                    (_, None) => {}
                };
                let mut on_interim = (inform.is_some() || gate.is_some()).then_some(hear);
                let on_interim = on_interim.as_mut().map(|on_interim| on_interim as &mut dyn FnMut(StatusCode, HeaderMap));
                pin!(self.pool.send_observed(request, on_interim)).await.map(|response| response.map(Content::Http))
            };
            let is_broken = || asking.content.as_ref().is_some_and(|content| content.upload().is_broken());
            match answered {
                Ok(mut response) => {
                    open.answered(response.status());
                    // One that refuses the request wants no content. To others it may come late, as to one that sends what it gets.
                    let is_refusal = response.status().is_client_error() || response.status().is_server_error();
                    if let Some(gate) = gate {
                        if is_refusal { gate.close() } else { gate.open() }
                    }
                    if asking.client.protocol == Protocol::Http2 {
                        self.latest.detach(response.headers_mut());
                    }
                    self.keep_client(&open, brought, asking.client, response.headers_mut());
                    let upload = asking.content.as_ref().map(Lent::upload);
                    let watch = Watch { upstream: self.clone(), asked: std::mem::take(&mut asking.line), upload };
                    return answer(response, open, Some(watch), self.buffering.as_ref());
                }
                // It is its client's doing, whatever became of the server.
                Err(_) if is_broken() => return text(StatusCode::BAD_REQUEST, "the request's content broke off\n"),
                Err(error) => {
                    let is_whole = asking.content.as_ref().is_none_or(Lent::is_whole);
                    let may_repeat = (error.is_unprocessed() || is_idempotent && error.is_broken_off()) && is_whole;
                    let again = spare.filter(|_| may_repeat && self.may_send_again());
                    let then = if again.is_some() { Then::SentAgain } else { Then::Answered(failure::status(&error)) };
                    self.failed(&open, &asking.line, &error, asking.content.is_some(), then);
                    let Some(again) = again else { return refusal(&error) };
                    tried.push(open.index());
                    (asking.head, failure) = (*again, Some(error));
                }
            }
        }
    }

    async fn ask_application(
        &self,
        fastcgi: &fastcgi::Client,
        asked: &fastcgi::Asked,
        head: &mut Head,
        open: &Open,
        content: Body,
    ) -> Result<http::Response<Content>, Error> {
        let (method, mut headers) = (std::mem::take(&mut head.method), std::mem::take(&mut head.headers));
        if let Some(host) = self.host(open.address()) {
            headers.insert(http::header::HOST, host);
        }
        let (uri, server) = (Uri::from(head.path.clone()), open.address());
        let request = fastcgi::Request { asked, method: &method, uri: &uri, headers: &headers, content };
        Ok(fastcgi.ask(open.index(), server, request).await?.map(Content::FastCgi))
    }

    /// What decides about a request's server.
    fn key<'a>(&self, head: &'a Head, client: IpAddr) -> Key<'a> {
        let Upstream { policy, policy_header, .. } = &self.plan.settings;
        let field = || head.headers.get(policy_header.as_ref()?.name());
        match policy {
            Policy::Path => Key::Text(head.path.as_str().as_bytes()),
            Policy::Header => field().map_or(Key::Client(client), |value| Key::Text(value.as_bytes())),
            _ => Key::Client(client),
        }
    }

    /// The server that the client was with before, where that is asked for.
    fn brought(&self, headers: &HeaderMap) -> Option<usize> {
        self.cookies.as_ref()?.brought(headers)
    }

    /// Tells a client to come back, if it does not know.
    fn keep_client(&self, open: &Open, brought: Option<usize>, client: Asker, headers: &mut HeaderMap) {
        if let Some(cookies) = &self.cookies
            && brought != Some(open.index())
        {
            headers.append(SET_COOKIE, cookies.of(open.index(), client.secure));
        }
    }

    fn may_send_again(&self) -> bool {
        let counts = &self.plan.observer.counts;
        let may = self.budget.allows(health::now());
        let count = if may { &counts.sent_again } else { &counts.not_sent_again };
        count.fetch_add(1, Ordering::Relaxed);
        may
    }

    /// What the client gets when there is no server for a request.
    fn nobody(&self, asked: &RequestLine) -> Response {
        let counts = &self.plan.observer.counts;
        let (answer, reason) = if self.balance.is_busy() {
            counts.all_busy.fetch_add(1, Ordering::Relaxed);
            (refusal(&Error::Busy(self.plan.name.to_string())), "each server has as many requests open as it may")
        } else {
            counts.no_server.fetch_add(1, Ordering::Relaxed);
            let answer = text(StatusCode::SERVICE_UNAVAILABLE, "no upstream server is up\n");
            (answer.with_header(RETRY_AFTER, self.balance.seconds_to_wait().into()), "no server is up")
        };
        self.tell_unasked(asked, reason, &answer);
        answer
    }

    /// The same after one has failed.
    fn nobody_else(&self, asked: &RequestLine, error: &Error) -> Response {
        let answer = refusal(error);
        self.tell_unasked(asked, "there is no other server to ask", &answer);
        answer
    }

    fn tell_unasked(&self, asked: &RequestLine, reason: &str, answer: &Response) {
        let then = Then::Answered(answer.status);
        self.plan.trouble.failed(Failure { cause: None, server: None, asked, reason: &reason, then });
    }

    /// A server gave no response. Why is told before what becomes of the server.
    fn failed(&self, open: &Open, asked: &RequestLine, error: &Error, has_content: bool, then: Then) {
        self.tell(open, asked, error, then);
        open.failed(error, has_content);
    }

    fn tell(&self, open: &Open, asked: &RequestLine, error: &Error, then: Then) {
        let (cause, reason) = (Some(Cause::of(error)), Reason(error, &self.plan.settings));
        self.plan.trouble.failed(Failure { cause, server: Some(open.address()), asked, reason: &reason, then });
    }

    /// Takes what it needs of `head`.
    fn request(&self, head: &mut Head, server: &ServerAddress, content: Body) -> Box<http::Request<Body>> {
        let mut request = Box::new(http::Request::new(content));
        *request.method_mut() = std::mem::take(&mut head.method);
        *request.uri_mut() = target(server.secure, &server.authority, &head.path);
        *request.headers_mut() = std::mem::take(&mut head.headers);
        server.direct(&mut request);
        if let Some(host) = self.host(server) {
            request.headers_mut().insert(http::header::HOST, host);
        }
        request
    }

    /// The host that a server is asked for, where it is another than the client's.
    fn host(&self, server: &ServerAddress) -> Option<HeaderValue> {
        let host = match &self.plan.settings.host {
            UpstreamHost::Client => return None,
            UpstreamHost::Server => HeaderValue::try_from(server.authority.as_str()),
            UpstreamHost::Fixed(host) => Ok(host.0.clone()),
        };
        Some(host.expect("invariant: an authority is visible ASCII"))
    }
}

/// Whether no server is asked with this method. TRACE would show clients what is said of them on the way to it, and CONNECT is no request
/// for a server behind this one.
fn is_never_passed_on(method: &Method) -> bool {
    matches!(*method, Method::TRACE | Method::CONNECT)
}

/// Methods that are passed on, and that a server with any kind of routes has.
pub(crate) const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

pub(crate) fn not_passed_on() -> Response {
    let answer = text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
    answer.with_header(ALLOW, HeaderValue::from_static(METHODS))
}

/// The content for one attempt after the other, if there is any.
fn lend<B>(body: B) -> Option<Lent<B>>
where
    B: http_body::Body<Data = Bytes, Error = BodyError> + Unpin + 'static,
{
    (!body.is_end_stream()).then(|| Lent::new(body))
}

pub(crate) fn target(secure: bool, authority: &Authority, path: &PathAndQuery) -> Uri {
    let scheme = if secure { Scheme::HTTPS } else { Scheme::HTTP };
    let mut parts = Parts::default();
    (parts.scheme, parts.authority, parts.path_and_query) = (Some(scheme), Some(authority.clone()), Some(path.clone()));
    Uri::from_parts(parts).expect("invariant: all parts are there")
}

/// The response of a server as the client gets it. `buffering`: its content is held if the client is slow, unless it says otherwise.
fn answer(response: http::Response<Content>, open: Open, watch: Option<Watch>, buffering: Option<&Buffering>) -> Response {
    let (mut head, content) = response.into_parts();
    let buffering = buffering.filter(|_| fields::may_be_held(&mut head.headers));
    match &content {
        Content::Http(_) => fields::to_client(&mut head.headers, head.version),
        Content::FastCgi(_) => fields::from_application(&mut head.headers),
    }
    let mut answer = Response::new(head.status);
    // The engine checks that the content is as long as it says.
    answer.headers = head.headers;
    if !content.is_end_stream() {
        answer.body = Tracked::new(content, open, watch).into_body(buffering);
    }
    answer
}
