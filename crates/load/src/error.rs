//! Errors of a run.

use std::io;

use crate::PlanError;

/// The reason why a run failed. Errors of single requests are in the [`Report`](crate::Report).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// No connection could be opened; this is the first failure.
    #[error("cannot open a connection: {0}")]
    Unreachable(#[source] pronghorn_engine::Error),
    /// A thread or its sockets could not be created.
    #[error("the generator failed: {0}")]
    Internal(#[from] io::Error),
}
