//! `concurrency-limit`: maximum number of concurrent requests.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;
use http::header::RETRY_AFTER;
use http_body::{Body as _, Frame, SizeHint};
use pronghorn_engine::{Body, BodyError};
use schemars::JsonSchema;
use serde::Deserialize;
use tower_service::Service;

use super::{
    Around, Client, Layer, LocalService, Request, Response, WorkerContext, from_engine, too_early,
};
use crate::fields::client_address::network_of;
use crate::responses::text;

/// Scope of the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum By {
    /// Requests of one address; for IPv6, of one /64 network.
    #[default]
    Client,
    /// All requests.
    All,
}

/// Options of `concurrency-limit`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(super) struct Options {
    /// Maximum number of concurrent requests on all workers, counted until the end of their
    /// responses; further requests are answered 503.
    #[schemars(range(min = 1))]
    requests: usize,
    /// Scope of the limit.
    #[serde(default)]
    by: By,
}

/// Running requests by client. It has at most one entry for each running request.
#[derive(Default)]
struct Running(Mutex<HashMap<Option<IpAddr>, usize>>);

#[derive(Clone)]
pub(super) struct ConcurrencyLimit {
    running: Arc<Running>,
    options: Options,
}

impl ConcurrencyLimit {
    pub(super) fn new(options: Options) -> Result<Self, String> {
        match options.requests {
            0 => Err("invalid `requests`: allow at least 1".to_owned()),
            _ => Ok(Self { running: Arc::default(), options }),
        }
    }

    /// Counts a request, or returns `None` at the limit. `key` is the client, or `None` if all are
    /// counted together.
    fn begin(&self, key: Option<IpAddr>) -> Option<RequestPermit> {
        let mut running = self.running.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = running.entry(key).or_default();
        if *count >= self.options.requests {
            return None;
        }
        *count += 1;
        Some(RequestPermit { running: self.running.clone(), key })
    }
}

impl Layer for ConcurrencyLimit {
    fn around(&self, inner: LocalService, _: &WorkerContext) -> LocalService {
        LocalService::around(self.clone(), inner)
    }

    fn is_stateful(&self) -> bool {
        true
    }

    fn needs_client(&self) -> bool {
        self.options.by == By::Client
    }
}

impl Around for ConcurrencyLimit {
    async fn call(
        self: Rc<Self>,
        request: Request,
        mut inner: LocalService,
    ) -> Result<Response, BodyError> {
        let client = request.extensions().get::<Client>().copied();
        let key = match (self.options.by, client) {
            (By::All, _) => None,
            (By::Client, Some(Client(client))) => Some(network_of(client, 64)),
            (By::Client, None) => return Ok(too_early()),
        };
        let Some(permit) = self.begin(key) else {
            let answer = text(StatusCode::SERVICE_UNAVAILABLE, "too many requests at once\n");
            return Ok(from_engine(answer.with_header(RETRY_AFTER, 1.into())));
        };
        let response = inner.call(request).await?;
        Ok(response.map(|body| {
            if body.is_end_stream() {
                body
            } else {
                Body::stream(CountedBody { body, permit: Some(permit) })
            }
        }))
    }
}

/// A running request, counted until dropped.
struct RequestPermit {
    running: Arc<Running>,
    key: Option<IpAddr>,
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let mut running = self.running.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = running.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                running.remove(&self.key);
            }
        }
    }
}

struct CountedBody {
    body: Body,
    permit: Option<RequestPermit>,
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            self.permit = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_are_counted_by_client_and_leave_nothing_behind() {
        let limit =
            ConcurrencyLimit::new(Options { requests: 1, by: By::Client }).expect("it is right");
        let (one, other) = (Some(IpAddr::from([192, 0, 2, 1])), Some(IpAddr::from([192, 0, 2, 2])));
        let permit = limit.begin(one);
        assert!(permit.is_some());
        assert!(limit.begin(one).is_none());
        assert!(limit.begin(other).is_some());
        drop(permit);
        assert!(limit.begin(one).is_some());
        assert!(limit.running.0.lock().expect("no panic").is_empty());
    }
}
