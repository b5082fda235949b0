//! A minimal server on the engine, without any other crate of the project.
//!
//! `cargo run --example echo -- --listen 127.0.0.1:8443 --cert cert.pem --key key.pem [--workers N]
//! [--congestion NAME] [--limit NAME=VALUE]`
//!
//! | request | answer |
//! |---|---|
//! | `GET /headers?n=N` | N header fields `x-h-0` … |
//! | `POST /upload` | `{"bytes":…,"sha256":"…"}` of the content |
//! | `POST /echo` | the content, and the request's trailers as trailers |
//! | `POST /early` | 413 at once, without reading the content |
//! | `GET /trailers` | content, then a trailer `x-checksum` |
//! | `GET /hints` | 103 with a `link` field, then 200 |
//! | `GET /bytes/N` | N bytes, produced at the client's pace |
//! | `GET /wait` | no response; ends when the client disconnects |
//! | WebSocket at `/ws` | echoes messages; `?deflate` allows compression, `?contexts` also keeps compression contexts between messages |
//! | WebSocket at `/ws?close` | closes with the code and the reason in the first message, such as `4000 enough` |
//! | `GET /gone` | number of clients of `/wait` that have disconnected |

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use aws_lc_rs::digest;
use bytes::Bytes;
use http::header::{LINK, TRAILER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use pronghorn_engine::websocket::{CloseCode, CloseReason, Options, WebSocketUpgrade, deflate};
use pronghorn_engine::{
    Body, Config, Group, Identity, Incoming, Listener, Request, Responder, Response, Workers,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

fn main() -> Result<(), Box<dyn Error>> {
    let (mut listen, mut workers, mut cert, mut key) =
        (SocketAddr::from(([127, 0, 0, 1], 8443)), 1, PathBuf::new(), PathBuf::new());
    let mut config = Config::default();
    let mut arguments = std::env::args().skip(1);
    while let (Some(name), Some(value)) = (arguments.next(), arguments.next()) {
        match name.as_str() {
            "--listen" => listen = value.parse()?,
            "--workers" => workers = value.parse()?,
            "--congestion" => config.congestion = Some(value.parse()?),
            "--cert" => cert = value.into(),
            "--key" => key = value.into(),
            "--limit" => {
                let (name, value) = value.split_once('=').ok_or("write a limit as NAME=VALUE")?;
                config.limits = config.limits.with_named(name, value)?;
            }
            _ => return Err(format!("unknown argument {name}").into()),
        }
    }
    let chain = CertificateDer::pem_file_iter(cert)?.collect::<Result<Vec<_>, _>>()?;
    let identity = Identity::new(chain, PrivateKeyDer::from_pem_file(key)?)?;
    let listener = Listener::secure(listen, workers, config.congestion)?;
    let address = listener.address();
    let gone = Arc::<AtomicU64>::default();
    let handler = move |_| {
        let gone = gone.clone();
        move |request: Request, responder: Responder| handle(request, responder, &gone)
    };
    let workers =
        Workers::start(Group::new(workers), vec![listener], Some(&identity), &config, handler)?;
    eprintln!("listening on https://{address} (h1, h2, h3)");

    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut terminate =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        terminate.recv().await;
        workers.shut_down(Duration::from_secs(10));
        workers.finished().await;
        io::Result::Ok(())
    })?;
    Ok(workers.join()?)
}

fn handle(request: Request, responder: Responder, gone: &Arc<AtomicU64>) {
    let path = request.uri.path().to_owned();
    match (&request.method, path.as_str()) {
        // An extended CONNECT over HTTP/2 and HTTP/3.
        (&Method::GET | &Method::CONNECT, "/ws") => web_socket(request, responder),
        (&Method::GET, "/headers") => {
            responder.send(headers(request.uri.query().unwrap_or_default()));
        }
        (&Method::POST, "/upload") => responder.respond(upload(request.body)),
        (&Method::POST, "/echo") => responder.send(echo(request)),
        (&Method::POST, "/early") => responder.send(Response::new(StatusCode::PAYLOAD_TOO_LARGE)),
        (&Method::GET, "/hints") => hints(responder),
        (&Method::GET, "/trailers") => responder.send(trailers()),
        (&Method::GET, "/wait") => wait(responder, gone.clone()),
        (&Method::GET, "/gone") => {
            responder.send(
                Response::new(StatusCode::OK).with_body(gone.load(Ordering::Relaxed).to_string()),
            );
        }
        (&Method::GET | &Method::HEAD, path) => {
            match path.strip_prefix("/bytes/").and_then(|count| count.parse().ok()) {
                Some(left) => responder
                    .send(Response::new(StatusCode::OK).with_body(Body::stream(Pattern { left }))),
                None => responder.send(Response::new(StatusCode::NOT_FOUND)),
            }
        }
        _ => responder.send(Response::new(StatusCode::NOT_FOUND)),
    }
}

/// Echoes messages. `?deflate` allows compression; with `?contexts` both sides may also refer to
/// earlier messages.
fn web_socket(request: Request, responder: Responder) {
    let options = match request.uri.query() {
        Some("deflate") => Options::default().with_deflate(deflate::Options::default()),
        Some("contexts") => Options::default()
            .with_deflate(deflate::Options::default().with_own_context(15).with_peer_context(15)),
        _ => Options::default(),
    };
    match WebSocketUpgrade::from_request(&request, &options.with_protocol("echo")) {
        Ok(upgrade) => {
            let handle = responder.handle().clone();
            let mut socket = upgrade.accept(responder, request.body);
            let closes = request.uri.query() == Some("close");
            handle.spawn(async move {
                while let Some(Ok(message)) = socket.recv().await {
                    if closes {
                        let said = message.as_text().and_then(|text| text.split_once(' '));
                        let reason = said.and_then(|(code, text)| {
                            let code = CloseCode::new(code.parse().ok()?)?;
                            Some(CloseReason { code, text: text.to_owned() })
                        });
                        socket.close(reason);
                        continue;
                    }
                    if socket.send(message).await.is_err() {
                        break;
                    }
                }
            });
        }
        Err(refusal) => responder.send(refusal.into()),
    }
}

fn headers(query: &str) -> Response {
    let count =
        query.strip_prefix("n=").and_then(|count| count.parse::<u32>().ok()).unwrap_or(1).min(1000);
    (0..count).fold(Response::new(StatusCode::OK), |response, number| {
        let name =
            HeaderName::try_from(format!("x-h-{number}")).expect("invariant: letters and digits");
        response.with_header(name, HeaderValue::from(number))
    })
}

fn echo(request: Request) -> Response {
    let mut response = Response::new(StatusCode::OK).with_body(Body::stream(request.body));
    // HTTP/1.1 sends only the trailers that were announced.
    if let Some(announced) = request.headers.get(TRAILER) {
        response.headers.insert(TRAILER, announced.clone());
    }
    response
}

async fn upload(mut body: Incoming) -> Response {
    let mut bytes = 0;
    let mut hash = digest::Context::new(&digest::SHA256);
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Response::new(StatusCode::BAD_REQUEST) };
        if let Some(data) = frame.data_ref() {
            bytes += data.len();
            hash.update(data);
        }
    }
    let digest = hash.finish();
    Response::new(StatusCode::OK)
        .with_body(format!("{{\"bytes\":{bytes},\"sha256\":\"{}\"}}", hex(digest.as_ref())))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let digits = [byte >> 4, byte & 15]
            .map(|digit| char::from_digit(digit.into(), 16).expect("invariant: four bits"));
        text.extend(digits);
        text
    })
}

fn hints(mut responder: Responder) {
    let link = HeaderValue::from_static("</style.css>; rel=preload; as=style");
    responder.send_interim(StatusCode::EARLY_HINTS, &HeaderMap::from_iter([(LINK, link)]));
    responder.send(Response::new(StatusCode::OK));
}

fn trailers() -> Response {
    let trailers = HeaderMap::from_iter([(
        HeaderName::from_static("x-checksum"),
        HeaderValue::from_static("5"),
    )]);
    let body = Full::new(Bytes::from_static(b"hello")).with_trailers(async { Some(Ok(trailers)) });
    Response::new(StatusCode::OK)
        .with_header(TRAILER, HeaderValue::from_static("x-checksum"))
        .with_body(Body::stream(body))
}

/// Keeps the request open until the client disconnects.
fn wait(mut responder: Responder, gone: Arc<AtomicU64>) {
    let handle = responder.handle().clone();
    handle.spawn(async move {
        std::future::poll_fn(|cx| responder.poll_closed(cx)).await;
        gone.fetch_add(1, Ordering::Relaxed);
    });
}

/// A body of `left` bytes, produced a piece at a time.
struct Pattern {
    left: usize,
}

impl http_body::Body for Pattern {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        static PIECE: [u8; 16 << 10] = [b'x'; 16 << 10];
        let piece = self.left.min(PIECE.len());
        self.left -= piece;
        Poll::Ready((piece > 0).then(|| Ok(Frame::data(Bytes::from_static(&PIECE[..piece])))))
    }
}
