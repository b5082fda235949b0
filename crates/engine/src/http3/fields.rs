//! Between field sections and header maps.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version};
use pronghorn_h3::{FieldLine, RequestHead, ResponseHead, SectionLine};

use crate::admission::Head;
use crate::message::{Protocol, is_secret};

const PRIORITY: HeaderName = HeaderName::from_static("priority");

/// `None` for a head that HTTP/3 allows and the model cannot hold, such as a path with a character that no URI has.
pub(crate) fn request(head: &RequestHead) -> Option<Head> {
    let mut uri = http::uri::Parts::default();
    if let Some(path) = head.path() {
        uri.path_and_query = Some(path.try_into().ok()?);
        uri.scheme = Some(head.scheme()?.try_into().ok()?);
    }
    uri.authority = head.authority().map(TryInto::try_into).transpose().ok()?;
    Some(Head {
        protocol: Protocol::Http3,
        version: Version::HTTP_3,
        secure: true,
        method: Method::from_bytes(head.method()).ok()?,
        uri: Uri::from_parts(uri).ok()?,
        headers: headers(head.fields(), head.fields().count() + 1)?,
    })
}

pub(super) fn response(head: &ResponseHead) -> Option<(StatusCode, HeaderMap)> {
    Some((StatusCode::from_u16(head.status()).ok()?, headers(head.fields(), head.fields().count())?))
}

pub(super) fn headers<'a>(lines: impl Iterator<Item = SectionLine<'a>>, capacity: usize) -> Option<HeaderMap> {
    let mut headers = HeaderMap::with_capacity(capacity);
    for line in lines {
        let name = HeaderName::from_bytes(line.name).ok()?;
        let mut value = HeaderValue::from_bytes(line.value).ok()?;
        value.set_sensitive(line.never_index);
        headers.append(name, value);
    }
    Some(headers)
}

/// The value of the `priority` field (RFC 9218 section 5), its lines joined.
pub(super) fn priority(headers: &HeaderMap) -> Option<Bytes> {
    let mut lines = headers.get_all(PRIORITY).iter();
    let first = lines.next()?;
    let mut joined = BytesMut::from(first.as_bytes());
    for line in lines {
        joined.extend_from_slice(b", ");
        joined.extend_from_slice(line.as_bytes());
    }
    Some(joined.freeze())
}

/// The lines of a map, with secrets marked. Those that HTTP/3 forbids are left out when they are encoded.
pub(super) fn lines(headers: &HeaderMap) -> impl Iterator<Item = FieldLine<'_>> {
    headers.iter().map(|(name, value)| {
        let line = FieldLine::new(name.as_str().as_bytes(), value.as_bytes());
        FieldLine { never_index: value.is_sensitive() || is_secret(line.name), ..line }
    })
}

#[cfg(test)]
#[path = "fields/generated.rs"]
mod generated;
