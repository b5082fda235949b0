//! Request and response bodies: backpressure, and clients that disconnect.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::routing::{get, post};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use pronghorn_server::{Body, FailedPart, Panicked};
use tokio::sync::mpsc;
use tower::service_fn;

use crate::support::{Never, PROTOCOLS, Site, bytes, eventually, run};

const PIECE_BYTES: usize = 64 << 10;
/// More than all windows and buffers on the path together.
const MOST_ON_THE_WAY: u64 = 64 << 20;

/// An endless body that counts the bytes it has produced.
struct Endless(Arc<AtomicU64>);

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = Never;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Never>>> {
        static PIECE: [u8; PIECE_BYTES] = [b'x'; PIECE_BYTES];
        self.0.fetch_add(PIECE_BYTES as u64, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&PIECE)))))
    }
}

fn pattern(size: usize) -> Bytes {
    (0..size).map(|at| (at % 251) as u8).collect::<Vec<_>>().into()
}

#[test]
fn content_is_echoed_while_it_arrives() {
    let echo = |request: Request<axum::body::Body>| async { Response::new(request.into_body()) };
    let site = Site::new(Router::new().route("/", post(echo)));
    run(async {
        for protocol in PROTOCOLS {
            // More than any window: the echo must begin before the whole body has arrived.
            let sent = pattern(24 << 20);
            let request =
                Request::post(site.url("/")).body(Body::new(Full::new(sent.clone()))).unwrap();
            let response = site.client(protocol).send(request).await.unwrap();
            assert!(bytes(response).await == sent, "{protocol}");
        }
    });
}

#[test]
fn trailers_go_both_ways() {
    let echo = service_fn(|request: Request<Body>| async {
        let (head, body) = request.into_parts();
        let mut response = Response::new(body);
        // HTTP/1.1 carries only announced trailers.
        response.headers_mut().insert("trailer", head.headers["trailer"].clone());
        Ok::<_, Never>(response)
    });
    let site = Site::with(|server| server.start(echo).unwrap());
    run(async {
        for protocol in PROTOCOLS {
            let trailers = HeaderMap::from_iter([(
                HeaderName::from_static("x-sum"),
                HeaderValue::from_static("5"),
            )]);
            let body =
                Full::new(Bytes::from_static(b"hello")).with_trailers(async { Some(Ok(trailers)) });
            let request = Request::post(site.url("/"))
                .header("te", "trailers")
                .header("trailer", "x-sum")
                .body(Body::new(body))
                .unwrap();
            let collected = site
                .client(protocol)
                .send(request)
                .await
                .unwrap()
                .into_body()
                .collect()
                .await
                .unwrap();
            assert_eq!(
                collected.trailers().and_then(|trailers| trailers.get("x-sum")).unwrap(),
                "5",
                "{protocol}"
            );
            assert_eq!(collected.to_bytes(), "hello", "{protocol}");
        }
    });
}

#[test]
fn stalled_reader_applies_backpressure_to_the_producer() {
    let given = Arc::<AtomicU64>::default();
    let endless = given.clone();
    let site = Site::new(
        Router::new()
            .route(
                "/endless",
                get(async move || Response::new(axum::body::Body::new(Endless(endless)))),
            )
            .route("/", get(|| async { "hello" })),
    );
    run(async {
        for protocol in PROTOCOLS {
            given.store(0, Ordering::Relaxed);
            let client = site.client(protocol);
            let mut response = client.send(site.get("/endless")).await.unwrap();
            response.body_mut().frame().await.unwrap().unwrap();
            // Other requests are served meanwhile, so the server had chances to read more.
            for _ in 0..20 {
                site.text(&client, "/").await;
            }
            let given = given.load(Ordering::Relaxed);
            assert!((PIECE_BYTES as u64..MOST_ON_THE_WAY).contains(&given), "{protocol}: {given}");
        }
    });
}

#[test]
fn handler_that_does_not_read_applies_backpressure_to_the_client() {
    let (began, mut beginning) = mpsc::unbounded_channel();
    let site = Site::new(
        Router::new()
            .route(
                "/upload",
                post(async move |request: Request<axum::body::Body>| {
                    began.send(()).unwrap();
                    let _kept = request;
                    std::future::pending::<()>().await;
                }),
            )
            .route("/", get(|| async { "hello" })),
    );
    run(async {
        for protocol in PROTOCOLS {
            let given = Arc::<AtomicU64>::default();
            let client = site.client(protocol);
            let request =
                Request::post(site.url("/upload")).body(Body::new(Endless(given.clone()))).unwrap();
            let sender = client.clone();
            let upload = tokio::spawn(async move { sender.send(request).await.map(drop) });
            beginning.recv().await.unwrap();
            for _ in 0..20 {
                site.text(&client, "/").await;
            }
            assert!(given.load(Ordering::Relaxed) < MOST_ON_THE_WAY, "{protocol}");
            upload.abort();
        }
    });
}

#[test]
fn handler_is_dropped_when_its_client_disconnects() {
    struct Dropped(mpsc::UnboundedSender<()>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    let (began, mut beginning) = mpsc::unbounded_channel();
    let (ended, mut ending) = mpsc::unbounded_channel();
    let wait = async move || {
        let _dropped = Dropped(ended);
        began.send(()).unwrap();
        std::future::pending::<()>().await;
    };
    let site = Site::new(Router::new().route("/", get(wait)));
    run(async {
        for protocol in PROTOCOLS {
            let client = site.client(protocol);
            let request = site.get("/");
            let asking = tokio::spawn(async move { client.send(request).await.map(drop) });
            beginning.recv().await.unwrap();
            assert!(ending.try_recv().is_err(), "{protocol}");
            asking.abort();
            ending.recv().await.unwrap();
        }
    });
}

#[test]
fn content_may_be_read_on_another_thread() {
    let count = |request: Request<axum::body::Body>| async {
        let reader = tokio::task::spawn_blocking(|| {
            let body = request.into_body();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(body.collect()).unwrap().to_bytes().len()
        });
        reader.await.unwrap().to_string()
    };
    let site = Site::new(
        Router::new().route("/", post(count)).layer(axum::extract::DefaultBodyLimit::disable()),
    );
    run(async {
        for protocol in PROTOCOLS {
            let request =
                Request::post(site.url("/")).body(Body::from(vec![b'x'; 3 << 20])).unwrap();
            let response = site.client(protocol).send(request).await.unwrap();
            assert_eq!(bytes(response).await, "3145728", "{protocol}");
        }
    });
}

#[test]
fn failed_body_is_not_delivered_as_complete() {
    async fn broken() -> Response<axum::body::Body> {
        let pieces = tokio_stream::iter([Ok(Bytes::from_static(b"half")), Err("as the test asks")]);
        Response::new(axum::body::Body::from_stream(pieces))
    }
    let site = Site::new(Router::new().route("/", get(broken)));
    run(async {
        for protocol in PROTOCOLS {
            let response = site.client(protocol).send(site.get("/")).await;
            let collected = match response {
                Ok(response) => response.into_body().collect().await.is_err(),
                Err(_) => true,
            };
            assert!(collected, "{protocol}");
        }
    });
}

/// A body of known size that must not be polled after its end or failure.
struct Strict {
    size: u64,
    left: Vec<Result<&'static str, &'static str>>,
    is_over: bool,
}

impl http_body::Body for Strict {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        assert!(!self.is_over, "it has ended");
        let next = self.left.pop();
        self.is_over = !matches!(next, Some(Ok(_)));
        self.size -= next.as_ref().map_or(0, |next| next.map_or(0, str::len)) as u64;
        Poll::Ready(
            next.map(|next| next.map(|text| Frame::data(Bytes::from_static(text.as_bytes())))),
        )
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.size)
    }
}

#[test]
fn ended_or_failed_body_is_not_polled_again() {
    let answer = service_fn(|request: Request<Body>| async move {
        let (size, left) = match request.uri().path() {
            "/none" => (0, vec![]),
            "/short" => (5, vec![]),
            "/failed" => (5, vec![Err("as the test asks")]),
            _ => (5, vec![Ok("lo"), Ok("hel")]),
        };
        Ok::<_, Never>(Response::new(Strict { size, left, is_over: false }))
    });
    let site = Site::with(|server| server.start(answer).unwrap());
    run(async {
        for protocol in PROTOCOLS {
            let client = site.client(protocol);
            for (path, expected) in [
                ("/none", Some("")),
                ("/whole", Some("hello")),
                ("/short", None),
                ("/failed", None),
            ] {
                let collected = match client.send(site.get(path)).await {
                    Ok(response) => response
                        .into_body()
                        .collect()
                        .await
                        .ok()
                        .map(http_body_util::Collected::to_bytes),
                    Err(_) => None,
                };
                assert_eq!(collected.as_deref(), expected.map(str::as_bytes), "{protocol} {path}");
            }
        }
    });
    assert_eq!(site.handle().stats().count("handler_panics"), 0);
}

#[test]
fn service_and_body_failures_are_counted_and_reported() {
    let (failures, mut failed) = mpsc::unbounded_channel();
    let answer = service_fn(|request: Request<Body>| async move {
        let broken = |bytes| Strict {
            size: bytes,
            left: vec![Err("broken body"), Ok("half")],
            is_over: false,
        };
        match request.uri().path() {
            "/service" => Err("broken service"),
            "/small" => Ok(Response::new(broken(8))),
            _ => Ok(Response::new(broken(1 << 20))),
        }
    });
    let site = Site::with(|server| {
        let server = server.on_failure(move |failure| {
            let told = (
                failure.part,
                failure.method.clone(),
                failure.uri.path().to_owned(),
                failure.error.to_string(),
            );
            failures.send(told).unwrap();
        });
        server.start(answer).unwrap()
    });
    run(async {
        for protocol in PROTOCOLS {
            for path in ["/service", "/small", "/large"] {
                if let Ok(response) = site.client(protocol).send(site.get(path)).await {
                    assert!(
                        path != "/service"
                            || response.status() == http::StatusCode::INTERNAL_SERVER_ERROR
                    );
                    let _ = response.into_body().collect().await;
                }
                let (part, error) = match path {
                    "/service" => (FailedPart::Service, "broken service"),
                    _ => (FailedPart::Body, "broken body"),
                };
                let told = (part, http::Method::GET, path.to_owned(), error.to_owned());
                assert_eq!(failed.recv().await, Some(told), "{protocol}");
            }
        }
    });
    let stats = site.handle().stats();
    assert_eq!((stats.count("service_errors"), stats.count("body_errors")), (3, 6));
}

#[test]
fn interim_status_as_the_final_response_is_a_failure() {
    let (failures, mut failed) = mpsc::unbounded_channel();
    let answer = service_fn(|request: Request<Body>| async move {
        let status = request.uri().path()[1..].parse::<http::StatusCode>().unwrap();
        Ok::<_, Never>(Response::builder().status(status).body(Body::from("content")).unwrap())
    });
    let site = Site::with(|server| {
        let server = server.on_failure(move |failure| {
            failures.send((failure.part, failure.error.to_string())).unwrap();
        });
        server.start(answer).unwrap()
    });
    run(async {
        for protocol in PROTOCOLS {
            for status in ["100", "101", "103", "199"] {
                let response =
                    site.client(protocol).send(site.get(&format!("/{status}"))).await.unwrap();
                assert_eq!(
                    response.status(),
                    http::StatusCode::INTERNAL_SERVER_ERROR,
                    "{protocol} {status}"
                );
                assert_eq!(bytes(response).await, "", "{protocol} {status}");
                let (part, error) = failed.recv().await.unwrap();
                assert_eq!(part, FailedPart::Service);
                assert!(
                    error.starts_with(status) && error.contains("interim"),
                    "{protocol}: {error}"
                );
            }
        }
    });
    assert_eq!(site.handle().stats().count("service_errors"), 12);
}

/// A body that panics after its first piece.
struct Panicking {
    piece: Option<&'static str>,
    size: u64,
}

impl http_body::Body for Panicking {
    type Data = Bytes;
    type Error = Never;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Never>>> {
        let piece = self.piece.take().unwrap_or_else(|| panic!("broken {}", "body"));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(piece.as_bytes())))))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.size)
    }
}

#[test]
fn service_and_body_panics_are_counted_and_reported() {
    let (failures, mut failed) = mpsc::unbounded_channel();
    let answer = service_fn(|request: Request<Body>| {
        let path = request.uri().path().to_owned();
        assert_ne!(path, "/call", "broken call");
        async move {
            match &path[..] {
                "/service" => panic!("broken service"),
                "/first" => Ok::<_, Never>(Response::new(Panicking { piece: None, size: 8 })),
                "/small" => Ok(Response::new(Panicking { piece: Some("half"), size: 8 })),
                _ => Ok(Response::new(Panicking { piece: Some("half"), size: 1 << 20 })),
            }
        }
    });
    let site = Site::with(|server| {
        let server = server.on_failure(move |failure| {
            assert!(failure.error.is::<Panicked>());
            failures.send((failure.uri.path().to_owned(), failure.to_string())).unwrap();
        });
        server.start(answer).unwrap()
    });
    run(async {
        for protocol in PROTOCOLS {
            for path in ["/call", "/service", "/first", "/small", "/large"] {
                if let Ok(response) = site.client(protocol).send(site.get(path)).await {
                    let status = response.status();
                    let collected = response.into_body().collect().await;
                    assert!(
                        collected.is_err() || status == http::StatusCode::INTERNAL_SERVER_ERROR,
                        "{protocol} {path}: {status}"
                    );
                }
                let (of, told) = failed.recv().await.unwrap();
                assert_eq!(of, path, "{protocol}");
                let says = match path {
                    "/call" => ("the service failed: panicked: ", "broken call"),
                    "/service" => ("the service failed: panicked: ", "broken service"),
                    _ => ("the body of the response failed: panicked: ", "broken body"),
                };
                assert!(
                    told.contains(says.0) && told.contains(says.1),
                    "{protocol} {path}: {told}"
                );
            }
        }
        // Panics are counted at the end of the worker's turn.
        eventually(|| async { site.handle().stats().count("handler_panics") == 15 }).await;
    });
    assert!(failed.try_recv().is_err());
    let stats = site.handle().stats();
    assert_eq!((stats.count("service_errors"), stats.count("body_errors")), (0, 0));
}

/// Pieces of a body, and the size that it announces.
struct BodyWithHint {
    pieces: Vec<&'static str>,
    size: Option<u64>,
}

impl http_body::Body for BodyWithHint {
    type Data = Bytes;
    type Error = Never;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Never>>> {
        Poll::Ready(
            self.pieces.pop().map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes())))),
        )
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.size.map_or_else(http_body::SizeHint::default, http_body::SizeHint::with_exact)
    }
}

#[test]
fn body_of_wrong_length_is_counted_and_reported() {
    const SHORT: &str = "the body ended after 4 of 10 announced bytes";
    const LONG: &str = "the body is longer than the 10 announced bytes";
    let (failures, mut failed) = mpsc::unbounded_channel();
    let answer = service_fn(|request: Request<Body>| async move {
        let (pieces, is_hint) = match request.uri().path() {
            "/fits" => (vec!["world", "hello"], false),
            "/short" => (vec!["half"], false),
            "/long" => (vec!["six bytes", "hello"], false),
            "/short-hint" => (vec!["half"], true),
            _ => (vec!["six bytes", "hello"], true),
        };
        let mut response = Response::new(BodyWithHint { pieces, size: is_hint.then_some(10) });
        if !is_hint {
            response.headers_mut().insert("content-length", http::HeaderValue::from_static("10"));
        }
        Ok::<_, Never>(response)
    });
    let site = Site::with(|server| {
        let server = server.on_failure(move |failure| {
            failures.send((failure.part, failure.error.to_string())).unwrap();
        });
        server.start(answer).unwrap()
    });
    run(async {
        for protocol in PROTOCOLS {
            for (path, error) in
                [("/short", SHORT), ("/long", LONG), ("/short-hint", SHORT), ("/long-hint", LONG)]
            {
                if let Ok(response) = site.client(protocol).send(site.get(path)).await {
                    let collected = response.into_body().collect().await;
                    assert!(collected.is_err(), "{protocol} {path}: {collected:?}");
                }
                assert_eq!(
                    failed.recv().await,
                    Some((FailedPart::Body, error.to_owned())),
                    "{protocol} {path}"
                );
            }
            let client = site.client(protocol);
            assert_eq!(site.text(&client, "/fits").await, "helloworld", "{protocol}");
            let head = client
                .send(Request::head(site.url("/short")).body(Body::empty()).unwrap())
                .await
                .unwrap();
            assert_eq!(head.headers()["content-length"], "10", "{protocol}");
        }
        // A connection's counters are added when it ends.
        eventually(|| async { site.handle().stats().open_connections() == 0 }).await;
    });
    assert!(failed.try_recv().is_err());
    let stats = site.handle().stats();
    let counts = ["body_errors", "service_errors", "handler_panics", "tcp_protocol_errors"]
        .map(|name| stats.count(name));
    assert_eq!(counts, [12, 0, 0, 0]);
}
