//! `body-limit`: maximum size of request bodies.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_LENGTH;
use http_body::{Body as _, Frame, SizeHint};
use pronghorn_engine::{Body, BodyError};
use schemars::JsonSchema;
use serde::Deserialize;
use tower_service::Service;

use super::{Around, Layer, LocalService, Request, Response, WorkerContext, from_engine};
use crate::config::Size;
use crate::responses::text;

/// Options of `body-limit`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(super) struct Options {
    /// Maximum size of a request body; larger requests are answered 413.
    size: Size,
}

#[derive(Clone)]
pub(super) struct BodyLimit(u64);

impl BodyLimit {
    pub(super) fn new(options: &Options) -> Self {
        Self(options.size.0)
    }
}

impl Layer for BodyLimit {
    fn around(&self, inner: LocalService, _: &WorkerContext) -> LocalService {
        LocalService::around(self.clone(), inner)
    }
}

impl Around for BodyLimit {
    async fn call(
        self: Rc<Self>,
        request: Request,
        mut inner: LocalService,
    ) -> Result<Response, BodyError> {
        let announced = request
            .headers()
            .get(CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|length| length > self.0) {
            return Ok(too_large());
        }
        let is_reached = Arc::new(AtomicBool::new(false));
        let limited = |body: Body| {
            Body::stream(Limited { body, left: self.0, is_reached: is_reached.clone() })
        };
        let request = request.map(|body| if body.is_end_stream() { body } else { limited(body) });
        let response = inner.call(request).await;
        // The response to a truncated request is of no use.
        if is_reached.load(Ordering::Relaxed) { Ok(too_large()) } else { response }
    }
}

fn too_large() -> Response {
    from_engine(text(StatusCode::PAYLOAD_TOO_LARGE, "request body too large\n"))
}

struct Limited {
    body: Body,
    left: u64,
    is_reached: Arc<AtomicBool>,
}

impl http_body::Body for Limited {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let bytes =
            frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()).map_or(0, Bytes::len)
                as u64;
        let Some(left) = self.left.checked_sub(bytes) else {
            self.is_reached.store(true, Ordering::Relaxed);
            return Poll::Ready(Some(Err("request body too large".into())));
        };
        self.left = left;
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
