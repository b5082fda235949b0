//! Connections of one worker, by origin.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker, ready};
use std::time::{Duration, Instant};

use http::header::{CONTENT_LENGTH, TRAILER};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use pronghorn_engine::{Body, Connection, Connector, Error as Failure, Handle, Protocol, Upgrade, Worker};

use crate::alt_svc::AltSvc;
use crate::connections::Connections;
use crate::lease::{Content, Lease};
use crate::loan::Loan;
use crate::origin::{Origin, Target};
use crate::spare::Spare;
use crate::underway::LONG;
use crate::waiting::{Ticket, Waiting};
use crate::{Error, Http3, Options, Phase, connect};

/// Sends requests from one worker, over connections that are kept for the next ones. Cheap to clone; bound to the worker's thread.
///
/// Looking up names needs a tokio runtime around the worker, unless [`Options::resolve`] has none; [`Workers`](pronghorn_engine::Workers)
/// have one.
///
/// ```
/// use std::cell::OnceCell;
/// use std::io;
///
/// use http::StatusCode;
/// use pronghorn_client::{Options, Pool};
/// use pronghorn_engine::{Body, Handler, Request, Responder, Response, Worker};
///
/// /// Answers with what another server says.
/// #[derive(Default)]
/// struct Proxy(OnceCell<Pool>);
///
/// impl Handler for Proxy {
///     fn start(&self, worker: &mut Worker) -> io::Result<()> {
///         let _ = self.0.set(Pool::new(worker, Options::default())?);
///         Ok(())
///     }
///
///     fn handle(&self, request: Request, responder: Responder) {
///         let Some(pool) = self.0.get().cloned() else { return };
///         responder.respond(async move {
///             let asked = http::Request::get(format!("https://example.org{}", request.uri.path())).body(Body::empty());
///             match pool.send(asked.expect("a path")).await {
///                 Ok(response) => response.map(Body::stream).into(),
///                 Err(_) => Response::new(StatusCode::BAD_GATEWAY),
///             }
///         });
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Pool(pub(crate) Rc<Shared>);

/// Told of each interim response.
type OnInterim<'a> = &'a mut dyn FnMut(StatusCode, HeaderMap);

pub(crate) struct Shared {
    pub(crate) connector: Connector,
    pub(crate) handle: Handle,
    pub(crate) options: Options,
    origins: RefCell<HashMap<Origin, Rc<Connections>>>,
    /// Wakes the task that closes idle connections.
    sweeper: Cell<Option<Waker>>,
    /// Where the latest request went. The next one mostly goes there too.
    latest: RefCell<Option<(Target, Rc<Connections>)>>,
}

impl Pool {
    /// A pool on `worker`, without connections yet.
    ///
    /// # Errors
    ///
    /// When there is nobody to trust, or no UDP socket is to be had.
    pub fn new(worker: &mut Worker, options: Options) -> io::Result<Self> {
        let tls = options.roots.to_config().map_err(io::Error::other)?;
        let connector = worker.connector(&tls)?;
        Ok(Self::on(connector, options))
    }

    /// A pool over the sockets of `connector`, trusting whom `options` say: for several pools on one worker, made at any time.
    ///
    /// # Errors
    ///
    /// When there is nobody to trust.
    pub fn with_connector(connector: &Connector, options: Options) -> io::Result<Self> {
        let tls = options.roots.to_config().map_err(io::Error::other)?;
        Ok(Self::on(connector.with_tls(&tls).map_err(io::Error::other)?, options))
    }

    fn on(connector: Connector, options: Options) -> Self {
        let handle = connector.handle().clone();
        let shared = Rc::new(Shared {
            connector,
            handle,
            options,
            origins: RefCell::default(),
            sweeper: Cell::default(),
            latest: RefCell::default(),
        });
        shared.handle.spawn(sweep(Rc::downgrade(&shared), shared.handle.clone()));
        if let Some(every) = shared.options.resolve_every {
            shared.handle.spawn(follow(Rc::downgrade(&shared), shared.handle.clone(), every));
        }
        Self(shared)
    }

    /// Sends a request, whose URI names scheme and host, and waits for the head of the response.
    ///
    /// A request that nothing was done for is sent again, also on a connection of another kind, if its content is in memory or nothing of
    /// it was asked for: a refused one (`REFUSED_STREAM`, `H3_REQUEST_REJECTED`, GOAWAY, or a connection that ended before it was begun)
    /// whatever its method, and an idempotent one (RFC 9110, section 9.2.2) whose connection had brought responses before and was closed
    /// without this one. One that a server was silent to until its connection timed out is not.
    ///
    /// With a [`UnixSocket`](crate::UnixSocket) among its extensions it goes there. With an [`Upgrade`] it asks to go on in another protocol, as [`Connection::send`](pronghorn_engine::Connection::send) says.
    ///
    /// # Errors
    ///
    /// When there is no connection, no response, or not in time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request.
    pub fn send(&self, request: Request<Body>) -> impl Future<Output = Result<Response<Content>, Error>> {
        self.deliver(Box::new(request), None)
    }

    /// Sends a request as [`Pool::send`] does, and hands over each interim response (1xx but 101) that comes before the final one. Those to
    /// a request that was sent again stay said.
    ///
    /// # Errors
    ///
    /// Those of [`Pool::send`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request.
    pub async fn send_informed(
        &self,
        request: Request<Body>,
        mut on_interim: impl FnMut(StatusCode, HeaderMap),
    ) -> Result<Response<Content>, Error> {
        self.send_observed(request, Some(&mut on_interim)).await
    }

    /// Sends a request as one of these two does: it costs a little to listen for interim responses.
    ///
    /// # Errors
    ///
    /// Those of [`Pool::send`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request.
    pub fn send_observed<'a>(
        &'a self,
        request: impl Into<Box<Request<Body>>>,
        on_interim: Option<&'a mut dyn FnMut(StatusCode, HeaderMap)>,
    ) -> impl Future<Output = Result<Response<Content>, Error>> + 'a {
        self.deliver(request.into(), on_interim)
    }

    /// Closes the connections that nobody uses, so that the next request is sent on a new one.
    pub fn close_unused(&self) {
        let now = self.0.handle.now();
        let all: Vec<_> = self.0.origins.borrow().values().cloned().collect();
        for connections in all {
            connections.sweep(now, Duration::ZERO);
        }
    }

    /// The request has a place of its own: a future that hands it on to another one has room for it more than once.
    async fn deliver(&self, mut request: Box<Request<Body>>, mut on_interim: Option<OnInterim<'_>>) -> Result<Response<Content>, Error> {
        let shared = &self.0;
        let connections = shared.connections_for(&request)?;
        let is_idempotent = request.method().is_idempotent();
        announce_length(&mut request);
        let asks_upgrade = request.extensions().get::<Upgrade>().is_some();
        let has_content = asks_upgrade || request.body().size_hint().exact() != Some(0);
        let mut retries = shared.options.retries;
        loop {
            let deadline = shared.handle.now() + shared.options.connect_timeout;
            let mut lease = shared.acquire(&connections).await?;
            let spare = (retries > 0).then(|| Spare::of(&request));
            let loan = Loan::of(request.body_mut(), &shared.handle);
            lease.begin(has_content, loan.clone());
            // Waited for where it is: handed on as it is, all of a future is moved.
            let exchanged = pin!(shared.exchange(&mut lease, request, deadline, &mut on_interim)).await;
            let error = match exchanged? {
                Ok(response) => return Ok(shared.received(response, lease, asks_upgrade)),
                Err(error) => error,
            };
            let may_repeat = match &error {
                Failure::Refused(_) => {
                    // It may be about to close; the next one is asked instead.
                    connections.retire(lease.generation());
                    true
                }
                Failure::Closed(_) if lease.is_reused() => {
                    connections.retire_idle();
                    is_idempotent
                }
                _ => false,
            };
            drop(lease);
            let Some(spare) = spare.filter(|_| may_repeat) else { return Err(error.into()) };
            let (mut again, is_whole) = spare.into_request();
            if !is_whole {
                let Some(loan) = loan else { return Err(error.into()) };
                let Some(whole) = loan.take_back().await else { return Err(error.into()) };
                *again.body_mut() = whole;
            }
            request = again;
            retries -= 1;
        }
    }
}

/// Says how long the content is, where that is known: over HTTP/2 and HTTP/3 too, so that what is too large is refused at once.
fn announce_length(request: &mut Request<Body>) {
    let may_have_content = matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH);
    // Over HTTP/1.1 trailers need content that ends otherwise.
    let says_otherwise = || [CONTENT_LENGTH, TRAILER].iter().any(|name| request.headers().contains_key(name));
    if let Some(length) = request.body().size_hint().exact()
        && (length > 0 || may_have_content)
        && !says_otherwise()
        && request.extensions().get::<Upgrade>().is_none()
    {
        request.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("origins", &self.0.origins.borrow().len()).finish_non_exhaustive()
    }
}

impl Shared {
    /// Closes an idle connection at once when its server closes it.
    pub(crate) fn watch(&self, connection: &Connection) {
        let sweeper = self.sweeper.take();
        if let Some(sweeper) = &sweeper {
            connection.watch(sweeper);
        }
        self.sweeper.set(sweeper);
    }

    /// The connections of a request's origin.
    fn connections_for(&self, request: &Request<Body>) -> Result<Rc<Connections>, Error> {
        if let Some((target, connections)) = &*self.latest.borrow()
            && target.is_of(request)
        {
            return Ok(connections.clone());
        }
        let origin = Origin::of_request(request)?;
        if self.options.http3 == Http3::Only && !origin.secure {
            let reason = "there is no HTTP/3 in clear text; ask for https, or let the client speak more than HTTP/3";
            return Err(Error::Uri { uri: request.uri().to_string(), reason });
        }
        let connections = self.connections(origin);
        *self.latest.borrow_mut() = Target::of(request).map(|target| (target, connections.clone()));
        Ok(connections)
    }

    fn connections(&self, origin: Origin) -> Rc<Connections> {
        let mut origins = self.origins.borrow_mut();
        if let Some(connections) = origins.get(&origin) {
            return connections.clone();
        }
        if origins.len() >= self.options.origins {
            // The one that has been of no use for longest; those in use are held by who uses them.
            let oldest = origins.values().filter(|one| one.is_unused()).min_by_key(|one| one.last_used.get());
            if let Some(oldest) = oldest.map(|oldest| oldest.origin.clone()) {
                origins.remove(&oldest);
            }
        }
        let connections = Rc::new(Connections::new(origin.clone(), self.handle.now()));
        origins.insert(origin, connections.clone());
        connections
    }

    /// A connection for one request.
    async fn acquire(self: &Rc<Self>, connections: &Rc<Connections>) -> Result<Lease, Error> {
        if let Some(lease) = connections.take(self) {
            return Ok(lease);
        }
        let _waiting = Waiting::new(connections, self.options.waiting_per_origin)?;
        let ticket = Ticket::new(connections);
        connections.serve(self);
        let served = self.in_time(self.options.connect_timeout, Phase::Connect, self.served(connections, &ticket)).await;
        served.unwrap_or_else(|_| {
            let is_connecting = connections.connecting.get() > 0;
            Err(Error::TimedOut(if is_connecting { Phase::Connect } else { Phase::Queue }))
        })
    }

    /// Waits for a connection. What has gone on for long meanwhile is none of those that have to end first.
    async fn served(self: &Rc<Self>, connections: &Rc<Connections>, ticket: &Ticket<'_>) -> Result<Lease, Error> {
        let mut served = pin!(ticket.served());
        loop {
            let mut sleep = pin!(self.handle.sleep(LONG));
            let result = poll_fn(|cx| match served.as_mut().poll(cx) {
                Poll::Ready(result) => Poll::Ready(Some(result)),
                Poll::Pending => sleep.as_mut().poll(cx).map(|()| None),
            })
            .await;
            match result {
                Some(result) => return result,
                None => connections.serve(self),
            }
        }
    }

    /// Begins to open a connection for those who wait. It goes on when they give up: the next ones have use for it.
    pub(crate) fn open(self: &Rc<Self>, connections: &Rc<Connections>) {
        let (shared, connections) = (self.clone(), connections.clone());
        let before = connections.queue.next_number();
        self.handle.spawn(async move {
            let attempt = connect::establish(&shared, &connections);
            let connected = shared.in_time(shared.options.connect_timeout, Phase::Connect, attempt).await;
            connections.connecting.set(connections.connecting.get() - 1);
            match connected {
                Ok(Ok(connection)) => connections.put(connection, &shared),
                Ok(Err(error)) | Err(error) => connections.fail(&error, before, &shared),
            }
        });
    }

    /// Sends a request. Until `deadline` it may wait for the server to allow it beside the others on the connection; from there on the
    /// server has its time, but for what it waits for itself.
    async fn exchange(
        &self,
        lease: &mut Lease,
        request: Box<Request<Body>>,
        deadline: Instant,
        on_interim: &mut Option<OnInterim<'_>>,
    ) -> Result<Result<Response<pronghorn_engine::Incoming>, Failure>, Error> {
        let (connections, generation) = (lease.connections().clone(), lease.generation());
        let upload = lease.upload();
        let queued = Cell::new(false);
        let mut on_queue = |is_queued| queued.set(is_queued);
        let on_interim = on_interim.as_mut().map(|on_interim| &mut **on_interim as OnInterim<'_>);
        let mut sent = pin!(lease.connection().send_observed(request, on_interim, Some(&mut on_queue)));
        let (mut waiting, mut sleep, mut began) = (None, None, self.handle.now());
        poll_fn(|cx| {
            if let Poll::Ready(result) = sent.as_mut().poll(cx) {
                return Poll::Ready(Ok(result));
            }
            if queued.get() != waiting.is_some() {
                (sleep, began) = (None, self.handle.now());
                waiting = if queued.get() { Some(Waiting::new(&connections, self.options.waiting_per_origin)?) } else { None };
            }
            loop {
                let now = self.handle.now();
                // What the server waits for itself is not its fault.
                let head_deadline = || upload.waits_since(began).unwrap_or(now) + self.options.head_timeout;
                let until = if waiting.is_some() { deadline } else { head_deadline() };
                if until <= now {
                    if waiting.is_some() {
                        return Poll::Ready(Err(Error::TimedOut(Phase::Queue)));
                    }
                    connections.retire_silent(generation, began);
                    return Poll::Ready(Err(Error::TimedOut(Phase::Head)));
                }
                let patience = sleep.get_or_insert_with(|| self.handle.sleep(until - now));
                ready!(Pin::new(patience).poll(cx));
                sleep = None;
            }
        })
        .await
    }

    fn received(
        self: &Rc<Self>,
        mut response: Response<pronghorn_engine::Incoming>,
        mut lease: Lease,
        asked_upgrade: bool,
    ) -> Response<Content> {
        let protocol = lease.connection().protocol();
        lease.connections().note_answer(lease.generation(), self.handle.now());
        *response.version_mut() = match protocol {
            Protocol::Http1 => Version::HTTP_11,
            Protocol::Http2 => Version::HTTP_2,
            Protocol::Http3 => Version::HTTP_3,
        };
        //= RFC 9114 section 3.1.1
        //# On receipt of an Alt-Svc record indicating HTTP/3 support, a client MAY attempt to establish a QUIC connection to the
        //# indicated host and port; if this connection is successful, the client can send HTTP requests using the mapping described in
        //# this document.
        if lease.connections().origin.secure {
            let connections = lease.connections();
            connections.learn(AltSvc::of(response.headers()), self.handle.now());
            if protocol != Protocol::Http3 {
                connect::improve(self, connections);
            }
        }
        let is_granted = |status: StatusCode| match protocol {
            Protocol::Http1 => status == StatusCode::SWITCHING_PROTOCOLS,
            Protocol::Http2 | Protocol::Http3 => status.is_success(),
        };
        let is_tunnel = asked_upgrade && is_granted(response.status());
        if is_tunnel {
            lease.upgraded();
        }
        let timeout = (!is_tunnel).then_some(self.options.body_timeout);
        response.map(|body| Content::new(body, lease, timeout))
    }

    /// What `future` returns, unless it takes longer than `timeout`.
    pub(crate) async fn in_time<T>(&self, timeout: Duration, phase: Phase, future: impl Future<Output = T>) -> Result<T, Error> {
        let mut sleep = pin!(self.handle.sleep(timeout));
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Ok(value)),
            Poll::Pending => sleep.as_mut().poll(cx).map(|()| Err(Error::TimedOut(phase))),
        })
        .await
    }
}

/// Closes idle connections after `idle_timeout`, and at once when the server closes them, for as long as the pool lives.
async fn sweep(pool: Weak<Shared>, handle: Handle) {
    loop {
        let Some(idle_timeout) = pool.upgrade().map(|pool| pool.options.idle_timeout) else { return };
        let mut sleep = pin!(handle.sleep((idle_timeout / 2).max(Duration::from_millis(100))));
        let mut is_waiting = false;
        poll_fn(|cx| {
            let slept = sleep.as_mut().poll(cx);
            // A connection that ended wakes this task, too.
            if slept.is_ready() || std::mem::replace(&mut is_waiting, true) {
                return Poll::Ready(());
            }
            if let Some(pool) = pool.upgrade() {
                pool.sweeper.set(Some(cx.waker().clone()));
            }
            Poll::Pending
        })
        .await;
        let Some(pool) = pool.upgrade() else { return };
        let all: Vec<_> = pool.origins.borrow().values().cloned().collect();
        for connections in all {
            connections.sweep(handle.now(), idle_timeout);
        }
    }
}

/// Looks up again where connections lead, as long as there is a pool.
async fn follow(pool: Weak<Shared>, handle: Handle, every: Duration) {
    loop {
        handle.sleep(every.max(Duration::from_millis(100))).await;
        let Some(pool) = pool.upgrade() else { return };
        for connections in pool.origins.borrow().values().filter(|connections| connections.may_have_moved()) {
            handle.spawn(connect::look_up_again(pool.clone(), connections.clone()));
        }
    }
}
