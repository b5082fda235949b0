//! `pronghorn serve`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use clap::Args;
use pronghorn_gateway::StaticFiles;

use crate::failure::{Failure, Kind};
use crate::server::{self, ServerArgs, Service};

/// Capacity of the queue of log lines.
const LINES: usize = 256;

#[derive(Args)]
pub(crate) struct ServeArgs {
    /// Folder to serve
    #[arg(default_value = ".")]
    dir: PathBuf,

    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn run(arguments: &ServeArgs) -> Result<(), Failure> {
    let dir = &arguments.dir;
    server::run(&arguments.server, |log| {
        let files = StaticFiles::new(dir).map_err(|error| folder_failure(dir, &error))?;
        let files = files.on_read_error(dir, lines_aside()?);
        let files = match log {
            Some(log) => files.with_log(log),
            None => files,
        };
        Ok(Service {
            description: format!("serving {}", dir.display()),
            handler: move || files.handler(),
        })
    })
}

/// Writes lines to standard error on a separate thread, so that a worker never waits for it. The
/// function returns whether a line was queued.
fn lines_aside() -> Result<impl Fn(String) -> bool + Send + Sync + 'static, Failure> {
    let (line, lines) = mpsc::sync_channel::<String>(LINES);
    let write = move || lines.into_iter().for_each(|line| log_line!("warning: {line}"));
    std::thread::Builder::new()
        .name("lines".to_owned())
        .spawn(write)
        .map_err(|error| Failure::new(Kind::Internal, format_args!("cannot start: {error}")))?;
    Ok(move |text| line.try_send(text).is_ok())
}

fn folder_failure(folder: &Path, error: &io::Error) -> Failure {
    let kind = if error.kind() == io::ErrorKind::PermissionDenied {
        Kind::Permission
    } else {
        Kind::Missing
    };
    Failure::new(kind, format_args!("cannot serve {}: {error}", folder.display()))
        .with_hint("use a folder that this user can read")
}
