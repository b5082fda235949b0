//! WebTransport sessions of a service, with the engine's client on a separate worker.

mod ending;
mod requests;
mod streams;

use std::future::Future;
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use http::{HeaderMap, Request, StatusCode, Uri};
use pronghorn_engine as engine;
use pronghorn_engine::{
    Config, Connection, Group, Protocol, Resumption, Target, Worker, embed_in_tokio,
};
use pronghorn_server::webtransport::{RecvStream, SessionStreamError};
use pronghorn_server::{Limits, WebTransport, WebTransportUpgrade};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::sync::mpsc;

use crate::support::{Site, run};

/// Returns a site that passes each session at `/` to the test.
fn site(limits: Limits) -> (Site, mpsc::UnboundedReceiver<WebTransport>) {
    let (give, sessions) = mpsc::unbounded_channel();
    let enter = async move |upgrade: WebTransportUpgrade| {
        upgrade.on_session(async move |session| drop(give.send(session)))
    };
    let app = Router::new().route("/", any(enter)).route("/hello", any(async || "hello"));
    (Site::with(|server| server.limits(limits).webtransport().start(app).unwrap()), sessions)
}

/// How a client reaches a site.
struct To {
    target: Target,
    trust: rustls::ClientConfig,
}

fn to(site: &Site) -> To {
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(site.certificate.path().join("cert.pem")).unwrap())
        .unwrap();
    let trust = rustls::ClientConfig::builder_with_provider(engine::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (protocol, resumption) = (Some(Protocol::Http3), Resumption::Off);
    let target = Target {
        remote: site.address,
        server_name: "localhost".to_owned(),
        protocol,
        secure: true,
        resumption,
    };
    To { target, trust }
}

/// Runs `test` with a connection, next to the connection's worker.
fn with_connection<T: 'static>(to: To, test: impl AsyncFnOnce(Connection) -> T + 'static) -> T {
    let To { target, trust } = to;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { webtransport: true, ..Config::default() };
    let refuse = |_, responder: engine::Responder| drop(responder);
    let mut worker = Worker::new(0, &Group::new(1), config, refuse).unwrap();
    let connector = worker.connector(&trust).unwrap();
    let test = async move { test(connector.connect(&target).await.unwrap()).await };
    let serve = embed_in_tokio(&mut worker, |_, _| false);
    runtime.block_on(async {
        tokio::select! {
            result = tokio::time::timeout(Duration::from_secs(60), test) => result.expect("the test timed out"),
            ended = serve => panic!("the client's worker has ended: {ended:?}"),
        }
    })
}

fn uri(path: &str) -> Uri {
    format!("https://localhost{path}").parse().unwrap()
}

/// Returns the client's session and the service's.
async fn sessions(
    connection: &mut Connection,
    accepted: &mut mpsc::UnboundedReceiver<WebTransport>,
) -> (engine::WebTransport, WebTransport) {
    let client =
        engine::WebTransport::connect(connection, uri("/"), HeaderMap::new()).await.unwrap();
    (client, accepted.recv().await.unwrap())
}

async fn read_to_end(mut stream: RecvStream) -> Result<Vec<u8>, SessionStreamError> {
    let mut content = Vec::new();
    while let Some(piece) = stream.read().await? {
        content.extend_from_slice(&piece);
    }
    Ok(content)
}

async fn engine_read_to_end(mut stream: engine::RecvStream) -> Result<Vec<u8>, SessionStreamError> {
    let mut content = Vec::new();
    while let Some(piece) = stream.read().await? {
        content.extend_from_slice(&piece);
    }
    Ok(content)
}

fn content(size: usize) -> Vec<u8> {
    (0..size).map(|place| (place ^ ((place >> 8) * 31)) as u8).collect()
}

/// Runs the application on a thread that is neither the worker's nor the client's.
async fn elsewhere<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    tokio::task::spawn_blocking(move || run(work)).await.unwrap()
}

async fn hello(connection: &mut Connection) -> StatusCode {
    let request = Request::get(uri("/hello")).body(engine::Body::empty()).unwrap();
    connection.send(request).await.unwrap().status()
}
