//! What usually ends a server.

use std::future::poll_fn;
use std::task::Poll;

use tokio::signal::unix::{SignalKind, signal};

/// Ready when the process is told to end: by SIGTERM, as service managers and containers do, or by SIGINT, as Ctrl-C does. For
/// [`Server::with_graceful_shutdown`](crate::Server::with_graceful_shutdown).
///
/// From its first poll on, these signals no longer end the process by themselves, a second one neither: the
/// [grace period](crate::Server::grace_period) bounds how long the end takes. Where the system gives no signals, it is never ready.
///
/// ```
/// # use pronghorn_server::{Server, shutdown_signal};
/// let server = Server::new().listen("[::]:443").with_graceful_shutdown(shutdown_signal());
/// # let _ = server;
/// ```
///
/// # Panics
///
/// When it is polled outside of a tokio runtime with I/O, as `#[tokio::main]` makes one.
///
/// # Cancel safety
///
/// Dropping the future loses a signal that came since its first poll.
pub async fn shutdown_signal() {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate()).ok(), signal(SignalKind::interrupt()).ok());
    poll_fn(|cx| {
        // Both are polled, so that either wakes this.
        let told = [&mut terminate, &mut interrupt].map(|signal| signal.as_mut().is_some_and(|signal| signal.poll_recv(cx).is_ready()));
        if told.contains(&true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
