//! File descriptors: each connection uses one. Raises the limit, and logs when they run out and
//! when that is over.

use std::sync::Arc;
use std::time::Duration;

use pronghorn_engine::Stats;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setrlimit};

/// Interval between checks for connections that could not be accepted.
const PAUSE: Duration = Duration::from_secs(1);

/// Number of consecutive checks without failures after which a shortage is over.
const QUIET: u32 = 5;

/// Minimum number of free descriptors at the start. With fewer, a single page and its connections
/// may use them all.
const FEW: u64 = 100;

/// Raises the soft limit to the hard limit. The default soft limit of shells and init systems is
/// for programs that cannot handle descriptors above 1023; this one can.
pub(crate) fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // On failure there is capacity for fewer connections, and a shortage is logged when it
        // occurs.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Warns if the server's own descriptors leave few for connections.
fn tell_if_few() {
    let Some(limit) = getrlimit(Resource::Nofile).current else { return };
    let open = match std::fs::read_dir("/proc/self/fd") {
        // One of them is the open folder itself.
        Ok(listed) => (listed.count() as u64).saturating_sub(1),
        Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => limit,
        Err(_) => return,
    };
    let left = limit.saturating_sub(open);
    if left < FEW {
        eprint_line!(
            "warning: the server itself uses {open} of {limit} file descriptors, which leaves \
                {left} for connections, files and upstreams; raise the limit (`ulimit -n`, \
                LimitNOFILE of systemd)"
        );
    }
}

/// Logs when connections wait because descriptors or socket memory have run out, and when they are
/// accepted again.
pub(crate) async fn watch(stats: Vec<Arc<Stats>>) {
    let failed = || stats.iter().map(|stats| stats.accepts_failed.value()).sum::<u64>();
    tell_if_few();
    let (mut seen, mut quiet, mut is_lacking) = (failed(), 0_u32, false);
    loop {
        tokio::time::sleep(PAUSE).await;
        let now = failed();
        if now == seen {
            quiet = quiet.saturating_add(1);
            // Waiting connections are retried several times a second: if none fails, none waits.
            if is_lacking && quiet >= QUIET {
                is_lacking = false;
                log_line!("accepting TCP connections again");
            }
            continue;
        }
        if !is_lacking {
            let limit = getrlimit(Resource::Nofile)
                .current
                .map_or_else(|| "no limit".to_owned(), |limit| format!("a limit of {limit}"));
            log_line!(
                "error: cannot accept TCP connections, they wait: out of file descriptors, with \
                    {limit}, or of memory for sockets; raise the limit (`ulimit -n`, LimitNOFILE \
                    of systemd), or lower `connections` in [limits]"
            );
        }
        (seen, quiet, is_lacking) = (now, 0, true);
    }
}
