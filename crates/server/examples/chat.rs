//! A chat over WebSocket: every message is sent to all clients in the room.
//!
//! `cargo run -p pronghorn-server --example chat`, then open <https://localhost:8443> in two
//! windows.

use axum::Router;
use axum::extract::State;
use axum::extract::ws::{Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::response::{Html, Response};
use axum::routing::{any, get};
use futures_util::{SinkExt, StreamExt};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

mod support;

/// Maximum messages that a slow client may lag behind; older ones are skipped for it.
const BEHIND: usize = 256;

const PAGE: &str = "<!doctype html><title>chat</title><link rel=icon href=data:,>
<ul id=log></ul><form id=form><input id=text autofocus autocomplete=off></form>
<script type=module>
const join = () => new Promise((resolve, reject) => {
  const socket = new WebSocket(`wss://${location.host}/room`);
  socket.onopen = () => resolve(socket);
  socket.onerror = reject;
});
const hear = (socket, what) => new Promise((resolve) => {
  socket.addEventListener('message', ({ data }) => { if (data.includes(what)) resolve(data); });
});
const socket = await join();
socket.addEventListener('message', ({ data }) => { \
log.append(Object.assign(document.createElement('li'), { textContent: data })); });
form.onsubmit = (event) => { event.preventDefault(); socket.send(text.value); text.value = ''; };
if (location.hash === '#test') {
  const other = await join();
  const heard = [hear(socket, 'hello'), hear(other, 'hello')];
  other.send('hello');
  globalThis.result = { heard: await Promise.all(heard) };
}
</script>";

#[tokio::main]
async fn main() -> support::Result {
    let (room, _) = broadcast::channel(BEHIND);
    // `any`, because a WebSocket starts with GET over HTTP/1.1, and with CONNECT over HTTP/2 and
    // HTTP/3.
    let app = Router::new()
        .route("/", get(|| async { Html(PAGE) }))
        .route("/room", any(enter))
        .with_state(room);
    support::serve!(app)
}

type Room = broadcast::Sender<Utf8Bytes>;

async fn enter(State(room): State<Room>, upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(|socket| talk(socket, room))
}

async fn talk(socket: WebSocket, room: Room) {
    let mut others = room.subscribe();
    let (mut send, mut receive) = socket.split();
    loop {
        tokio::select! {
            said = receive.next() => match said {
                // An error only means that no other client is connected.
                Some(Ok(Message::Text(text))) => drop(room.send(text)),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            },
            heard = others.recv() => {
                let text = match heard {
                    Ok(text) => text,
                    Err(RecvError::Lagged(missed)) => format!("({missed} messages missed)").into(),
                    Err(RecvError::Closed) => return,
                };
                if send.send(Message::Text(text)).await.is_err() {
                    return;
                }
            }
        }
    }
}
