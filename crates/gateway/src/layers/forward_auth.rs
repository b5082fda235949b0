//! `forward-auth`: another server says who may.

use std::cell::OnceCell;
use std::fmt::Display;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE,
    PROXY_AUTHORIZATION, RANGE, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use pronghorn_client::{Http3, Options as ClientOptions, Pool, Roots};
use pronghorn_engine::{Body, BodyError, Peer};
use schemars::JsonSchema;
use serde::Deserialize;
use tower_service::Service;

use super::{Around, Asked, Client, Layer, LocalService, OnWorker, Request, Response, Surroundings, from_engine, take_away, too_early};
use crate::canonical::{AMBIGUOUS, Reading};
use crate::config::{FieldName, ServerAddress, Time};
use crate::forwarding;
use crate::in_time::in_time;
use crate::plan::text;
use crate::proxy::{Cause, Failure, RequestLine, Then, Trouble};

/// What belongs to the request's connection or content, which the other server does not get.
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
    /// The server that is asked, such as `http://127.0.0.1:9091`.
    address: ServerAddress,
    /// What it is asked for.
    #[serde(default = "path")]
    path: String,
    /// Fields of its answer that whatever answers the request gets; what a client says in them is taken away.
    #[serde(default)]
    #[schemars(example = ["remote-user"])]
    copy: Vec<FieldName>,
    /// How long it may take until the head of the answer is there.
    #[serde(default = "timeout")]
    timeout: Time,
    /// A file with the certificates of whom to trust, in PEM form, for a server at `https://`; if it is left out, whom the system trusts.
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
    trouble: Arc<Trouble>,
}

impl ForwardAuth {
    pub(super) fn new(options: Options, surroundings: &Surroundings<'_>) -> Result<Self, String> {
        let path: PathAndQuery = options
            .path
            .parse()
            .ok()
            .filter(|_| options.path.starts_with('/'))
            .ok_or_else(|| format!("{:?} is no path: it begins with a slash, as in /verify", options.path))?;
        let target = crate::proxy::target(options.address.secure, &options.address.authority, &path);
        let roots = match &options.trust {
            _ if !options.address.secure => nobody()?,
            None => Roots::System.to_config().map_err(|error| error.to_string())?,
            Some(file) => {
                let file = surroundings.path(file);
                let wrong =
                    |error: &dyn std::fmt::Display| format!("{}: {error}; name a file with certificates in PEM form", file.display());
                let pem = std::fs::read(&file).map_err(|error| wrong(&error))?;
                Roots::Pem(pem.into()).to_config().map_err(|error| wrong(&error))?
            }
        };
        Ok(Self(Arc::new(Settings {
            target,
            copy: options.copy.iter().map(FieldName::name).collect(),
            roots: Roots::Config(roots.into()),
            trouble: surroundings.trouble(),
            options,
        })))
    }
}

/// Trust for those who ask in clear text.
fn nobody() -> Result<rustls::ClientConfig, String> {
    let builder = rustls::ClientConfig::builder_with_provider(pronghorn_engine::provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
}

impl Layer for ForwardAuth {
    fn around(&self, inner: LocalService, worker: &OnWorker) -> LocalService {
        LocalService::around(OfWorker { settings: self.0.clone(), worker: worker.clone(), pool: OnceCell::new() }, inner)
    }
}

struct OfWorker {
    settings: Arc<Settings>,
    worker: OnWorker,
    pool: OnceCell<Pool>,
}

impl OfWorker {
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

    /// What is asked about a request.
    fn question(&self, request: &Request) -> http::Request<Body> {
        let mut question = http::Request::new(Body::empty());
        *question.method_mut() = Method::GET;
        *question.uri_mut() = self.settings.target.clone();
        self.settings.options.address.direct(&mut question);
        let mut headers = request.headers().clone();
        for name in &NOT_ASKED_WITH {
            headers.remove(name);
        }
        crate::identity_fields::remove_for_question(&mut headers);
        let extensions = request.extensions();
        let asked = extensions.get::<Asked>().map_or_else(|| request.uri(), |asked| &asked.0);
        // As routes compare it: an auth server that decides by the path must see what they see, however the client spelled it.
        let reading = extensions.get::<Reading>().map(|reading| match asked.query() {
            Some(query) => format!("{}?{query}", reading.path),
            None => reading.path.to_string(),
        });
        let target = reading.as_deref().unwrap_or_else(|| asked.path_and_query().map_or("/", PathAndQuery::as_str));
        let host = asked.authority().map(http::uri::Authority::as_str);
        // There is such a field only of a proxy that is trusted.
        let told = forwarding::is_secure(request.headers());
        let secure = told.unwrap_or_else(|| extensions.get::<Peer>().is_some_and(|peer| peer.secure));
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

impl OfWorker {
    /// Whoever looks after the server learns why it was not asked.
    fn failed(&self, request: &Request, cause: Cause, reason: &dyn Display) -> Response {
        let asked = request.extensions().get::<Asked>().map_or_else(|| request.uri(), |asked| &asked.0);
        let note = request.extensions().get().cloned();
        let line = RequestLine { method: request.method().clone(), uri: asked.clone(), note };
        let (server, then) = (&self.settings.options.address, Then::Answered(StatusCode::BAD_GATEWAY));
        self.settings.trouble.failed(Failure { cause: Some(cause), server: Some(server), asked: &line, reason, then });
        unreachable()
    }
}

fn unreachable() -> Response {
    from_engine(text(StatusCode::BAD_GATEWAY, "whether this may be cannot be asked\n"))
}

impl Around for OfWorker {
    async fn call(self: Rc<Self>, mut request: Request, mut inner: LocalService) -> Result<Response, BodyError> {
        for name in &self.settings.copy {
            take_away(request.headers_mut(), name);
        }
        if request.extensions().get::<Client>().is_none() {
            return Ok(too_early());
        }
        // What is allowed for one reading of a path may be forbidden for another.
        if request.extensions().get::<Reading>().is_some_and(|reading| !reading.is_only) {
            return Ok(from_engine(AMBIGUOUS.into()));
        }
        let Some(pool) = self.pool() else { return Ok(unreachable()) };
        let asked = pool.send(self.question(&request));
        let asked = in_time(self.worker.handle(), self.settings.options.timeout.0, asked).await;
        let answer = match asked {
            Some(Ok(answer)) => answer,
            Some(Err(error)) if !error.is_timeout() => return Ok(self.failed(&request, Cause::of(&error), &error)),
            late => {
                let cause = late.and_then(Result::err).map_or(Cause::HeadTimeout, |error| Cause::of(&error));
                let time = humantime::format_duration(self.settings.options.timeout.0);
                return Ok(self.failed(&request, cause, &format_args!("no answer in time (timeout = {time})")));
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
