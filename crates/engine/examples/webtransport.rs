//! A WebTransport server on the engine that echoes what it receives.
//!
//! `cargo run --example webtransport -- --listen 127.0.0.1:4433 --cert cert.pem --key key.pem
//! [--workers N] [--limit NAME=VALUE]`
//!
//! | request | answer |
//! |---|---|
//! | session at `/echo` | echoes datagrams and bidirectional streams; a unidirectional stream is echoed on a new one |
//! | session at `/greet` | a greeting on a stream of each kind; the client's answer on the bidirectional one becomes the close reason |
//! | `GET /last` | how the last session ended |
//! | `GET /` | a page to try sessions from |

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use pronghorn_engine::{
    Config, Group, Identity, Listener, RecvStream, Request, Responder, Response, SendStream,
    SessionStreamError, WebTransport, Workers,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::Semaphore;

const PAGE: &str = "<!doctype html><title>WebTransport</title><link rel=icon href=data:,><p>In the \
    console: <code>t = new WebTransport('/echo'); await t.ready</code>";

/// The code that `/greet` closes with.
const GREETED: u32 = 1234;

/// Maximum number of concurrent unidirectional echo streams of a session.
const ANSWERS: usize = 100;

/// How the last session ended.
type Last = Arc<Mutex<String>>;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut listen, mut workers, mut cert, mut key) =
        (SocketAddr::from(([127, 0, 0, 1], 4433)), 1, PathBuf::new(), PathBuf::new());
    let mut config = Config { webtransport: true, ..Config::default() };
    let mut arguments = std::env::args().skip(1);
    while let (Some(name), Some(value)) = (arguments.next(), arguments.next()) {
        match name.as_str() {
            "--listen" => listen = value.parse()?,
            "--workers" => workers = value.parse()?,
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
    let last = Last::default();
    let handler = move |_| {
        let last = last.clone();
        move |request: Request, responder: Responder| handle(request, responder, &last)
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

fn handle(request: Request, responder: Responder, last: &Last) {
    let path = request.uri.path().to_owned();
    match (&request.method, path.as_str()) {
        (&Method::CONNECT, "/echo" | "/greet") => {
            let Some(session) = WebTransport::accept(request, responder, HeaderMap::new()) else {
                return;
            };
            let (watched, last) = (session.clone(), last.clone());
            session.handle().clone().spawn(async move {
                let end = watched.closed().await;
                *last.lock().unwrap_or_else(PoisonError::into_inner) = end.to_string();
            });
            if path == "/echo" {
                echo(&session);
            } else {
                let greeting = session.clone();
                session.handle().spawn(async move {
                    // An error means that the session is over.
                    let _ = greet(&greeting).await;
                });
            }
        }
        (&Method::GET, "/last") => {
            let last = last.lock().unwrap_or_else(PoisonError::into_inner).clone();
            responder.send(Response::new(StatusCode::OK).with_body(last));
        }
        (&Method::GET, "/") => {
            let page = Response::new(StatusCode::OK).with_body(PAGE);
            responder.send(page.with_header(CONTENT_TYPE, HeaderValue::from_static("text/html")));
        }
        _ => responder.send(Response::new(StatusCode::NOT_FOUND)),
    }
}

/// Echoes all datagrams and streams of a session.
fn echo(session: &WebTransport) {
    let handle = session.handle().clone();
    let datagrams = session.clone();
    handle.spawn(async move {
        while let Ok(datagram) = datagrams.read_datagram().await {
            // A datagram that is too large for the way back is dropped.
            let _ = datagrams.send_datagram(datagram);
        }
    });
    let (streams, each) = (session.clone(), handle.clone());
    handle.spawn(async move {
        while let Ok((send, receive)) = streams.accept_bi().await {
            each.spawn(pass_on(receive, send));
        }
    });
    let (streams, each) = (session.clone(), handle.clone());
    handle.spawn(async move {
        // A finished stream makes room for the peer's next one at once, but its echo may wait for
        // the client for any time.
        let places = Arc::new(Semaphore::new(ANSWERS));
        while let Ok(receive) = streams.accept_uni().await {
            let Ok(place) = places.clone().acquire_owned().await else { return };
            let session = streams.clone();
            each.spawn(async move {
                let _place = place;
                if let Ok(send) = session.open_uni().await {
                    pass_on(receive, send).await;
                }
            });
        }
    });
}

/// Forwards a stream's data, and its end, reset or stop with the code.
async fn pass_on(mut receive: RecvStream, mut send: SendStream) {
    loop {
        match receive.read().await {
            Ok(Some(data)) => {
                if let Err(error) = send.write(data).await {
                    if let SessionStreamError::Stopped { code: Some(code) } = error {
                        receive.stop(code);
                    }
                    return;
                }
            }
            Ok(None) => return send.finish(),
            Err(SessionStreamError::Reset { code: Some(code) }) => return send.reset(code),
            Err(_) => return,
        }
    }
}

async fn greet(session: &WebTransport) -> Result<(), SessionStreamError> {
    let mut one_way = session.open_uni().await?;
    one_way.write("greetings").await?;
    one_way.finish();
    let (mut send, mut receive) = session.open_bi().await?;
    send.write("who is there?").await?;
    send.finish();
    let mut answer = Vec::new();
    while let Some(piece) = receive.read().await? {
        answer.extend_from_slice(&piece);
        answer.truncate(1024);
    }
    session.close(GREETED, &String::from_utf8_lossy(&Bytes::from(answer)));
    Ok(())
}
