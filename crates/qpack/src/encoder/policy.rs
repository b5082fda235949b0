//! Decides which field lines are inserted into the dynamic table.

use crate::static_table;

/// When a line is inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Insertion {
    /// The first time: such lines are the same in almost every message of a connection.
    AtOnce,
    /// The second time it is seen.
    OnRepetition,
    /// Never: the value is a secret or differs from message to message.
    Never,
}

/// Returns when a line with this name is inserted, unless it is marked as never indexed.
#[inline]
pub(super) fn insertion(name: &[u8], static_name: Option<u8>) -> Insertion {
    match static_name {
        Some(index) => STATIC[usize::from(index)],
        None => spelled(name),
    }
}

/// [`Insertion`] for each index of the static table.
static STATIC: [Insertion; static_table::LEN] = {
    let mut insertions = [Insertion::OnRepetition; static_table::LEN];
    let mut index = 0;
    while index < static_table::LEN {
        insertions[index] = match static_table::name(index as u8) {
            b":authority"
            | b"user-agent"
            | b"accept-encoding"
            | b"accept-language"
            | b"server"
            | b"strict-transport-security"
            | b"content-security-policy" => Insertion::AtOnce,
            // The first three are secrets, whether or not the caller marks them: an attacker who
            // can cause guesses to be sent next to them could test each guess by the length of the
            // output (RFC 9204 section 7.1). The others have a different value each time; a date
            // repeats within its second.
            b"authorization" | b"cookie" | b"set-cookie" | b":path" | b"content-length"
            | b"age" | b"etag" | b"if-none-match" | b"if-modified-since" | b"if-range"
            | b"location" | b"range" => Insertion::Never,
            _ => Insertion::OnRepetition,
        };
        index += 1;
    }
    insertions
};

fn spelled(name: &[u8]) -> Insertion {
    match name {
        b"alt-svc"
        | b"sec-ch-ua"
        | b"sec-ch-ua-mobile"
        | b"sec-ch-ua-platform"
        | b"permissions-policy" => Insertion::AtOnce,
        // The first four are secrets.
        b"proxy-authorization"
        | b"proxy-authenticate"
        | b"www-authenticate"
        | b"authentication-info"
        | b"content-range"
        | b"expires"
        | b"server-timing"
        | b"traceparent"
        | b"x-request-id"
        | b"if-unmodified-since"
        | b"if-match" => Insertion::Never,
        _ => Insertion::OnRepetition,
    }
}

/// Number of remembered hashes.
const SEEN_LINES: usize = 128;

/// Hashes of recently seen lines. Each hash has one slot and replaces the previous hash there:
/// lines that repeat soon are found, and lines that repeat late are not worth a table entry.
#[derive(Debug)]
pub(super) struct Seen(Option<Box<[u32; SEEN_LINES]>>);

impl Seen {
    pub(super) const fn new() -> Self {
        Self(None)
    }

    /// Forgets all hashes, and frees the memory.
    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    /// Records the hash, and returns whether it was recorded before.
    pub(super) fn note(&mut self, hash: u64) -> bool {
        let places = self.0.get_or_insert_with(|| Box::new([0; SEEN_LINES]));
        let place = &mut places[hash as usize % SEEN_LINES];
        let mark = (hash >> 32) as u32 | 1;
        std::mem::replace(place, mark) == mark
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> Insertion {
        insertion(name.as_bytes(), static_table::name_index(name.as_bytes()))
    }

    #[test]
    fn secrets_are_never_inserted() {
        for name in ["authorization", "cookie", "set-cookie", "proxy-authorization"] {
            assert_eq!(of(name), Insertion::Never, "{name}");
        }
    }

    #[test]
    fn names_that_are_never_inserted_have_one_static_entry() {
        let never = (0..static_table::LEN as u8)
            .filter(|&index| STATIC[usize::from(index)] == Insertion::Never);
        let names: Vec<_> = never.map(static_table::name).collect();
        assert_eq!(names.iter().collect::<std::collections::HashSet<_>>().len(), names.len());
        assert!(names.contains(&&b"etag"[..]));
    }

    #[test]
    fn names_of_constant_lines_are_inserted_at_once() {
        for name in [":authority", "user-agent", "server", "sec-ch-ua"] {
            assert_eq!(of(name), Insertion::AtOnce, "{name}");
        }
        assert_eq!(of("x-a"), Insertion::OnRepetition);
        assert_eq!(of(":path"), Insertion::Never);
    }

    #[test]
    fn hash_is_seen_the_second_time_until_displaced() {
        let mut seen = Seen::new();
        let (first, same_place) = (0x1_0000_0005, 0x2_0000_0000_0005);
        assert!(!seen.note(first));
        assert!(seen.note(first));
        assert!(!seen.note(same_place));
        assert!(!seen.note(first));
    }
}
