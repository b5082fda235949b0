//! WebTransport (draft-ietf-webtrans-http3): sessions with streams and datagrams of their own, over an HTTP/3 connection.
//!
//! [`Server::webtransport`](crate::Server::webtransport) offers it. A request for a session reaches the service like any other, with a
//! [`WebTransportUpgrade`] among its extensions, which for axum is an extractor too. What it hands over is a [`WebTransport`] session, and like
//! its streams that may be used in any task, of any runtime and thread.
//!
//! ```no_run
//! # #[cfg(feature = "axum")]
//! # #[tokio::main]
//! # async fn main() -> Result<(), pronghorn_server::Error> {
//! use axum::{Router, routing::any};
//! use pronghorn_server::{Body, Server, WebTransport, WebTransportUpgrade};
//!
//! async fn enter(upgrade: WebTransportUpgrade) -> http::Response<Body> {
//!     upgrade.on_session(echo)
//! }
//!
//! /// Sends each stream's content back on it.
//! async fn echo(session: WebTransport) {
//!     while let Ok((mut send, mut receive)) = session.accept_bi().await {
//!         tokio::spawn(async move {
//!             while let Ok(Some(piece)) = receive.read().await {
//!                 if send.write(piece).await.is_err() {
//!                     return;
//!                 }
//!             }
//!             send.finish();
//!         });
//!     }
//! }
//!
//! let app = Router::new().route("/echo", any(enter));
//! Server::new().listen("[::]:8443").development_certificate().webtransport().serve(app).await
//! # }
//! # #[cfg(not(feature = "axum"))]
//! # fn main() {}
//! ```

mod session;
mod streams;
mod upgrade;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

pub use pronghorn_engine::{DatagramError, SessionEnd, SessionStreamError};
pub use session::WebTransport;
pub use streams::{RecvStream, SendStream};
pub use upgrade::WebTransportUpgrade;
pub(crate) use upgrade::run;

/// What `work` comes to, unless `gone` is ready before.
async fn unless<T>(gone: impl Future, work: impl Future<Output = T>) -> Option<T> {
    let (mut gone, mut work) = (pin!(gone), pin!(work));
    poll_fn(|cx| {
        if gone.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        work.as_mut().poll(cx).map(Some)
    })
    .await
}

/// Runs `future` on the worker of `handle`. Channels of tokio would count it as part of the worker's own task, and make it wait for the others.
fn spawn(handle: &pronghorn_engine::Handle, future: impl Future<Output = ()> + 'static) {
    handle.spawn(tokio::task::coop::unconstrained(future));
}
