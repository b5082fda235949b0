//! Why there is no report.

use std::io;

use crate::PlanError;

/// Why a run could not be made. What goes wrong with single requests is in the [`Report`](crate::Report).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plan cannot be carried out.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Not one connection could be opened; this is the first that failed.
    #[error("no connection could be opened: {0}")]
    Unreachable(#[source] pronghorn_engine::Error),
    /// A thread or its sockets could not be had.
    #[error("the generator failed: {0}")]
    Internal(#[from] io::Error),
}
