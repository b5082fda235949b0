//! From files to a configuration that is right.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

use pronghorn_engine::Limits;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::acme::Acme;
use super::admin::Admin;
use super::check;
use super::layer::Layer;
use super::log::Log;
use super::problem::{Fault, Problem};
use super::server::{LimitTable, Server};
use super::site::{Proxy, Site, Tls};
use super::source::{Place, Source, Step};
use super::upstream::Upstream;
use super::{File, Included};

/// A configuration without contradictions. What it names (folders, certificates, addresses) is looked at when it is put to use.
pub struct Config {
    /// The table `[server]`.
    pub server: Server,
    /// What clients may take.
    pub limits: Limits,
    /// The table `[log]`.
    pub log: Log,
    /// The table `[admin]`.
    pub admin: Admin,
    /// The table `[acme]`.
    pub acme: Acme,
    /// The table `[upstreams]`.
    pub upstreams: BTreeMap<String, Upstream>,
    /// The tables `[[sites]]`, of all files.
    pub sites: Vec<Site>,
    /// What is not wrong, but probably not meant.
    pub warnings: Vec<Problem>,
    /// Nothing is missing because it could not be read. Otherwise what seems to be left out may be there.
    pub(crate) is_whole: bool,
    /// Files with keys that nobody knows: perhaps what seems to be left out, misspelt.
    misspelt: HashSet<PathBuf>,
    sources: Sources,
}

/// The files that were read.
#[derive(Default)]
pub(crate) struct Sources(Vec<Source>);

impl Sources {
    pub(crate) fn problem(&self, place: &Place, message: impl fmt::Display) -> Problem {
        match self.0.get(place.file) {
            Some(source) => source.problem(&place.path, message),
            None => Problem::of_file(Path::new(""), message),
        }
    }
}

impl Config {
    /// The files of all certificates: chains, keys, and those who may vouch for clients.
    pub fn certificate_files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for site in &self.sites {
            if let Some(Tls::Files(tls)) = &site.tls {
                let client = tls.client.as_ref().map(|client| &client.ca);
                files.extend([Some(&tls.cert), Some(&tls.key), client].into_iter().flatten().map(|path| self.path(&site.place, path)));
            }
        }
        files
    }

    /// Reads `file` and what it includes, with the environment of this process.
    ///
    /// # Errors
    ///
    /// All that is wrong with it, in the order of files and lines.
    pub fn load(file: &Path) -> Result<Self, Vec<Problem>> {
        Self::load_with(file, &|name| std::env::var(name).ok())
    }

    /// The same, with what can be used of a configuration that is wrong: for whoever looks for more that is wrong with it.
    pub fn read(file: &Path) -> (Option<Self>, Vec<Problem>) {
        Self::read_with(file, &|name| std::env::var(name).ok())
    }

    pub(crate) fn load_with(file: &Path, environment: &dyn Fn(&str) -> Option<String>) -> Result<Self, Vec<Problem>> {
        match Self::read_with(file, environment) {
            (Some(config), problems) if problems.is_empty() => Ok(config),
            (_, problems) => Err(problems),
        }
    }

    fn read_with(file: &Path, environment: &dyn Fn(&str) -> Option<String>) -> (Option<Self>, Vec<Problem>) {
        let mut problems = Vec::new();
        let mut sources = Sources::default();
        let Some((source, main)) = Source::read::<File>(file, environment, &mut problems) else { return (None, problems) };
        sources.0.push(source);
        let Some(File { include, server, limits, log, admin, acme, mut upstreams, mut sites }) = main else {
            return (None, in_order(problems));
        };
        settle(0, &mut upstreams, &mut sites);
        // Whether there is something of each file: what others refer to may be in it.
        let mut is_known = true;
        for (index, pattern) in include.iter().enumerate() {
            let place = Place { file: 0, path: vec!["include".into(), index.into()] };
            let before = problems.len();
            let paths = included(file, pattern, &sources, &place, &mut problems);
            is_known &= problems.len() == before;
            for path in paths {
                let Some((source, part)) = Source::read::<Included>(&path, environment, &mut problems) else {
                    is_known = false;
                    continue;
                };
                let number = sources.0.len();
                sources.0.push(source);
                let Some(mut part) = part else {
                    is_known = false;
                    continue;
                };
                settle(number, &mut part.upstreams, &mut part.sites);
                sites.append(&mut part.sites);
                for (name, upstream) in part.upstreams {
                    if upstreams.contains_key(&name) {
                        let problem = sources.problem(&upstream.place, format_args!("there is an upstream {name:?} already"));
                        problems.push(problem.with_hint("give each its own name"));
                    }
                    upstreams.insert(name, upstream);
                }
            }
        }
        let limits = read_limits(&limits, &sources, &mut problems);
        tell_of_scripts(&mut upstreams, &mut sites);
        let unknown = problems.iter().filter(|problem| problem.message.starts_with("unknown key "));
        let misspelt = unknown.map(|problem| problem.file.clone()).collect();
        let mut config = Self {
            server,
            limits,
            log,
            admin,
            acme,
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

    /// Whether what seems to be left out at a place may be there, and could not be read.
    pub(crate) fn may_have(&self, place: &Place) -> bool {
        let may_have = |source: &Source| source.has(&place.path) || self.misspelt.contains(&source.file);
        !self.is_whole && self.sources.0.get(place.file).is_some_and(may_have)
    }

    /// Whether a file has an upstream of this name, even if it could not be read.
    pub(crate) fn has_upstream(&self, name: &str) -> bool {
        self.sources.0.iter().any(|source| source.has(&["upstreams".into(), name.into()]))
    }

    /// The texts of all files, the main one first.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.sources.0.iter().map(Source::text)
    }

    /// A problem with what stands at a place of these files.
    pub(crate) fn problem(&self, place: &Place, message: impl fmt::Display) -> Problem {
        self.sources.problem(place, message)
    }

    /// Reads the options of a layer as a `T`. All that is wrong with them is added to `problems`.
    pub(crate) fn options<T: DeserializeOwned + JsonSchema>(&self, layer: &Layer, problems: &mut Vec<Problem>) -> Option<T> {
        self.sources.0.get(layer.place.file)?.options(&layer.place.path, problems)
    }

    /// The path as seen from the folder of the file that names it.
    pub(crate) fn path(&self, place: &Place, path: &Path) -> PathBuf {
        let folder = self.sources.0.get(place.file).and_then(|source| source.file.parent());
        folder.map_or_else(|| path.to_owned(), |folder| folder.join(path))
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("sites", &self.sites).finish_non_exhaustive()
    }
}

/// Tells what was read where it stands.
fn settle(file: usize, upstreams: &mut BTreeMap<String, Upstream>, sites: &mut [Site]) {
    let at = |path: Vec<Step>| Place { file, path };
    for (name, upstream) in upstreams {
        upstream.place = at(vec!["upstreams".into(), name.as_str().into()]);
    }
    for (index, site) in sites.iter_mut().enumerate() {
        site.place = at(vec!["sites".into(), index.into()]);
        settle_layers(&mut site.layers, &site.place);
        for (index, route) in site.routes.iter_mut().enumerate() {
            route.place = site.place.of(["routes".into(), index.into()]);
            settle_layers(&mut route.layers, &route.place);
        }
    }
}

/// Tells upstreams whether routes have them run scripts.
fn tell_of_scripts(upstreams: &mut BTreeMap<String, Upstream>, sites: &mut [Site]) {
    for php in sites.iter_mut().flat_map(|site| &mut site.routes).filter_map(|route| route.php.as_mut()) {
        let upstream = match &mut php.server {
            Proxy::Named(name) => upstreams.get_mut(name),
            Proxy::Own(own) => Some(&mut **own),
        };
        if let Some(upstream) = upstream {
            upstream.runs_scripts = true;
        }
    }
}

fn settle_layers(layers: &mut [Layer], owner: &Place) {
    for (index, layer) in layers.iter_mut().enumerate() {
        layer.place = owner.of(["layers".into(), index.into()]);
    }
}

fn included(file: &Path, pattern: &str, sources: &Sources, place: &Place, problems: &mut Vec<Problem>) -> Vec<PathBuf> {
    let whole = file.parent().unwrap_or(Path::new("")).join(pattern);
    let found = match glob::glob(&whole.to_string_lossy()) {
        Ok(found) => found,
        Err(error) => {
            problems.push(sources.problem(place, format_args!("{pattern:?} is no pattern of file names: {error}")));
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
                        .problem(place, format_args!("{} cannot be read: {}", error.path().display(), error.error()))
                        .with_fault(error.error()),
                );
            }
        }
    }
    // A folder may be empty, a name may not lead nowhere.
    if paths.is_empty() && !pattern.contains(['*', '?', '[']) {
        problems.push(
            sources
                .problem(place, format_args!("there is no file {}", whole.display()))
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
                let place = Place { file: 0, path: vec!["limits".into(), name.as_str().into()] };
                problems.push(sources.problem(&place, error));
            }
        }
    }
    limits
}

/// By files and lines, each once.
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
