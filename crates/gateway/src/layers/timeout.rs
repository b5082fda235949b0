//! `timeout`: an answer in time, or none.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use http::StatusCode;
use pronghorn_engine::{BodyError, Handle};
use schemars::JsonSchema;
use serde::Deserialize;
use tower_service::Service;

use super::{Around, Layer, LocalService, OnWorker, Request, Response, from_engine};
use crate::config::Time;
use crate::plan::text;

/// Options of `timeout`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(super) struct Options {
    /// How long it may take until the head of the response is there; after that the request is given up and answered 504.
    after: Time,
}

pub(super) struct Timeout(Duration);

impl Timeout {
    pub(super) fn new(options: &Options) -> Result<Self, String> {
        if options.after.0.is_zero() {
            return Err("in no time nothing can be answered".to_owned());
        }
        Ok(Self(options.after.0))
    }
}

impl Layer for Timeout {
    fn around(&self, inner: LocalService, worker: &OnWorker) -> LocalService {
        LocalService::around(OfWorker { after: self.0, handle: worker.handle().clone() }, inner)
    }
}

struct OfWorker {
    after: Duration,
    handle: Handle,
}

impl Around for OfWorker {
    async fn call(self: Rc<Self>, request: Request, mut inner: LocalService) -> Result<Response, BodyError> {
        within(&self.handle, self.after, inner.call(request))
            .await
            .unwrap_or_else(|| Ok(from_engine(text(StatusCode::GATEWAY_TIMEOUT, "there was no answer in time\n"))))
    }
}

/// What `future` gives, unless time is over before.
pub(super) async fn within<T>(handle: &Handle, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut sleep) = (pin!(future), pin!(handle.sleep(limit)));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => sleep.as_mut().poll(cx).map(|()| None),
    })
    .await
}
