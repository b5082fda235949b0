//! As much of HPACK (RFC 7541) as it takes to see whether the library takes each field of a block.

use std::borrow::Cow;
use std::collections::VecDeque;

use http::{HeaderName, Method, StatusCode};
use pronghorn_qpack::{huffman, integer};

use super::Undecodable;

/// RFC 9113, section 6.5.2; nobody here announces another one.
const TABLE_BYTES: u16 = 4096;
/// RFC 7541, section 4.1.
const ENTRY_OVERHEAD: usize = 32;

/// A field that no request and no response may have: the library takes such a message for malformed, and goes on.
const FORBIDDEN_NAME: &[u8] = b"te";
/// So many of these stand instead of a value. The code of each has five bits, which is the least there is, so that nothing becomes longer.
const FILLING: u8 = b'0';

/// What is known of a dynamic table.
pub(super) struct Table {
    /// The latest is in front.
    entries: VecDeque<Entry>,
    size: u16,
    max: u16,
}

#[derive(Clone, Copy)]
struct Entry {
    name: Name,
    /// RFC 7541, section 4.1.
    size: u16,
    /// The library has another value there.
    is_wrong: bool,
}

/// A field's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    kind: Kind,
    length: u16,
}

/// Which values a name may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Field,
    Method,
    Status,
    /// Another pseudo-header field: UTF-8.
    Pseudo,
    /// None, as the name is none. The library has another one in its table.
    Wrong,
}

impl Default for Table {
    fn default() -> Self {
        Self { entries: VecDeque::new(), size: 0, max: TABLE_BYTES }
    }
}

impl Table {
    /// Of the dynamic table.
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
        // One that is too large for the table empties it, and is not there afterwards.
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

    fn evict(&mut self, most: u16) {
        while self.size > most
            && let Some(entry) = self.entries.pop_back()
        {
            self.size -= entry.size;
        }
    }

    /// Follows a block. Returns what stands for it where the library would end the connection for a field of it.
    pub(super) fn check(&mut self, block: &[u8]) -> Result<Option<Vec<u8>>, Undecodable> {
        let mut changed: Option<Vec<u8>> = None;
        let mut rest = block;
        while let Some(&first) = rest.first() {
            let before = rest;
            let instead = match first {
                0x80.. => {
                    let index = number(7, &mut rest)?;
                    self.entry(index).is_some_and(|entry| entry.is_wrong).then(|| forbidden(false, 0))
                }
                0x20..0x40 => {
                    self.resize(number(5, &mut rest)?)?;
                    None
                }
                _ => self.check_literal(&mut rest)?,
            };
            let so_far = block.len() - before.len();
            if let Some(instead) = instead {
                changed.get_or_insert_with(|| block[..so_far].to_vec()).extend_from_slice(&instead);
            } else if let Some(changed) = &mut changed {
                changed.extend_from_slice(&before[..before.len() - rest.len()]);
            }
        }
        Ok(changed)
    }

    /// Follows a literal. Returns what stands for one that the library does not take.
    fn check_literal(&mut self, rest: &mut &[u8]) -> Result<Option<Vec<u8>>, Undecodable> {
        let literal = *rest;
        let indexed = literal[0] & 0x40 != 0;
        let index = number(if indexed { 6 } else { 4 }, rest)?;
        let name = if index == 0 { Name::of(&Text::read(rest)?.decoded()?) } else { self.name(index)? };
        let written_name = &literal[..literal.len() - rest.len()];
        let value = Text::read(rest)?;
        // Of most values neither the text nor its length matters.
        if !indexed && !value.may_be_wrong(name.kind) {
            return Ok(None);
        }
        let value = value.decoded()?;
        let is_wrong = !name.kind.takes(&value);
        let length = usize::from(name.length) + value.len();
        if indexed {
            // There is no status of another length, which could stand there.
            let name = if is_wrong && name.kind == Kind::Status { Name { kind: Kind::Wrong, ..name } } else { name };
            self.insert(name, is_wrong, length + ENTRY_OVERHEAD);
            if is_wrong && name.kind == Kind::Wrong {
                // Nothing of one byte can stand there.
                return length.checked_sub(FORBIDDEN_NAME.len()).map(|rest| Some(forbidden(true, rest))).ok_or(Undecodable);
            }
            if is_wrong {
                let mut instead = written_name.to_vec();
                write_filling(value.len(), &mut instead);
                instead.extend_from_slice(&forbidden(false, 0));
                // Nothing of no length can be a method.
                return if value.is_empty() { Err(Undecodable) } else { Ok(Some(instead)) };
            }
        }
        Ok(is_wrong.then(|| forbidden(false, 0)))
    }
}

/// The field that makes a message malformed, with so long a value.
fn forbidden(indexed: bool, length: usize) -> Vec<u8> {
    let mut field = vec![if indexed { 0x40 } else { 0x00 }, FORBIDDEN_NAME.len() as u8];
    field.extend_from_slice(FORBIDDEN_NAME);
    write_filling(length, &mut field);
    field
}

fn write_filling(length: usize, out: &mut Vec<u8>) {
    let value = vec![FILLING; length];
    integer::encode(0x80, 7, huffman::encoded_len(&value) as u64, out);
    huffman::encode(&value, out);
}

fn number(prefix_bits: u32, rest: &mut &[u8]) -> Result<usize, Undecodable> {
    integer::decode(prefix_bits, rest).ok().and_then(|number| usize::try_from(number).ok()).ok_or(Undecodable)
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
        // What is longer does not fit into the table.
        Self { kind, length: u16::try_from(name.len()).unwrap_or(u16::MAX) }
    }
}

impl Kind {
    fn takes(self, value: &[u8]) -> bool {
        match self {
            Self::Field => value.iter().all(|byte| *byte >= b' ' && *byte != 0x7f || *byte == b'\t'),
            Self::Method => Method::from_bytes(value).is_ok(),
            Self::Status => StatusCode::from_bytes(value).is_ok(),
            Self::Pseudo => std::str::from_utf8(value).is_ok(),
            Self::Wrong => false,
        }
    }
}

/// A string as it is written.
enum Text<'a> {
    Plain(&'a [u8]),
    Huffman(&'a [u8]),
}

impl<'a> Text<'a> {
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

    /// A quick look.
    fn may_be_wrong(&self, kind: Kind) -> bool {
        match (kind, self) {
            (Kind::Field | Kind::Pseudo, Self::Plain(text)) => !kind.takes(text),
            (Kind::Field | Kind::Pseudo, Self::Huffman(code)) => has_ten_ones(code),
            _ => true,
        }
    }
}

/// Whether there are ten ones in a row: the codes of control characters begin with them, and those of whatever is not ASCII. So do few others.
pub(super) fn has_ten_ones(code: &[u8]) -> bool {
    let mut rest = code;
    loop {
        let mut word = [0; 8];
        let part = rest.len().min(8);
        word[..part].copy_from_slice(&rest[..part]);
        let ones = u64::from_be_bytes(word);
        // A bit of each is left where two, four, eight and ten follow each other.
        let two = ones & ones << 1;
        let four = two & two << 2;
        let eight = four & four << 4;
        if eight & two << 8 != 0 {
            return true;
        }
        if part < 8 {
            return false;
        }
        // What begins in the last two bytes goes on behind them.
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
