//! Validators of file versions: entity tag and date.

use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use http::HeaderValue;

use crate::static_files::coding::Coding;
use crate::static_files::conditional::Validators;
use crate::static_files::root::FileIdentity;

/// Modification times before 1981 are not meaningful: Nix sets 1, Bazel 0, build packs and ZIP
/// files the first second of 1980, whatever the content.
const FIRST_MEANINGFUL_SECOND: u64 = 347_155_200;

impl Validators {
    /// Returns the validators of a file. `content` is the whole content, if it is in memory. `now`
    /// is a time before the file was opened.
    pub(crate) fn of(
        identity: &FileIdentity,
        content: Option<&Bytes>,
        coding: Option<Coding>,
        now: SystemTime,
    ) -> Self {
        let FileIdentity { length, modified: (seconds, nanoseconds), .. } = identity;
        let seconds =
            u64::try_from(*seconds).ok().filter(|seconds| *seconds >= FIRST_MEANINGFUL_SECOND);
        let version = match (seconds, content) {
            // Two versions of a file within one tick of the file system's clock nearly always
            // differ in length.
            (Some(seconds), _) => format!("{seconds:x}.{nanoseconds:x}"),
            (None, Some(content)) => digest(&[content]),
            (None, None) => digest_of_state(identity),
        };
        let suffix = coding.map_or_else(String::new, |coding| format!("-{}", coding.name()));
        let etag = HeaderValue::try_from(format!("\"{version}-{length:x}{suffix}\""))
            .expect("invariant: made of visible ASCII");
        //= RFC 9110 section 8.8.2.1
        //# An origin server with a clock MUST NOT generate a Last-Modified date that is later than the server's time of message
        //# origination (Date, Section 6.6.1).
        let date = seconds
            .and_then(|seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
        Self { etag, last_modified: date.filter(|date| *date <= now) }
    }
}

/// Version of a large file, which is not read before its content is requested: every change updates
/// the change time, which no program can set, and a file that takes the name of another has its own
/// inode number.
fn digest_of_state(identity: &FileIdentity) -> String {
    let FileIdentity { device, inode, changed, .. } = identity;
    // Hashed, so that clients learn nothing about the file system.
    digest(&[format!("{device:?} {inode} {changed:?}").as_bytes()])
}

/// Returns a 64-bit digest: versions of one file do not collide by chance, and an attacker who can
/// write the file needs no collision.
fn digest(parts: &[&[u8]]) -> String {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(part);
    }
    let digest = context.finish();
    let first = digest.as_ref().first_chunk().expect("invariant: it has 32 bytes");
    format!("{:x}", u64::from_be_bytes(*first))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    fn of(identity: &FileIdentity, content: Option<&'static str>) -> (String, Option<u64>) {
        let content = content.map(|content| Bytes::from_static(content.as_bytes()));
        let Validators { etag, last_modified } =
            Validators::of(identity, content.as_ref(), None, SystemTime::UNIX_EPOCH + NOW);
        let seconds = last_modified
            .map(|date| date.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs());
        (etag.to_str().expect("text").to_owned(), seconds)
    }

    #[test]
    fn time_that_means_something_is_tag_and_date() {
        let identity =
            FileIdentity { modified: (1_700_000_000, 5), length: 3, ..FileIdentity::default() };
        assert_eq!(
            of(&identity, Some("abc")),
            ("\"6553f100.5-3\"".to_owned(), Some(1_700_000_000))
        );
    }

    #[test]
    fn time_that_means_nothing_is_neither() {
        for modified in [
            (0, 0),
            (1, 0),
            (-5, 0),
            (i64::MIN, 0),
            (315_532_800, 0),
            (315_532_801, 0),
            (347_155_199, 999_999_999),
        ] {
            let file = |inode, changed| FileIdentity {
                modified,
                length: 3,
                inode,
                changed: (changed, 7),
                ..FileIdentity::default()
            };
            let (abc, date) = of(&file(1, 1), Some("abc"));
            assert_eq!(date, None, "{modified:?}");
            assert_ne!(abc, of(&file(1, 1), Some("abd")).0);
            assert_eq!(abc, of(&file(2, 2), Some("abc")).0, "the same on every server");
            let large = of(&file(1, 1), None).0;
            assert_ne!(large, of(&file(2, 1), None).0);
            assert_ne!(large, of(&file(1, 2), None).0);
            assert_eq!(large, of(&file(1, 1), None).0);
        }
    }

    #[test]
    fn date_that_is_yet_to_come_is_not_announced() {
        for seconds in [NOW.as_secs() as i64 + 1, 253_402_300_800, i64::MAX] {
            let identity = FileIdentity { modified: (seconds, 0), ..FileIdentity::default() };
            assert_eq!(of(&identity, Some("")).1, None, "{seconds}");
        }
    }
}
