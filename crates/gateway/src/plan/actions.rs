//! Actions of routes, built from the configuration.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use http::HeaderValue;
use pronghorn_client::Roots;

use super::builder::{PlanBuilder, Reported, status};
use crate::StaticFiles;
use crate::application::ApplicationPlan;
use crate::application::collecting::BodyCollector;
use crate::application::scripts::Scripts;
use crate::config::{
    ContentType, DEFAULT_COLLECT, DEFAULT_COLLECT_ON_DISK, FileExtension, Files, Location, Php,
    Proxy, Respond, Route, Upstream,
};
use crate::proxy::UpstreamPlan;
use crate::routing::action::ActionPlan;

impl PlanBuilder<'_> {
    pub(super) fn action(&mut self, route: &Route) -> Option<ActionPlan> {
        if let Some(files) = &route.files {
            return self.files(route, files);
        }
        if let Some(redirect) = &route.redirect {
            let to = redirect.0.to.0.to_str().unwrap_or_default().to_owned();
            return Some(ActionPlan::Redirect { to, status: status(redirect.0.status) });
        }
        if let Some(Respond(respond)) = &route.respond {
            let content_type = respond.content_type.as_ref().map(|value| value.0.clone());
            return Some(ActionPlan::Respond {
                status: status(respond.status.unwrap_or(200)),
                content_type: content_type
                    .unwrap_or(HeaderValue::from_static("text/plain; charset=utf-8")),
                body: respond.body.clone().into(),
            });
        }
        if let Some(php) = &route.php {
            return self.php(route, php);
        }
        let proxy = route.proxy.as_ref()?;
        let upstream = match proxy {
            Proxy::Named(name) => self.config.upstreams.get(name)?,
            Proxy::Own(upstream) => upstream,
        };
        let is_fastcgi = upstream.speaks_fastcgi();
        let upstream =
            self.upstream(&upstream_name(proxy), upstream, &route.location.key("proxy"))?;
        if !is_fastcgi {
            return Some(ActionPlan::Proxy(upstream));
        }
        let plan = ApplicationPlan {
            upstream,
            scripts: None,
            variables: [].into(),
            collector: BodyCollector::new(DEFAULT_COLLECT().0, DEFAULT_COLLECT_ON_DISK().0),
        };
        Some(ActionPlan::Application(Arc::new(plan)))
    }

    fn php(&mut self, route: &Route, php: &Php) -> Option<ActionPlan> {
        let location = route.location.key("php");
        let upstream = php.upstream(&self.config.upstreams)?;
        let upstream =
            self.upstream(&upstream_name(&php.server), &upstream, &location.key("server"))?;
        let root = self.config.path(&route.location, &php.root);
        // Scripts run in the folder that is opened here, even if a link to it is changed, until the
        // next reload.
        let opened = open_folder(&root, php.links_outside)
            .and_then(|opened| Ok((opened, std::fs::canonicalize(&root)?)));
        let (files, folder) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let message = format_args!("{}: {error}", root.display());
                self.missing_file(
                    &location.key("root"),
                    &error,
                    message,
                    "name a folder that this user may read",
                );
                return None;
            }
        };
        let files = if php.precompressed { files.with_precompressed() } else { files };
        let failures = self.context.observer.failure_logs.of_folder(&root);
        let files = files.with_types(content_types(&php.types)).with_failure_log(failures);
        let folder = php.script_root.clone().unwrap_or(folder);
        let fallback = Some(php.fallback.clone()).filter(|name| !name.is_empty());
        let scripts = Scripts::new(files, &php.index, fallback, folder.as_os_str().as_bytes());
        Some(ActionPlan::Application(Arc::new(ApplicationPlan {
            upstream,
            scripts: Some(Arc::new(scripts)),
            variables: php
                .variables
                .iter()
                .map(|(name, value)| (name.0.clone(), value.clone()))
                .collect(),
            collector: BodyCollector::new(php.collect.0, php.collect_on_disk.0),
        })))
    }

    fn files(&mut self, route: &Route, Files(files): &Files) -> Option<ActionPlan> {
        let root = self.config.path(&route.location, &files.root);
        match open_folder(&root, files.links_outside) {
            Ok(opened) => {
                let opened =
                    opened.with_index(&files.index).with_types(content_types(&files.types));
                let opened = if files.precompressed { opened.with_precompressed() } else { opened };
                let opened = if files.listing { opened.with_listing() } else { opened };
                let opened = if files.hidden { opened.with_hidden() } else { opened };
                let opened =
                    opened.with_failure_log(self.context.observer.failure_logs.of_folder(&root));
                Some(ActionPlan::Files(match &files.fallback {
                    Some(fallback) => opened.with_fallback(fallback),
                    None => opened,
                }))
            }
            Err(error) => {
                self.missing_file(
                    &route.location.key("files"),
                    &error,
                    format_args!("{}: {error}", root.display()),
                    "name a folder that this user may read",
                );
                None
            }
        }
    }

    fn upstream(
        &mut self,
        name: &str,
        upstream: &Upstream,
        location: &Location,
    ) -> Option<Arc<UpstreamPlan>> {
        let Ok(trust) = self.trust(upstream, location) else { return None };
        let kept = |known: &[Arc<UpstreamPlan>]| {
            known.iter().find(|plan| plan.is_of(name, upstream, trust.as_ref())).cloned()
        };
        if let Some(plan) = self.known_upstreams.get(name).and_then(|known| kept(known)) {
            return Some(plan);
        }
        let before = self.upstreams_before.get(name).cloned().unwrap_or_default();
        // An unchanged upstream keeps its connections.
        let plan = if let Some(plan) = kept(&before) {
            plan
        } else {
            let roots = Roots::Config(self.roots(upstream, trust.as_ref(), location)?);
            Arc::new(UpstreamPlan::new(
                name,
                upstream.clone(),
                (roots, trust),
                &before,
                self.context.observer,
            ))
        };
        self.upstreams.push(plan.clone());
        self.known_upstreams.entry(plan.name().clone()).or_default().push(plan.clone());
        Some(plan)
    }

    /// Reads the file in `tls.trust`, if there is one.
    fn trust(
        &mut self,
        upstream: &Upstream,
        location: &Location,
    ) -> Result<Option<Arc<[u8]>>, Reported> {
        let Some(path) = &upstream.tls.trust else { return Ok(None) };
        let path = self.config.path(&upstream.location, path);
        match std::fs::read(&path) {
            Ok(pem) => Ok(Some(pem.into())),
            Err(error) => {
                let message = format_args!("{}: {error}", path.display());
                self.missing_file(
                    location,
                    &error,
                    message,
                    "name a file with certificates in PEM form as tls.trust",
                );
                Err(Reported)
            }
        }
    }

    fn roots(
        &mut self,
        upstream: &Upstream,
        trust: Option<&Arc<[u8]>>,
        location: &Location,
    ) -> Option<Arc<rustls::ClientConfig>> {
        let made = match (trust, &self.system_roots) {
            (Some(pem), _) => Roots::Pem(pem.clone()).to_config(),
            (None, Some(roots)) => return Some(roots.clone()),
            (None, None) => Roots::System.to_config(),
        };
        match made {
            Ok(config) => {
                let config = Arc::new(config);
                if trust.is_none() {
                    self.system_roots = Some(config.clone());
                }
                Some(config)
            }
            Err(error) => {
                let file = upstream.tls.trust.as_ref().map(|path| {
                    format!("{}: ", self.config.path(&upstream.location, path).display())
                });
                let message = format!("{}{error}", file.unwrap_or_default());
                self.problem(
                    location,
                    message,
                    "name a file with certificates in PEM form as tls.trust",
                );
                None
            }
        }
    }
}

fn open_folder(folder: &Path, links_outside: bool) -> io::Result<StaticFiles> {
    let opened = StaticFiles::new(folder)?;
    Ok(if links_outside { opened.with_links_outside() } else { opened })
}

fn content_types(
    types: &BTreeMap<FileExtension, ContentType>,
) -> impl Iterator<Item = (String, HeaderValue)> {
    types.iter().map(|(end, content_type)| (end.0.clone(), content_type.0.clone()))
}

/// Returns the name of an upstream for logs and metrics.
fn upstream_name(proxy: &Proxy) -> String {
    match proxy {
        Proxy::Named(name) => name.clone(),
        Proxy::Own(upstream) => {
            let addresses: Vec<_> =
                upstream.servers.iter().map(|server| server.0.address.to_string()).collect();
            addresses.join(",")
        }
    }
}
