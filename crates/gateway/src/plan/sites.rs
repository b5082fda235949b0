//! Sites and routes, built from the configuration.

use std::sync::Arc;

use http::HeaderValue;

use super::builder::PlanBuilder;
use crate::config::{AltSvc, FieldName, Route, Server, Site};
use crate::ramp::Ramp;
use crate::routing::action::ActionPlan;
use crate::routing::postprocessing::Pages;
use crate::routing::route_index::RouteIndex;
use crate::routing::rules::Rules;
use crate::routing::site_plan::{RoutePlan, SitePlan};
use crate::switches::SiteSwitches;
use crate::tunnels::Tunnels;

impl PlanBuilder<'_> {
    pub(super) fn site(&mut self, site: &Site, switches: Arc<SiteSwitches>) -> SitePlan {
        let is_secure = site.tls.is_some();
        let pages = self.pages(&site.location, &site.errors, site.errors_of_upstreams);
        let client_auth = self.client_auth(site);
        let routes: Vec<_> =
            site.routes.iter().filter_map(|route| self.route(site, route, &pages)).collect();
        let index = RouteIndex::new(routes.iter().map(|route| &route.matches[..]));
        let alt_svc = if is_secure {
            self.context.https_port.and_then(|port| alt_svc(&self.config.server, port))
        } else {
            None
        };
        SitePlan {
            is_secure,
            switches,
            clear_text: site.clear_text,
            alt_svc,
            client_auth,
            routes,
            index,
            pages,
        }
    }

    pub(super) fn route(
        &mut self,
        site: &Site,
        route: &Route,
        pages: &[Arc<Pages>],
    ) -> Option<RoutePlan> {
        let postprocessing = self.postprocessing(route, pages);
        let layers = self.layers(site, route);
        let action = self.action(route)?;
        let upgrades = matches!(action, ActionPlan::Proxy(_))
            .then(|| route.upgrades.clone().unwrap_or_default());
        let tunnels = upgrades
            .map(|settings| Arc::new(Tunnels::new(settings, self.context.observer.clone())));
        let number = self.routes;
        self.routes += 1;
        Some(RoutePlan {
            number,
            matches: route.matches.0.clone(),
            strip_prefix: route.strip_prefix,
            paths: route.paths(),
            kept_fields: route.keep_fields.iter().map(FieldName::name).collect(),
            request_headers: Rules::from(&route.request_headers),
            response_headers: Rules::both(&site.response_headers, &route.response_headers),
            tunnels,
            early_data: route.early_data.unwrap_or(self.config.server.early_data).into(),
            layers,
            postprocessing: Some(postprocessing)
                .filter(|postprocessing| !postprocessing.is_empty()),
            action,
        })
    }
}

pub(super) fn ramp(server: &Server, port: u16) -> Option<Ramp> {
    let AltSvc { port: advertised, max_age, clear, ramp_up } = &server.alt_svc;
    let ramp_up = ramp_up.as_ref().filter(|_| !clear)?;
    Some(Ramp {
        since: ramp_up.since.0,
        takes: ramp_up.takes.0,
        port: advertised.unwrap_or(port),
        max_age: max_age.0,
    })
}

fn alt_svc(server: &Server, port: u16) -> Option<HeaderValue> {
    let AltSvc { port: advertised, max_age, clear, ramp_up: _ } = &server.alt_svc;
    if *clear {
        return Some(HeaderValue::from_static("clear"));
    }
    let port = advertised.unwrap_or(port);
    HeaderValue::try_from(format!("h3=\":{port}\"; ma={}", max_age.0.as_secs())).ok()
}
