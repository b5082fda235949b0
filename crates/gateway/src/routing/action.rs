//! The action of a route.

use std::sync::Arc;

use http::{HeaderValue, StatusCode};

use crate::StaticFiles;
use crate::application::ApplicationPlan;
use crate::proxy::UpstreamPlan;

/// The action of a route.
pub(crate) enum ActionPlan {
    Files(StaticFiles),
    Proxy(Arc<UpstreamPlan>),
    Application(Arc<ApplicationPlan>),
    Redirect { to: String, status: StatusCode },
    Respond { status: StatusCode, content_type: HeaderValue, body: bytes::Bytes },
}
