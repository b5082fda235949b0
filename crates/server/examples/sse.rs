//! Server-sent events: a page that shows a counter.
//!
//! `cargo run -p pronghorn-server --example sse`

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::response::Html;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::get;
use futures_util::{Stream, StreamExt};
use tokio::time::interval;
use tokio_stream::wrappers::IntervalStream;

mod support;

const PAGE: &str = "<!doctype html><title>events</title><link rel=icon href=data:,><p id=last></p>
<script type=module>
const source = new EventSource('/events');
globalThis.result = await new Promise((resolve) => {
  const seen = [];
  source.onmessage = ({ data }) => {
    last.textContent = data;
    if (seen.push(Number(data)) === 5) { source.close(); resolve({ seen }); }
  };
});
</script>";

#[tokio::main]
async fn main() -> support::Result {
    let app = Router::new().route("/", get(|| async { Html(PAGE) })).route("/events", get(events));
    support::serve!(app)
}

async fn events() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let ticks = IntervalStream::new(interval(Duration::from_millis(100))).enumerate();
    Sse::new(ticks.map(|(number, _)| Ok(Event::default().data(number.to_string()))))
        .keep_alive(KeepAlive::default())
}
