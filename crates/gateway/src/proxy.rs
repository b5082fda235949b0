//! The reverse proxy: requests forwarded to upstreams.

mod attempt;
mod balance;
mod budget;
mod check;
mod client_info;
mod expect_continue;
mod failure;
mod failure_log;
mod fields;
mod forward;
mod health;
mod methods;
mod replayable_body;
mod response;
mod response_body;
mod sticky;
mod target;
mod upgrade;
mod upstream_plan;
mod upstreams;
mod value_cache;
mod worker_upstream;

pub(crate) use self::attempt::Forwarded;
pub(crate) use self::check::Checks;
pub(crate) use self::failure_log::{Cause, Failure, FailureLog, FailureLogs, Outcome, RequestLine};
pub(crate) use self::fields::to_client;
pub(crate) use self::health::Observer;
pub use self::health::{ServerCondition, ServerState, UpstreamCounts};
pub(crate) use self::methods::{METHODS, not_passed_on};
pub(crate) use self::target::target;
pub(crate) use self::upstream_plan::UpstreamPlan;
pub(crate) use self::upstreams::Upstreams;
pub(crate) use self::worker_upstream::WorkerUpstream;
