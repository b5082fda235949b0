//! A site on the internet that orders and renews its own certificate.
//!
//! `cargo run -p pronghorn-server --features acme --example acme -- --host www.example.com --agree
//! [--state FOLDER] [--listen ADDRESS] [--listen-clear ADDRESS] [--directory URL] [--trust FILE]`

use std::convert::Infallible;

use http::{Request, Response};
use pronghorn_server::{Acme, Body, Error, Server, shutdown_signal};
use tower::service_fn;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let host = argument("--host").expect("missing name of the site: --host www.example.com");
    let state = argument("--state").unwrap_or_else(|| "state".to_owned());
    let mut acme = Acme::new([host], state);
    // The user agrees to the authority's terms, not the program.
    if std::env::args().any(|argument| argument == "--agree") {
        acme = acme.terms_agreed();
    }
    if let Some(directory) = argument("--directory") {
        acme = acme.directory(directory);
    }
    if let Some(file) = argument("--trust") {
        let pem = std::fs::read(file).expect("cannot read the file given with --trust");
        acme = acme.root_certificates_pem(pem);
    }
    let hello = service_fn(|_: Request<Body>| async {
        Ok::<_, Infallible>(Response::new(Body::from("hello\n")))
    });
    let running = Server::new()
        .listen(argument("--listen").unwrap_or_else(|| "[::]:443".to_owned()))
        .listen_clear(argument("--listen-clear").unwrap_or_else(|| "[::]:80".to_owned()))
        .redirect_to_https()
        .acme(acme)
        .with_graceful_shutdown(shutdown_signal())
        .start(hello)?;
    for local in running.local_addresses() {
        let scheme = if local.secure { "https" } else { "http" };
        eprintln!("listening on {scheme}://{}", local.address);
    }
    running.finished().await
}

/// Returns the value of `name` on the command line.
fn argument(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}
