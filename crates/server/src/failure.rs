//! Failures of services and of response bodies: counted, and passed to the application's hook.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{Method, Uri};
use pronghorn_engine::BodyError;

/// The part of the application that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailedPart {
    /// The service returned an error or an interim status instead of a response, or panicked. The
    /// client receives 500.
    Service,
    /// A response body returned an error or panicked. The client sees a truncated response.
    Body,
}

/// An application error, which is never shown to the client.
///
/// See [`Server::on_failure`](crate::Server::on_failure).
#[derive(Debug)]
#[non_exhaustive]
pub struct Failure<'a> {
    /// The part that failed.
    pub part: FailedPart,
    /// The method of the request.
    pub method: &'a Method,
    /// The target of the request.
    pub uri: &'a Uri,
    /// The error, which is a [`Panicked`] after a panic.
    pub error: &'a (dyn Error + Send + Sync + 'static),
}

/// An application panic, as the error of a [`Failure`].
///
/// ```
/// # use pronghorn_server::{Panicked, Server};
/// let server = Server::new().listen("[::]:443").on_failure(|failure| {
///     let kind = if failure.error.is::<Panicked>() { "a bug" } else { "an error" };
///     eprintln!("{kind}: {failure}");
/// });
/// # let _ = server;
/// ```
#[derive(Debug, thiserror::Error)]
#[error("panicked: {message}")]
#[non_exhaustive]
pub struct Panicked {
    /// The panic message.
    pub message: String,
}

impl Panicked {
    fn new(payload: &(dyn Any + Send)) -> Self {
        let text = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self { message: text.unwrap_or("the panic payload is not a string").to_owned() }
    }
}

impl fmt::Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match self.part {
            FailedPart::Service => "the service",
            FailedPart::Body => "the body of the response",
        };
        write!(f, "{} {}: {part} failed: {}", self.method, self.uri, self.error)
    }
}

pub(crate) type Hook = Box<dyn Fn(&Failure<'_>) + Send + Sync>;

/// Failure counters of a server, shared by all workers, and the application's hook.
#[derive(Default)]
pub(crate) struct Failures {
    hook: Option<Hook>,
    services: AtomicU64,
    bodies: AtomicU64,
}

impl Failures {
    pub(crate) fn new(hook: Option<Hook>) -> Arc<Self> {
        Arc::new(Self { hook, ..Self::default() })
    }

    /// Names and values of the counters.
    pub(crate) fn counts(&self) -> [(&'static str, u64); 2] {
        [("service_errors", &self.services), ("body_errors", &self.bodies)]
            .map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }

    /// Returns a reporter for the response to one request. Method and target are copied only if
    /// there is a hook.
    pub(crate) fn reporter(self: &Arc<Self>, method: &Method, uri: &Uri) -> FailureReporter {
        let request = self.hook.is_some().then(|| Box::new((method.clone(), uri.clone())));
        FailureReporter { failures: self.clone(), request }
    }
}

/// Records the failures of the response to one request.
pub(crate) struct FailureReporter {
    failures: Arc<Failures>,
    request: Option<Box<(Method, Uri)>>,
}

impl FailureReporter {
    pub(crate) fn failed(&self, part: FailedPart, error: &BodyError) {
        let count = match part {
            FailedPart::Service => &self.failures.services,
            FailedPart::Body => &self.failures.bodies,
        };
        count.fetch_add(1, Ordering::Relaxed);
        self.pass_on(part, &**error);
    }

    fn pass_on(&self, part: FailedPart, error: &(dyn Error + Send + Sync + 'static)) {
        if let (Some(hook), Some(request)) = (&self.failures.hook, &self.request) {
            hook(&Failure { part, method: &request.0, uri: &request.1, error });
        }
    }

    /// Runs application code. A panic is reported to the hook and then resumed: the engine counts
    /// it, and ends the response in progress.
    pub(crate) fn catch_panic<T>(&self, part: FailedPart, work: impl FnOnce() -> T) -> T {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
            self.pass_on(part, &Panicked::new(&*payload));
            resume_unwind(payload)
        })
    }
}
