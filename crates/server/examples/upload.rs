//! A form for file uploads. The response lists the size of each part as JSON.
//!
//! `cargo run -p pronghorn-server --example upload`

use std::collections::BTreeMap;

use axum::extract::DefaultBodyLimit;
use axum::extract::multipart::{Multipart, MultipartError};
use axum::response::Html;
use axum::routing::get;
use axum::{Json, Router};

mod support;

const PAGE: &str = "<!doctype html><title>upload</title><link rel=icon href=data:,>
<form method=post enctype=multipart/form-data><input type=file name=file \
multiple><button>Send</button></form>";

/// Raises axum's default body limit; the server's own limit still applies.
const LARGEST_BYTES: usize = 64 << 20;

#[tokio::main]
async fn main() -> support::Result {
    let app = Router::new()
        .route("/", get(|| async { Html(PAGE) }).post(receive))
        .layer(DefaultBodyLimit::max(LARGEST_BYTES));
    support::serve!(app)
}

/// Returns name and size of each part, reading it piece by piece.
async fn receive(mut form: Multipart) -> Result<Json<BTreeMap<String, usize>>, MultipartError> {
    let mut sizes = BTreeMap::new();
    while let Some(mut part) = form.next_field().await? {
        let name = part.file_name().or(part.name()).unwrap_or("unnamed").to_owned();
        let mut size = 0;
        while let Some(piece) = part.chunk().await? {
            size += piece.len();
        }
        sizes.insert(name, size);
    }
    Ok(Json(sizes))
}
