//! Responses as handlers send them.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};

use crate::{Body, SharedFields};

/// A response as a handler sends it.
///
/// The engine adds `date` if it is missing, and `content-length` if the body knows its size.
#[derive(Debug)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// The field lines.
    pub headers: HeaderMap,
    /// The content.
    pub body: Body,
    /// Further field lines.
    pub(crate) shared: Option<Arc<SharedFields>>,
}

impl Response {
    /// Creates a response with this status, without fields or a body.
    pub fn new(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::new(), body: Body::empty(), shared: None }
    }

    /// Sets the body.
    #[must_use]
    pub fn with_body(mut self, body: impl Into<Body>) -> Self {
        self.body = body.into();
        self
    }

    /// Adds a field line.
    #[must_use]
    pub fn with_header(mut self, name: http::HeaderName, value: http::HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// Adds shared lines to those in `headers`. A response has at most one such set: a second call
    /// replaces the first.
    #[must_use]
    pub fn with_shared(mut self, fields: Arc<SharedFields>) -> Self {
        self.shared = Some(fields);
        self
    }

    /// Returns all field lines. Moves those of [`Response::with_shared`] into `headers`.
    pub fn fields_mut(&mut self) -> &mut HeaderMap {
        if let Some(shared) = self.shared.take() {
            if self.headers.is_empty() {
                self.headers.clone_from(shared.lines());
            } else {
                self.headers.extend(
                    shared.lines().iter().map(|(name, value)| (name.clone(), value.clone())),
                );
            }
        }
        &mut self.headers
    }
}

impl<B: Into<Body>> From<http::Response<B>> for Response {
    fn from(response: http::Response<B>) -> Self {
        let (head, body) = response.into_parts();
        Self { status: head.status, headers: head.headers, body: body.into(), shared: None }
    }
}
