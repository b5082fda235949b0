//! A folder, served by tower-http's `ServeDir`.
//!
//! `cargo run -p pronghorn-server --example static_files -- --folder .`

use axum::Router;
use tower_http::services::ServeDir;

mod support;

#[tokio::main]
async fn main() -> support::Result {
    let folder = support::argument("--folder").unwrap_or_else(|| ".".to_owned());
    support::serve!(Router::new().fallback_service(ServeDir::new(folder)))
}
