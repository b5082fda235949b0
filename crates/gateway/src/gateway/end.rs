//! What is done with a response before it is sent.

use std::rc::Rc;
use std::sync::Arc;

use http::HeaderValue;
use http::header::ALT_SVC;
use pronghorn_engine::Response;

use super::local::Local;
use crate::access_log::{Logged, Note};
use crate::extras::with_page;
use crate::plan::{ActionPlan, RoutePlan, SitePlan};

/// What is done with a response before it is sent.
pub(super) struct End {
    pub(super) local: Rc<Local>,
    pub(super) site: Arc<SitePlan>,
    pub(super) route: Option<usize>,
    pub(super) logged: Option<Box<Logged>>,
    pub(super) alt_svc: Option<HeaderValue>,
}

impl End {
    /// Whether what answers is another server.
    pub(super) fn asks_upstream(&self) -> bool {
        self.route().is_some_and(|route| matches!(route.action, ActionPlan::Proxy(_) | ActionPlan::Application(_)))
    }

    /// Whether that is one that speaks nothing but FastCGI.
    pub(super) fn asks_application(&self) -> bool {
        self.route().is_some_and(|route| matches!(route.action, ActionPlan::Application(_)))
    }

    /// Where the access log learns of the upstream that is asked, if it wants to.
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
            if let Some(extras) = &route.extras {
                response = extras.finish(response);
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
