//! Reloading of certificates whose files change.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use pronghorn_gateway::config::Config;

use crate::server_state::Running;

/// Interval between checks of the files.
const PAUSE: Duration = Duration::from_secs(2);

/// Attributes of a file that change with its content: device, inode, length, time.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

/// Watches the files of certificates until dropped.
pub(crate) async fn watch(running: Rc<Running>) {
    let mut seen = stamps(&running);
    let mut before = seen.clone();
    loop {
        tokio::time::sleep(PAUSE).await;
        let now = stamps(&running);
        // Chain and key are rarely written at the same moment: only files that have been stable for
        // a while belong together.
        if now != seen && now == before {
            running.reread_certificates();
            seen.clone_from(&now);
        }
        before = now;
    }
}

fn stamps(running: &Running) -> Vec<(PathBuf, Stamp)> {
    let files = running.with_present(Config::certificate_files);
    let stamp =
        |file: &Metadata| (file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec());
    files
        .into_iter()
        .map(|path| (path.clone(), std::fs::metadata(path).ok().as_ref().map(stamp)))
        .collect()
}
