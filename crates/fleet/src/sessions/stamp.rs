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

    /// Returns a stamp that no run has, for servers that do not name theirs.
    pub(super) fn unknown() -> Self {
        Self(rand::random())
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

/// Returns the run ID from the reply to `INFO server`. Empty if a service hides it: the replication
/// ID alone tells runs apart, unless there is a proxy before several servers.
pub(super) fn run_id(info: &Reply) -> Result<String, Down> {
    Ok(id(text(info)?, "run_id").unwrap_or_default().to_owned())
}

/// Returns the stamp from the reply to `INFO replication` of a primary, unless a service that is
/// compatible with Redis has no replication ID.
///
/// # Errors
///
/// If the server is no primary.
pub(super) fn stamp(run_id: &str, info: &Reply) -> Result<Option<Stamp>, Down> {
    let info = text(info)?;
    match field(info, "role") {
        Some("master") => Ok(id(info, "master_replid").map(|id| Stamp::new(run_id, id))),
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

/// Returns an ID if it may be random: services put zeros where they have none.
fn id<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let is_random = |id: &&str| id.bytes().any(|byte| byte != id.as_bytes()[0]);
    field(info, name).filter(|id| id.len() <= ID_BYTES).filter(is_random)
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
    fn stamp_is_only_that_of_a_primary() {
        let primary = info("# Replication\r\nrole:master\r\nmaster_replid:ab\r\nmaster_replid2:0");
        assert_eq!(stamp("r", &primary), Ok(Some(Stamp::new("r", "ab"))));
        let replica = info("# Replication\r\nrole:slave\r\nmaster_replid:ab\r\n");
        assert!(stamp("r", &replica).unwrap_err().to_string().contains("replica"));
        for wrong in [
            info("master_replid:ab"),
            Reply::Error("NOPERM no".into()),
            Reply::Nil,
            Reply::Bulk(vec![0xff].into()),
        ] {
            assert!(stamp("r", &wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn primary_without_a_replication_id_has_no_stamp() {
        for unnamed in [
            info("role:master"),
            info("role:master\r\nmaster_replid:\r\n"),
            info("role:master\r\nmaster_replid:0000000000000000000000000000000000000000\r\n"),
        ] {
            assert_eq!(stamp("r", &unnamed), Ok(None), "{unnamed:?}");
        }
        assert_ne!(Stamp::unknown(), Stamp::unknown());
        assert_eq!(run_id(&info("run_id:ab\r\n")), Ok("ab".to_owned()));
        assert_eq!(run_id(&info("# Server\r\n")), Ok(String::new()));
    }
}
