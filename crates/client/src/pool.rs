//! Connections of one worker, by origin.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use http::{Request, Response, StatusCode, Version};
use pronghorn_engine::{Body, Connection, Connector, Error as Failure, Handle, Protocol, Upgrade, Worker};
use tokio::sync::Notify;

use crate::alt_svc::{AltSvc, Alternative};
use crate::lease::{Content, Lease};
use crate::origin::Origin;
use crate::{Error, Options, Phase, connect};

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

pub(crate) struct Shared {
    pub(crate) connector: Connector,
    pub(crate) handle: Handle,
    pub(crate) options: Options,
    origins: RefCell<HashMap<Origin, Rc<Connections>>>,
}

/// What there is of one origin.
pub(crate) struct Connections {
    pub(crate) origin: Origin,
    /// Carries any number of requests: HTTP/3, or else HTTP/2.
    shared: RefCell<Option<Connection>>,
    /// The number of the shared connection.
    generation: Cell<u64>,
    /// Uses of shared connections.
    pub(crate) shared_uses: Cell<usize>,
    /// HTTP/1.1 connections that nobody uses, the latest last.
    idle: RefCell<Vec<Idle>>,
    /// HTTP/1.1 connections, those in use included.
    open_http1: Cell<usize>,
    connecting: Cell<usize>,
    waiting: Cell<usize>,
    /// What the last connection over TCP spoke.
    over_tcp: Cell<Option<Protocol>>,
    /// Where the origin's HTTP/3 is, and until when that holds.
    alternative: RefCell<Option<(Alternative, Instant)>>,
    /// HTTP/3 is being tried while others go over TCP.
    trying_http3: Cell<bool>,
    /// HTTP/3 is not tried before.
    http3_paused: Cell<Option<Instant>>,
    /// Attempts to connect that failed, and what the last failed with.
    failures: RefCell<(u64, Option<Error>)>,
    last_used: Cell<Instant>,
    changed: Notify,
}

/// An HTTP/1.1 connection that nobody uses.
struct Idle {
    connection: Connection,
    since: Instant,
    /// Whether a request was sent on it.
    used: bool,
}

impl Pool {
    /// A pool on `worker`, without connections yet.
    ///
    /// # Errors
    ///
    /// When there is nobody to trust, or no UDP socket is to be had.
    pub fn new(worker: &mut Worker, options: Options) -> io::Result<Self> {
        let tls = options.roots.config().map_err(io::Error::other)?;
        let connector = worker.connector(&tls)?;
        let shared = Rc::new(Shared { connector, handle: worker.handle().clone(), options, origins: RefCell::default() });
        shared.handle.spawn(sweep(Rc::downgrade(&shared), shared.handle.clone()));
        Ok(Self(shared))
    }

    /// Sends a request, whose URI names scheme and host, and waits for the head of the response.
    ///
    /// A request that nothing was done for is sent again, also on a connection of another kind, if its content is in memory: a refused
    /// one (`REFUSED_STREAM`, `H3_REQUEST_REJECTED`, GOAWAY) whatever its method, and an idempotent one (RFC 9110, section 9.2.2) whose
    /// connection had been used before and was closed without an answer.
    ///
    /// With an [`Upgrade`] among its extensions it asks to go on in another protocol, as [`Connection::send`] says.
    ///
    /// # Errors
    ///
    /// When there is no connection, no response, or not in time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request.
    pub async fn send(&self, request: Request<Body>) -> Result<Response<Content>, Error> {
        let shared = &self.0;
        let connections = shared.connections(Origin::of(request.uri())?);
        let is_idempotent = request.method().is_idempotent();
        let mut request = request;
        let asks_upgrade = request.extensions().get::<Upgrade>().is_some();
        let mut retries = shared.options.retries;
        loop {
            let spare = if retries > 0 { try_clone(&request) } else { None };
            let mut lease = shared.acquire(&connections).await?;
            let sent = shared.in_time(shared.options.head_timeout, Phase::Head, lease.connection().send(request)).await;
            let error = match sent {
                Ok(Ok(response)) => return Ok(shared.received(response, lease, asks_upgrade)),
                Ok(Err(error)) => error,
                Err(timed_out) => return Err(timed_out),
            };
            let may_repeat = match &error {
                Failure::Refused(_) => {
                    // It may be about to close; the next one is asked instead.
                    connections.retire(lease.generation());
                    true
                }
                Failure::Closed(_) => is_idempotent && lease.is_reused(),
                _ => false,
            };
            match spare {
                Some(spare) if may_repeat => request = spare,
                _ => return Err(error.into()),
            }
            retries -= 1;
        }
    }
}

/// The same request once more, if its content is in memory.
fn try_clone(request: &Request<Body>) -> Option<Request<Body>> {
    if request.extensions().get::<Upgrade>().is_some() {
        return None;
    }
    let mut again = Request::new(request.body().try_clone()?);
    *again.method_mut() = request.method().clone();
    *again.uri_mut() = request.uri().clone();
    *again.headers_mut() = request.headers().clone();
    Some(again)
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("origins", &self.0.origins.borrow().len()).finish_non_exhaustive()
    }
}

impl Shared {
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
        let waiting = Waiting::new(connections, self.options.waiting_per_origin)?;
        let found = self.in_time(self.options.connect_timeout, Phase::Connect, self.wait_for_connection(connections)).await;
        drop(waiting);
        found?
    }

    async fn wait_for_connection(self: &Rc<Self>, connections: &Rc<Connections>) -> Result<Lease, Error> {
        let failures = connections.failures.borrow().0;
        loop {
            if let Some(lease) = connections.take(self) {
                return Ok(lease);
            }
            if let (now, Some(error)) = &*connections.failures.borrow()
                && *now != failures
            {
                return Err(error.clone());
            }
            if connections.may_connect(&self.options) {
                connections.connecting.set(connections.connecting.get() + 1);
                self.handle.spawn(open(self.clone(), connections.clone()));
            }
            connections.changed.notified().await;
        }
    }

    fn received(
        self: &Rc<Self>,
        mut response: Response<pronghorn_engine::Incoming>,
        mut lease: Lease,
        asked_upgrade: bool,
    ) -> Response<Content> {
        let protocol = lease.connection().protocol();
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
        let is_tunnel = asked_upgrade && (response.status() == StatusCode::SWITCHING_PROTOCOLS || response.status().is_success());
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

/// Opens a connection for those who wait. It goes on when they give up: the next ones have use for it.
async fn open(shared: Rc<Shared>, connections: Rc<Connections>) {
    let attempt = connect::establish(&shared, &connections);
    let connected = shared.in_time(shared.options.connect_timeout, Phase::Connect, attempt).await;
    connections.connecting.set(connections.connecting.get() - 1);
    match connected {
        Ok(Ok(connection)) => connections.put(connection, shared.handle.now()),
        Ok(Err(error)) | Err(error) => connections.fail(error),
    }
}

impl Connections {
    fn new(origin: Origin, now: Instant) -> Self {
        Self {
            origin,
            shared: RefCell::default(),
            generation: Cell::default(),
            shared_uses: Cell::default(),
            idle: RefCell::default(),
            open_http1: Cell::default(),
            connecting: Cell::default(),
            waiting: Cell::default(),
            over_tcp: Cell::default(),
            alternative: RefCell::default(),
            trying_http3: Cell::default(),
            http3_paused: Cell::default(),
            failures: RefCell::default(),
            last_used: Cell::new(now),
            changed: Notify::new(),
        }
    }

    /// A connection that is there.
    fn take(self: &Rc<Self>, pool: &Rc<Shared>) -> Option<Lease> {
        let now = pool.handle.now();
        self.last_used.set(now);
        let mut shared = self.shared.borrow_mut();
        if let Some(connection) = shared.as_ref().filter(|connection| connection.is_usable()) {
            return Some(Lease::shared(connection.share()?, self.generation.get(), self, pool));
        }
        *shared = None;
        let mut idle = self.idle.borrow_mut();
        while let Some(Idle { connection, since, used }) = idle.pop() {
            if connection.is_usable() && now.saturating_duration_since(since) < pool.options.idle_timeout {
                return Some(Lease::exclusive(connection, used, self, pool));
            }
            self.open_http1.set(self.open_http1.get() - 1);
        }
        None
    }

    fn may_connect(&self, options: &Options) -> bool {
        let connecting = self.connecting.get();
        if self.over_tcp.get() == Some(Protocol::Http1) {
            connecting < self.waiting.get() && connecting + self.open_http1.get() < options.connections_per_origin.max(1)
        } else {
            // One is enough for all of them, most likely.
            connecting == 0
        }
    }

    /// Takes a new connection in.
    pub(crate) fn put(&self, connection: Connection, now: Instant) {
        let protocol = connection.protocol();
        if protocol != Protocol::Http3 {
            self.over_tcp.set(Some(protocol));
        }
        if protocol == Protocol::Http1 {
            self.open_http1.set(self.open_http1.get() + 1);
            self.idle.borrow_mut().push(Idle { connection, since: now, used: false });
        } else {
            *self.shared.borrow_mut() = Some(connection);
            self.generation.set(self.generation.get() + 1);
        }
        // Who finds none begins another one.
        self.changed.notify_waiters();
    }

    /// Takes back an HTTP/1.1 connection whose exchange is over, or counts that it has ended.
    pub(crate) fn give_back(&self, connection: Option<Connection>, now: Instant) {
        match connection.filter(Connection::is_usable) {
            Some(connection) => self.idle.borrow_mut().push(Idle { connection, since: now, used: true }),
            None => self.open_http1.set(self.open_http1.get() - 1),
        }
        self.last_used.set(now);
        self.changed.notify_one();
    }

    fn fail(&self, error: Error) {
        let mut failures = self.failures.borrow_mut();
        *failures = (failures.0.wrapping_add(1), Some(error));
        drop(failures);
        self.changed.notify_waiters();
    }

    fn learn(&self, said: AltSvc, now: Instant) {
        match said {
            AltSvc::Unsaid => {}
            AltSvc::Clear => *self.alternative.borrow_mut() = None,
            AltSvc::Http3(alternative) => {
                let until = now + alternative.max_age;
                *self.alternative.borrow_mut() = Some((alternative, until));
            }
        }
    }

    /// Where HTTP/3 is to be tried.
    pub(crate) fn http3(&self, options: &Options, now: Instant) -> Option<(String, u16)> {
        use crate::Http3::{AltSvc, First, Off, Only};
        let here = || Some((self.origin.host.clone(), self.origin.port));
        if !self.origin.secure
            || self.trying_http3.get()
            || (options.http3 != Only && self.http3_paused.get().is_some_and(|until| now < until))
        {
            return None;
        }
        match options.http3 {
            Off => None,
            First | Only => here(),
            AltSvc => {
                let alternative = self.alternative.borrow();
                let (alternative, _) = alternative.as_ref().filter(|(_, until)| now < *until)?;
                Some((alternative.host.clone().unwrap_or_else(|| self.origin.host.clone()), alternative.port))
            }
        }
    }

    /// Gives this shared connection to nobody any more.
    fn retire(&self, generation: Option<u64>) {
        if generation == Some(self.generation.get()) {
            *self.shared.borrow_mut() = None;
        }
    }

    pub(crate) fn set_trying_http3(&self, trying: bool) {
        self.trying_http3.set(trying);
    }

    pub(crate) fn pause_http3(&self, until: Option<Instant>) {
        self.http3_paused.set(until);
    }

    /// Nobody uses or waits for a connection.
    fn is_unused(&self) -> bool {
        let idle = self.idle.borrow().len();
        self.shared_uses.get() == 0 && self.waiting.get() == 0 && self.connecting.get() == 0 && self.open_http1.get() == idle
    }

    /// Closes what nobody has used for `idle_timeout`.
    fn sweep(&self, now: Instant, idle_timeout: Duration) {
        let is_old = |since: Instant| now.saturating_duration_since(since) >= idle_timeout;
        self.idle.borrow_mut().retain(|Idle { connection, since, .. }| {
            let keeps = connection.is_usable() && !is_old(*since);
            if !keeps {
                self.open_http1.set(self.open_http1.get() - 1);
            }
            keeps
        });
        let mut shared = self.shared.borrow_mut();
        let is_usable = shared.as_ref().is_some_and(Connection::is_usable);
        if !is_usable || (self.shared_uses.get() == 0 && is_old(self.last_used.get())) {
            *shared = None;
        }
    }

    pub(crate) fn touch(&self, now: Instant) {
        self.last_used.set(now);
    }
}

/// Counts a request that waits for a connection.
struct Waiting<'a>(&'a Connections);

impl<'a> Waiting<'a> {
    fn new(connections: &'a Connections, limit: usize) -> Result<Self, Error> {
        let waiting = connections.waiting.get();
        if waiting >= limit {
            return Err(Error::Busy(connections.origin.to_string()));
        }
        connections.waiting.set(waiting + 1);
        Ok(Self(connections))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
    }
}

/// Closes connections that nobody uses, as long as there is a pool.
async fn sweep(pool: Weak<Shared>, handle: Handle) {
    loop {
        let Some(idle_timeout) = pool.upgrade().map(|pool| pool.options.idle_timeout) else { return };
        handle.sleep((idle_timeout / 2).max(Duration::from_millis(100))).await;
        let Some(pool) = pool.upgrade() else { return };
        let all: Vec<_> = pool.origins.borrow().values().cloned().collect();
        for connections in all {
            connections.sweep(handle.now(), idle_timeout);
        }
    }
}
