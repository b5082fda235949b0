//! A checked configuration.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

use pronghorn_engine::Limits;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::acme::Acme;
use super::admin::{Admin, AdminListen, address};
use super::fleet::{Fleet, KeyLocation};
use super::layer::Layer;
use super::location::Location;
use super::log::{Log, QlogRule};
use super::problem::Problem;
use super::server::Server;
use super::site::{Site, Tls};
use super::source::Source;
use super::upstream::Upstream;

/// A checked configuration. The folders, certificates and addresses that it refers to are checked
/// when they are used.
pub struct Config {
    /// The table `[server]`.
    pub server: Server,
    /// Limits on what clients may use.
    pub limits: Limits,
    /// The table `[log]`.
    pub log: Log,
    /// The table `[admin]`.
    pub admin: Admin,
    /// The table `[acme]`.
    pub acme: Acme,
    /// The table `[fleet]`.
    pub fleet: Fleet,
    /// The table `[upstreams]`.
    pub upstreams: BTreeMap<String, Upstream>,
    /// The tables `[[sites]]`, of all files.
    pub sites: Vec<Site>,
    /// Warnings about probable mistakes.
    pub warnings: Vec<Problem>,
    /// Whether the whole configuration could be read. If not, settings that seem to be left out may
    /// exist.
    pub(crate) is_whole: bool,
    /// Files with unknown keys, which may be misspelt settings.
    pub(super) misspelt: HashSet<PathBuf>,
    pub(super) sources: Sources,
}

/// The files that were read.
#[derive(Default)]
pub(crate) struct Sources(pub(super) Vec<Source>);

impl Sources {
    pub(crate) fn problem(&self, location: &Location, message: impl fmt::Display) -> Problem {
        match self.0.get(location.file) {
            Some(source) => source.problem(&location.path, message),
            None => Problem::of_file(Path::new(""), message),
        }
    }
}

impl Config {
    /// Returns the files of all certificates: chains, keys, and CA certificates for clients.
    pub fn certificate_files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for site in &self.sites {
            if let Some(Tls::Files(tls)) = &site.tls {
                let client = tls.client.as_ref().map(|client| &client.ca);
                let keys = tls.keys.iter().filter_map(|key| match key {
                    KeyLocation::File(path) => Some(path),
                    KeyLocation::Signer(_) | KeyLocation::Pkcs11(_) => None,
                });
                files.extend(
                    [Some(&tls.cert), tls.key.as_ref(), client]
                        .into_iter()
                        .flatten()
                        .chain(keys)
                        .map(|path| self.path(&site.location, path)),
                );
            }
        }
        let fleet = Location { file: 0, path: Vec::new() };
        let signers = self.fleet.signers.values();
        let signers = signers.flat_map(|signer| [&signer.cert, &signer.key, &signer.trust]);
        files.extend(signers.map(|path| self.path(&fleet, path)));
        files
    }

    /// Returns whether a setting that seems to be left out may exist in a part that could not be
    /// read.
    pub(crate) fn may_be_set(&self, location: &Location) -> bool {
        let may_be_set =
            |source: &Source| source.has(&location.path) || self.misspelt.contains(&source.file);
        !self.is_whole && self.sources.0.get(location.file).is_some_and(may_be_set)
    }

    /// Returns whether a file defines an upstream of this name, even one that could not be read.
    pub(crate) fn has_upstream(&self, name: &str) -> bool {
        self.sources.0.iter().any(|source| source.has(&["upstreams".into(), name.into()]))
    }

    /// Returns the text of all files, the main one first.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.sources.0.iter().map(Source::text)
    }

    /// Returns a problem with the value at a location in these files.
    pub(crate) fn problem(&self, location: &Location, message: impl fmt::Display) -> Problem {
        self.sources.problem(location, message)
    }

    /// Decodes the options of a layer as a `T`. Adds all errors to `problems`.
    pub(crate) fn options<T: DeserializeOwned + JsonSchema>(
        &self,
        layer: &Layer,
        problems: &mut Vec<Problem>,
    ) -> Option<T> {
        self.sources.0.get(layer.location.file)?.options(&layer.location.path, problems)
    }

    /// Resolves the path relative to the folder of the file that contains it.
    pub(crate) fn path(&self, location: &Location, path: &Path) -> PathBuf {
        let folder = self.sources.0.get(location.file).and_then(|source| source.file.parent());
        folder.map_or_else(|| path.to_owned(), |folder| folder.join(path))
    }

    /// Returns the folder for state that must survive a restart, if one is configured.
    pub fn state_dir(&self) -> Option<PathBuf> {
        let location = Location { file: 0, path: Vec::new() };
        self.server.state_dir.as_deref().map(|folder| self.path(&location, folder))
    }

    /// Returns the admin API's address, or `None` if none is configured.
    pub fn admin_address(&self) -> Option<AdminListen> {
        let location = Location { file: 0, path: Vec::new() };
        address(self.admin.listen.clone(), self.state_dir(), |path| self.path(&location, path))
    }

    /// Returns the folder for qlog files and the rule that selects connections.
    pub fn qlog(&self) -> Option<(PathBuf, &QlogRule)> {
        let location = Location { file: 0, path: Vec::new() };
        self.log.qlog.as_ref().map(|rule| (self.path(&location, &rule.folder), rule))
    }

    /// Returns the folder in which files of buffered responses are created.
    pub(crate) fn buffering_folder(&self) -> PathBuf {
        self.path(&Location { file: 0, path: Vec::new() }, self.server.buffering.folder())
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("sites", &self.sites).finish_non_exhaustive()
    }
}
