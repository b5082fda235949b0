//! Sending a health check in the protocol of the upstream.

use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt as _;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use http::header::{HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use http_body::Body as _;
use percent_encoding::percent_decode_str;
use pronghorn_client::{Options, Pool};
use pronghorn_engine::{Body, Connector, Protocol};

use crate::config::{ServerAddress, Upstream, UpstreamCheckTable, UpstreamHost};
use crate::fastcgi::{self, RequestInfo, Script};
use crate::proxy::failure::of_content;
use crate::proxy::response_body::Content;
use crate::proxy::target::target;
use crate::proxy::upstream_plan::UpstreamPlan;

/// Maximum bytes of a response body that a check reads.
const MAX_CONTENT_BYTES: usize = 64 << 10;

/// User agent of checks, so that operators recognise them in logs.
const NAME: HeaderValue = HeaderValue::from_static("pronghorn-check");

/// Client for the checks of one upstream.
pub(super) enum CheckClient {
    Http(Box<Pool>),
    FastCgi(fastcgi::Client),
}

impl CheckClient {
    pub(super) fn new(
        upstream: &Arc<UpstreamPlan>,
        check: &UpstreamCheckTable,
        connector: &Connector,
    ) -> io::Result<Self> {
        let timeout = check.timeout;
        if upstream.settings.speaks_fastcgi() {
            let settings = Upstream {
                connect_timeout: timeout,
                head_timeout: timeout,
                body_timeout: timeout,
                ..upstream.settings.clone()
            };
            return Ok(Self::FastCgi(fastcgi::Client::new(
                connector,
                &settings,
                listener(upstream),
            )));
        }
        let options = Options {
            connect_timeout: timeout.0,
            head_timeout: timeout.0,
            body_timeout: timeout.0,
            connections_per_origin: 1,
            retries: 0,
            // Each check resolves the name.
            resolve_every: None,
            ..upstream.options()
        };
        Ok(Self::Http(Box::new(Pool::with_connector(connector, options)?)))
    }

    /// Prepares the client for a check.
    pub(super) fn begin(&self) {
        if let Self::Http(pool) = self {
            // Each check opens a connection, since it also tests whether the server accepts
            // connections.
            pool.close_unused();
        }
    }

    /// Checks that a server sends a good response with its complete body.
    pub(super) async fn answers(
        &self,
        upstream: &UpstreamPlan,
        check: &UpstreamCheckTable,
        index: usize,
    ) -> Result<(), String> {
        let server = &upstream.settings.servers[index].0.address;
        let response = match self {
            Self::Http(pool) => pool
                .send(request(upstream, check, server))
                .await
                .map(|response| response.map(Content::Http)),
            Self::FastCgi(client) => {
                let (info, headers) =
                    (info(upstream, check, server), headers(upstream, check, server));
                let uri = Uri::from(check.path.0.clone());
                let request = fastcgi::Request {
                    info: &info,
                    method: &Method::GET,
                    uri: &uri,
                    headers: &headers,
                    content: Body::empty(),
                };
                client
                    .ask(index, server, request)
                    .await
                    .map(|response| response.map(Content::FastCgi))
            }
        };
        let response = response.map_err(|error| error.to_string())?;
        if !check.is_good(response.status().as_u16()) {
            return Err(format!("unexpected status {}", response.status().as_u16()));
        }
        let mut content = response.into_body();
        let mut read = 0;
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut content).poll_frame(cx)).await {
            let frame = frame.map_err(|error| of_content(&error).to_string())?;
            read += frame.data_ref().map_or(0, bytes::Bytes::len);
            if read > MAX_CONTENT_BYTES {
                break;
            }
        }
        Ok(())
    }
}

/// Returns a listener that logs an application's error output until the application is down. After
/// that every check would repeat it.
fn listener(upstream: &Arc<UpstreamPlan>) -> fastcgi::Listener {
    let upstream = upstream.clone();
    Rc::new(move |server, text| {
        let index = upstream.settings.servers.iter().position(|one| one.0.address == *server);
        if index.is_some_and(|index| !upstream.health[index].is_down()) {
            upstream.failures.log_output(server, text);
        }
    })
}

fn host(
    upstream: &UpstreamPlan,
    check: &UpstreamCheckTable,
    server: &ServerAddress,
) -> HeaderValue {
    match (&check.host, &upstream.settings.host) {
        (Some(host), _) | (None, UpstreamHost::Fixed(host)) => host.0.clone(),
        (None, UpstreamHost::Client | UpstreamHost::Server) => {
            HeaderValue::try_from(server.authority.as_str())
                .expect("invariant: an authority is visible ASCII")
        }
    }
}

fn headers(
    upstream: &UpstreamPlan,
    check: &UpstreamCheckTable,
    server: &ServerAddress,
) -> HeaderMap {
    HeaderMap::from_iter([(HOST, host(upstream, check, server)), (USER_AGENT, NAME)])
}

fn request(
    upstream: &UpstreamPlan,
    check: &UpstreamCheckTable,
    server: &ServerAddress,
) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = target(server.secure, &server.authority, &check.path.0);
    server.direct(&mut request);
    *request.headers_mut() = headers(upstream, check, server);
    request
}

/// Builds the FastCGI request of a check. The client is this machine.
fn info(
    upstream: &UpstreamPlan,
    check: &UpstreamCheckTable,
    server: &ServerAddress,
) -> RequestInfo {
    let path: Vec<u8> = percent_decode_str(check.path.0.path()).collect();
    let script = match &check.script {
        Some(file) => Script {
            name: path,
            file: Some(file.as_os_str().as_bytes().to_vec()),
            ..Script::default()
        },
        // PHP-FPM compares the name, and requires a file name, too.
        None if upstream.settings.runs_scripts => {
            Script { file: Some(path.clone()), name: path, ..Script::default() }
        }
        None => Script { path_info: path, ..Script::default() },
    };
    let host = host(upstream, check, server);
    let authority = host
        .to_str()
        .ok()
        .and_then(|host| host.parse().ok())
        .unwrap_or_else(|| server.authority.clone());
    RequestInfo {
        script,
        target: target(false, &authority, &check.path.0),
        client: Ipv4Addr::LOCALHOST.into(),
        peer: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        protocol: Protocol::Http1,
        secure: false,
        is_trusted: false,
        length: 0,
        variables: [].into(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::config::{Time, UpstreamCheck};

    pub(crate) fn table() -> UpstreamCheckTable {
        UpstreamCheckTable {
            path: "/health".parse().expect("a path"),
            every: Time::seconds(5),
            timeout: Time::seconds(2),
            statuses: Vec::new(),
            failures: 3,
            successes: 2,
            host: None,
            script: None,
        }
    }

    fn plan(upstream: Upstream) -> UpstreamPlan {
        UpstreamPlan::new(
            "app",
            upstream,
            (pronghorn_client::Roots::System, None),
            &[],
            &Arc::default(),
        )
    }

    #[test]
    fn check_asks_for_the_host_that_is_named() {
        let host = |of_check: Option<&str>, of_upstream: &str| {
            let mut upstream =
                crate::config::Upstream::of("http://10.0.0.1:3000".parse().expect("an address"));
            upstream.host = of_upstream.parse().expect("a host");
            let check = UpstreamCheckTable {
                host: of_check.map(|host| host.parse().expect("a value")),
                ..table()
            };
            upstream.check = Some(UpstreamCheck(check.clone()));
            let plan = plan(upstream);
            let request = request(&plan, &check, &plan.settings.servers[0].0.address);
            assert_eq!(request.uri().to_string(), "http://10.0.0.1:3000/health");
            request.headers()[HOST].to_str().expect("text").to_owned()
        };
        assert_eq!(host(None, "client"), "10.0.0.1:3000");
        assert_eq!(host(None, "app.internal"), "app.internal");
        assert_eq!(host(Some("health.internal"), "app.internal"), "health.internal");
    }

    #[test]
    fn application_is_asked_for_a_path_and_php_for_a_script() {
        let script = |runs_scripts: bool, script: Option<&str>| {
            let mut upstream = Upstream::of("fastcgi://10.0.0.1:9000".parse().expect("an address"));
            upstream.runs_scripts = runs_scripts;
            let plan = plan(upstream);
            let check = UpstreamCheckTable {
                path: "/a%20b?c".parse().expect("a path"),
                script: script.map(Into::into),
                ..table()
            };
            let info = info(&plan, &check, &plan.settings.servers[0].0.address);
            assert_eq!(info.target, "http://10.0.0.1:9000/a%20b?c");
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
            (text(info.script.name), info.script.file.map(text), text(info.script.path_info))
        };
        assert_eq!(script(false, None), (String::new(), None, "/a b".to_owned()));
        assert_eq!(script(true, None), ("/a b".to_owned(), Some("/a b".to_owned()), String::new()));
        assert_eq!(
            script(false, Some("/w/h.php")),
            ("/a b".to_owned(), Some("/w/h.php".to_owned()), String::new())
        );
    }
}
