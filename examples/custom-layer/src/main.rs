//! The `pronghorn` program with a layer of one's own: `server-timing` tells browsers how long an answer took to make.
//!
//! ```toml
//! layers = [{ name = "server-timing", metric = "app" }]
//! ```
//!
//! All that `pronghorn` does this program does, with one more name that routes and sites may have in `layers`. The layer itself is one of tower
//! and knows nothing of Pronghorn.

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
        // An error is told at the layer's line of the configuration.
        if !options.metric.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(format!("{:?} is no name of a metric: letters and digits", options.metric));
        }
        Ok(ServerTimingLayer { metric: options.metric })
    });
    pronghorn_cli::main(&layers)
}

/// What may stand beside the name in a configuration. A wrong key or type is told where it stands.
#[derive(Deserialize, JsonSchema)]
struct Options {
    /// What the time is called in the field.
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

/// Adds the field `server-timing` to each response of the service that is in it.
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
    // A service is on one worker, so that its futures need not be sent to other threads.
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
