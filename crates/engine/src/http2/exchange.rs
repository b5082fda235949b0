//! The handler's side of an exchange.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use pronghorn_h3::Priority;

use super::frame_watch::FrameWatch;
use super::pump::{pump, send_data};
use super::send_buffer::{BufferedBytes, SMALL_BYTES, SendBuffer};
use crate::connection_fields::remove_connection_fields_of_response;
use crate::context::Context;
use crate::schedule::priority_field;
use crate::tcp::ExchangeGuard;
use crate::{Body, Response};

/// The stream of a request, on which its responses are sent.
pub(crate) struct ResponseStream {
    pub(super) respond: RefCell<SendResponse<BufferedBytes>>,
    /// The final response has begun, so no interim one may follow.
    pub(super) is_final: Cell<bool>,
    pub(super) send_buffer: Rc<SendBuffer>,
    /// The priority in the request's `priority` field.
    pub(super) field: Option<Priority>,
    pub(super) watch: Rc<FrameWatch>,
    pub(super) batch: Rc<BodyBatch>,
    pub(super) method: Method,
    pub(super) alt_svc: Option<HeaderValue>,
    pub(super) guard: Rc<ExchangeGuard>,
    pub(super) context: Rc<Context>,
}

impl ResponseStream {
    /// Sends an interim response, unless the final one has been sent.
    pub(crate) fn send_interim(&self, status: StatusCode, headers: HeaderMap) {
        if self.is_final.get() {
            return;
        }
        let mut head = http::Response::new(());
        *head.status_mut() = status;
        *head.headers_mut() = headers;
        // An error means that the stream is gone, which the final response will see too.
        let _ = self.respond.borrow_mut().send_informational(head);
    }
}

/// A request that waits for its response.
pub(crate) struct Http2Exchange(pub(super) Rc<ResponseStream>);

impl Http2Exchange {
    pub(crate) fn send_interim(&self, status: StatusCode, headers: HeaderMap) {
        self.0.send_interim(status, headers);
    }

    pub(crate) fn respond(self, mut response: Response) {
        let ResponseStream { respond, is_final, method, alt_svc, guard, context, .. } = &*self.0;
        guard.set_answered();
        is_final.set(true);
        let has_content = context.prepare(method, alt_svc.as_ref(), &mut response);
        // h2 refuses to send a response with one of these fields.
        remove_connection_fields_of_response(&mut response.headers);
        let may_wait = response.body.full_size().is_none_or(|size| size > SMALL_BYTES);
        let said = if has_content && may_wait { priority_field(&response.headers) } else { None };
        let mut head = http::Response::new(());
        *head.status_mut() = response.status;
        *head.headers_mut() = response.headers;
        let sent = respond.borrow_mut().send_response(head, !has_content);
        let Ok(stream) = sent else {
            // The peer has reset the stream, or the connection is gone.
            context.stats.requests_aborted.add(1);
            return;
        };
        if has_content {
            self.send_body(stream, response.body, said);
        }
    }

    /// Sends the body. `said`: the response's `priority` field.
    fn send_body(self, stream: SendStream<BufferedBytes>, body: Body, said: Option<Bytes>) {
        let ResponseStream { watch, batch, .. } = &*self.0;
        if body.full_size().is_some_and(|size| size > SMALL_BYTES) && watch.is_holding_back() {
            let batch = batch.clone();
            batch.0.borrow_mut().push(PendingBody { exchange: self, stream, body, said });
        } else {
            self.hand_over(stream, body, said);
        }
    }

    /// Returns the priority of the response. `said`: its own `priority` field.
    fn priority(&self, stream: u32, said: Option<&Bytes>) -> Priority {
        let ResponseStream { watch, field, .. } = &*self.0;
        let asked = watch.priority(stream, *field);
        said.map_or(asked, |said| asked.overridden_by(said))
    }

    fn hand_over(self, mut stream: SendStream<BufferedBytes>, mut body: Body, said: Option<Bytes>) {
        let ResponseStream { send_buffer, context, .. } = &*self.0;
        let id = stream.stream_id().as_u32();
        // Passed to h2 at once if it fits into the windows. Otherwise it waits outside of h2, which
        // would buffer it for as long as it takes.
        if let Some(size) = body.full_size() {
            stream.reserve_capacity(size);
            if stream
                .capacity()
                .min(send_buffer.room_for(size, || self.priority(id, said.as_ref())))
                >= size
                && let Some(bytes) = body.take_full()
            {
                if send_data(&mut stream, send_buffer, bytes, true).is_err() {
                    context.stats.requests_aborted.add(1);
                }
                return;
            }
        }
        let slot = send_buffer.slot(id, self.priority(id, None), said, body.is_tunnel());
        let handle = context.handle.clone();
        handle.spawn(async move {
            let ResponseStream { guard, context, .. } = &*self.0;
            if let Err(reason) = pump(&mut stream, body, &slot, Some((guard, context))).await {
                context.stats.requests_aborted.add(1);
                stream.send_reset(reason);
            }
        });
    }

    /// Resets the stream instead of responding.
    pub(crate) fn abort(self) {
        self.0.is_final.set(true);
        self.0.respond.borrow_mut().send_reset(Reason::INTERNAL_ERROR);
        self.0.context.stats.requests_aborted.add(1);
    }

    /// Counts a request whose client left before it was answered.
    pub(crate) fn abandon(self) {
        self.0.context.stats.requests_aborted.add(1);
    }

    pub(crate) fn poll_closed(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        self.0.respond.borrow_mut().poll_reset(cx).map(drop)
    }
}

/// Bodies of the responses to requests that arrived together. They are handed over once all of
/// these were dispatched, the most urgent first.
#[derive(Default)]
pub(super) struct BodyBatch(RefCell<Vec<PendingBody>>);

struct PendingBody {
    exchange: Http2Exchange,
    stream: SendStream<BufferedBytes>,
    body: Body,
    said: Option<Bytes>,
}

impl BodyBatch {
    pub(super) fn hand_over(&self) {
        let mut all = self.0.take();
        if all.len() > 1 {
            // Stable: equally urgent ones keep the order of the requests.
            all.sort_by_key(|content| {
                let id = content.stream.stream_id().as_u32();
                content.exchange.priority(id, content.said.as_ref()).urgency
            });
        }
        for PendingBody { exchange, stream, body, said } in all.drain(..) {
            exchange.hand_over(stream, body, said);
        }
        // Keeps the memory for the next ones, unless some have been added meanwhile.
        if self.0.borrow().is_empty() {
            self.0.replace(all);
        }
    }
}
