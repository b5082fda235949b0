//! `--qlog`, which several commands have.

use std::io;
use std::path::Path;

use pronghorn_engine::Qlog;
use pronghorn_gateway::config::QlogRule;

use crate::failure::{Failure, Kind};

pub(crate) fn to_folder(folder: &Path) -> Result<Qlog, Failure> {
    Qlog::to_folder(folder).map(telling).map_err(|error| failure(folder, &error))
}

/// The same for the connections that a configuration means.
pub(crate) fn by_rule(folder: &Path, rule: &QlogRule) -> Result<Qlog, Failure> {
    let qlog = Qlog::to_folder_of(folder, rule.files as usize).map_err(|error| failure(folder, &error))?;
    let rule = rule.clone();
    Ok(telling(qlog).for_clients(move |client| rule.chooses(client)))
}

fn telling(qlog: Qlog) -> Qlog {
    qlog.on_trouble(|line| tell!("{line}"));
    qlog
}

fn failure(folder: &Path, error: &io::Error) -> Failure {
    let kind = if error.kind() == io::ErrorKind::PermissionDenied { Kind::Permission } else { Kind::Missing };
    Failure::new(kind, format_args!("cannot write qlog files to {}: {error}", folder.display()))
        .with_hint("name a folder that this user may write to")
}

/// Says what is missing.
pub(crate) fn conclude(qlog: &Qlog) {
    let (records, connections, refused) = (qlog.dropped_records(), qlog.skipped_connections(), qlog.refused_connections());
    if refused > 0 {
        tell!("qlog: {refused} connections have no file, or part of one, because the disk refused it");
    }
    if records > 0 {
        tell!("qlog: {records} events are missing, because the disk did not follow");
    }
    if connections > 0 {
        tell!("qlog: {connections} connections have no file, because too many were open at once");
    }
}
