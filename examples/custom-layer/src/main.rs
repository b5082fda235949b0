//! The `pronghorn` program with a custom layer: `server-timing` tells browsers how long a response
//! took to generate.
//!
//! ```toml
//! layers = [{ name = "server-timing", metric = "app" }]
//! ```
//!
//! This program does everything that `pronghorn` does, and accepts one more name in `layers` of
//! routes and sites. The layer itself is a tower layer and does not depend on Pronghorn.

use std::pin::Pin;
use std::process::ExitCode;
use std::task::{Context, Poll};
use std::time::Instant;

use http::{HeaderValue, Request, Response};
use pronghorn_cli::layers::Registry;
use schemars::JsonSchema;
use serde::Deserialize;
use tower_layer::Layer;
use tower_service::Service;

fn main() -> ExitCode {
    let layers = Registry::standard().with_tower("server-timing", |options: Options| {
        // An error is reported at the layer's line of the configuration.
        if !options.metric.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(format!(
                "invalid metric name {:?}: use letters and digits",
                options.metric
            ));
        }
        Ok(ServerTimingLayer { metric: options.metric })
    });
    pronghorn_cli::main(&layers)
}

/// Options of the layer. Unknown keys and wrong types are reported with their position.
#[derive(Deserialize, JsonSchema)]
struct Options {
    /// Name of the metric in the `server-timing` field.
    #[serde(default = "metric")]
    metric: String,
}

fn metric() -> String {
    "total".to_owned()
}

struct ServerTimingLayer {
    metric: String,
}

impl<S> Layer<S> for ServerTimingLayer {
    type Service = ServerTiming<S>;

    fn layer(&self, inner: S) -> ServerTiming<S> {
        ServerTiming { inner, metric: self.metric.clone() }
    }
}

/// Adds the field `server-timing` to each response of the inner service.
#[derive(Clone)]
struct ServerTiming<S> {
    inner: S,
    metric: String,
}

impl<S, A, B> Service<Request<A>> for ServerTiming<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    // A service stays on one worker, so its futures need not be `Send`.
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let began = Instant::now();
        let metric = self.metric.clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let mut response = answer.await?;
            let milliseconds = began.elapsed().as_secs_f64() * 1000.0;
            if let Ok(value) = HeaderValue::try_from(format!("{metric};dur={milliseconds:.3}")) {
                response.headers_mut().append("server-timing", value);
            }
            Ok(response)
        })
    }
}
