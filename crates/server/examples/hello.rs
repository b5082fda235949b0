//! The smallest server: one service, three versions of HTTP, no framework.
//!
//! `cargo run -p pronghorn-server --example hello [-- --listen ADDRESS --cert FILE --key FILE]`

use std::convert::Infallible;

use http::{Request, Response};
use pronghorn_server::Body;
use tower::service_fn;

mod support;

#[tokio::main]
async fn main() -> support::Result {
    let hello = service_fn(|request: Request<Body>| async move {
        Ok::<_, Infallible>(Response::new(Body::from(format!(
            "hello over {:?}\n",
            request.version()
        ))))
    });
    support::serve!(hello)
}
