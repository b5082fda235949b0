//! An upstream on one worker.

use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::header::{RETRY_AFTER, SET_COOKIE};
use http::{HeaderMap, HeaderValue, StatusCode};
use pronghorn_client::{Error, Pool};
use pronghorn_engine::{Body, Connector, Handle, Response};

use super::attempt::Head;
use super::balance::{Balance, Key, OpenRequest};
use super::budget::WorkerBudget;
use super::client_info::ClientInfo;
use super::failure::{Reason, refusal};
use super::failure_log::{Cause, Failure, Outcome, RequestLine};
use super::fields::Clients;
use super::sticky::Cookies;
use super::target::target;
use super::upstream_plan::UpstreamPlan;
use super::value_cache::ValueCache;
use crate::buffering::ResponseBuffering;
use crate::buffering::spool::Spool;
use crate::clock;
use crate::config::{Policy, ServerAddress, Upstream, UpstreamHost};
use crate::fastcgi;
use crate::responses::text;

/// An upstream on one worker.
pub(crate) struct WorkerUpstream {
    pub(super) plan: Arc<UpstreamPlan>,
    pub(super) handle: Handle,
    pub(super) pool: Pool,
    /// Used instead of the pool by FastCGI upstreams.
    pub(super) fastcgi: Option<fastcgi::Client>,
    pub(super) balance: Balance,
    pub(super) cookies: Option<Cookies>,
    pub(super) budget: WorkerBudget,
    pub(super) buffering: Option<ResponseBuffering>,
    pub(super) clients: Clients,
    pub(super) values: ValueCache,
}

impl WorkerUpstream {
    pub(super) fn new(plan: Arc<UpstreamPlan>, connector: &Connector) -> io::Result<Self> {
        let pool = Pool::with_connector(connector, plan.options())?;
        let balance = plan.balance();
        let cookies = Cookies::new(&plan.settings);
        let budget = WorkerBudget::new(&plan.budget);
        let is_fastcgi = plan.settings.speaks_fastcgi();
        let failures = plan.failures.clone();
        let listener =
            Rc::new(move |server: &ServerAddress, text: &[u8]| failures.log_output(server, text));
        let fastcgi = is_fastcgi.then(|| fastcgi::Client::new(connector, &plan.settings, listener));
        let buffering = plan.settings.buffers().map(|most| {
            let (failures, buffers) = (plan.failures.clone(), plan.observer.buffers.clone());
            let tell = Box::new(move |line| failures.log_unpaced(line));
            ResponseBuffering::new(connector.handle().clone(), most, buffers, tell)
        });
        let handle = connector.handle().clone();
        Ok(Self {
            plan,
            handle,
            pool,
            fastcgi,
            balance,
            cookies,
            budget,
            buffering,
            clients: Clients::default(),
            values: ValueCache::default(),
        })
    }

    /// Returns a spool that stores up to `most` bytes of a request body on disk.
    pub(crate) fn spool(&self, most: u64) -> Spool {
        let buffers = &self.plan.observer.buffers;
        Spool::new(most, buffers.room_on_disk(), buffers.folder())
    }

    /// Logs that the spool could not be written.
    pub(crate) fn tell_of_spool(&self, error: &io::Error) {
        let folder = self.plan.observer.buffers.folder();
        let hint = "free disk space, or set `buffering.folder` in [server]";
        let line = format!(
            "cannot buffer request bodies without content-length in {}: {error}; {hint}",
            folder.display()
        );
        self.plan.failures.log_output(&"this worker", line.as_bytes());
    }

    /// Returns the key that selects a request's server.
    pub(super) fn key<'a>(&self, head: &'a Head, client: IpAddr) -> Key<'a> {
        let Upstream { policy, policy_header, .. } = &self.plan.settings;
        let field = || head.headers.get(policy_header.as_ref()?.name());
        match policy {
            Policy::Path => Key::Text(head.path.as_str().as_bytes()),
            Policy::Header => {
                field().map_or(Key::Client(client), |value| Key::Text(value.as_bytes()))
            }
            _ => Key::Client(client),
        }
    }

    /// Returns the server that the client's cookie names, if the upstream is sticky.
    pub(super) fn cookie_server(&self, headers: &HeaderMap) -> Option<usize> {
        self.cookies.as_ref()?.server(headers)
    }

    /// Sets the cookie of a sticky upstream, unless the client has it already.
    pub(super) fn set_cookie(
        &self,
        open: &OpenRequest,
        cookie_server: Option<usize>,
        client: ClientInfo,
        headers: &mut HeaderMap,
    ) {
        if let Some(cookies) = &self.cookies
            && cookie_server != Some(open.index())
        {
            headers.append(SET_COOKIE, cookies.of(open.index(), client.secure));
        }
    }

    pub(super) fn may_retry(&self) -> bool {
        let counts = &self.plan.observer.counts;
        let may = self.budget.allows(clock::now());
        let count = if may { &counts.retries } else { &counts.retries_denied };
        count.fetch_add(1, Ordering::Relaxed);
        may
    }

    /// Returns the response if no server is available for a request.
    pub(super) fn no_server(&self, request_line: &RequestLine) -> Response {
        let counts = &self.plan.observer.counts;
        let (answer, reason) = if self.balance.is_busy() {
            counts.servers_busy.fetch_add(1, Ordering::Relaxed);
            (
                refusal(&Error::Busy(self.plan.name.to_string())),
                "all servers are at their limit of open requests",
            )
        } else {
            counts.no_server.fetch_add(1, Ordering::Relaxed);
            let answer = text(StatusCode::SERVICE_UNAVAILABLE, "no upstream server is available\n");
            (
                answer.with_header(RETRY_AFTER, self.balance.seconds_to_wait().into()),
                "no server is available",
            )
        };
        self.log_without_server(request_line, reason, &answer);
        answer
    }

    /// Returns the response if no further server is available after a failure.
    pub(super) fn no_further_server(&self, request_line: &RequestLine, error: &Error) -> Response {
        let answer = refusal(error);
        self.log_without_server(request_line, "no other server is available", &answer);
        answer
    }

    fn log_without_server(&self, request_line: &RequestLine, reason: &str, answer: &Response) {
        let outcome = Outcome::Answered(answer.status);
        self.plan.failures.log_failure(Failure {
            cause: None,
            server: None,
            request_line,
            reason: &reason,
            outcome,
        });
    }

    /// Records that a server did not respond. The reason is logged before a change of the server's
    /// health.
    pub(super) fn failed(
        &self,
        open: &OpenRequest,
        request_line: &RequestLine,
        error: &Error,
        has_content: bool,
        outcome: Outcome,
    ) {
        self.log_failure(open, request_line, error, outcome);
        open.failed(error, has_content);
    }

    pub(super) fn log_failure(
        &self,
        open: &OpenRequest,
        request_line: &RequestLine,
        error: &Error,
        outcome: Outcome,
    ) {
        let (cause, reason) = (Some(Cause::of(error)), Reason(error, &self.plan.settings));
        self.plan.failures.log_failure(Failure {
            cause,
            server: Some(open.address()),
            request_line,
            reason: &reason,
            outcome,
        });
    }

    /// Builds the request to a server from `head`, which is consumed.
    pub(super) fn request(
        &self,
        head: &mut Head,
        server: &ServerAddress,
        content: Body,
    ) -> Box<http::Request<Body>> {
        let mut request = Box::new(http::Request::new(content));
        *request.method_mut() = std::mem::take(&mut head.method);
        *request.uri_mut() = target(server.secure, &server.authority, &head.path);
        *request.headers_mut() = std::mem::take(&mut head.headers);
        server.direct(&mut request);
        if let Some(host) = self.host(server) {
            request.headers_mut().insert(http::header::HOST, host);
        }
        request
    }

    /// Returns the `host` for a server, unless it is the client's.
    pub(super) fn host(&self, server: &ServerAddress) -> Option<HeaderValue> {
        let host = match &self.plan.settings.host {
            UpstreamHost::Client => return None,
            UpstreamHost::Server => HeaderValue::try_from(server.authority.as_str()),
            UpstreamHost::Fixed(host) => Ok(host.0.clone()),
        };
        Some(host.expect("invariant: an authority is visible ASCII"))
    }
}
