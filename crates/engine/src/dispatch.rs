//! The step from a protocol to the handler: the checks that every request passes, whichever
//! protocol carried it.

use std::net::SocketAddr;
use std::rc::Rc;

use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Method, StatusCode};

use crate::body_limits::BodyMeter;
use crate::contained::contained_and_counted;
use crate::context::Context;
use crate::early_data::EarlyRequest;
use crate::memory::MemoryPressure;
use crate::{Request, Responder, Response};

/// The part of a [`Handler`](crate::Handler) that connections use.
pub(crate) trait ServeRequests {
    fn handle(&self, request: Request, responder: Responder);
    fn flush(&self);
    fn on_opened(&self, remote: SocketAddr);
    fn on_closed(&self, remote: SocketAddr);
}

/// Passes the requests of a worker's connections to its handler.
pub(crate) struct Dispatcher {
    pub(crate) context: Rc<Context>,
    pub(crate) handler: Rc<dyn ServeRequests>,
}

impl Dispatcher {
    pub(crate) fn new(context: Rc<Context>, handler: Rc<dyn ServeRequests>) -> Rc<Self> {
        Rc::new(Self { context, handler })
    }

    /// Gives a request to the handler, unless it exceeds a limit.
    pub(crate) fn dispatch(&self, mut request: Request, mut responder: Responder) {
        let context = &self.context;
        let limits = &context.config.limits;
        let refuse = |responder: Responder, response| {
            context.stats.requests_refused.add(1);
            responder.send(response);
        };
        if request.headers.len() as u64 > limits.field_lines() {
            context.stats.heads_too_many_lines.add(1);
            return refuse(responder, Response::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
        }
        let has_content = !http_body::Body::is_end_stream(&request.body);
        if has_content
            && content_length(&request).is_some_and(|length| length > limits.request_body_bytes())
        {
            context.stats.bodies_too_large.add(1);
            return refuse(responder, Response::new(StatusCode::PAYLOAD_TOO_LARGE));
        }
        let busy = || {
            Response::new(StatusCode::SERVICE_UNAVAILABLE)
                .with_header(http::header::RETRY_AFTER, HeaderValue::from_static("1"))
        };
        if context.memory.pressure() >= MemoryPressure::RefuseRequests {
            context.stats.requests_refused_for_memory.add(1);
            return refuse(responder, busy());
        }
        let Some(open) = context.open_requests.add(limits.open_requests()) else {
            context.stats.requests_shed.add(1);
            return refuse(responder, busy());
        };
        let meter = has_content.then(|| BodyMeter::new(context));
        request.body.measure(meter.clone());
        responder.attach(open, meter, request.upgrade.is_some(), request.method == Method::CONNECT);
        self.handle(request, responder);
    }

    /// Tells the handler of an opened connection.
    pub(crate) fn on_opened(&self, remote: SocketAddr) {
        self.tell(|handler| handler.on_opened(remote));
    }

    /// Tells the handler of an ended connection.
    pub(crate) fn on_closed(&self, remote: SocketAddr) {
        self.tell(|handler| handler.on_closed(remote));
    }

    /// Tells the handler that the requests that have arrived were given to it.
    pub(crate) fn flush(&self) {
        self.tell(|handler| handler.flush());
    }

    /// Calls the handler, which may panic, outside of requests.
    fn tell(&self, call: impl FnOnce(&dyn ServeRequests)) {
        contained_and_counted(&self.context.stats, || call(&*self.handler));
    }

    /// Gives a request to the handler, unless it came too early.
    //= RFC 9114 section 10.9
    //# The anti-replay mitigations in [HTTP-REPLAY] MUST be applied when using HTTP/3 with 0-RTT.
    fn handle(&self, mut request: Request, mut responder: Responder) {
        match self.context.config.early_data.treat(&request) {
            EarlyRequest::Answer => handle(&*self.handler, &self.context, request, responder),
            // The content stays unread.
            EarlyRequest::Refuse => responder.send(Response::new(StatusCode::TOO_EARLY)),
            EarlyRequest::Hold => {
                let (handler, context) = (self.handler.clone(), self.context.clone());
                self.context.handle.spawn(async move {
                    if responder.handshake().await {
                        request.peer.early_data = false;
                        handle(&*handler, &context, request, responder);
                    } else {
                        responder.abort();
                    }
                });
            }
        }
    }
}

/// Gives a request to the handler. If the handler panics, the request is answered with 500 and the
/// worker goes on.
fn handle(handler: &dyn ServeRequests, context: &Context, request: Request, responder: Responder) {
    // The handler may leave its own state half changed, which is its own concern. The responder
    // that it got is dropped, which answers.
    contained_and_counted(&context.stats, || handler.handle(request, responder));
}

fn content_length(request: &Request) -> Option<u64> {
    request.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
