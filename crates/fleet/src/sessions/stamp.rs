//! Which run of which Redis server stores a session.

use std::fmt;

use aws_lc_rs::digest;

use crate::redis::{Down, Reply};

/// Longest ID of a run or of a replication that is accepted, in bytes. Redis has 40.
const ID_BYTES: usize = 128;

/// Names one uninterrupted time in which one process of Redis was a primary.
///
/// Redis draws a run ID when a process starts, and a replication ID when a process starts and when
/// a replica becomes a primary. Both are random and never return. So while both stay the same, what
/// the process stores has changed by commands alone: nothing was loaded from a file, and nothing
/// was copied from another server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp([u8; Self::BYTES]);

impl Stamp {
    pub(super) const BYTES: usize = 16;

    pub(super) fn new(run_id: &str, replication_id: &str) -> Self {
        let both = format!("{run_id}\n{replication_id}");
        let hash = digest::digest(&digest::SHA256, both.as_bytes());
        let (first, _) = hash.as_ref().split_first_chunk().expect("invariant: SHA-256 is longer");
        Self(*first)
    }

    pub(super) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    pub(super) fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stamp({:02x?})", &self.0[..4])
    }
}

/// Returns the run ID from the reply to `INFO server`.
pub(super) fn run_id(info: &Reply) -> Result<String, Down> {
    id(text(info)?, "run_id").map(str::to_owned)
}

/// Returns the replication ID from the reply to `INFO replication` of a primary.
pub(super) fn replication_id(info: &Reply) -> Result<&str, Down> {
    let info = text(info)?;
    match field(info, "role") {
        Some("master") => id(info, "master_replid"),
        Some("slave") => Err(Down::new("the server is a replica")),
        _ => Err(Down::new("the reply to INFO has no role")),
    }
}

fn text(info: &Reply) -> Result<&str, Down> {
    match info {
        Reply::Error(error) => Err(Down::new(error)),
        other => other.as_str().ok_or_else(|| Down::new("the reply to INFO is no string")),
    }
}

fn id<'a>(info: &'a str, name: &str) -> Result<&'a str, Down> {
    let id = field(info, name).filter(|id| !id.is_empty() && id.len() <= ID_BYTES);
    id.ok_or_else(|| Down::new(format_args!("the reply to INFO has no valid {name}")))
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(text: &'static str) -> Reply {
        Reply::Bulk(text.into())
    }

    #[test]
    fn stamp_differs_by_run_and_by_replication() {
        let stamp = Stamp::new("a", "b");
        assert_eq!(stamp, Stamp::new("a", "b"));
        for (run, replication) in [("a", "c"), ("c", "b"), ("ab", ""), ("", "ab")] {
            assert_ne!(stamp, Stamp::new(run, replication));
        }
    }

    #[test]
    fn replication_id_is_only_that_of_a_primary() {
        let primary = info("# Replication\r\nrole:master\r\nmaster_replid:ab\r\nmaster_replid2:0");
        assert_eq!(replication_id(&primary), Ok("ab"));
        let replica = info("# Replication\r\nrole:slave\r\nmaster_replid:ab\r\n");
        assert!(replication_id(&replica).unwrap_err().to_string().contains("replica"));
        for wrong in [
            info("role:master\r\nmaster_replid:\r\n"),
            info("role:master"),
            info("master_replid:ab"),
            Reply::Error("NOPERM no".into()),
            Reply::Nil,
            Reply::Bulk(vec![0xff].into()),
        ] {
            assert!(replication_id(&wrong).is_err(), "{wrong:?}");
        }
    }
}
