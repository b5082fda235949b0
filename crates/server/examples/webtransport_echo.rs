//! WebTransport sessions in which what comes is sent back.
//!
//! `cargo run -p pronghorn-server --example webtransport_echo`, then open <https://localhost:8443> and type into the console what the page says.
//!
//! | request | answer |
//! |---|---|
//! | session at `/echo` | datagrams and the content of bidirectional streams come back, that of a unidirectional one on another |
//! | session at `/greet` | a greeting on a stream of each kind; the answer on the bidirectional one is the reason that the session is closed with |
//! | `GET /last` | how the session that ended last came to its end |

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{any, get};
use http::StatusCode;
use http::header::ORIGIN;
use pronghorn_server::webtransport::{RecvStream, SendStream, SessionStreamError, WebTransport, WebTransportUpgrade};
use tokio::sync::Semaphore;

mod support;

const PAGE: &str = "<!doctype html><title>WebTransport</title><link rel=icon href=data:,>
<pre>session = new WebTransport('/echo'); await session.ready;
writer = session.datagrams.writable.getWriter(); reader = session.datagrams.readable.getReader();
await writer.write(new TextEncoder().encode('hello')); new TextDecoder().decode((await reader.read()).value)</pre>";

/// The code that `/greet` closes with.
const GREETED: u32 = 1234;

/// Streams of this side that answer a client's at once.
const ANSWERS: usize = 100;

/// How the last session ended.
type Last = Arc<Mutex<String>>;

#[tokio::main]
async fn main() -> support::Result {
    let app = Router::new()
        .route("/", get(async || Html(PAGE)))
        .route("/echo", any(enter))
        .route("/greet", any(enter))
        .route("/last", get(async |State(last): State<Last>| last.lock().unwrap_or_else(PoisonError::into_inner).clone()))
        .with_state(Last::default());
    support::serve!(app, support::server().webtransport())
}

async fn enter(uri: Uri, headers: HeaderMap, State(last): State<Last>, upgrade: WebTransportUpgrade) -> Response {
    // Browsers let any page ask, and say which one it is.
    let host = uri.authority().map_or("", |authority| authority.as_str());
    if headers.get(ORIGIN).is_some_and(|origin| origin.as_bytes() != format!("https://{host}").as_bytes()) {
        return StatusCode::FORBIDDEN.into_response();
    }
    let greets = uri.path() == "/greet";
    let accepted = upgrade.on_session(async move |session| {
        if greets {
            // An error says that the session is over.
            let _ = greet(&session).await;
        } else {
            echo(&session).await;
        }
        let end = session.closed().await;
        *last.lock().unwrap_or_else(PoisonError::into_inner) = end.to_string();
    });
    accepted.into_response()
}

/// Until the session ends. Each kind of thing that comes has a loop that waits for the next.
async fn echo(session: &WebTransport) {
    let datagrams = async {
        while let Ok(datagram) = session.read_datagram().await {
            // One that is too large for the way back is lost, as datagrams may be.
            let _ = session.send_datagram(datagram);
        }
    };
    let bidirectional = async {
        while let Ok((send, receive)) = session.accept_bi().await {
            tokio::spawn(pass_on(receive, send));
        }
    };
    let unidirectional = async {
        // A stream that has come to its end frees its place for another one, while the answer may wait for the client as long as it likes.
        let places = Arc::new(Semaphore::new(ANSWERS));
        while let Ok(receive) = session.accept_uni().await {
            let Ok(place) = places.clone().acquire_owned().await else { return };
            let session = session.clone();
            tokio::spawn(async move {
                let _place = place;
                if let Ok(send) = session.open_uni().await {
                    pass_on(receive, send).await;
                }
            });
        }
    };
    tokio::join!(datagrams, bidirectional, unidirectional);
}

/// The two ends of a stream go on to the other side with their codes, as its content does.
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
    session.close(GREETED, &String::from_utf8_lossy(&answer));
    Ok(())
}
