//! The access log and the folder for buffered responses.

use std::path::Path;
use std::sync::Arc;

use super::builder::PlanBuilder;
use crate::access_log::{AccessLog, LogCounts};
use crate::config::{Fault, Location};

impl PlanBuilder<'_> {
    /// Checks that the folder for buffered responses exists, if one is configured.
    pub(super) fn buffering_folder(&mut self) {
        let folder = self.config.buffering_folder();
        if self.config.server.buffering.folder.is_some() && !folder.is_dir() {
            let location = Location {
                file: 0,
                path: ["server", "buffering", "folder"].map(Into::into).into(),
            };
            let message = format_args!("no such folder: {}", folder.display());
            self.missing_file(
                &location,
                Fault::Missing,
                message,
                "use one that this user can write to",
            );
        }
    }

    pub(super) fn log(&mut self, counts: &Arc<LogCounts>) -> Option<Arc<AccessLog>> {
        if let Some(before) = self.context.before
            && before.log_settings == self.config.log
        {
            return before.log.clone();
        }
        let location = Location { file: 0, path: vec!["log".into(), "access".into()] };
        let format = self.config.log.format;
        let log = match self.config.log.access.as_deref() {
            Some("off") => return None,
            name @ (None | Some("stderr" | "stdout")) => {
                AccessLog::to_standard(name != Some("stdout"), format, counts.clone())
            }
            Some(path) => {
                let path = self.config.path(&location, Path::new(path));
                match AccessLog::to_file(path.clone(), format, counts.clone()) {
                    Ok(log) => log,
                    Err(error) => {
                        let message = format_args!("{}: {error}", path.display());
                        self.missing_file(
                            &location,
                            &error,
                            message,
                            "use a file that this user can write to",
                        );
                        return None;
                    }
                }
            }
        };
        Some(Arc::new(log))
    }
}
