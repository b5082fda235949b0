//! Callbacks for the progress of a request.

use http::{HeaderMap, StatusCode};

/// Called when a request begins to wait for the server to allow another one, and when it stops.
pub(crate) type OnQueue<'a> = &'a mut dyn FnMut(bool);

/// Called for each interim response.
pub(crate) type OnInterim<'a> = &'a mut dyn FnMut(StatusCode, HeaderMap);

/// Callbacks for the progress of a request.
pub(crate) struct Observer<'a> {
    pub(crate) on_interim: Option<OnInterim<'a>>,
    pub(crate) on_queue: Option<OnQueue<'a>>,
}
