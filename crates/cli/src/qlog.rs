//! `--qlog`, an option of several commands.

use std::io;
use std::path::Path;

use pronghorn_engine::Qlog;
use pronghorn_gateway::config::QlogRule;

use crate::failure::{Failure, Kind};

pub(crate) fn to_folder(folder: &Path) -> Result<Qlog, Failure> {
    Qlog::to_directory(folder).map(telling).map_err(|error| failure(folder, &error))
}

/// Writes qlog files for the connections that a configuration selects.
pub(crate) fn by_rule(folder: &Path, rule: &QlogRule) -> Result<Qlog, Failure> {
    let qlog = Qlog::to_directory_with_limit(folder, rule.files as usize)
        .map_err(|error| failure(folder, &error))?;
    let rule = rule.clone();
    Ok(telling(qlog).for_clients(move |client| rule.chooses(client)))
}

fn telling(qlog: Qlog) -> Qlog {
    qlog.on_write_error(|line| eprint_line!("{line}"));
    qlog
}

fn failure(folder: &Path, error: &io::Error) -> Failure {
    let kind = if error.kind() == io::ErrorKind::PermissionDenied {
        Kind::Permission
    } else {
        Kind::Missing
    };
    Failure::new(kind, format_args!("cannot write qlog files to {}: {error}", folder.display()))
        .with_hint("use a folder that this user can write to")
}

/// Prints what is missing from the files.
pub(crate) fn conclude(qlog: &Qlog) {
    let (records, connections, refused) =
        (qlog.dropped_records(), qlog.skipped_connections(), qlog.failed_connections());
    if refused > 0 {
        eprint_line!(
            "qlog: {refused} connections have no file or an incomplete one, because writing to the \
                disk failed"
        );
    }
    if records > 0 {
        eprint_line!("qlog: {records} events are missing, because the disk could not keep up");
    }
    if connections > 0 {
        eprint_line!(
            "qlog: {connections} connections have no file, because too many were open at once"
        );
    }
}
