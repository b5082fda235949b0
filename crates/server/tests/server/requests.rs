//! Requests as a service sees them, and the handling of its response.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use http::{Request, Response, StatusCode, Uri, Version};
use http_body_util::BodyExt;
use pronghorn_engine::Resumption;
use pronghorn_server::{Body, EarlyData, Peer, Protocol};
use tokio::sync::Notify;
use tower::service_fn;

use crate::support::{Never, PROTOCOLS, Site, eventually, run, text};

#[test]
fn service_receives_version_client_and_target() {
    async fn tell(
        peer: Peer,
        ConnectInfo(address): ConnectInfo<SocketAddr>,
        uri: Uri,
        request: Request<axum::body::Body>,
    ) -> String {
        assert_eq!(peer.remote, address);
        format!(
            "{:?} {} {} {} {}",
            request.version(),
            peer.protocol,
            peer.secure,
            address.ip(),
            uri.path()
        )
    }
    let site = Site::new(Router::new().route("/{*path}", get(tell)));
    run(async {
        for (protocol, version) in
            PROTOCOLS.into_iter().zip([Version::HTTP_11, Version::HTTP_2, Version::HTTP_3])
        {
            let client = site.client(protocol);
            let response = client.send(site.get("/a/b?c")).await.unwrap();
            assert_eq!(response.version(), version);
            assert_eq!(text(response).await, format!("{version:?} {protocol} true 127.0.0.1 /a/b"));
        }
    });
}

#[test]
fn service_receives_the_server_name() {
    async fn tell(peer: Peer) -> String {
        peer.server_name.map_or_else(|| "no name".to_owned(), |name| name.to_string())
    }
    let site = Site::new(Router::new().route("/", get(tell)));
    run(async {
        for protocol in PROTOCOLS {
            for (host, name) in
                [("localhost", "localhost"), ("LocalHost", "localhost"), ("127.0.0.1", "no name")]
            {
                // A separate client each, so that no connection is reused.
                let url = format!("https://{host}:{}/", site.address.port());
                let response = site
                    .client(protocol)
                    .send(Request::get(url).body(Body::empty()).unwrap())
                    .await
                    .unwrap();
                assert_eq!(text(response).await, name, "{protocol} {host}");
            }
        }
    });
}

#[test]
fn json_goes_both_ways() {
    async fn double(Json(numbers): Json<Vec<u64>>) -> Json<Vec<u64>> {
        Json(numbers.iter().map(|number| number * 2).collect())
    }
    let site = Site::new(Router::new().route("/", post(double)));
    run(async {
        for protocol in PROTOCOLS {
            let request = Request::post(site.url("/"))
                .header("content-type", "application/json")
                .body(Body::from("[1,2,3]"))
                .unwrap();
            let response = site.client(protocol).send(request).await.unwrap();
            assert_eq!(response.headers()["content-length"], "7", "{protocol}");
            assert_eq!(text(response).await, "[2,4,6]", "{protocol}");
        }
    });
}

#[test]
fn handler_runs_in_tokio_with_timers_tasks_and_threads() {
    async fn work() -> String {
        let task = tokio::spawn(async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            tokio::time::timeout(Duration::from_millis(1), std::future::pending::<()>())
                .await
                .is_err()
        });
        let blocked =
            tokio::task::spawn_blocking(|| std::thread::current().name().map(str::to_owned))
                .await
                .unwrap();
        format!(
            "{} {}",
            task.await.unwrap(),
            blocked != std::thread::current().name().map(str::to_owned)
        )
    }
    let site = Site::new(Router::new().route("/", get(work)));
    run(async {
        for protocol in PROTOCOLS {
            assert_eq!(site.text(&site.client(protocol), "/").await, "true true", "{protocol}");
        }
    });
}

#[test]
fn panicking_handler_gives_500_and_the_next_request_is_served() {
    async fn panic() {
        panic!("as the test asks");
    }
    let site =
        Site::new(Router::new().route("/", get(|| async { "fine" })).route("/panic", get(panic)));
    run(async {
        for protocol in PROTOCOLS {
            let client = site.client(protocol);
            let response = client.send(site.get("/panic")).await.unwrap();
            assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR, "{protocol}");
            drop(response);
            assert_eq!(site.text(&client, "/").await, "fine", "{protocol}");
        }
    });
    assert_eq!(site.handle().stats().count("handler_panics"), 3);
}

#[test]
fn failing_service_gives_500() {
    let failing =
        service_fn(|_: Request<Body>| async { Err::<Response<Body>, _>("as the test asks") });
    let site = Site::with(|server| server.start(failing).unwrap());
    run(async {
        for protocol in PROTOCOLS {
            let response = site.client(protocol).send(site.get("/")).await.unwrap();
            assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR, "{protocol}");
        }
    });
}

#[test]
fn service_is_called_only_when_ready() {
    #[derive(Clone, Default)]
    struct Busy {
        now: Arc<AtomicUsize>,
        most: Arc<AtomicUsize>,
        began: Arc<Notify>,
        release: Arc<Notify>,
    }
    let busy = Busy::default();
    let work = {
        let busy = busy.clone();
        move |_: Request<Body>| {
            let busy = busy.clone();
            async move {
                let now = busy.now.fetch_add(1, Ordering::SeqCst) + 1;
                busy.most.fetch_max(now, Ordering::SeqCst);
                busy.began.notify_one();
                busy.release.notified().await;
                busy.now.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, Never>(Response::new(Body::from("done")))
            }
        }
    };
    let limited = tower::limit::ConcurrencyLimit::new(service_fn(work), 1);
    let site = Site::with(|server| server.start(limited).unwrap());
    run(async {
        let client = site.client(Protocol::Http2);
        let both = async { tokio::join!(client.send(site.get("/")), client.send(site.get("/"))) };
        let release = async {
            for _ in 0..2 {
                busy.began.notified().await;
                busy.release.notify_one();
            }
        };
        let ((one, other), ()) = tokio::join!(both, release);
        assert!(one.is_ok() && other.is_ok());
    });
    assert_eq!(busy.most.load(Ordering::SeqCst), 1);
}

#[test]
fn early_data_request_is_marked_and_can_be_refused() {
    async fn early(peer: Peer) -> String {
        peer.early_data.to_string()
    }
    fn refuse(
        Extension(peer): Extension<Peer>,
        Extension(early): Extension<Arc<AtomicUsize>>,
    ) -> axum::response::Response {
        early.fetch_add(usize::from(peer.early_data), Ordering::Relaxed);
        drop(early);
        peer.refuse_early()
            .unwrap_or_else(|| Response::new(Body::from("on time")))
            .map(axum::body::Body::new)
    }
    let refused = Arc::<AtomicUsize>::default();
    let seen = Extension(refused.clone());
    let app = Router::new()
        .route("/", get(early))
        .route("/once", get(async |peer, seen| refuse(peer, seen)))
        .layer(seen);
    let site = Site::with(|server| server.early_data(EarlyData::All).start(app).unwrap());
    // Each unused connection is closed, and the next one starts with early data.
    let options = || pronghorn_server::client::Options {
        resumption: Resumption::EarlyData,
        idle_timeout: Duration::from_millis(1),
        ..site.options(Protocol::Http3)
    };
    run(async {
        let client = pronghorn_server::Client::with_options(&options(), 1).unwrap();
        assert_eq!(site.text(&client, "/").await, "false");
        eventually(async || site.text(&client, "/").await == "true").await;
        eventually(async || {
            // The client repeats the request after the handshake.
            assert_eq!(site.text(&client, "/once").await, "on time");
            refused.load(Ordering::Relaxed) > 0
        })
        .await;
    });
}

#[test]
fn head_response_has_content_length_and_no_content() {
    let site = Site::new(Router::new().route("/", get(|| async { "hello" })));
    run(async {
        for protocol in PROTOCOLS {
            let request = Request::head(site.url("/")).body(Body::empty()).unwrap();
            let response = site.client(protocol).send(request).await.unwrap();
            assert_eq!(response.headers()["content-length"], "5", "{protocol}");
            assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
        }
    });
}

#[test]
fn stats_count_requests_of_all_workers() {
    let site = Site::new(Router::new().route("/", get(|| async { "hello" })));
    run(async {
        for protocol in PROTOCOLS {
            site.text(&site.client(protocol), "/").await;
        }
    });
    let stats = site.handle().stats();
    let each = ["requests_http1", "requests_http2", "requests_http3"].map(|name| stats.count(name));
    assert_eq!((each, stats.requests()), ([1, 1, 1], 3));
    assert_eq!(stats.count("no such counter"), 0);
}
