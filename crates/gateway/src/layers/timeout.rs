//! `timeout`: time limit for responses.

use std::rc::Rc;
use std::time::Duration;

use http::StatusCode;
use pronghorn_engine::{BodyError, Handle};
use schemars::JsonSchema;
use serde::Deserialize;
use tower_service::Service;

use super::{Around, Layer, LocalService, Request, Response, WorkerContext, from_engine};
use crate::config::Time;
use crate::responses::text;
use crate::timeout::in_time;

/// Options of `timeout`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(super) struct Options {
    /// Time limit for the response headers; after that the request is cancelled and answered 504.
    after: Time,
}

pub(super) struct Timeout(Duration);

impl Timeout {
    pub(super) fn new(options: &Options) -> Result<Self, String> {
        if options.after.0.is_zero() {
            return Err("invalid `after`: must be more than 0".to_owned());
        }
        Ok(Self(options.after.0))
    }
}

impl Layer for Timeout {
    fn around(&self, inner: LocalService, worker: &WorkerContext) -> LocalService {
        LocalService::around(WorkerLayer { after: self.0, handle: worker.handle().clone() }, inner)
    }
}

struct WorkerLayer {
    after: Duration,
    handle: Handle,
}

impl Around for WorkerLayer {
    async fn call(
        self: Rc<Self>,
        request: Request,
        mut inner: LocalService,
    ) -> Result<Response, BodyError> {
        in_time(&self.handle, self.after, inner.call(request)).await.unwrap_or_else(|| {
            Ok(from_engine(text(StatusCode::GATEWAY_TIMEOUT, "no response in time\n")))
        })
    }
}
