//! The static table of RFC 9204 Appendix A, and its reverse lookup without allocation.

/// Number of entries in the static table.
pub const LEN: usize = 99;

/// Returns the name of an entry.
///
/// # Panics
/// Panics if the index is not below [`LEN`].
pub const fn name(index: u8) -> &'static [u8] {
    ENTRIES[index as usize].name
}

/// Returns the value of an entry.
///
/// # Panics
/// Panics if the index is not below [`LEN`].
pub const fn value(index: u8) -> &'static [u8] {
    ENTRIES[index as usize].value
}

/// Returns the lowest index of an entry with this name.
pub fn name_index(name: &[u8]) -> Option<u8> {
    if name.is_empty() {
        return None;
    }
    let index = SLOTS[slot(name)];
    (index != NONE && ENTRIES[index as usize].name == name).then_some(index)
}

/// The best matching entry for a field line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// Name and value equal those of this entry.
    Full(u8),
    /// Only the name equals that of this entry; no entry has this value too.
    Name(u8),
}

/// Looks up a field line.
pub fn find(name: &[u8], value: &[u8]) -> Option<Match> {
    let first = name_index(name)?;
    let mut index = first;
    loop {
        if ENTRIES[index as usize].value == value {
            return Some(Match::Full(index));
        }
        index = NEXT_OF_NAME[index as usize];
        if index == NONE {
            return Some(Match::Name(first));
        }
    }
}

/// The lowest index with the same name as this entry's.
pub(crate) const fn first_of_name(index: u8) -> u8 {
    FIRST_OF_NAME[index as usize]
}

struct Entry {
    name: &'static [u8],
    value: &'static [u8],
}

const fn entry(name: &'static str, value: &'static str) -> Entry {
    Entry { name: name.as_bytes(), value: value.as_bytes() }
}

/// "No entry" in the tables below.
const NONE: u8 = u8::MAX;

/// Multiplier of a perfect hash for the names of the static table. Found by search; building
/// [`SLOTS`] proves it.
const SLOT_MULTIPLIER: u32 = 0x4f0f_0da7;
const SLOT_BITS: u32 = 7;

/// Index of a name in [`SLOTS`]: a hash of its length and three of its bytes.
const fn slot(name: &[u8]) -> usize {
    let len = name.len();
    let key = u32::from_le_bytes([name[0], name[len * 3 / 4], name[len - 1], len as u8]);
    (key.wrapping_mul(SLOT_MULTIPLIER) >> (u32::BITS - SLOT_BITS)) as usize
}

/// The lowest index of the name that hashes to this slot.
static SLOTS: [u8; 1 << SLOT_BITS] = {
    let mut slots = [NONE; 1 << SLOT_BITS];
    let mut index = 0;
    while index < LEN {
        if FIRST_OF_NAME[index] as usize == index {
            let slot = slot(ENTRIES[index].name);
            assert!(slots[slot] == NONE, "two names of the static table share a slot");
            slots[slot] = index as u8;
        }
        index += 1;
    }
    slots
};

/// For each entry the lowest index with the same name.
const FIRST_OF_NAME: [u8; LEN] = {
    let mut first = [NONE; LEN];
    let mut index = 0;
    while index < LEN {
        let mut earlier = 0;
        while !same(ENTRIES[earlier].name, ENTRIES[index].name) {
            earlier += 1;
        }
        first[index] = earlier as u8;
        index += 1;
    }
    first
};

/// For each entry the next index with the same name, or [`NONE`].
static NEXT_OF_NAME: [u8; LEN] = {
    let mut next = [NONE; LEN];
    let mut index = 0;
    while index < LEN {
        let mut later = index + 1;
        while later < LEN && FIRST_OF_NAME[later] != FIRST_OF_NAME[index] {
            later += 1;
        }
        if later < LEN {
            next[index] = later as u8;
        }
        index += 1;
    }
    next
};

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[rustfmt::skip]
const ENTRIES: [Entry; LEN] = [
    entry(":authority", ""),
    entry(":path", "/"),
    entry("age", "0"),
    entry("content-disposition", ""),
    entry("content-length", "0"),
    entry("cookie", ""),
    entry("date", ""),
    entry("etag", ""),
    entry("if-modified-since", ""),
    entry("if-none-match", ""),
    entry("last-modified", ""),
    entry("link", ""),
    entry("location", ""),
    entry("referer", ""),
    entry("set-cookie", ""),
    entry(":method", "CONNECT"),
    entry(":method", "DELETE"),
    entry(":method", "GET"),
    entry(":method", "HEAD"),
    entry(":method", "OPTIONS"),
    entry(":method", "POST"),
    entry(":method", "PUT"),
    entry(":scheme", "http"),
    entry(":scheme", "https"),
    entry(":status", "103"),
    entry(":status", "200"),
    entry(":status", "304"),
    entry(":status", "404"),
    entry(":status", "503"),
    entry("accept", "*/*"),
    entry("accept", "application/dns-message"),
    entry("accept-encoding", "gzip, deflate, br"),
    entry("accept-ranges", "bytes"),
    entry("access-control-allow-headers", "cache-control"),
    entry("access-control-allow-headers", "content-type"),
    entry("access-control-allow-origin", "*"),
    entry("cache-control", "max-age=0"),
    entry("cache-control", "max-age=2592000"),
    entry("cache-control", "max-age=604800"),
    entry("cache-control", "no-cache"),
    entry("cache-control", "no-store"),
    entry("cache-control", "public, max-age=31536000"),
    entry("content-encoding", "br"),
    entry("content-encoding", "gzip"),
    entry("content-type", "application/dns-message"),
    entry("content-type", "application/javascript"),
    entry("content-type", "application/json"),
    entry("content-type", "application/x-www-form-urlencoded"),
    entry("content-type", "image/gif"),
    entry("content-type", "image/jpeg"),
    entry("content-type", "image/png"),
    entry("content-type", "text/css"),
    entry("content-type", "text/html; charset=utf-8"),
    entry("content-type", "text/plain"),
    entry("content-type", "text/plain;charset=utf-8"),
    entry("range", "bytes=0-"),
    entry("strict-transport-security", "max-age=31536000"),
    entry("strict-transport-security", "max-age=31536000; includesubdomains"),
    entry("strict-transport-security", "max-age=31536000; includesubdomains; preload"),
    entry("vary", "accept-encoding"),
    entry("vary", "origin"),
    entry("x-content-type-options", "nosniff"),
    entry("x-xss-protection", "1; mode=block"),
    entry(":status", "100"),
    entry(":status", "204"),
    entry(":status", "206"),
    entry(":status", "302"),
    entry(":status", "400"),
    entry(":status", "403"),
    entry(":status", "421"),
    entry(":status", "425"),
    entry(":status", "500"),
    entry("accept-language", ""),
    entry("access-control-allow-credentials", "FALSE"),
    entry("access-control-allow-credentials", "TRUE"),
    entry("access-control-allow-headers", "*"),
    entry("access-control-allow-methods", "get"),
    entry("access-control-allow-methods", "get, post, options"),
    entry("access-control-allow-methods", "options"),
    entry("access-control-expose-headers", "content-length"),
    entry("access-control-request-headers", "content-type"),
    entry("access-control-request-method", "get"),
    entry("access-control-request-method", "post"),
    entry("alt-svc", "clear"),
    entry("authorization", ""),
    entry("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
    entry("early-data", "1"),
    entry("expect-ct", ""),
    entry("forwarded", ""),
    entry("if-range", ""),
    entry("origin", ""),
    entry("purpose", "prefetch"),
    entry("server", ""),
    entry("timing-allow-origin", "*"),
    entry("upgrade-insecure-requests", "1"),
    entry("user-agent", ""),
    entry("x-forwarded-for", ""),
    entry("x-frame-options", "deny"),
    entry("x-frame-options", "sameorigin"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found_by_its_line() {
        for index in 0..LEN as u8 {
            assert_eq!(find(name(index), value(index)), Some(Match::Full(index)));
        }
    }

    #[test]
    fn name_with_other_value_gives_the_lowest_index() {
        assert_eq!(find(b":status", b"418"), Some(Match::Name(24)));
        assert_eq!(find(b"content-type", b"text/x"), Some(Match::Name(44)));
        assert_eq!(find(b"vary", b""), Some(Match::Name(59)));
        assert_eq!(find(b"x-frame-options", b"deny"), Some(Match::Full(97)));
    }

    #[test]
    fn other_names_are_not_found() {
        for name in
            [&b""[..], b"a", b":", b"x-frame-option", b"Content-Type", b":statuz", &[0xff; 300]]
        {
            assert_eq!(name_index(name), None, "{}", name.escape_ascii());
        }
    }
}
