//! Sites and their routes, as all workers share them.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use pronghorn_engine::{EarlyData, EarlyRequest, Request};

use super::action::ActionPlan;
use crate::certificates::client_auth::ClientAuthPlan;
use crate::config::{ClearText, MatchTable, PathPattern, Paths};
use crate::layers::{Layer, is_unproved};
use crate::routing::postprocessing::{Pages, RoutePostprocessing};
use crate::routing::route_index::RouteIndex;
use crate::routing::rules::Rules;
use crate::switches::SiteSwitches;
use crate::tunnels::Tunnels;

/// A site.
pub(crate) struct SitePlan {
    pub(crate) is_secure: bool,
    pub(crate) switches: Arc<SiteSwitches>,
    pub(crate) clear_text: ClearText,
    /// `Alt-Svc` value of responses over TLS and TCP, if HTTP/3 is on.
    pub(crate) alt_svc: Option<HeaderValue>,
    /// Authorization of client certificates, if the site requests them.
    pub(crate) client_auth: Option<ClientAuthPlan>,
    pub(crate) routes: Vec<RoutePlan>,
    pub(crate) index: RouteIndex,
    /// Error pages for requests without a route.
    pub(crate) pages: Vec<Arc<Pages>>,
}

/// A route. Workers keep their own state for it under its number, which is unique in the plan.
pub(crate) struct RoutePlan {
    pub(crate) number: usize,
    /// Conditions, of which one must match.
    pub(crate) matches: Vec<MatchTable>,
    pub(crate) strip_prefix: bool,
    pub(crate) paths: Paths,
    /// Header fields of clients that this route keeps.
    pub(crate) kept_fields: Box<[HeaderName]>,
    pub(crate) request_headers: Rules,
    pub(crate) response_headers: [Rules; 2],
    /// Protocols that requests may switch to; `None` if the action supports none.
    pub(crate) tunnels: Option<Arc<Tunnels>>,
    pub(crate) early_data: EarlyData,
    pub(crate) layers: Vec<Arc<dyn Layer>>,
    pub(crate) postprocessing: Option<RoutePostprocessing>,
    pub(crate) action: ActionPlan,
}

impl SitePlan {
    /// Returns the index of the first route that matches a request. `path` is one reading of its
    /// path.
    pub(crate) fn find(
        &self,
        method: &Method,
        host: &str,
        path: &str,
        headers: &HeaderMap,
    ) -> Option<usize> {
        let holds = |(route, table): (u32, u32)| {
            self.routes[route as usize].matches[table as usize]
                .is_for_any_path(method, host, headers)
        };
        self.index.find(host, path, holds).map(|(route, _)| route as usize)
    }

    /// Returns the index of the route with that number.
    pub(crate) fn index_of(&self, number: usize) -> Option<usize> {
        // The routes of a site are numbered consecutively.
        let place = number.checked_sub(self.routes.first()?.number)?;
        (place < self.routes.len()).then_some(place)
    }

    /// Returns the route with that number.
    pub(crate) fn route(&self, number: usize) -> Option<&RoutePlan> {
        self.routes.get(self.index_of(number)?)
    }
}

impl RoutePlan {
    /// Returns what to do with a request that may have arrived before the handshake was complete.
    pub(crate) fn treat_early(&self, request: &Request) -> EarlyRequest {
        let needs_address = || self.layers.iter().any(|layer| layer.needs_client());
        match self.early_data.treat(request) {
            // The layer would answer 425.
            EarlyRequest::Answer
                if self.early_data == EarlyData::Hold
                    && is_unproved(&request.peer)
                    && needs_address() =>
            {
                EarlyRequest::Hold
            }
            treatment => treatment,
        }
    }

    /// Returns the prefix before the first wildcard of the pattern that matches a request's path;
    /// if several match, of the first one.
    pub(crate) fn prefix(
        &self,
        method: &Method,
        host: &str,
        path: &str,
        headers: &HeaderMap,
    ) -> &str {
        let table = self.matches.iter().find(|one| one.is_for(method, host, path, headers));
        let pattern =
            table.and_then(|table| table.path.iter().find(|pattern| pattern.matches(path)));
        // A path without a wildcard would be stripped completely.
        pattern
            .map(PathPattern::prefix)
            .filter(|prefix| path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/')))
            .unwrap_or_default()
    }
}
