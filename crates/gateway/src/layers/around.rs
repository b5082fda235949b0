//! Layers written as a single function.

use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Poll};

use pronghorn_engine::BodyError;
use tower_service::Service;

use super::{LocalFuture, LocalService, Request, Response};

/// A layer's handling of requests on one worker.
pub trait Around: 'static {
    /// Answers `request` itself or through `inner`.
    fn call(
        self: Rc<Self>,
        request: Request,
        inner: LocalService,
    ) -> impl Future<Output = Result<Response, BodyError>>;
}

/// A service wrapped by an [`Around`].
struct Wrapped<A> {
    around: Rc<A>,
    inner: LocalService,
}

impl<A> Clone for Wrapped<A> {
    fn clone(&self) -> Self {
        Self { around: self.around.clone(), inner: self.inner.clone() }
    }
}

impl<A: Around> Service<Request> for Wrapped<A> {
    type Response = Response;
    type Error = BodyError;
    type Future = LocalFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> LocalFuture {
        let (around, inner) = (self.around.clone(), self.inner.clone());
        Box::pin(async move { around.call(request, inner).await })
    }
}

impl LocalService {
    /// Wraps `inner` in `around`.
    pub fn around(around: impl Around, inner: Self) -> Self {
        Self::new(Wrapped { around: Rc::new(around), inner })
    }
}
