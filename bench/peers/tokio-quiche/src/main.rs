//! HTTP/3 with tokio-quiche, on one thread, from memory: measures the upper bound of the library,
//! not file serving.
//!
//! Usage: `tokio-quiche ADDRESS:PORT CERTIFICATE.pem KEY.pem FOLDER`

use std::cell::RefCell;
use std::collections::HashMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use std::{env, fs};

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::UdpSocket;
use tokio_quiche::http3::driver::{
    H3Event, IncomingH3Headers, OutboundFrame, ServerEventStream, ServerH3Event,
};
use tokio_quiche::http3::settings::Http3Settings;
use tokio_quiche::metrics::DefaultMetrics;
use tokio_quiche::quiche::h3::{Header, NameValue as _};
use tokio_quiche::settings::{CertificateKind, Hooks, QuicSettings, TlsCertificatePaths};
use tokio_quiche::{ConnectionParams, ServerH3Driver, listen};

type Failure = Box<dyn Error + Send + Sync>;
type Files = HashMap<Vec<u8>, Bytes>;

fn main() -> Result<(), Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(serve())
}

async fn serve() -> Result<(), Failure> {
    let given: Vec<String> = env::args().skip(1).collect();
    let [address, certificate, key, folder] = given.as_slice() else {
        return Err("usage: ADDRESS:PORT CERTIFICATE.pem KEY.pem FOLDER".into());
    };
    let files = Arc::new(read(Path::new(folder))?);
    let socket = UdpSocket::bind(address).await?;
    let mut settings = QuicSettings::default();
    settings.initial_max_streams_bidi = 256;
    // No Retry for each connection, as no other contestant sends one.
    settings.disable_client_ip_validation = true;
    let certificate =
        TlsCertificatePaths { cert: certificate, private_key: key, kind: CertificateKind::X509 };
    let parameters = ConnectionParams::new_server(settings, certificate, Hooks::default());
    let mut listeners = listen([socket], parameters, DefaultMetrics)?;
    eprintln!("listening on https://{address} (h3)");
    while let Some(connection) = listeners[0].next().await {
        let Ok(connection) = connection else { continue };
        let (driver, mut controller) = ServerH3Driver::new(Http3Settings::default());
        connection.start(driver);
        let files = Arc::clone(&files);
        tokio::spawn(
            async move { serve_connection(controller.event_receiver_mut(), &files).await },
        );
    }
    Ok(())
}

fn read(folder: &Path) -> Result<Files, Failure> {
    let mut files = HashMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if let (true, Some(name)) =
            (path.is_file(), path.file_name().and_then(|name| name.to_str()))
        {
            files.insert(format!("/{name}").into_bytes(), Bytes::from(fs::read(&path)?));
        }
    }
    Ok(files)
}

async fn serve_connection(events: &mut ServerEventStream, files: &Arc<Files>) {
    while let Some(event) = events.recv().await {
        match event {
            ServerH3Event::Headers { incoming_headers, .. } => {
                let files = Arc::clone(files);
                tokio::spawn(async move { answer(incoming_headers, &files).await });
            }
            ServerH3Event::Core(H3Event::ConnectionError(_) | H3Event::ConnectionShutdown(_)) => {
                return;
            }
            ServerH3Event::Core(_) => {}
        }
    }
}

async fn answer(mut request: IncomingH3Headers, files: &Files) {
    let path = request.headers.iter().find(|field| field.name() == b":path").map(Header::value);
    let path = path.unwrap_or_default();
    let (status, body) = match files.get(path) {
        Some(body) => (b"200", body.clone()),
        None => (b"404", Bytes::new()),
    };
    let kind: &[u8] =
        if path.ends_with(b".txt") { b"text/plain" } else { b"application/octet-stream" };
    let head = vec![
        Header::new(b":status", status),
        Header::new(b"content-type", kind),
        Header::new(b"content-length", body.len().to_string().as_bytes()),
        Header::new(b"date", date().as_bytes()),
        Header::new(b"server", b"bench"),
    ];
    // The client may have disconnected; then the response is dropped.
    if request.send.send(OutboundFrame::Headers(head, None)).await.is_ok() {
        let _ = request.send.send(OutboundFrame::Body(body, true)).await;
    }
}

/// Returns the time in HTTP's format, formatted once a second as servers do.
fn date() -> String {
    thread_local! {
        static LATEST: RefCell<Option<(Instant, String)>> = const { RefCell::new(None) };
    }
    LATEST.with_borrow_mut(|latest| match latest {
        Some((made, value)) if made.elapsed() < Duration::from_secs(1) => value.clone(),
        _ => {
            let value = httpdate::fmt_http_date(SystemTime::now());
            *latest = Some((Instant::now(), value.clone()));
            value
        }
    })
}
