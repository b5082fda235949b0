//! WebTransport sessions that echo what they receive.
//!
//! `cargo run -p pronghorn-server --example webtransport_echo`, then open <https://localhost:8443>
//! and enter the commands on the page in the console.
//!
//! | request | answer |
//! |---|---|
//! | session at `/echo` | echoes datagrams and bidirectional streams; answers each unidirectional stream on a new one |
//! | session at `/greet` | sends a greeting on a stream of each kind; closes the session with the answer on the bidirectional stream as the reason |
//! | `GET /last` | how the most recent session ended |

use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{any, get};
use http::StatusCode;
use http::header::ORIGIN;
use pronghorn_server::webtransport::{
    RecvStream, SendStream, SessionStreamError, WebTransport, WebTransportUpgrade,
};
use tokio::sync::Semaphore;

mod support;

const PAGE: &str = "<!doctype html><title>WebTransport</title><link rel=icon href=data:,>
<pre>session = new WebTransport('/echo'); await session.ready;
writer = session.datagrams.writable.getWriter(); reader = session.datagrams.readable.getReader();
await writer.write(new TextEncoder().encode('hello')); new TextDecoder().decode((await \
reader.read()).value)</pre>";

/// Close code of `/greet`.
const GREETED: u32 = 1234;

/// Maximum number of outgoing streams at a time.
const ANSWERS: usize = 100;

/// How the last session ended.
type Last = Arc<Mutex<String>>;

#[tokio::main]
async fn main() -> support::Result {
    let app = Router::new()
        .route("/", get(async || Html(PAGE)))
        .route("/echo", any(enter))
        .route("/greet", any(enter))
        .route(
            "/last",
            get(async |State(last): State<Last>| {
                last.lock().unwrap_or_else(PoisonError::into_inner).clone()
            }),
        )
        .with_state(Last::default());
    support::serve!(app, support::server().webtransport())
}

async fn enter(
    uri: Uri,
    headers: HeaderMap,
    State(last): State<Last>,
    upgrade: WebTransportUpgrade,
) -> Response {
    // Browsers let any page request a session, and send its origin.
    let host = uri.authority().map_or("", |authority| authority.as_str());
    if headers
        .get(ORIGIN)
        .is_some_and(|origin| origin.as_bytes() != format!("https://{host}").as_bytes())
    {
        return StatusCode::FORBIDDEN.into_response();
    }
    let greets = uri.path() == "/greet";
    let accepted = upgrade.on_session(async move |session| {
        if greets {
            // An error means that the session has ended.
            let _ = greet(&session).await;
        } else {
            echo(&session).await;
        }
        let end = session.closed().await;
        *last.lock().unwrap_or_else(PoisonError::into_inner) = end.to_string();
    });
    accepted.into_response()
}

/// Echoes until the session ends. One loop for datagrams and for each kind of stream.
async fn echo(session: &WebTransport) {
    let datagrams = async {
        while let Ok(datagram) = session.read_datagram().await {
            // A datagram too large for the way back is lost, as datagrams may be.
            let _ = session.send_datagram(datagram);
        }
    };
    let bidirectional = async {
        while let Ok((send, receive)) = session.accept_bi().await {
            tokio::spawn(pass_on(receive, send));
        }
    };
    let unidirectional = async {
        // A finished incoming stream permits a new one, while its answer may wait for the client
        // indefinitely.
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

/// Forwards data, and the end of each direction with its code.
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
