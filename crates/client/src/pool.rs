//! A worker's connections, by origin.

pub(crate) mod state;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, TRAILER};
use http::{Method, Request, Response};
use http_body::Body as _;
use pronghorn_engine::{Body, ClientRequest, Connector, Error as Failure, Upgrade, Worker};

use crate::lease::Content;
use crate::retry_copy::RequestCopy;
use crate::upload::UploadProgress;
use crate::{Error, Options};
use state::{Callbacks, PoolState, refresh_addresses, sweep};

/// Sends requests from one worker, over pooled connections. Cheap to clone; bound to the worker's
/// thread.
///
/// Name lookups need a tokio runtime around the worker, unless [`Options::resolve`] does without.
/// [`Workers`](pronghorn_engine::Workers) provide one.
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
pub struct Pool(Rc<PoolState>);

impl Pool {
    /// Returns a pool on `worker`, without connections.
    ///
    /// # Errors
    ///
    /// Returns an error if no trust roots are available, or no UDP socket can be created.
    pub fn new(worker: &mut Worker, options: Options) -> io::Result<Self> {
        let tls = options.roots.to_config().map_err(io::Error::other)?;
        let connector = worker.connector(&tls)?;
        Ok(Self::on(connector, options))
    }

    /// Returns a pool that uses the sockets of `connector`, with the trust roots of `options`. Use
    /// it for several pools on one worker, at any time.
    ///
    /// # Errors
    ///
    /// Returns an error if no trust roots are available.
    pub fn with_connector(connector: &Connector, options: Options) -> io::Result<Self> {
        let tls = options.roots.to_config().map_err(io::Error::other)?;
        Ok(Self::on(connector.with_tls(&tls).map_err(io::Error::other)?, options))
    }

    fn on(connector: Connector, options: Options) -> Self {
        let handle = connector.handle().clone();
        let shared = Rc::new(PoolState {
            connector,
            handle,
            options,
            origins: RefCell::default(),
            sweeper: Cell::default(),
            latest: RefCell::default(),
        });
        shared.handle.spawn(sweep(Rc::downgrade(&shared), shared.handle.clone()));
        if let Some(every) = shared.options.resolve_every {
            shared.handle.spawn(refresh_addresses(
                Rc::downgrade(&shared),
                shared.handle.clone(),
                every,
            ));
        }
        Self(shared)
    }

    /// Sends a request and waits for the response head. The URI needs a scheme and a host.
    ///
    /// A request that the server did not process is retried, possibly on another kind of
    /// connection, if its body is in memory or none of it was read. A refused request
    /// (`REFUSED_STREAM`, `H3_REQUEST_REJECTED`, GOAWAY, or a connection that closed before the
    /// request began) is retried regardless of its method. An idempotent request (RFC 9110, section
    /// 9.2.2) is also retried if its connection had delivered responses before and was closed
    /// without this one. A request is not retried if the server was silent until the connection
    /// timed out.
    ///
    /// A [`ClientRequest`] also has callbacks for interim responses and for the time in which it
    /// waits for a stream of its connection. If that connection ends, it may wait on another one.
    ///
    /// A [`UnixSocket`](crate::UnixSocket) extension sends the request to that socket. An
    /// [`Upgrade`] extension requests an upgrade to another protocol, as described for
    /// [`Connection::send`](pronghorn_engine::Connection::send).
    ///
    /// # Errors
    ///
    /// Returns an error if no connection could be made, no response was received, or a timeout
    /// expired.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request.
    pub fn send<'a>(
        &self,
        request: impl Into<ClientRequest<'a>>,
    ) -> impl Future<Output = Result<Response<Content>, Error>> {
        self.deliver(request.into())
    }

    /// Closes idle connections, so that the next request uses a new one.
    pub fn close_unused(&self) {
        let now = self.0.handle.now();
        let all: Vec<_> = self.0.origins.borrow().values().cloned().collect();
        for connections in all {
            connections.sweep(now, Duration::ZERO);
        }
    }

    async fn deliver(&self, request: ClientRequest<'_>) -> Result<Response<Content>, Error> {
        let shared = &self.0;
        let ClientRequest { mut request, on_interim, on_queue, .. } = request;
        let mut callbacks = Callbacks { on_interim, on_queue };
        let connections = shared.connections_for(&request)?;
        let is_idempotent = request.method().is_idempotent();
        announce_length(&mut request);
        let asks_upgrade = request.extensions().get::<Upgrade>().is_some();
        let has_content = asks_upgrade || request.body().size_hint().exact() != Some(0);
        let mut retries = shared.options.retries;
        loop {
            let deadline = shared.handle.now() + shared.options.connect_timeout;
            let mut lease = shared.acquire(&connections).await?;
            let copy = (retries > 0).then(|| RequestCopy::of(&request));
            let progress = UploadProgress::of(request.body_mut(), &shared.handle);
            lease.begin(has_content, progress.clone());
            // Awaited in place: passing the future on would move all of it.
            let exchanged =
                pin!(shared.exchange(&mut lease, request, deadline, &mut callbacks)).await;
            let error = match exchanged? {
                Ok(response) => return Ok(shared.received(response, lease, asks_upgrade)),
                Err(error) => error,
            };
            let may_repeat = match &error {
                Failure::Refused(_) => {
                    // The connection may be about to close; use another one.
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
            let Some(copy) = copy.filter(|_| may_repeat) else { return Err(error.into()) };
            let (mut again, is_whole) = copy.into_request();
            if !is_whole {
                let Some(progress) = progress else { return Err(error.into()) };
                let Some(whole) = progress.take_back().await else { return Err(error.into()) };
                *again.body_mut() = whole;
            }
            request = again;
            retries -= 1;
        }
    }
}

/// Sets `content-length` if the length is known, over HTTP/2 and HTTP/3 too, so that the server can
/// refuse too large a body at once.
fn announce_length(request: &mut Request<Body>) {
    let may_have_content = matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH);
    // Over HTTP/1.1, trailers need a chunked body.
    let says_otherwise =
        || [CONTENT_LENGTH, TRAILER].iter().any(|name| request.headers().contains_key(name));
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
        f.debug_struct("Pool")
            .field("origins", &self.0.origins.borrow().len())
            .finish_non_exhaustive()
    }
}
