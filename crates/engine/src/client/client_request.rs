//! A request to send, with its options.

use std::fmt;

use http::{HeaderMap, Request, StatusCode};

use crate::Body;

/// A request for [`Connection::send`](super::Connection::send), with its options. A plain request
/// converts to it.
///
/// ```
/// use http::{HeaderMap, Request, StatusCode};
/// use pronghorn_engine::{Body, ClientRequest, Connection, Error};
///
/// async fn print_hints(connection: &mut Connection, request: Request<Body>) -> Result<(), Error> {
///     let mut print = |status: StatusCode, headers: HeaderMap| println!("{status} {headers:?}");
///     connection.send(ClientRequest::new(request).on_interim(&mut print)).await?;
///     Ok(())
/// }
/// # let _ = print_hints;
/// ```
#[non_exhaustive]
pub struct ClientRequest<'a> {
    /// The request. Boxed: a future that passes it on would otherwise store it more than once.
    pub request: Box<Request<Body>>,
    /// See [`ClientRequest::on_interim`].
    pub on_interim: Option<&'a mut dyn FnMut(StatusCode, HeaderMap)>,
    /// See [`ClientRequest::on_queue`].
    pub on_queue: Option<&'a mut dyn FnMut(bool)>,
}

impl<'a> ClientRequest<'a> {
    /// Returns the request without options.
    pub fn new(request: impl Into<Box<Request<Body>>>) -> Self {
        Self { request: request.into(), on_interim: None, on_queue: None }
    }

    /// Passes each interim response (1xx except 101) to `callback`. Listening for them has a small
    /// cost. Interim responses forwarded before a retry are not retracted.
    #[must_use]
    pub fn on_interim(mut self, callback: &'a mut dyn FnMut(StatusCode, HeaderMap)) -> Self {
        self.on_interim = Some(callback);
        self
    }

    /// Calls `callback` when the request begins (`true`) and stops (`false`) to wait because the
    /// server allows no further concurrent request. While it waits, nothing of the request is sent
    /// and its body is not polled. If the connection ends meanwhile,
    /// [`Connection::send`](super::Connection::send) returns
    /// [`Error::Refused`](super::Error::Refused). Dropping the future calls nothing.
    #[must_use]
    pub fn on_queue(mut self, callback: &'a mut dyn FnMut(bool)) -> Self {
        self.on_queue = Some(callback);
        self
    }
}

impl From<Request<Body>> for ClientRequest<'_> {
    fn from(request: Request<Body>) -> Self {
        Self::new(request)
    }
}

impl From<Box<Request<Body>>> for ClientRequest<'_> {
    fn from(request: Box<Request<Body>>) -> Self {
        Self::new(request)
    }
}

impl fmt::Debug for ClientRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientRequest")
            .field("request", &self.request)
            .field("on_interim", &self.on_interim.is_some())
            .field("on_queue", &self.on_queue.is_some())
            .finish()
    }
}
