//! An axum application with tower-http layers: tracing, compression, a timeout, CORS.
//!
//! `cargo run -p pronghorn-server --example axum_layers`
//!
//! | request | answer |
//! |---|---|
//! | `GET /` | client address, HTTP version and requested host name |
//! | `GET /numbers?to=N` | a JSON list, compressed if the client accepts that |
//! | `POST /sum` | the sum of a JSON list |
//! | `GET /slow` | 503, because the handler takes too long |

use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::{ConnectInfo, Query};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::{Method, StatusCode, Version};
use pronghorn_server::Peer;
use serde::Deserialize;
use tower_http::compression::CompressionLayer;
use tower_http::cors::{Any, CorsLayer};
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

mod support;

#[tokio::main]
async fn main() -> support::Result {
    let app = Router::new()
        .route("/", get(whoami))
        .route("/numbers", get(numbers))
        .route("/sum", post(sum))
        .route("/slow", get(slow))
        .layer(TimeoutLayer::with_status_code(
            StatusCode::SERVICE_UNAVAILABLE,
            Duration::from_secs(1),
        ))
        .layer(CompressionLayer::new())
        .layer(CorsLayer::new().allow_origin(Any).allow_methods([Method::GET, Method::POST]))
        .layer(TraceLayer::new_for_http());
    support::serve!(app)
}

async fn whoami(
    version: Version,
    ConnectInfo(client): ConnectInfo<SocketAddr>,
    peer: Peer,
) -> String {
    let name = peer.server_name.as_deref().unwrap_or("no name");
    format!("{} over {version:?}, server name: {name}\n", client.ip())
}

#[derive(Deserialize)]
struct Range {
    to: u32,
}

async fn numbers(Query(range): Query<Range>) -> Json<Vec<u32>> {
    Json((0..range.to.min(100_000)).collect())
}

async fn sum(Json(numbers): Json<Vec<u64>>) -> Json<u64> {
    Json(numbers.iter().sum())
}

async fn slow() {
    tokio::time::sleep(Duration::from_secs(3600)).await;
}
