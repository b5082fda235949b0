//! Common parts of the measured servers: arguments, certificate, files to serve, and the fields of
//! a comparable response (`content-type`, `content-length`, `date` and `server`).
//!
//! Files are read once at the start: the servers measure the upper bound of their libraries, not
//! file serving.

use std::cell::RefCell;
use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use std::{env, fs};

use axum::Router;
use axum::body::Body;
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::extract::{Path as RoutePath, State};
use axum::routing::{any, get};
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, DATE, SERVER};
use http::{HeaderValue, Response, StatusCode};
use quinn::crypto::rustls::QuicServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub type Failure = Box<dyn Error + Send + Sync>;

/// Arguments of a server: `ADDRESS CERTIFICATE KEY FOLDER`.
pub struct Arguments {
    pub address: SocketAddr,
    pub tls: rustls::ServerConfig,
    pub files: Files,
}

/// Returns the arguments of this process: the address, the paths of certificate and key, the files
/// to serve, and further arguments.
///
/// # Errors
///
/// If there are fewer than four arguments, or the files cannot be read.
pub fn arguments_of() -> Result<(SocketAddr, String, String, Files, Vec<String>), Failure> {
    let given: Vec<String> = env::args().skip(1).collect();
    let [address, certificate, key, folder, more @ ..] = given.as_slice() else {
        return Err("usage: ADDRESS:PORT CERTIFICATE.pem KEY.pem FOLDER".into());
    };
    Ok((
        address.parse()?,
        certificate.clone(),
        key.clone(),
        Files::read(Path::new(folder))?,
        more.to_vec(),
    ))
}

/// Like [`arguments_of`], with the certificate loaded.
///
/// # Errors
///
/// As [`arguments_of`], and if certificate or key cannot be used.
pub fn arguments(protocols: &[&[u8]]) -> Result<Arguments, Failure> {
    let (address, certificate, key, files, _) = arguments_of()?;
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let mut tls = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(Arguments { address, tls, files })
}

/// Creates a quinn server endpoint with the same stream limit as the other servers.
pub fn quic(tls: rustls::ServerConfig, address: SocketAddr) -> Result<quinn::Endpoint, Failure> {
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    let mut transport = quinn::TransportConfig::default();
    transport.max_concurrent_bidi_streams(256_u32.into());
    config.transport_config(Arc::new(transport));
    Ok(quinn::Endpoint::server(config, address)?)
}

/// Files of a folder by URL path.
pub struct Files(HashMap<String, Bytes>);

impl Files {
    fn read(folder: &Path) -> Result<Self, Failure> {
        let mut files = HashMap::new();
        for entry in fs::read_dir(folder)? {
            let path: PathBuf = entry?.path();
            if let (true, Some(name)) =
                (path.is_file(), path.file_name().and_then(|name| name.to_str()))
            {
                files.insert(format!("/{name}"), Bytes::from(fs::read(&path)?));
            }
        }
        Ok(Self(files))
    }

    /// Returns the response head and the body for this path.
    pub fn answer(&self, path: &str) -> (Response<()>, Bytes) {
        let (status, body) = match self.0.get(path) {
            Some(body) => (StatusCode::OK, body.clone()),
            None => (StatusCode::NOT_FOUND, Bytes::new()),
        };
        let mut head = Response::new(());
        *head.status_mut() = status;
        let fields = head.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static(content_type(path)));
        fields.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        fields.insert(DATE, date());
        fields.insert(SERVER, HeaderValue::from_static("bench"));
        (head, body)
    }
}

/// Returns an axum router with the same responses, and a WebSocket at `/ws` that echoes each
/// message.
pub fn router(files: Files) -> Router {
    async fn file(
        State(files): State<Arc<Files>>,
        RoutePath(name): RoutePath<String>,
    ) -> Response<Body> {
        let (head, body) = files.answer(&format!("/{name}"));
        head.map(|()| Body::from(body))
    }
    async fn echo(mut socket: WebSocket) {
        while let Some(Ok(message)) = socket.recv().await {
            if socket.send(message).await.is_err() {
                return;
            }
        }
    }
    let files = Router::new().route("/{name}", get(file)).with_state(Arc::new(files));
    files.route("/ws", any(|upgrade: WebSocketUpgrade| async { upgrade.on_upgrade(echo) }))
}

fn content_type(path: &str) -> &'static str {
    if Path::new(path).extension().is_some_and(|extension| extension == "txt") {
        "text/plain"
    } else {
        "application/octet-stream"
    }
}

/// Returns the time in HTTP's format, formatted once a second as servers do.
fn date() -> HeaderValue {
    thread_local! {
        static LATEST: RefCell<Option<(Instant, HeaderValue)>> = const { RefCell::new(None) };
    }
    LATEST.with_borrow_mut(|latest| match latest {
        Some((made, value)) if made.elapsed() < Duration::from_secs(1) => value.clone(),
        _ => {
            let text = httpdate::fmt_http_date(SystemTime::now());
            let value = HeaderValue::try_from(text).expect(
                "invariant: an HTTP date is visible \
                ASCII",
            );
            *latest = Some((Instant::now(), value.clone()));
            value
        }
    })
}
