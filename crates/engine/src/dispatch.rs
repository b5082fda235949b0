//! From a protocol to the handler: what every request passes, whichever protocol brought it.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Method, StatusCode};

use crate::context::Context;
use crate::meter::Meter;
use crate::stats::{Counter, Stats};
use crate::{Request, Responder, Response};

/// One of the counters.
type Of = fn(&Stats) -> &Counter;

/// How many there are of something on a worker.
#[derive(Clone, Default)]
pub(crate) struct Gauge(Rc<Level>);

#[derive(Default)]
struct Level {
    count: Cell<u64>,
    /// Where other threads see it, if they do.
    shown: Option<(Arc<Stats>, Of)>,
}

/// One of them, until dropped.
pub(crate) struct Counted(Rc<Level>);

impl Gauge {
    /// One whose level is a counter too.
    pub(crate) fn shown(stats: &Arc<Stats>, counter: Of) -> Self {
        Self(Rc::new(Level { count: Cell::new(0), shown: Some((stats.clone(), counter)) }))
    }

    /// One more, if there are fewer than `limit`.
    pub(crate) fn add(&self, limit: u64) -> Option<Counted> {
        let count = self.0.count.get();
        (count < limit).then(|| {
            self.0.set(count + 1);
            Counted(self.0.clone())
        })
    }
}

impl Level {
    fn set(&self, count: u64) {
        self.count.set(count);
        if let Some((stats, counter)) = &self.shown {
            counter(stats).set(count);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.count.get() - 1);
    }
}

impl Context {
    /// Gives a request to the handler, unless it is more than a peer may ask for.
    pub(crate) fn dispatch(self: &Rc<Self>, mut request: Request, mut responder: Responder) {
        let limits = &self.config.limits;
        let refuse = |responder: Responder, response| {
            self.stats.requests_refused.add(1);
            responder.send(response);
        };
        if request.headers.len() as u64 > limits.field_lines() {
            self.stats.heads_too_many_lines.add(1);
            return refuse(responder, Response::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
        }
        let has_content = !http_body::Body::is_end_stream(&request.body);
        if has_content && content_length(&request).is_some_and(|length| length > limits.request_body_bytes()) {
            self.stats.bodies_too_large.add(1);
            return refuse(responder, Response::new(StatusCode::PAYLOAD_TOO_LARGE));
        }
        let Some(open) = self.open_requests.add(limits.open_requests()) else {
            self.stats.requests_shed.add(1);
            let busy = Response::new(StatusCode::SERVICE_UNAVAILABLE);
            return refuse(responder, busy.with_header(http::header::RETRY_AFTER, HeaderValue::from_static("1")));
        };
        let meter = has_content.then(|| Meter::new(self));
        request.body.measure(meter.clone());
        responder.accompany(open, meter, request.upgrade.is_some(), request.method == Method::CONNECT);
        self.give(request, responder);
    }
}

fn content_length(request: &Request) -> Option<u64> {
    request.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
