//! What the examples have in common: where they listen, by their arguments, and the line that says so.

use pronghorn_server::{Error, Server};

/// A server by the program's arguments: `[--listen ADDRESS] [--cert FILE --key FILE]`.
pub(crate) fn server() -> Server {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| arguments.iter().position(|argument| argument == name).and_then(|at| arguments.get(at + 1)).cloned();
    let server = Server::new().listen(value("--listen").unwrap_or_else(|| "localhost:8443".to_owned()));
    let server = match (value("--cert"), value("--key")) {
        (Some(cert), Some(key)) => server.certificate_files(cert, key),
        _ => server.development_certificate(),
    };
    server.with_graceful_shutdown(async {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).expect("signals can be heard");
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    })
}

/// `server().serve(app)`, and a line for each address.
macro_rules! serve {
    ($app:expr) => {
        async {
            let running = $crate::support::server().start($app)?;
            $crate::support::introduce(&running);
            running.finished().await
        }
        .await
    };
}
pub(crate) use serve;

pub(crate) fn introduce(running: &pronghorn_server::Running) {
    for local in running.local_addresses() {
        eprintln!("listening on https://{} (h1, h2, h3)", local.address);
    }
}

pub(crate) type Result<T = ()> = std::result::Result<T, Error>;
