//! The part of HPACK (RFC 7541) that is needed to tell whether h2 accepts each field of a block.

use std::borrow::Cow;
use std::collections::VecDeque;

use http::{HeaderName, Method, StatusCode};
use pronghorn_qpack::{huffman, integer};

/// Raised where h2's table may become different from the peer's.
pub(super) struct Undecodable;

/// RFC 9113, section 6.5.2: the default, since neither side announces another size.
const TABLE_BYTES: u16 = 4096;
/// RFC 7541, section 4.1.
const ENTRY_OVERHEAD: usize = 32;

/// A field that neither requests nor responses may have, not indexed: h2 treats such a message as
/// malformed and continues.
pub(super) const FORBIDDEN: &[u8] = b"\x00\x02te\x00";
/// The byte that replaces those of a name or value. Its Huffman code has five bits, the minimum, so
/// no string becomes longer.
const FILLING: u8 = b'0';

/// A copy of the peer's dynamic table, with only what is needed here.
pub(super) struct Table {
    /// The latest entry is in front.
    entries: VecDeque<Entry>,
    size: u16,
    max: u16,
}

#[derive(Clone, Copy)]
struct Entry {
    name: Name,
    /// RFC 7541, section 4.1.
    size: u16,
    /// The field is invalid in any message. h2's table has another one of the same size instead.
    is_wrong: bool,
}

/// The result of checking a field.
enum Outcome {
    Same,
    /// The field is encoded differently.
    Written(Vec<u8>),
    /// The message is malformed. These bytes keep h2's table in step.
    Wrong(Vec<u8>),
}

/// A field's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    kind: Kind,
    length: u16,
}

/// The values that a name allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Field,
    Method,
    Status,
    /// Any other pseudo-header field: UTF-8.
    Pseudo,
    /// No value, since the name is invalid.
    Wrong,
}

impl Default for Table {
    fn default() -> Self {
        Self { entries: VecDeque::new(), size: 0, max: TABLE_BYTES }
    }
}

impl Table {
    /// Returns an entry of the dynamic table.
    fn entry(&self, index: usize) -> Option<&Entry> {
        self.entries.get(index.checked_sub(1 + STATIC_NAMES.len())?)
    }

    fn name(&self, index: usize) -> Result<Name, Undecodable> {
        let Some(name) = STATIC_NAMES.get(index.wrapping_sub(1)) else {
            return self.entry(index).map(|entry| entry.name).ok_or(Undecodable);
        };
        let kind = match index {
            2 | 3 => Kind::Method,
            8..=14 => Kind::Status,
            1..8 => Kind::Pseudo,
            _ => Kind::Field,
        };
        Ok(Name { kind, length: name.len() as u16 })
    }

    fn insert(&mut self, name: Name, is_wrong: bool, size: usize) {
        let size = u16::try_from(size).unwrap_or(u16::MAX);
        self.evict(self.max.saturating_sub(size));
        // An entry that is larger than the table empties it and is not added.
        if size <= self.max {
            self.entries.push_front(Entry { name, size, is_wrong });
            self.size += size;
        }
    }

    fn resize(&mut self, max: usize) -> Result<(), Undecodable> {
        let max = u16::try_from(max).ok().filter(|max| *max <= TABLE_BYTES).ok_or(Undecodable)?;
        self.max = max;
        self.evict(max);
        Ok(())
    }

    fn evict(&mut self, block_limits: u16) {
        while self.size > block_limits
            && let Some(entry) = self.entries.pop_back()
        {
            self.size -= entry.size;
        }
    }

    /// Reads a block. Returns its replacement if h2 would end the connection for one of its fields.
    /// `block_limits`: the maximum size of that.
    pub(super) fn check(
        &mut self,
        block: &[u8],
        block_limits: usize,
    ) -> Result<Option<Vec<u8>>, Undecodable> {
        let mut changed: Option<Vec<u8>> = None;
        let mut is_malformed = false;
        let mut rest = block;
        while let Some(&first) = rest.first() {
            let before = rest;
            let outcome = match first {
                0x80.. => {
                    let index = number(7, &mut rest)?;
                    if self.entry(index).is_some_and(|entry| entry.is_wrong) {
                        Outcome::Wrong(Vec::new())
                    } else {
                        Outcome::Same
                    }
                }
                0x20..0x40 => {
                    self.resize(number(5, &mut rest)?)?;
                    Outcome::Same
                }
                _ => self.check_literal(&mut rest)?,
            };
            if changed.is_none() && !matches!(outcome, Outcome::Same) {
                changed = Some(block[..block.len() - before.len()].to_vec());
            }
            let Some(changed) = &mut changed else { continue };
            match outcome {
                Outcome::Same => changed.extend_from_slice(&before[..before.len() - rest.len()]),
                Outcome::Written(field) => changed.extend_from_slice(&field),
                Outcome::Wrong(field) => {
                    if !std::mem::replace(&mut is_malformed, true) {
                        changed.extend_from_slice(FORBIDDEN);
                    }
                    changed.extend_from_slice(&field);
                }
            }
            if changed.len() > block_limits {
                return Err(Undecodable);
            }
        }
        Ok(changed)
    }

    fn check_literal(&mut self, rest: &mut &[u8]) -> Result<Outcome, Undecodable> {
        let literal = *rest;
        let indexed = literal[0] & 0x40 != 0;
        let index = number(if indexed { 6 } else { 4 }, rest)?;
        let name = if index == 0 {
            Name::of(&EncodedString::read(rest)?.decoded()?)
        } else {
            self.name(index)?
        };
        let written_name = &literal[..literal.len() - rest.len()];
        let after_name = *rest;
        let value = EncodedString::read(rest)?;
        let written_value = &after_name[..after_name.len() - rest.len()];
        // h2's table has a replaced name at this index.
        let renamed = name
            .kind
            .fixed_index()
            .filter(|_| self.entry(index).is_some_and(|entry| entry.is_wrong));
        // For most values neither the content nor the length matters.
        if !indexed && renamed.is_none() && !value.may_be_wrong(name.kind) {
            return Ok(Outcome::Same);
        }
        let value = value.decoded()?;
        let is_wrong = !name.kind.takes(&value);
        if indexed {
            self.insert(name, is_wrong, usize::from(name.length) + value.len() + ENTRY_OVERHEAD);
        }
        if !is_wrong {
            let Some(index) = renamed else { return Ok(Outcome::Same) };
            let flags = if indexed { 0x40 } else { literal[0] & 0xf0 };
            return Ok(Outcome::Written([&[flags | index], written_value].concat()));
        }
        if !indexed {
            return Ok(Outcome::Wrong(Vec::new()));
        }
        let keeps_name = match name.kind {
            // There may be no valid value of this length.
            Kind::Method | Kind::Status => false,
            // If the name comes from an entry, h2's table has a replaced name there.
            Kind::Wrong => index > 0 && name.length > 0,
            Kind::Field | Kind::Pseudo => true,
        };
        let mut field = Vec::new();
        let mut length = value.len();
        if keeps_name {
            field.extend_from_slice(written_name);
        } else {
            field.push(0x40);
            write_filling(usize::from(name.length).max(1), &mut field);
            // A name needs at least one byte: an empty one takes one of the value's.
            length =
                if name.length > 0 { length } else { length.checked_sub(1).ok_or(Undecodable)? };
        }
        write_filling(length, &mut field);
        Ok(Outcome::Wrong(field))
    }
}

fn write_filling(length: usize, out: &mut Vec<u8>) {
    let text = vec![FILLING; length];
    integer::encode(0x80, 7, huffman::encoded_len(&text) as u64, out);
    huffman::encode(&text, out);
}

fn number(prefix_bits: u32, rest: &mut &[u8]) -> Result<usize, Undecodable> {
    integer::decode(prefix_bits, rest)
        .ok()
        .and_then(|number| usize::try_from(number).ok())
        .ok_or(Undecodable)
}

impl Name {
    fn of(name: &[u8]) -> Self {
        let kind = match name {
            b":method" => Kind::Method,
            b":status" => Kind::Status,
            b":authority" | b":scheme" | b":path" | b":protocol" => Kind::Pseudo,
            name if HeaderName::from_lowercase(name).is_ok() => Kind::Field,
            _ => Kind::Wrong,
        };
        // A longer name does not fit into the table.
        Self { kind, length: u16::try_from(name.len()).unwrap_or(u16::MAX) }
    }
}

impl Kind {
    /// Returns the name's index in the static table, for kinds that do not have valid values of
    /// every length.
    fn fixed_index(self) -> Option<u8> {
        match self {
            Self::Method => Some(2),
            Self::Status => Some(8),
            _ => None,
        }
    }

    fn takes(self, value: &[u8]) -> bool {
        match self {
            Self::Field => {
                value.iter().all(|byte| *byte >= b' ' && *byte != 0x7f || *byte == b'\t')
            }
            Self::Method => Method::from_bytes(value).is_ok(),
            Self::Status => StatusCode::from_bytes(value).is_ok(),
            Self::Pseudo => std::str::from_utf8(value).is_ok(),
            Self::Wrong => false,
        }
    }
}

/// A string as it is encoded.
enum EncodedString<'a> {
    Plain(&'a [u8]),
    Huffman(&'a [u8]),
}

impl<'a> EncodedString<'a> {
    fn read(rest: &mut &'a [u8]) -> Result<Self, Undecodable> {
        let is_huffman = *rest.first().ok_or(Undecodable)? & 0x80 != 0;
        let length = number(7, rest)?;
        let (text, after) = rest.split_at_checked(length).ok_or(Undecodable)?;
        *rest = after;
        Ok(if is_huffman { Self::Huffman(text) } else { Self::Plain(text) })
    }

    fn decoded(&self) -> Result<Cow<'a, [u8]>, Undecodable> {
        match self {
            Self::Plain(text) => Ok((*text).into()),
            Self::Huffman(code) => {
                let mut text = Vec::new();
                huffman::decode(code, &mut text).map_err(|_| Undecodable)?;
                Ok(text.into())
            }
        }
    }

    /// Whether the value may be invalid. A quick check.
    fn may_be_wrong(&self, kind: Kind) -> bool {
        match (kind, self) {
            (Kind::Field | Kind::Pseudo, Self::Plain(text)) => !kind.takes(text),
            (Kind::Field | Kind::Pseudo, Self::Huffman(code)) => has_ten_ones(code),
            _ => true,
        }
    }
}

/// Whether there are ten ones in a row. The codes of control characters and of non-ASCII bytes
/// begin with them, and few others do.
pub(super) fn has_ten_ones(code: &[u8]) -> bool {
    let mut rest = code;
    loop {
        let mut word = [0; 8];
        let part = rest.len().min(8);
        word[..part].copy_from_slice(&rest[..part]);
        let ones = u64::from_be_bytes(word);
        // Each step leaves a bit where two, four, eight and ten ones are in a row.
        let two = ones & ones << 1;
        let four = two & two << 2;
        let eight = four & four << 4;
        if eight & two << 8 != 0 {
            return true;
        }
        if part < 8 {
            return false;
        }
        // A run that begins in the last two bytes continues behind them.
        rest = &rest[6..];
    }
}

/// RFC 7541, appendix A: the names of the static table.
const STATIC_NAMES: [&[u8]; 61] = [
    b":authority",
    b":method",
    b":method",
    b":path",
    b":path",
    b":scheme",
    b":scheme",
    b":status",
    b":status",
    b":status",
    b":status",
    b":status",
    b":status",
    b":status",
    b"accept-charset",
    b"accept-encoding",
    b"accept-language",
    b"accept-ranges",
    b"accept",
    b"access-control-allow-origin",
    b"age",
    b"allow",
    b"authorization",
    b"cache-control",
    b"content-disposition",
    b"content-encoding",
    b"content-language",
    b"content-length",
    b"content-location",
    b"content-range",
    b"content-type",
    b"cookie",
    b"date",
    b"etag",
    b"expect",
    b"expires",
    b"from",
    b"host",
    b"if-match",
    b"if-modified-since",
    b"if-none-match",
    b"if-range",
    b"if-unmodified-since",
    b"last-modified",
    b"link",
    b"location",
    b"max-forwards",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"range",
    b"referer",
    b"refresh",
    b"retry-after",
    b"server",
    b"set-cookie",
    b"strict-transport-security",
    b"transfer-encoding",
    b"user-agent",
    b"vary",
    b"via",
    b"www-authenticate",
];
