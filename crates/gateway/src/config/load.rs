//! Loading of configuration files into a checked configuration.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use pronghorn_engine::Limits;

use super::check;
use super::configuration::{Config, Sources};
use super::file::{File, Included};
use super::layer::Layer;
use super::location::{Location, Step};
use super::problem::{Fault, Problem};
use super::proxy::Proxy;
use super::server::LimitTable;
use super::site::Site;
use super::source::Source;
use super::upstream::Upstream;

impl Config {
    /// Reads `file` and the files that it includes, with this process's environment.
    ///
    /// # Errors
    ///
    /// Returns all errors, in the order of files and lines.
    pub fn load(file: &Path) -> Result<Self, Vec<Problem>> {
        Self::load_with(file, &|name| std::env::var(name).ok())
    }

    /// Like [`Config::load`], but also returns the usable part of an invalid configuration, so that
    /// the caller can check it further.
    pub fn read(file: &Path) -> (Option<Self>, Vec<Problem>) {
        Self::read_with(file, &|name| std::env::var(name).ok())
    }

    pub(crate) fn load_with(
        file: &Path,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<Problem>> {
        match Self::read_with(file, environment) {
            (Some(config), problems) if problems.is_empty() => Ok(config),
            (_, problems) => Err(problems),
        }
    }

    fn read_with(
        file: &Path,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> (Option<Self>, Vec<Problem>) {
        let mut problems = Vec::new();
        let mut sources = Sources::default();
        let Some((source, main)) = Source::read::<File>(file, environment, &mut problems) else {
            return (None, problems);
        };
        sources.0.push(source);
        let Some(File {
            include,
            server,
            limits,
            log,
            admin,
            acme,
            fleet,
            mut upstreams,
            mut sites,
        }) = main
        else {
            return (None, in_order(problems));
        };
        assign_locations(0, &mut upstreams, &mut sites);
        // Whether every file could be read in part: others may refer to names in it.
        let mut is_known = true;
        for (index, pattern) in include.iter().enumerate() {
            let location = Location { file: 0, path: vec!["include".into(), index.into()] };
            let before = problems.len();
            let paths = included(file, pattern, &sources, &location, &mut problems);
            is_known &= problems.len() == before;
            for path in paths {
                let Some((source, part)) =
                    Source::read::<Included>(&path, environment, &mut problems)
                else {
                    is_known = false;
                    continue;
                };
                let number = sources.0.len();
                sources.0.push(source);
                let Some(mut part) = part else {
                    is_known = false;
                    continue;
                };
                assign_locations(number, &mut part.upstreams, &mut part.sites);
                sites.append(&mut part.sites);
                for (name, upstream) in part.upstreams {
                    if upstreams.contains_key(&name) {
                        let problem = sources.problem(
                            &upstream.location,
                            format_args!("duplicate upstream {name:?}"),
                        );
                        problems.push(problem.with_hint("use a unique name"));
                    }
                    upstreams.insert(name, upstream);
                }
            }
        }
        let limits = read_limits(&limits, &sources, &mut problems);
        mark_script_upstreams(&mut upstreams, &mut sites);
        let unknown = problems.iter().filter(|problem| problem.message.starts_with("unknown key "));
        let misspelt = unknown.map(|problem| problem.file.clone()).collect();
        let mut config = Self {
            server,
            limits,
            log,
            admin,
            acme,
            fleet,
            upstreams,
            sites,
            warnings: Vec::new(),
            is_whole: problems.is_empty(),
            misspelt,
            sources,
        };
        let warnings = if is_known { check::check(&config, &mut problems) } else { Vec::new() };
        if problems.is_empty() {
            config.warnings = warnings;
        }
        (is_known.then_some(config), in_order(problems))
    }
}

/// Stores its location in each upstream, site, route and layer.
fn assign_locations(file: usize, upstreams: &mut BTreeMap<String, Upstream>, sites: &mut [Site]) {
    let at = |path: Vec<Step>| Location { file, path };
    for (name, upstream) in upstreams {
        upstream.location = at(vec!["upstreams".into(), name.as_str().into()]);
    }
    for (index, site) in sites.iter_mut().enumerate() {
        site.location = at(vec!["sites".into(), index.into()]);
        assign_layer_locations(&mut site.layers, &site.location);
        for (index, route) in site.routes.iter_mut().enumerate() {
            route.location = site.location.child(["routes".into(), index.into()]);
            assign_layer_locations(&mut route.layers, &route.location);
        }
    }
}

/// Marks the upstreams that run scripts for a `php` route.
fn mark_script_upstreams(upstreams: &mut BTreeMap<String, Upstream>, sites: &mut [Site]) {
    for php in
        sites.iter_mut().flat_map(|site| &mut site.routes).filter_map(|route| route.php.as_mut())
    {
        let upstream = match &mut php.server {
            Proxy::Named(name) => upstreams.get_mut(name),
            Proxy::Own(own) => Some(&mut **own),
        };
        if let Some(upstream) = upstream {
            upstream.runs_scripts = true;
        }
    }
}

fn assign_layer_locations(layers: &mut [Layer], owner: &Location) {
    for (index, layer) in layers.iter_mut().enumerate() {
        layer.location = owner.child(["layers".into(), index.into()]);
    }
}

fn included(
    file: &Path,
    pattern: &str,
    sources: &Sources,
    location: &Location,
    problems: &mut Vec<Problem>,
) -> Vec<PathBuf> {
    let whole = file.parent().unwrap_or(Path::new("")).join(pattern);
    let found = match glob::glob(&whole.to_string_lossy()) {
        Ok(found) => found,
        Err(error) => {
            problems.push(
                sources
                    .problem(location, format_args!("invalid file pattern {pattern:?}: {error}")),
            );
            return Vec::new();
        }
    };
    let mut paths = Vec::new();
    for path in found {
        match path {
            Ok(path) => paths.push(path),
            Err(error) => {
                problems.push(
                    sources
                        .problem(
                            location,
                            format_args!(
                                "cannot read {}: {}",
                                error.path().display(),
                                error.error()
                            ),
                        )
                        .with_fault(error.error()),
                );
            }
        }
    }
    // A pattern may match nothing, but a plain name must exist.
    if paths.is_empty() && !pattern.contains(['*', '?', '[']) {
        problems.push(
            sources
                .problem(location, format_args!("no such file: {}", whole.display()))
                .with_hint("check the path")
                .with_fault(Fault::Missing),
        );
    }
    paths
}

fn read_limits(table: &LimitTable, sources: &Sources, problems: &mut Vec<Problem>) -> Limits {
    let mut limits = Limits::default();
    for (name, value) in table {
        match limits.clone().with_named(name, &value.0) {
            Ok(changed) => limits = changed,
            Err(error) => {
                let location =
                    Location { file: 0, path: vec!["limits".into(), name.as_str().into()] };
                problems.push(sources.problem(&location, error));
            }
        }
    }
    limits
}

/// Sorts problems by file and line, and removes duplicates.
pub fn in_order(mut problems: Vec<Problem>) -> Vec<Problem> {
    let mut files: HashMap<PathBuf, usize> = HashMap::new();
    for problem in &problems {
        let number = files.len();
        files.entry(problem.file.clone()).or_insert(number);
    }
    problems.sort_by_key(|problem| (files.get(&problem.file), problem.position));
    problems.dedup();
    problems
}
