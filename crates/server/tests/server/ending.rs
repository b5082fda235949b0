//! Graceful shutdown, and certificate changes.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::{Request, StatusCode};
use pronghorn_server::{Body, Client};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::support::{PROTOCOLS, Site, options, run, text};

const LONG: Duration = Duration::from_secs(300);

/// A page that responds when notified.
fn slow() -> (Router, mpsc::UnboundedReceiver<()>, Arc<Notify>) {
    let (began, beginning) = mpsc::unbounded_channel();
    let release = Arc::<Notify>::default();
    let released = release.clone();
    let page = async move || {
        began.send(()).unwrap();
        released.notified().await;
        "finished"
    };
    (Router::new().route("/", get(page)), beginning, release)
}

#[test]
fn shutdown_finishes_running_requests() {
    for protocol in PROTOCOLS {
        let (app, mut beginning, release) = slow();
        let site = Site::new(app);
        run(async {
            let (client, request) = (site.client(protocol), site.get("/"));
            let asking =
                tokio::spawn(async move { text(client.send(request).await.unwrap()).await });
            beginning.recv().await.unwrap();
            site.handle().shut_down(LONG);
            release.notify_one();
            assert_eq!(asking.await.unwrap(), "finished", "{protocol}");
            site.running.finished().await.unwrap();
        });
    }
}

/// Behaves like a database connection pool, which spawns a task when the user of a connection is
/// dropped.
struct SpawnsAtItsEnd(mpsc::UnboundedSender<()>);

impl Drop for SpawnsAtItsEnd {
    fn drop(&mut self) {
        let told = self.0.clone();
        tokio::spawn(async move { drop(told) });
        self.0.send(()).unwrap();
    }
}

#[test]
fn aborted_handler_may_spawn_in_its_destructor() {
    for protocol in PROTOCOLS {
        let (began, mut beginning) = mpsc::unbounded_channel();
        let (ended, mut ending) = mpsc::unbounded_channel();
        let page = async move || {
            let _kept = SpawnsAtItsEnd(ended.clone());
            began.send(()).unwrap();
            std::future::pending::<()>().await;
        };
        let site = Site::new(Router::new().route("/", get(page)));
        run(async {
            let (client, request) = (site.client(protocol), site.get("/"));
            let asking = tokio::spawn(async move { client.send(request).await.map(drop) });
            beginning.recv().await.unwrap();
            site.handle().shut_down(Duration::ZERO);
            site.running.finished().await.unwrap();
            ending.recv().await.unwrap();
            assert!(asking.await.unwrap().is_err(), "{protocol}");
        });
    }
}

#[test]
fn signal_ends_the_server_with_its_grace_period() {
    let (app, mut beginning, release) = slow();
    let (tell, told) = oneshot::channel::<()>();
    let site = Site::with(|server| {
        let server = server.grace_period(LONG).with_graceful_shutdown(async {
            let _ = told.await;
        });
        server.start(app).unwrap()
    });
    run(async {
        let (client, request) = (site.client(PROTOCOLS[2]), site.get("/"));
        let asking = tokio::spawn(async move { text(client.send(request).await.unwrap()).await });
        let finished = tokio::spawn(site.running.finished());
        beginning.recv().await.unwrap();
        assert!(!finished.is_finished());
        tell.send(()).unwrap();
        release.notify_one();
        assert_eq!(asking.await.unwrap(), "finished");
        finished.await.unwrap().unwrap();
    });
}

#[test]
fn request_beyond_the_grace_period_is_dropped() {
    for protocol in PROTOCOLS {
        let (app, mut beginning, _release) = slow();
        let site = Site::new(app);
        run(async {
            let (client, request) = (site.client(protocol), site.get("/"));
            let asking = tokio::spawn(async move { client.send(request).await.map(drop) });
            beginning.recv().await.unwrap();
            site.handle().shut_down(Duration::ZERO);
            assert!(asking.await.unwrap().is_err(), "{protocol}");
            site.running.finished().await.unwrap();
        });
    }
}

#[test]
fn serving_ends_when_its_future_is_dropped() {
    let certificate = tempfile::tempdir().unwrap();
    run(async {
        let (began, beginning) = oneshot::channel();
        let server = pronghorn_server::Server::new()
            .listen("127.0.0.1:0")
            .development_certificate_in(certificate.path());
        let running = server.start(Router::new()).unwrap();
        let address = running.local_addresses()[0].address;
        let serving = tokio::spawn(async move {
            began.send(()).unwrap();
            running.finished().await
        });
        beginning.await.unwrap();
        serving.abort();
        // The port becomes free.
        crate::support::eventually(async || std::net::TcpListener::bind(address).is_ok()).await;
    });
}

#[test]
fn new_certificate_applies_to_new_connections_only() {
    let site = Site::new(Router::new().route("/", get(|| async { "hello" })));
    let other = tempfile::tempdir().unwrap();
    // Created by another server, which is no longer used.
    drop(Site::with(|server| {
        server.development_certificate_in(other.path()).start(Router::new()).unwrap()
    }));
    run(async {
        let asked: Vec<_> = PROTOCOLS.into_iter().map(|protocol| site.client(protocol)).collect();
        for client in &asked {
            site.text(client, "/").await;
        }
        let accepted = |stats: &pronghorn_server::Stats| {
            stats.count("tcp_accepted") + stats.count("quic_accepted")
        };
        let before = accepted(&site.handle().stats());
        site.handle()
            .set_certificate_files(other.path().join("cert.pem"), other.path().join("key.pem"))
            .unwrap();
        // Workers switch at their next turn, which another connection triggers.
        for protocol in PROTOCOLS {
            let trusting = pronghorn_server::client::Options {
                roots: options(&other).roots,
                ..site.options(protocol)
            };
            crate::support::eventually(async || {
                let client = Client::with_options(&trusting, 1).unwrap();
                let request = Request::get(site.url("/")).body(Body::empty()).unwrap();
                client.send(request).await.is_ok_and(|response| response.status() == StatusCode::OK)
            })
            .await;
            let strict = site.client(protocol);
            assert!(
                strict.send(site.get("/")).await.is_err(),
                "{protocol}: the old certificate is still used"
            );
        }
        let opened = accepted(&site.handle().stats());
        for client in &asked {
            site.text(client, "/").await;
        }
        assert!(opened > before);
        assert_eq!(accepted(&site.handle().stats()), opened, "existing connections were kept");
    });
}
