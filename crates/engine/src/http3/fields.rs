//! Conversions between field sections and header maps.

use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version};
use pronghorn_h3::{FieldLine, RequestHead, ResponseHead, SectionLine, static_table};

use crate::Upgrade;
use crate::admission::{AuthorityCache, Head};
use crate::field_line::field_line;
use crate::message::Protocol;

/// Values share the memory of their section only up to this size. One retained value, such as a
/// path in an access log, keeps the whole section alive.
const SHARED_BYTES: usize = 4 << 10;

/// Source of a section's values.
pub(super) struct SectionMemory(Bytes);

impl SectionMemory {
    /// Uses the section's shared memory.
    pub(super) fn new(shared: Bytes) -> Self {
        Self(shared)
    }

    fn value(&self, line: &SectionLine<'_>) -> Bytes {
        if self.0.len() <= SHARED_BYTES {
            line.value_in(&self.0)
        } else {
            Bytes::copy_from_slice(line.value)
        }
    }
}

/// Converts a request head. Returns `None` for a head that HTTP/3 allows but the model cannot
/// represent, such as a path with a character that is invalid in a URI. `map` is empty and only
/// gives its memory; `text` receives the text of the lines.
pub(crate) fn request<'a>(
    head: &mut RequestHead,
    latest: &'a AuthorityCache,
    map: HeaderMap,
    text: &mut BytesMut,
) -> Option<Head<'a>> {
    let memory = SectionMemory::new(head.share(text));
    let mut uri = http::uri::Parts::default();
    if let Some(path) = head.path_line() {
        uri.path_and_query = Some(PathAndQuery::from_maybe_shared(memory.value(&path)).ok()?);
        uri.scheme = Some(head.scheme()?.try_into().ok()?);
    }
    let authority = head.authority();
    let latest = authority.and_then(|text| latest.get(text));
    uri.authority = match (latest, authority) {
        (Some(named), _) => Some(named.authority.clone()),
        (None, Some(text)) => Some(text.try_into().ok()?),
        (None, None) => None,
    };
    Some(Head {
        protocol: Protocol::Http3,
        version: Version::HTTP_3,
        secure: true,
        method: Method::from_bytes(head.method()).ok()?,
        uri: Uri::from_parts(uri).ok()?,
        headers: headers(head.fields(), head.fields().len() + 1, &memory, map)?,
        upgrade: head
            .protocol()
            .and_then(|protocol| std::str::from_utf8(protocol).ok())
            .map(Upgrade::new),
        latest,
    })
}

pub(super) fn response(
    head: &mut ResponseHead,
    text: &mut BytesMut,
) -> Option<(StatusCode, HeaderMap)> {
    let memory = SectionMemory::new(head.share(text));
    Some((
        StatusCode::from_u16(head.status()).ok()?,
        headers(head.fields(), head.fields().len(), &memory, HeaderMap::new())?,
    ))
}

pub(super) fn headers<'a>(
    lines: impl Iterator<Item = SectionLine<'a>>,
    capacity: usize,
    memory: &SectionMemory,
    mut headers: HeaderMap,
) -> Option<HeaderMap> {
    headers.reserve(capacity);
    for line in lines {
        let name = match line.static_name_index() {
            Some(index) => STATIC_NAMES[usize::from(index)].clone()?,
            None => HeaderName::from_bytes(line.name).ok()?,
        };
        let mut value = HeaderValue::from_maybe_shared(memory.value(&line)).ok()?;
        value.set_sensitive(line.never_index);
        headers.append(name, value);
    }
    Some(headers)
}

/// Names of QPACK's static table; `None` for pseudo-header fields.
static STATIC_NAMES: LazyLock<[Option<HeaderName>; static_table::LEN]> = LazyLock::new(|| {
    std::array::from_fn(|index| HeaderName::from_bytes(static_table::name(index as u8)).ok())
});

/// Returns the lines of a map. The encoder omits those that HTTP/3 forbids.
pub(super) fn lines(headers: &HeaderMap) -> impl Iterator<Item = FieldLine<'_>> {
    headers.iter().map(|(name, value)| field_line(name, value))
}

#[cfg(test)]
#[path = "fields/generated.rs"]
mod generated;
