//! File descriptors, of which each connection takes one: as many as may be, a line where they run out, and another when it is over.

use std::sync::Arc;
use std::time::Duration;

use pronghorn_engine::Stats;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setrlimit};

/// Between two looks at whether connections could not be accepted.
const PAUSE: Duration = Duration::from_secs(1);

/// How many looks in a row have to find nothing before a lack is over.
const QUIET: u32 = 5;

/// With fewer descriptors left than this at the start, a page and its connections may take them all.
const FEW: u64 = 100;

/// Raises the limit to what this user may have. The one that shells and init systems begin with is for programs that may not see descriptors
/// of more than 1023, which ours do.
pub(crate) fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // Without it there is room for fewer connections, and what is missing is told when it is.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Tells when the server's own descriptors leave few for connections.
fn tell_if_few() {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return };
    let open = match std::fs::read_dir("/proc/self/fd") {
        // One of them is the folder itself.
        Ok(listed) => (listed.count() as u64).saturating_sub(1),
        Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => limit,
        Err(_) => return,
    };
    let left = limit.saturating_sub(open);
    if left < FEW {
        tell!(
            "warning: the server itself has {open} of {limit} file descriptors: {left} are left for connections, files and upstreams; raise the \
             limit (`ulimit -n`, LimitNOFILE of systemd)"
        );
    }
}

/// Tells when connections wait because descriptors, or memory for sockets, have run out, and when they are accepted again.
pub(crate) async fn watch(stats: Vec<Arc<Stats>>) {
    let failed = || stats.iter().map(|stats| stats.accepts_failed.value()).sum::<u64>();
    tell_if_few();
    let (mut seen, mut quiet, mut is_lacking) = (failed(), 0_u32, false);
    loop {
        tokio::time::sleep(PAUSE).await;
        let now = failed();
        if now == seen {
            quiet = quiet.saturating_add(1);
            // Those that wait are tried again several times a second: where none fails, none waits.
            if is_lacking && quiet >= QUIET {
                is_lacking = false;
                tell_now!("connections over TCP are accepted again");
            }
            continue;
        }
        if !is_lacking {
            let limit = getrlimit(Resource::Nofile).current.map_or_else(|| "no limit".to_owned(), |limit| format!("a limit of {limit}"));
            tell_now!(
                "error: connections over TCP cannot be accepted and wait: out of file descriptors, with {limit}, or of memory for sockets; \
                 raise it (`ulimit -n`, LimitNOFILE of systemd), or lower `connections` in [limits]"
            );
        }
        (seen, quiet, is_lacking) = (now, 0, true);
    }
}
