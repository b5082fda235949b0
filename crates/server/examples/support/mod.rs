//! What the examples have in common: where they listen, by their arguments, and the line that says so.

use pronghorn_server::{Error, Running, Server, shutdown_signal};

pub(crate) type Result = std::result::Result<(), Error>;

/// Serves an application until the program is told to end: `Server::serve`, but that it tells where. The server is one by the command line,
/// to which more may be said.
macro_rules! serve {
    ($app:expr) => {
        $crate::support::serve!($app, $crate::support::server())
    };
    ($app:expr, $server:expr) => {{
        let running = $server.start($app)?;
        $crate::support::introduce(&running);
        running.finished().await
    }};
}
pub(crate) use serve;

/// The value behind `name` on the command line.
pub(crate) fn argument(name: &str) -> Option<String> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1)
}

/// A server by the command line: `[--listen ADDRESS] [--cert FILE --key FILE]`.
pub(crate) fn server() -> Server {
    let server = Server::new().listen(argument("--listen").unwrap_or_else(|| "localhost:8443".to_owned()));
    let server = match (argument("--cert"), argument("--key")) {
        (Some(cert), Some(key)) => server.certificate_files(cert, key),
        _ => server.development_certificate(),
    };
    server.with_graceful_shutdown(shutdown_signal())
}

pub(crate) fn introduce(running: &Running) {
    for local in running.local_addresses() {
        eprintln!("listening on https://{} (h1, h2, h3)", local.address);
    }
}
