//! `forward-auth`: authorisation by an auth server.

use std::cell::OnceCell;
use std::fmt::Display;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, PROXY_AUTHORIZATION, RANGE, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use pronghorn_client::{Http3, Options as ClientOptions, Pool, Roots};
use pronghorn_engine::{Body, BodyError, Peer};
use schemars::JsonSchema;
use serde::Deserialize;
use tower_service::Service;

use super::{
    Around, Client, Layer, LayerContext, LocalService, OriginalTarget, Request, Response,
    WorkerContext, from_engine, remove_in_all_spellings, too_early,
};
use crate::config::{FieldName, ServerAddress, Time};
use crate::fields::forwarding;
use crate::proxy::{Cause, Failure, FailureLog, Outcome, RequestLine};
use crate::responses::text;
use crate::routing::canonical::{AMBIGUOUS, PathReading};
use crate::timeout::in_time;

/// Fields about the request's connection or body, which are not sent to the auth server.
const NOT_ASKED_WITH: [HeaderName; 17] = [
    CONNECTION,
    CONTENT_LENGTH,
    EXPECT,
    HOST,
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_RANGE,
    IF_UNMODIFIED_SINCE,
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    RANGE,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Options of `forward-auth`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(super) struct Options {
    /// Address of the auth server, such as `http://127.0.0.1:9091`.
    address: ServerAddress,
    /// Path of the request to the auth server.
    #[serde(default = "path")]
    path: String,
    /// Fields of the auth server's response that are added to the request; a client's own values
    /// are removed.
    #[serde(default)]
    #[schemars(example = ["remote-user"])]
    copy: Vec<FieldName>,
    /// Time limit for the auth server's response headers.
    #[serde(default = "timeout")]
    timeout: Time,
    /// A file with trusted root certificates in PEM form, for an auth server at `https://`; by
    /// default the system's roots.
    trust: Option<PathBuf>,
}

fn path() -> String {
    "/".to_owned()
}

fn timeout() -> Time {
    Time::seconds(10)
}

pub(super) struct ForwardAuth(Arc<Settings>);

struct Settings {
    target: Uri,
    copy: Vec<HeaderName>,
    options: Options,
    roots: Roots,
    failures: Arc<FailureLog>,
}

impl ForwardAuth {
    pub(super) fn new(options: Options, context: &LayerContext<'_>) -> Result<Self, String> {
        let path: PathAndQuery =
            options.path.parse().ok().filter(|_| options.path.starts_with('/')).ok_or_else(
                || {
                    format!(
                        "invalid path {:?}: it must begin with a slash, as in /verify",
                        options.path
                    )
                },
            )?;
        let target =
            crate::proxy::target(options.address.secure, &options.address.authority, &path);
        let roots = match &options.trust {
            _ if !options.address.secure => nobody()?,
            None => Roots::System.to_config().map_err(|error| error.to_string())?,
            Some(file) => {
                let file = context.path(file);
                let wrong = |error: &dyn std::fmt::Display| {
                    format!(
                        "cannot use {}: {error}; name a file with certificates in PEM form",
                        file.display()
                    )
                };
                let pem = std::fs::read(&file).map_err(|error| wrong(&error))?;
                Roots::Pem(pem.into()).to_config().map_err(|error| wrong(&error))?
            }
        };
        Ok(Self(Arc::new(Settings {
            target,
            copy: options.copy.iter().map(FieldName::name).collect(),
            roots: Roots::Config(roots.into()),
            failures: context.failures(),
            options,
        })))
    }
}

/// A TLS configuration without roots, for unencrypted connections.
fn nobody() -> Result<rustls::ClientConfig, String> {
    let builder = rustls::ClientConfig::builder_with_provider(pronghorn_engine::provider())
        .with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
}

impl Layer for ForwardAuth {
    fn around(&self, inner: LocalService, worker: &WorkerContext) -> LocalService {
        LocalService::around(
            WorkerLayer { settings: self.0.clone(), worker: worker.clone(), pool: OnceCell::new() },
            inner,
        )
    }

    fn needs_client(&self) -> bool {
        true
    }
}

struct WorkerLayer {
    settings: Arc<Settings>,
    worker: WorkerContext,
    pool: OnceCell<Pool>,
}

impl WorkerLayer {
    fn pool(&self) -> Option<&Pool> {
        if self.pool.get().is_none() {
            let time = self.settings.options.timeout.0;
            let options = ClientOptions {
                roots: self.settings.roots.clone(),
                http3: Http3::Off,
                connect_timeout: time,
                head_timeout: time,
                body_timeout: time,
                ..ClientOptions::default()
            };
            let _ = self.pool.set(Pool::with_connector(self.worker.connector(), options).ok()?);
        }
        self.pool.get()
    }

    /// Builds the request to the auth server.
    fn question(&self, request: &Request) -> http::Request<Body> {
        let mut question = http::Request::new(Body::empty());
        *question.method_mut() = Method::GET;
        *question.uri_mut() = self.settings.target.clone();
        self.settings.options.address.direct(&mut question);
        let mut headers = request.headers().clone();
        for name in &NOT_ASKED_WITH {
            headers.remove(name);
        }
        crate::fields::identity_fields::remove_for_auth_request(&mut headers);
        let extensions = request.extensions();
        let asked =
            extensions.get::<OriginalTarget>().map_or_else(|| request.uri(), |asked| &asked.0);
        // The path in the form that routes compare: an auth server that decides by path must see
        // the same path as the routes, however the client spelled it.
        let reading = extensions.get::<PathReading>().map(|reading| match asked.query() {
            Some(query) => format!("{}?{query}", reading.path),
            None => reading.path.to_string(),
        });
        let target = reading
            .as_deref()
            .unwrap_or_else(|| asked.path_and_query().map_or("/", PathAndQuery::as_str));
        let host = asked.authority().map(http::uri::Authority::as_str);
        // The field is only present if a trusted proxy sent it.
        let told = forwarding::is_secure(request.headers());
        let secure =
            told.unwrap_or_else(|| extensions.get::<Peer>().is_some_and(|peer| peer.secure));
        let client = extensions.get::<Client>().map(|client| client.0.to_string());
        for (name, value) in [
            ("x-forwarded-method", Some(request.method().as_str())),
            ("x-forwarded-uri", Some(target)),
            ("x-forwarded-host", host),
            ("x-forwarded-proto", Some(if secure { "https" } else { "http" })),
            ("x-forwarded-for", client.as_deref()),
        ] {
            let name = HeaderName::from_static(name);
            match value.and_then(|value| HeaderValue::from_str(value).ok()) {
                Some(value) => drop(headers.insert(name, value)),
                None => drop(headers.remove(name)),
            }
        }
        *question.headers_mut() = headers;
        question
    }
}

impl WorkerLayer {
    /// Logs why the auth server did not respond, and returns the response to the client.
    fn failed(&self, request: &Request, cause: Cause, reason: &dyn Display) -> Response {
        let asked = request
            .extensions()
            .get::<OriginalTarget>()
            .map_or_else(|| request.uri(), |asked| &asked.0);
        let note = request.extensions().get().cloned();
        let line = RequestLine { method: request.method().clone(), uri: asked.clone(), note };
        let (server, outcome) =
            (&self.settings.options.address, Outcome::Answered(StatusCode::BAD_GATEWAY));
        self.settings.failures.log_failure(Failure {
            cause: Some(cause),
            server: Some(server),
            request_line: &line,
            reason,
            outcome,
        });
        unreachable()
    }
}

fn unreachable() -> Response {
    from_engine(text(StatusCode::BAD_GATEWAY, "the auth server cannot be reached\n"))
}

impl Around for WorkerLayer {
    async fn call(
        self: Rc<Self>,
        mut request: Request,
        mut inner: LocalService,
    ) -> Result<Response, BodyError> {
        for name in &self.settings.copy {
            remove_in_all_spellings(request.headers_mut(), name);
        }
        if request.extensions().get::<Client>().is_none() {
            return Ok(too_early());
        }
        // One reading of a path may be allowed and another one forbidden.
        if request.extensions().get::<PathReading>().is_some_and(|reading| !reading.is_only) {
            return Ok(from_engine(AMBIGUOUS.into()));
        }
        let Some(pool) = self.pool() else { return Ok(unreachable()) };
        let asked = pool.send(self.question(&request));
        let asked = in_time(self.worker.handle(), self.settings.options.timeout.0, asked).await;
        let answer = match asked {
            Some(Ok(answer)) => answer,
            Some(Err(error)) if !error.is_timeout() => {
                return Ok(self.failed(&request, Cause::of(&error), &error));
            }
            late => {
                let cause = late
                    .and_then(Result::err)
                    .map_or(Cause::HeadTimeout, |error| Cause::of(&error));
                let time = humantime::format_duration(self.settings.options.timeout.0);
                return Ok(self.failed(
                    &request,
                    cause,
                    &format_args!("no response in time (timeout = {time})"),
                ));
            }
        };
        if !answer.status().is_success() {
            let (mut head, content) = answer.into_parts();
            crate::proxy::to_client(&mut head.headers, head.version);
            let mut refusal = http::Response::new(Body::stream(content));
            *refusal.status_mut() = head.status;
            *refusal.headers_mut() = head.headers;
            return Ok(refusal);
        }
        for name in &self.settings.copy {
            for value in answer.headers().get_all(name) {
                request.headers_mut().append(name, value.clone());
            }
        }
        drop(answer);
        inner.call(request).await
    }
}
