//! `pronghorn serve`.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use pronghorn_gateway::StaticFiles;

use crate::failure::{Failure, Kind};
use crate::server::{self, ServerArgs, Service};

#[derive(Args)]
pub(crate) struct ServeArgs {
    /// The folder to serve
    #[arg(default_value = ".")]
    dir: PathBuf,

    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn run(arguments: &ServeArgs) -> Result<(), Failure> {
    let dir = &arguments.dir;
    server::run(&arguments.server, |log| {
        let files = StaticFiles::new(dir).map_err(|error| folder_failure(dir, &error))?;
        let files = match log {
            Some(log) => files.with_log(log),
            None => files,
        };
        Ok(Service { what: format!("serving {}", dir.display()), handler: move || files.handler() })
    })
}

fn folder_failure(folder: &Path, error: &io::Error) -> Failure {
    let kind = if error.kind() == io::ErrorKind::PermissionDenied { Kind::Permission } else { Kind::Missing };
    Failure::new(kind, format_args!("cannot serve {}: {error}", folder.display())).with_hint("name a folder that this user may read")
}
