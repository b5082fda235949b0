//! The client: protocol selection, retries and timeouts.

use std::cell::OnceCell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::{Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use pronghorn_engine::{Config, Group, Handler, Listener, Responder, Worker, Workers};
use pronghorn_server::client::{Error, Http3, Options, Phase, Pool, Resolve};
use pronghorn_server::{AltSvc, Body, Client, Protocol};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{PROTOCOLS, Site, eventually, run};

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

/// Returns the HTTP version of the response to a request.
async fn version(client: &Client, url: &str) -> Version {
    let response = client.send(Request::get(url).body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    response.version()
}

#[test]
fn http3_is_used_after_an_alt_svc_response() {
    let site = Site::new(hello());
    run(async {
        let client = Client::with_options(&site.any(), 1).unwrap();
        assert_eq!(version(&client, &site.url("/")).await, Version::HTTP_2);
        eventually(async || version(&client, &site.url("/")).await == Version::HTTP_3).await;
        // Later requests use HTTP/3 too.
        assert_eq!(version(&client, &site.url("/")).await, Version::HTTP_3);
    });
}

#[test]
fn request_of_another_version_is_forwarded() {
    let site = Site::new(hello());
    for protocol in PROTOCOLS {
        run(async {
            for version in [Version::HTTP_11, Version::HTTP_2, Version::HTTP_3] {
                let mut request = site.get("/");
                *request.version_mut() = version;
                let response = site.client(protocol).send(request).await.unwrap();
                assert_eq!(response.status(), StatusCode::OK, "{version:?} over {protocol}");
            }
        });
    }
}

#[test]
fn unresponsive_http3_endpoint_fails_no_request() {
    // Receives datagrams and never answers.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let site = Site::with(|server| {
        server
            .alt_svc(AltSvc::Value(format!("h3=\":{port}\"").parse().unwrap()))
            .start(hello())
            .unwrap()
    });
    run(async {
        let client = Client::with_options(&site.any(), 1).unwrap();
        for _ in 0..5 {
            assert_eq!(version(&client, &site.url("/")).await, Version::HTTP_2);
        }
    });
    // The client has tried HTTP/3.
    silent.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert!(silent.recv(&mut [0; 1500]).unwrap() >= 1200);
}

/// Returns a TCP port that forwards to `to`, with a silent UDP port of the same number.
async fn tcp_only(to: SocketAddr) -> (SocketAddr, UdpSocket) {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let Ok(silent) = UdpSocket::bind(address) else { continue };
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut far = tokio::net::TcpStream::connect(to).await.unwrap();
                    drop(tokio::io::copy_bidirectional(&mut near, &mut far).await);
                });
            }
        });
        return (address, silent);
    }
}

#[test]
fn client_falls_back_to_tcp_and_remembers_blocked_udp() {
    let site = Site::with(|server| server.alt_svc(AltSvc::Off).start(hello()).unwrap());
    run(async {
        let (address, silent) = tcp_only(site.address).await;
        let options = Options {
            http3: Http3::First,
            http3_head_start: Duration::from_millis(50),
            connect_timeout: Duration::from_secs(5),
            tcp: Some(Protocol::Http1),
            ..site.any()
        };
        let client = Client::with_options(&options, 1).unwrap();
        let url = format!("https://localhost:{}/", address.port());
        assert_eq!(version(&client, &url).await, Version::HTTP_11);
        silent.set_nonblocking(true).unwrap();
        assert!(silent.recv(&mut [0; 1500]).is_ok(), "HTTP/3 was tried");
        assert_eq!(version(&client, &url).await, Version::HTTP_11);
        // Where HTTP/3 answers, it is used immediately.
        let client = Client::with_options(
            &Options { http3_head_start: Duration::from_secs(30), ..options },
            1,
        )
        .unwrap();
        assert_eq!(version(&client, &site.url("/")).await, Version::HTTP_3);
    });
}

#[test]
fn connections_are_reused() {
    let site = Site::new(hello());
    run(async {
        for protocol in PROTOCOLS {
            let stats = || site.handle().stats();
            let before = stats().count("tcp_accepted") + stats().count("quic_accepted");
            let client = site.client(protocol);
            for _ in 0..10 {
                site.text(&client, "/").await;
            }
            assert_eq!(
                stats().count("tcp_accepted") + stats().count("quic_accepted") - before,
                1,
                "{protocol}"
            );
        }
    });
}

#[test]
fn requests_wait_at_the_connection_limit() {
    let site = Site::new(hello());
    run(async {
        let options = Options { connections_per_origin: 2, ..site.options(Protocol::Http1) };
        let client = Client::with_options(&options, 1).unwrap();
        let asking: Vec<_> = (0..20)
            .map(|_| {
                let (client, request) = (client.clone(), site.get("/"));
                tokio::spawn(async move {
                    client
                        .send(request)
                        .await
                        .unwrap()
                        .into_body()
                        .collect()
                        .await
                        .unwrap()
                        .to_bytes()
                })
            })
            .collect();
        for answer in asking {
            assert_eq!(answer.await.unwrap(), "hello");
        }
        assert!(site.handle().stats().count("tcp_accepted") <= 2);
    });
}

#[test]
fn requests_beyond_the_queue_limit_fail_immediately() {
    let site = Site::new(Router::new().route("/", get(std::future::pending::<()>)));
    run(async {
        let options = Options {
            connections_per_origin: 1,
            waiting_per_origin: 1,
            ..site.options(Protocol::Http1)
        };
        let client = Client::with_options(&options, 1).unwrap();
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..3 {
            let (client, request) = (client.clone(), site.get("/"));
            asking.spawn(async move { client.send(request).await.map(drop) });
        }
        assert!(matches!(asking.join_next().await.unwrap().unwrap(), Err(Error::Busy(_))));
    });
}

/// A cleartext HTTP/1.1 server that answers the first request of each connection and closes the
/// connection at the second.
async fn closes_at_the_second(requests: Arc<AtomicUsize>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let requests = requests.clone();
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                for answers in [true, false] {
                    if stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                        requests.fetch_add(1, Ordering::Relaxed);
                        if answers {
                            stream
                                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                                .await
                                .unwrap();
                        }
                    }
                }
            });
        }
    });
    address
}

#[test]
fn only_idempotent_requests_are_retried_when_a_reused_connection_closes() {
    run(async {
        let requests = Arc::<AtomicUsize>::default();
        let address = closes_at_the_second(requests.clone()).await;
        let client = Client::with_options(&Options::default(), 1).unwrap();
        let send = async |request: http::request::Builder| {
            let request = request.uri(format!("http://{address}/")).body(Body::empty()).unwrap();
            client
                .send(request)
                .await
                .map(Response::into_body)?
                .collect()
                .await
                .map_err(|_| Error::Ended)
        };
        send(Request::builder()).await.unwrap();
        // The server closes the connection, and the request is retried on another one.
        send(Request::builder()).await.unwrap();
        assert_eq!(requests.load(Ordering::Relaxed), 3);
        let failed = send(Request::builder().method("POST")).await.unwrap_err();
        assert!(!failed.is_unprocessed(), "{failed}");
        assert_eq!(requests.load(Ordering::Relaxed), 4);
    });
}

#[test]
fn each_phase_has_its_timeout() {
    async fn stalled() -> Response<axum::body::Body> {
        let one = tokio_stream::once(Ok::<_, std::convert::Infallible>("one"));
        Response::new(axum::body::Body::from_stream(tokio_stream::StreamExt::chain(
            one,
            tokio_stream::pending(),
        )))
    }
    let site = Site::new(
        Router::new().route("/head", get(std::future::pending::<()>)).route("/body", get(stalled)),
    );
    let soon = Duration::from_millis(100);
    run(async {
        for protocol in PROTOCOLS {
            let options = Options { head_timeout: soon, ..site.options(protocol) };
            let late = Client::with_options(&options, 1)
                .unwrap()
                .send(site.get("/head"))
                .await
                .unwrap_err();
            assert!(matches!(late, Error::TimedOut(Phase::Head)), "{protocol}: {late}");
            let options = Options { body_timeout: soon, ..site.options(protocol) };
            let client = Client::with_options(&options, 1).unwrap();
            let mut body = client.send(site.get("/body")).await.unwrap().into_body();
            let late = loop {
                if let Err(late) = body.frame().await.unwrap() {
                    break late;
                }
            };
            assert!(
                late.downcast_ref::<Error>().is_some_and(Error::is_timeout),
                "{protocol}: {late}"
            );
        }
        // Accepts connections and never answers.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = Options { connect_timeout: soon, ..site.options(Protocol::Http2) };
        let url = format!("https://localhost:{}/", silent.local_addr().unwrap().port());
        let request = Request::get(url).body(Body::empty()).unwrap();
        let late = Client::with_options(&options, 1).unwrap().send(request).await.unwrap_err();
        assert!(matches!(late, Error::TimedOut(Phase::Connect)), "{late}");
    });
}

#[test]
fn client_is_a_tower_service() {
    use tower::ServiceExt;
    let site = Site::new(hello());
    run(async {
        let client = site.client(Protocol::Http3);
        let response = client.oneshot(site.get("/")).await.unwrap();
        assert_eq!(response.version(), Version::HTTP_3);
    });
}

#[test]
fn server_with_an_untrusted_certificate_is_refused() {
    let site = Site::new(hello());
    run(async {
        for protocol in PROTOCOLS {
            let options = Options { roots: Options::default().roots, ..site.options(protocol) };
            let refused =
                Client::with_options(&options, 1).unwrap().send(site.get("/")).await.unwrap_err();
            assert!(refused.is_unprocessed(), "{protocol}: {refused}");
        }
    });
}

#[test]
fn next_address_of_a_name_is_tried_when_one_does_not_answer() {
    let site = Site::new(hello());
    run(async {
        for protocol in PROTOCOLS {
            // No server listens at the first address: TCP is refused, and UDP is silent.
            let addresses = |port| {
                [(Ipv4Addr::new(127, 0, 0, 2), port).into(), (Ipv4Addr::LOCALHOST, port).into()]
            };
            let resolve = Resolve::new(move |_, port| async move { Ok(addresses(port).to_vec()) });
            let options = Options {
                resolve,
                address_head_start: Duration::from_millis(20),
                ..site.options(protocol)
            };
            let client = Client::with_options(&options, 1).unwrap();
            assert_eq!(site.text(&client, "/").await, "hello", "{protocol}");
        }
    });
}

#[test]
fn host_without_addresses_is_named_in_the_error() {
    let site = Site::new(hello());
    run(async {
        for protocol in PROTOCOLS {
            let resolve = Resolve::new(|_, _| async { Ok(Vec::new()) });
            let client =
                Client::with_options(&Options { resolve, ..site.options(protocol) }, 1).unwrap();
            let error = client.send(site.get("/")).await.unwrap_err();
            assert!(matches!(&error, Error::Lookup { host, .. } if host == "localhost"), "{error}");
            assert!(error.is_unprocessed());
        }
    });
}

#[test]
fn client_ends_with_its_last_clone_and_its_last_response() {
    let site = Site::new(hello());
    run(async {
        for protocol in PROTOCOLS {
            let alive = Arc::new(());
            let held = alive.clone();
            let resolve = Resolve::new(move |_, port| {
                let _held = held.clone();
                async move { Ok(vec![(Ipv4Addr::LOCALHOST, port).into()]) }
            });
            let client =
                Client::with_options(&Options { resolve, ..site.options(protocol) }, 1).unwrap();
            let clone = client.clone();
            drop(client);
            let response = clone.send(site.get("/")).await.unwrap();
            drop(clone);
            // Data in flight still arrives.
            assert_eq!(crate::support::text(response).await, "hello", "{protocol}");
            // The thread's pool keeps it as long as the pool exists.
            eventually(async || Arc::strong_count(&alive) == 1).await;
        }
        // The server sees the connections close.
        eventually(async || site.handle().stats().open_connections() == 0).await;
    });
}

/// Forwards each worker's requests to the upstream, over connections of that worker.
struct Proxy {
    pool: OnceCell<Pool>,
    options: Options,
    behind: String,
}

impl Handler for Proxy {
    fn start(&self, worker: &mut Worker) -> io::Result<()> {
        assert!(self.pool.set(Pool::new(worker, self.options.clone())?).is_ok());
        Ok(())
    }

    fn handle(&self, _: pronghorn_engine::Request, responder: Responder) {
        let (pool, behind) = (self.pool.get().cloned().unwrap(), self.behind.clone());
        responder.respond(async move {
            let request = Request::get(behind).body(pronghorn_engine::Body::empty()).unwrap();
            pool.send(request).await.unwrap().map(pronghorn_engine::Body::stream).into()
        });
    }
}

#[test]
fn pool_works_on_the_workers_of_a_server() {
    let site = Site::new(hello());
    run(async {
        for protocol in PROTOCOLS {
            let listener = Listener::clear((Ipv4Addr::LOCALHOST, 0).into(), 2, None).unwrap();
            let front = listener.address();
            let (options, behind) = (site.options(protocol), site.url("/"));
            let proxy = move |_| Proxy {
                pool: OnceCell::new(),
                options: options.clone(),
                behind: behind.clone(),
            };
            let workers =
                Workers::start(Group::new(2), vec![listener], None, &Config::default(), proxy)
                    .unwrap();
            for _ in 0..8 {
                let client = Client::with_options(&Options::default(), 1).unwrap();
                let request = Request::get(format!("http://{front}/")).body(Body::empty()).unwrap();
                assert_eq!(
                    crate::support::text(client.send(request).await.unwrap()).await,
                    "hello",
                    "{protocol}"
                );
            }
            workers.shut_down(Duration::ZERO);
            workers.finished().await;
            workers.join().unwrap();
        }
    });
}

#[test]
fn refused_connection_is_reported_after_an_http3_attempt() {
    run(async {
        // A port that is free again.
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let options = Options {
            http3: Http3::First,
            connect_timeout: Duration::from_secs(50),
            ..Options::default()
        };
        let client = Client::with_options(&options, 1).unwrap();
        let request = Request::get(format!("https://{address}/")).body(Body::empty()).unwrap();
        let error = client.send(request).await.unwrap_err();
        assert!(
            matches!(&error, Error::Exchange(error) if matches!(**error, pronghorn_engine::Error::Connect { .. })),
            "{error}"
        );
    });
}
