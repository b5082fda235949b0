//! WebTransport (draft-ietf-webtrans-http3): sessions with their own streams and datagrams over an
//! HTTP/3 connection.
//!
//! [`Server::webtransport`](crate::Server::webtransport) enables it. A session request reaches the
//! service like any other request, with a [`WebTransportUpgrade`] extension, which is also an axum
//! extractor. Accepting it yields a [`WebTransport`] session. The session and its streams can be
//! used in any task, on any runtime and thread.
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
mod tasks;
mod upgrade;

pub use pronghorn_engine::{DatagramError, SessionEnd, SessionStreamError};
pub use session::WebTransport;
pub use streams::{RecvStream, SendStream};
pub use upgrade::WebTransportUpgrade;
pub(crate) use upgrade::run;
