//! A server with its own certificate, and clients that trust it, one for each HTTP version.

use std::convert::Infallible;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use pronghorn_server::client::{Http3, Options, Resolve, Roots};
use pronghorn_server::{Body, Client, Handle, Protocol, Running, Server};
use tempfile::TempDir;

/// Timeout of a test. It only determines when a hung test fails.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const PROTOCOLS: [Protocol; 3] = [Protocol::Http1, Protocol::Http2, Protocol::Http3];

pub(crate) struct Site {
    pub(crate) running: Running,
    pub(crate) address: SocketAddr,
    pub(crate) certificate: TempDir,
}

impl Site {
    pub(crate) fn new(app: Router) -> Self {
        Self::with(|server| server.start(app).unwrap())
    }

    /// Returns a site started by `start`, from a server with an address and a certificate.
    pub(crate) fn with(start: impl FnOnce(Server) -> Running) -> Self {
        let certificate = tempfile::tempdir().unwrap();
        let server = Server::new()
            .listen((Ipv4Addr::LOCALHOST, 0))
            .development_certificate_in(certificate.path())
            .workers(2);
        let running = start(server);
        let address = running.local_addresses()[0].address;
        Self { running, address, certificate }
    }

    pub(crate) fn handle(&self) -> Handle {
        self.running.handle()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.address.port())
    }

    pub(crate) fn client(&self, protocol: Protocol) -> Client {
        Client::with_options(&self.options(protocol), 1).unwrap()
    }

    /// Returns options of a client that uses only this protocol.
    pub(crate) fn options(&self, protocol: Protocol) -> Options {
        let http3 = if protocol == Protocol::Http3 { Http3::Only } else { Http3::Off };
        Options { http3, tcp: Some(protocol), ..self.any() }
    }

    /// Returns options of a client that uses any protocol.
    pub(crate) fn any(&self) -> Options {
        options(&self.certificate)
    }

    pub(crate) fn get(&self, path: &str) -> Request<Body> {
        Request::get(self.url(path)).body(Body::empty()).unwrap()
    }

    /// Returns the text of a response, which must be 200.
    pub(crate) async fn text(&self, client: &Client, path: &str) -> String {
        let response = client.send(self.get(path)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        text(response).await
    }
}

pub(crate) fn options(certificate: &TempDir) -> Options {
    let roots = Roots::pem(std::fs::read(certificate.path().join("cert.pem")).unwrap());
    let resolve =
        Resolve::new(|_, port| async move { Ok(vec![(Ipv4Addr::LOCALHOST, port).into()]) });
    Options { roots, resolve, ..Options::default() }
}

pub(crate) async fn bytes(response: Response<Body>) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

pub(crate) async fn text(response: Response<Body>) -> String {
    String::from_utf8(bytes(response).await.to_vec()).unwrap()
}

/// Runs a test on a runtime of several threads, as `#[tokio::main]` does.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime
        .block_on(async { tokio::time::timeout(PATIENCE, test).await.expect("the test timed out") })
}

/// Polls until the condition is true.
pub(crate) async fn eventually<F: Future<Output = bool>>(mut ask: impl FnMut() -> F) {
    while !ask().await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) type Never = Infallible;
