//! Error pages and changes to responses.

use std::sync::Arc;

use http::header::LINK;

use super::builder::{PlanBuilder, status};
use crate::config::{ErrorPages, Location, Route};
use crate::routing::postprocessing::{Pages, RoutePostprocessing};
use crate::static_files::content_types;

/// Maximum size of an error page.
const MAX_PAGE_BYTES: usize = 1 << 20;

impl PlanBuilder<'_> {
    pub(super) fn postprocessing(
        &mut self,
        route: &Route,
        of_site: &[Arc<Pages>],
    ) -> RoutePostprocessing {
        let mut pages = self.pages(&route.location, &route.errors, route.errors_of_upstreams);
        pages.extend_from_slice(of_site);
        RoutePostprocessing {
            rewrite: route.rewrite.as_ref().map(|rewrite| rewrite.0.clone()),
            hints: route.early_hints.iter().map(|hint| (LINK, hint.0.clone())).collect(),
            cache_control: route.cache_control.as_ref().map(|value| value.0.clone()),
            pages,
            own: route
                .respond
                .as_ref()
                .filter(|own| !own.0.body.is_empty())
                .and_then(|own| own.0.status)
                .map(status),
        }
    }

    /// Reads the error pages; returns at most one set of them.
    pub(super) fn pages(
        &mut self,
        location: &Location,
        errors: &ErrorPages,
        for_upstreams: bool,
    ) -> Vec<Arc<Pages>> {
        let mut pages = Pages { pages: Vec::new(), for_upstreams };
        for (status, path) in &errors.0 {
            let path = self.config.path(location, path);
            match std::fs::read(&path) {
                Ok(content) if content.len() <= MAX_PAGE_BYTES => {
                    let content_type = content_types::of_name(&path, "text/plain");
                    pages.pages.push((*status, content_type, content.into()));
                }
                Ok(content) => {
                    let message = format_args!("{} has {} bytes", path.display(), content.len());
                    self.problem(
                        &location.key("errors"),
                        message,
                        "error pages are kept in memory: use at most 1 MiB",
                    );
                }
                Err(error) => {
                    let message = format_args!("{}: {error}", path.display());
                    self.missing_file(
                        &location.key("errors"),
                        &error,
                        message,
                        "name a file that this user may read",
                    );
                }
            }
        }
        if pages.pages.is_empty() { Vec::new() } else { vec![Arc::new(pages)] }
    }
}
