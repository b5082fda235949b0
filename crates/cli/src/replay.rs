//! `pronghorn replay`.

use std::io;
use std::path::PathBuf;

use clap::Args;
use pronghorn_gateway::{Recording, RecordingError};

use crate::failure::{Failure, Kind};
use crate::server::{self, ServerArgs, Service};

#[derive(Args)]
pub(crate) struct ReplayArgs {
    /// Recording: a folder written by `pronghorn-lab capture`, or by `pronghorn-lab page` for a
    /// page on several hosts
    dir: PathBuf,

    /// Delay each response by the recorded server's think time, if the recording has one
    #[arg(long)]
    think_times: bool,

    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn run(arguments: &ReplayArgs) -> Result<(), Failure> {
    let dir = &arguments.dir;
    server::run(&arguments.server, |log| {
        let recording = Recording::open(dir).map_err(|error| recording_failure(&error))?;
        let (responses, hosts) = (recording.responses(), recording.hosts().join(", "));
        let description =
            format!("replaying {}, {responses} responses of {hosts},", recording.url());
        let recording = match log {
            Some(log) => recording.with_log(log),
            None => recording,
        };
        let recording =
            if arguments.think_times { recording.with_think_times() } else { recording };
        Ok(Service { description, handler: move || recording.handler() })
    })
}

fn recording_failure(error: &RecordingError) -> Failure {
    let (kind, hint) = match error {
        RecordingError::File { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            (Kind::Permission, "make the recording readable for this user")
        }
        RecordingError::File { .. } => {
            (Kind::Missing, "give the folder of a recording made with `pronghorn-lab capture`")
        }
        _ => (Kind::Malformed, "capture the page again"),
    };
    Failure::new(kind, error).with_hint(hint)
}
