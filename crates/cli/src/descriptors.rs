//! File descriptors, of which each connection takes one: as many as may be, and a line where they run out.

use std::sync::Arc;
use std::time::Duration;

use pronghorn_engine::Stats;
use rustix::process::{Resource, getrlimit, setrlimit};

/// Between two looks at whether connections could not be accepted.
const PAUSE: Duration = Duration::from_secs(1);

/// How many looks have to find nothing before a lack is told of as a new one.
const QUIET: u32 = 60;

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

/// Tells when connections wait because descriptors, or memory for sockets, have run out.
pub(crate) async fn watch(stats: Vec<Arc<Stats>>) {
    let failed = || stats.iter().map(|stats| stats.accepts_failed.value()).sum::<u64>();
    let (mut seen, mut quiet) = (failed(), QUIET);
    loop {
        tokio::time::sleep(PAUSE).await;
        let now = failed();
        if now == seen {
            quiet = quiet.saturating_add(1);
            continue;
        }
        if quiet >= QUIET {
            let limit = getrlimit(Resource::Nofile).current.map_or_else(|| "no limit".to_owned(), |limit| format!("a limit of {limit}"));
            tell!(
                "error: connections over TCP cannot be accepted and wait: out of file descriptors, with {limit}, or of memory for sockets; \
                 raise it (`ulimit -n`, LimitNOFILE of systemd), or lower `connections` in [limits]"
            );
        }
        (seen, quiet) = (now, 0);
    }
}
