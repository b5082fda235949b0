//! `pronghorn replay`.

use std::io;
use std::path::PathBuf;

use clap::Args;
use pronghorn_gateway::{Recording, RecordingError};

use crate::failure::{Failure, Kind};
use crate::server::{self, ServerArgs, Service};

#[derive(Args)]
pub(crate) struct ReplayArgs {
    /// The recording: a folder that `pronghorn-lab capture` wrote, or `pronghorn-lab page` for a page on several hosts
    dir: PathBuf,

    /// Answer each request as late as the recorded server did, where the recording says how long it thought
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
        let what = format!("replaying {}, {responses} responses of {hosts},", recording.url());
        let recording = match log {
            Some(log) => recording.with_log(log),
            None => recording,
        };
        let recording = if arguments.think_times { recording.with_think_times() } else { recording };
        Ok(Service { what, handler: move || recording.handler() })
    })
}

fn recording_failure(error: &RecordingError) -> Failure {
    let (kind, hint) = match error {
        RecordingError::File { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            (Kind::Permission, "make the recording readable for this user")
        }
        RecordingError::File { .. } => (Kind::Missing, "name the folder of a recording, which `pronghorn-lab capture` makes"),
        _ => (Kind::Malformed, "capture the page again"),
    };
    Failure::new(kind, error).with_hint(hint)
}
