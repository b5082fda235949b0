//! Layers of routes.

use std::sync::Arc;

use super::builder::PlanBuilder;
use crate::config::{Layer as LayerSettings, Route, Site};
use crate::layers::Layer;

impl PlanBuilder<'_> {
    pub(super) fn layers(&mut self, site: &Site, route: &Route) -> Vec<Arc<dyn Layer>> {
        let mut layers = Vec::new();
        let of_site =
            site.layers.iter().zip(0..).map(|(settings, number)| (None, settings, number));
        let of_route =
            route.layers.iter().zip(0..).map(|(settings, number)| (Some(route), settings, number));
        for (route, settings, number) in of_site.chain(of_route) {
            let alike = &route.map_or(&site.layers, |route| &route.layers)[..number];
            let alike = alike
                .iter()
                .filter(|other| {
                    (&other.name, &other.options) == (&settings.name, &settings.options)
                })
                .count();
            let keys = memory_keys(site, route, settings, alike);
            // A stateful layer of a site is shared by all of its routes.
            if let Some(layer) = keys.iter().find_map(|key| self.stateful_layers.get(key)) {
                layers.push(layer.clone());
                continue;
            }
            let before = self.context.before.map(|before| &before.stateful_layers);
            let layer = match before.and_then(|before| keys.iter().find_map(|key| before.get(key)))
            {
                Some(layer) => layer.clone(),
                None => match self.context.layers.make(
                    self.config,
                    settings,
                    &self.context.observer.failure_logs,
                ) {
                    Ok(layer) => layer,
                    Err(mut problems) => {
                        // Problems of a site's layers are reported once, not for each route.
                        problems.retain(|problem| !self.problems.contains(problem));
                        self.problems.append(&mut problems);
                        continue;
                    }
                },
            };
            if layer.is_stateful() {
                self.stateful_layers.extend(keys.into_iter().map(|key| (key, layer.clone())));
            }
            layers.push(layer);
        }
        layers
    }
}

/// Returns the keys by which a stateful layer is found again at a reload: its settings, its route,
/// and a host of its site. There is a key for each host, so that a site that gains or loses hosts
/// remains the same site; its position in the files does not matter.
///
/// `alike`: the number of layers with the same settings before it in its list.
fn memory_keys(
    site: &Site,
    route: Option<&Route>,
    settings: &LayerSettings,
    alike: usize,
) -> Vec<String> {
    let LayerSettings { name, options, location: _ } = settings;
    let matches = route.map(|route| &route.matches);
    let rest = format!("{matches:?} {alike} {name:?} {options:?}");
    site.hosts.iter().map(|host| format!("{host} {rest}")).collect()
}
