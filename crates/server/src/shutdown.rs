//! The shutdown signals of the process.

use std::future::poll_fn;
use std::task::Poll;

use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGTERM, which service managers and containers send, or SIGINT, which Ctrl-C sends.
/// For [`Server::with_graceful_shutdown`](crate::Server::with_graceful_shutdown).
///
/// From its first poll on, these signals no longer terminate the process, not even when repeated:
/// the [grace period](crate::Server::grace_period) bounds how long the shutdown takes. If signal
/// handlers cannot be installed, the future never completes.
///
/// ```
/// # use pronghorn_server::{Server, shutdown_signal};
/// let server = Server::new().listen("[::]:443").with_graceful_shutdown(shutdown_signal());
/// # let _ = server;
/// ```
///
/// # Panics
///
/// Panics if polled outside a tokio runtime with I/O enabled, such as that of `#[tokio::main]`.
///
/// # Cancel safety
///
/// Dropping the future loses a signal received since its first poll.
pub async fn shutdown_signal() {
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate()).ok(), signal(SignalKind::interrupt()).ok());
    poll_fn(|cx| {
        // Poll both, so that either one wakes this task.
        let told = [&mut terminate, &mut interrupt]
            .map(|signal| signal.as_mut().is_some_and(|signal| signal.poll_recv(cx).is_ready()));
        if told.contains(&true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
