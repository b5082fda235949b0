//! Shared by the examples: command-line arguments, and a line that shows the address.

use pronghorn_server::{Error, Running, Server, shutdown_signal};

pub(crate) type Result = std::result::Result<(), Error>;

/// Serves an application until a shutdown signal, like `Server::serve`, and prints the addresses.
/// The server is built from the command line; further options may be added.
macro_rules! serve {
    ($app:expr) => {
        $crate::support::serve!($app, $crate::support::server())
    };
    ($app:expr, $server:expr) => {{
        let running = $server.start($app)?;
        $crate::support::print_addresses(&running);
        running.finished().await
    }};
}
pub(crate) use serve;

/// Returns the value of `name` on the command line.
pub(crate) fn argument(name: &str) -> Option<String> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1)
}

/// Returns a server built from the command line: `[--listen ADDRESS] [--cert FILE --key FILE]`.
pub(crate) fn server() -> Server {
    let server =
        Server::new().listen(argument("--listen").unwrap_or_else(|| "localhost:8443".to_owned()));
    let server = match (argument("--cert"), argument("--key")) {
        (Some(cert), Some(key)) => server.certificate_files(cert, key),
        (None, None) => server.development_certificate(),
        _ => panic!("give both --cert and --key, or neither"),
    };
    server.with_graceful_shutdown(shutdown_signal())
}

pub(crate) fn print_addresses(running: &Running) {
    for local in running.local_addresses() {
        eprintln!("listening on https://{} (h1, h2, h3)", local.address);
    }
}
