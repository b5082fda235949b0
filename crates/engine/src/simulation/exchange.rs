//! Both ends of each request: a handler that follows the plan, and a client that follows it and
//! checks the result.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};

use super::content::{self, Gauge, Received};
use super::plan::{ConnectionPlan, Exchange, Plan, Reading, ResponsePlan, Stream};
use crate::runtime::Handle;
use crate::{
    Body, Connection, Connector, Protocol, Request, Responder, Response, Resumption, Target,
    Upgrade,
};

/// Outcome of an exchange for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Complete,
    /// Abandoned by the client, as planned.
    Left,
    Failed(String),
}

/// Outcome of each exchange.
#[derive(Default)]
pub(crate) struct Record {
    /// Number of times that the handler got the request.
    pub(crate) handled: u64,
    pub(crate) upload: Option<Received>,
    pub(crate) ended: Option<Ended>,
    pub(crate) ended_at: Option<Instant>,
    pub(crate) upload_gauge: Gauge,
    pub(crate) content_gauge: Gauge,
}

pub(crate) type Log = Rc<RefCell<Vec<Record>>>;

const AT_EASE: Reading =
    Reading { waits: Duration::ZERO, rest_every: u64::MAX, rest: Duration::ZERO, leaves_at: None };

impl Exchange {
    fn upload_tag(&self) -> u64 {
        self.number * 4
    }

    fn content_tag(&self) -> u64 {
        self.number * 4 + 1
    }

    /// Returns the response: its status, its content and the content's tag.
    fn response(&self) -> (StatusCode, Option<&Stream>, u64) {
        match &self.answer {
            ResponsePlan::Now { content, .. }
            | ResponsePlan::Later { content, .. }
            | ResponsePlan::AfterUpload { content, .. } => {
                (StatusCode::OK, Some(content), self.content_tag())
            }
            ResponsePlan::Echo => (StatusCode::OK, self.upload.as_ref(), self.upload_tag()),
            ResponsePlan::Nothing => (StatusCode::INTERNAL_SERVER_ERROR, None, 0),
        }
    }

    /// Whether the exchange is a tunnel: some of those where both sides send at once are.
    fn is_tunnel(&self) -> bool {
        let both_send = matches!(
            self.answer,
            ResponsePlan::Echo | ResponsePlan::Now { drops_upload: false, .. }
        );
        self.number % 4 == 3 && self.upload.is_some() && both_send
    }

    /// Whether neither side abandons the exchange, so that it must complete if its connection
    /// lasts.
    pub(crate) fn is_whole(&self) -> bool {
        let fails = |stream: &Stream| stream.fails_at.is_some();
        let (_, content, _) = self.response();
        !self.upload.as_ref().is_some_and(fails)
            && !content.is_some_and(fails)
            && self.reading.leaves_at.is_none()
            && self.patience.is_none()
    }
}

// ---- the server

/// Returns the handler, which panics on a wrong request.
pub(crate) fn handler(plan: Rc<Vec<Exchange>>, log: Log) -> impl Fn(Request, Responder) {
    move |request, responder| {
        let number: usize = request.uri.path()[1..].parse().unwrap();
        let exchange = plan[number].clone();
        log.borrow_mut()[number].handled += 1;
        check_head(&exchange, &request);
        answer(exchange, request, responder, &log);
    }
}

fn check_head(exchange: &Exchange, request: &Request) {
    let method = match &exchange.upload {
        _ if exchange.is_tunnel() => Method::CONNECT,
        Some(_) => Method::POST,
        None => Method::GET,
    };
    assert_eq!(request.method, method);
    assert_eq!(request.upgrade, exchange.is_tunnel().then(|| Upgrade::new("simulated")));
    assert_eq!(request.uri.authority().map(http::uri::Authority::as_str), Some("localhost"));
    check_fields(exchange, &request.headers);
}

fn check_fields(exchange: &Exchange, headers: &HeaderMap) {
    let found = headers.iter().filter(|(name, _)| name.as_str().starts_with("x-field"));
    let found = found.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    assert_eq!(found.collect::<Vec<_>>(), exchange.fields, "exchange {}", exchange.number);
}

fn add_fields(exchange: &Exchange, headers: &mut HeaderMap) {
    for (name, value) in &exchange.fields {
        headers.append(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_str(value).unwrap(),
        );
    }
}

fn answer(exchange: Exchange, request: Request, responder: Responder, log: &Log) {
    let handle = responder.handle().clone();
    let response = |exchange: &Exchange, body: Body| {
        let mut response = Response::new(StatusCode::OK).with_body(body);
        add_fields(exchange, &mut response.headers);
        // The real date would have another size in each run once it is compressed.
        response
            .headers
            .insert(http::header::DATE, HeaderValue::from_static("Sat, 01 Jan 2000 00:00:00 GMT"));
        response
    };
    let (upload_gauge, gauge) = {
        let record = &log.borrow()[exchange.number as usize];
        (record.upload_gauge.clone(), record.content_gauge.clone())
    };
    let body = {
        let handle = handle.clone();
        move |exchange: &Exchange, content: &Stream| {
            content::body(&handle, exchange.content_tag(), content, &gauge)
        }
    };
    match exchange.answer.clone() {
        ResponsePlan::Now { content, drops_upload } => {
            give(&exchange, responder, response(&exchange, body(&exchange, &content)));
            if drops_upload {
                upload_gauge.leave();
            } else {
                let reading = receive(&exchange, request, AT_EASE, &handle, log);
                handle.spawn(reading);
            }
        }
        ResponsePlan::Later { after, content } => responder.respond(async move {
            handle.sleep(after).await;
            drop(request);
            upload_gauge.leave();
            response(&exchange, body(&exchange, &content))
        }),
        ResponsePlan::AfterUpload { reading, content } => {
            let reading = receive(&exchange, request, reading, &handle, log);
            responder.respond(async move {
                reading.await;
                response(&exchange, body(&exchange, &content))
            });
        }
        ResponsePlan::Echo => {
            let body =
                if exchange.upload.is_some() { Body::stream(request.body) } else { Body::empty() };
            give(&exchange, responder, response(&exchange, body));
        }
        ResponsePlan::Nothing => {
            upload_gauge.leave();
            drop(responder);
        }
    }
}

fn give(exchange: &Exchange, responder: Responder, response: Response) {
    if exchange.is_tunnel() {
        responder.upgrade(response.headers, response.body);
    } else {
        responder.send(response);
    }
}

/// Reads an upload and records its outcome.
fn receive(
    exchange: &Exchange,
    request: Request,
    reading: Reading,
    handle: &Handle,
    log: &Log,
) -> impl Future<Output = ()> + use<> {
    let (log, handle, exchange) = (log.clone(), handle.clone(), exchange.clone());
    async move {
        let gauge = log.borrow()[exchange.number as usize].upload_gauge.clone();
        let has_trailers =
            exchange.upload.as_ref().is_some_and(|upload| upload.trailers && !exchange.is_tunnel());
        let received = content::read(
            handle,
            request.body,
            exchange.upload_tag(),
            has_trailers,
            reading,
            gauge,
        )
        .await;
        log.borrow_mut()[exchange.number as usize].upload = Some(received);
    }
}

/// Checks the outcome of an exchange.
///
/// # Panics
///
/// When it did not end as planned.
pub(crate) fn check_end(exchange: &Exchange, record: &Record, lasts: bool) {
    let number = exchange.number;
    let ended = record
        .ended
        .as_ref()
        .unwrap_or_else(|| panic!("exchange {number} never ended: {exchange:?}"));
    assert!(record.handled <= 1, "exchange {number} was handled {} times", record.handled);
    let (_, content, _) = exchange.response();
    if *ended == Ended::Complete {
        assert!(
            content.is_none_or(|content| content.fails_at.is_none()),
            "exchange {number}: a truncated response counted as complete"
        );
    }
    if let Some(Received::Whole(count)) = record.upload {
        let size = exchange.upload.as_ref().map_or(0, |upload| upload.size);
        assert_eq!(count, size, "exchange {number}: a truncated upload counted as complete");
        assert!(
            exchange.upload.as_ref().is_none_or(|upload| upload.fails_at.is_none()),
            "exchange {number}: a failed upload"
        );
    }
    if lasts && exchange.is_whole() {
        assert_eq!(*ended, Ended::Complete, "exchange {number}: {exchange:?}");
    }
}

/// Checks the maximum number of bytes between producer and reader.
pub(crate) fn check_memory(plan: &Plan, exchange: &Exchange, record: &Record) {
    /// Bytes that the engine buffers of each side's content before the transport and the reader,
    /// plus the pieces that it is processing.
    const ENGINE: u64 = (64 << 10) * 3;
    let way = |stream: &Stream, to: &crate::Config| {
        ENGINE + 2 * stream.chunk + to.limits.stream_window_bytes()
    };
    let (Plan { client, server, .. }, upload, content) =
        (plan, exchange.upload.as_ref(), exchange.response().1);
    let there = upload.map_or(0, |upload| way(upload, server));
    let back = content.map_or(0, |content| way(content, client));
    // Echoed bytes count until they are back.
    let there = if matches!(exchange.answer, ResponsePlan::Echo) { there + back } else { there };
    for (most, allowed) in
        [(record.upload_gauge.most(), there), (record.content_gauge.most(), back)]
    {
        assert!(
            most <= allowed,
            "exchange {}: {most} bytes in transit, {allowed} allowed",
            exchange.number
        );
    }
}

// ---- the client

/// Handles that the client's futures need.
#[derive(Clone)]
pub(crate) struct User {
    pub(crate) connector: Connector,
    pub(crate) handle: Handle,
    pub(crate) server: SocketAddr,
    pub(crate) resumption: Resumption,
    pub(crate) log: Log,
}

impl User {
    /// Opens the connection and starts its exchanges.
    pub(crate) async fn connection(self, plan: ConnectionPlan) {
        self.handle.sleep(plan.at).await;
        let began = self.handle.now();
        let closes = plan.closes.map(|after| began + after);
        let target = Target {
            remote: self.server,
            server_name: "localhost".to_owned(),
            protocol: Some(Protocol::Http3),
            secure: true,
            resumption: self.resumption,
        };
        let connection = match within(&self.handle, closes, self.connector.connect(&target)).await {
            Some(Ok(connection)) => connection,
            Some(Err(reason)) => {
                return plan.requests.iter().for_each(|exchange| {
                    self.note(exchange, Ended::Failed(format!("no connection: {reason}")));
                });
            }
            None => {
                return plan.requests.iter().for_each(|exchange| self.note(exchange, Ended::Left));
            }
        };
        for exchange in plan.requests {
            let (user, connection) = (self.clone(), connection.share().unwrap());
            self.handle.spawn(async move {
                user.handle.sleep(exchange.at).await;
                let ended = user.exchange(&exchange, connection, closes).await;
                user.note(&exchange, ended);
            });
        }
    }

    fn note(&self, exchange: &Exchange, ended: Ended) {
        let record = &mut self.log.borrow_mut()[exchange.number as usize];
        assert_eq!(record.ended, None, "exchange {} ended twice", exchange.number);
        record.ended = Some(ended);
        record.ended_at = Some(self.handle.now());
    }

    async fn exchange(
        &self,
        exchange: &Exchange,
        mut connection: Connection,
        closes: Option<Instant>,
    ) -> Ended {
        let gauge = self.log.borrow()[exchange.number as usize].upload_gauge.clone();
        let body = match &exchange.upload {
            Some(upload) => content::body(&self.handle, exchange.upload_tag(), upload, &gauge),
            None => Body::empty(),
        };
        let method = if exchange.upload.is_some() { Method::POST } else { Method::GET };
        let uri = Uri::try_from(format!("https://localhost/{}", exchange.number)).unwrap();
        let mut request = http::Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        add_fields(exchange, request.headers_mut());
        if exchange.is_tunnel() {
            request.extensions_mut().insert(Upgrade::new("simulated"));
        }
        let gives_up = exchange.patience.map(|patience| self.handle.now() + patience);
        let gives_up = [gives_up, closes].into_iter().flatten().min();
        let response = match within(&self.handle, gives_up, connection.send(request)).await {
            Some(Ok(response)) => response,
            Some(Err(error)) => return Ended::Failed(error.to_string()),
            None => return Ended::Left,
        };
        let (status, headers, incoming) =
            (response.status(), response.headers().clone(), response.into_body());
        let (expected, content, tag) = exchange.response();
        assert_eq!(status, expected, "exchange {}", exchange.number);
        if status == StatusCode::OK {
            check_fields(exchange, &headers);
        }
        let gauge = {
            let record = &self.log.borrow()[exchange.number as usize];
            if matches!(exchange.answer, ResponsePlan::Echo) {
                record.upload_gauge.clone()
            } else {
                record.content_gauge.clone()
            }
        };
        let has_trailers = content.is_some_and(|content| content.trailers && !exchange.is_tunnel());
        let reading = content::read(
            self.handle.clone(),
            incoming,
            tag,
            has_trailers,
            exchange.reading,
            gauge,
        );
        match within(&self.handle, closes, reading).await {
            Some(Received::Whole(count)) => {
                assert_eq!(
                    count,
                    content.map_or(0, |content| content.size),
                    "exchange {}: content is missing",
                    exchange.number
                );
                Ended::Complete
            }
            Some(Received::Left) | None => Ended::Left,
            Some(Received::Failed(reason)) => Ended::Failed(reason),
        }
    }
}

/// Returns the result of `future`, or `None` if the deadline passes first.
async fn within<T>(
    handle: &Handle,
    deadline: Option<Instant>,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = pin!(future);
    let mut sleep = pin!(deadline.map(|deadline| handle.timers().sleep_until(deadline)));
    poll_fn(|cx| {
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        match sleep.as_mut().as_pin_mut() {
            Some(sleep) => sleep.poll(cx).map(|()| None),
            None => Poll::Pending,
        }
    })
    .await
}
