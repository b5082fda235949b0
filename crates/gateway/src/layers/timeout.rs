//! `timeout`: an answer in time, or none.

use std::rc::Rc;
use std::time::Duration;

use http::StatusCode;
use pronghorn_engine::{BodyError, Handle};
use schemars::JsonSchema;
use serde::Deserialize;
use tower_service::Service;

use super::{Around, Layer, LocalService, OnWorker, Request, Response, from_engine};
use crate::config::Time;
use crate::in_time::in_time;
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
        in_time(&self.handle, self.after, inner.call(request))
            .await
            .unwrap_or_else(|| Ok(from_engine(text(StatusCode::GATEWAY_TIMEOUT, "there was no answer in time\n"))))
    }
}
