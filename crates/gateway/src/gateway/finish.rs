//! Finishing of a response before it is sent.

use std::rc::Rc;
use std::sync::Arc;

use http::HeaderValue;
use http::header::ALT_SVC;
use pronghorn_engine::Response;

use super::worker_state::WorkerState;
use crate::access_log::{Logged, Note};
use crate::routing::action::ActionPlan;
use crate::routing::postprocessing::with_page;
use crate::routing::site_plan::{RoutePlan, SitePlan};

/// The state needed to finish a response before it is sent.
pub(super) struct ResponseFinisher {
    pub(super) worker_state: Rc<WorkerState>,
    pub(super) site: Arc<SitePlan>,
    pub(super) route: Option<usize>,
    pub(super) logged: Option<Box<Logged>>,
    pub(super) alt_svc: Option<HeaderValue>,
}

impl ResponseFinisher {
    /// Returns whether the route forwards to another server.
    pub(super) fn uses_upstream(&self) -> bool {
        self.route().is_some_and(|route| {
            matches!(route.action, ActionPlan::Proxy(_) | ActionPlan::Application(_))
        })
    }

    /// Returns whether the route forwards to a FastCGI application.
    pub(super) fn uses_application(&self) -> bool {
        self.route().is_some_and(|route| matches!(route.action, ActionPlan::Application(_)))
    }

    /// Returns the note in which the access log records the upstream, if it does.
    pub(super) fn note(&mut self) -> Option<Note> {
        self.logged.as_mut().and_then(|logged| logged.note())
    }

    pub(super) fn route(&self) -> Option<&RoutePlan> {
        self.site.route(self.route?)
    }

    pub(super) fn finish(mut self, mut response: Response) -> Response {
        if let Some(alt_svc) = self.alt_svc.take() {
            response.headers.insert(ALT_SVC, alt_svc);
        }
        if let Some(route) = self.route() {
            if let Some(postprocessing) = &route.postprocessing {
                response = postprocessing.finish(response);
            }
            for rules in &route.response_headers {
                if !rules.is_empty() {
                    rules.apply(response.fields_mut());
                }
            }
        } else {
            response = with_page(&self.site.pages, response);
        }
        match self.logged {
            Some(logged) => logged.finish(response),
            None => response,
        }
    }
}
