//! Views of a validated request or response head, created only by [`crate::message`].

use std::fmt;

use bytes::{Bytes, BytesMut};
use pronghorn_qpack::{FieldSection, Iter, SectionLine};

/// The head of a message.
#[derive(Debug)]
pub enum Head {
    /// Server role: a request.
    Request(RequestHead),
    /// Client role: a final or interim response.
    Response(ResponseHead),
}

/// Index of a pseudo-header field's line in its section.
#[derive(Clone, Copy, Default)]
pub(crate) struct LineIndex(Option<u8>);

impl LineIndex {
    /// Records the index. Returns false if one was already set.
    pub(crate) fn set(&mut self, place: u8) -> bool {
        self.0.replace(place).is_none()
    }

    pub(crate) fn line(self, section: &FieldSection) -> Option<SectionLine<'_>> {
        section.get(usize::from(self.0?))
    }

    pub(crate) fn value(self, section: &FieldSection) -> Option<&[u8]> {
        self.line(section).map(|line| line.value)
    }
}

/// The pseudo-header fields of a request.
#[derive(Clone, Copy, Default)]
pub(crate) struct RequestPseudo {
    pub(crate) method: LineIndex,
    pub(crate) scheme: LineIndex,
    pub(crate) authority: LineIndex,
    pub(crate) path: LineIndex,
    pub(crate) protocol: LineIndex,
}

/// A valid request head: control data and fields according to RFC 9114 sections 4.2 and 4.3.1.
///
/// Names are lower-case tokens; values have no control characters and no surrounding white space.
pub struct RequestHead {
    pub(crate) section: FieldSection,
    pub(crate) pseudo: RequestPseudo,
    /// Number of pseudo-header fields, which precede the others.
    pub(crate) pseudo_len: u8,
    /// Index of `host`, counted from the start of the section.
    pub(crate) host: Option<u32>,
    pub(crate) content_length: Option<u64>,
    /// Whether the method is CONNECT, extended or not.
    pub(crate) is_connect: bool,
}

impl RequestHead {
    /// `:method`, a token.
    pub fn method(&self) -> &[u8] {
        self.pseudo.method.value(&self.section).expect("invariant: no head is made without :method")
    }

    /// `:scheme`; `None` only for CONNECT without a protocol.
    pub fn scheme(&self) -> Option<&[u8]> {
        self.pseudo.scheme.value(&self.section)
    }

    /// `:authority`, or the `host` field if there is none. Always present for http and https, never
    /// empty.
    pub fn authority(&self) -> Option<&[u8]> {
        let host = || self.section.get(self.host? as usize).map(|line| line.value);
        self.pseudo.authority.value(&self.section).or_else(host)
    }

    /// `:path` with the query; `None` only for CONNECT without a protocol.
    pub fn path(&self) -> Option<&[u8]> {
        self.pseudo.path.value(&self.section)
    }

    /// The line of [`RequestHead::path`].
    pub fn path_line(&self) -> Option<SectionLine<'_>> {
        self.pseudo.path.line(&self.section)
    }

    /// `:protocol` of an extended CONNECT.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.pseudo.protocol.value(&self.section)
    }

    /// The `content-length` field. The connection checks it against the received content.
    pub const fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// Fields without the pseudo-header fields, in order. Cookies may be split into several lines
    /// (RFC 9114 section 4.2.1).
    pub fn fields(&self) -> Iter<'_> {
        self.section.iter_from(usize::from(self.pseudo_len))
    }

    /// All lines, pseudo-header fields first.
    pub fn lines(&self) -> Iter<'_> {
        self.section.iter()
    }

    /// See [`FieldSection::share`].
    pub fn share(&mut self, pool: &mut BytesMut) -> Bytes {
        self.section.share(pool)
    }

    /// Converts the head to its section, including pseudo-header fields, for
    /// [`crate::Connection::recycle`].
    pub fn into_section(self) -> FieldSection {
        self.section
    }
}

impl fmt::Debug for RequestHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RequestHead").field(&self.section).finish()
    }
}

/// A valid response head: status and fields according to RFC 9114 sections 4.2 and 4.3.2.
pub struct ResponseHead {
    pub(crate) section: FieldSection,
    pub(crate) status: u16,
    pub(crate) content_length: Option<u64>,
}

impl ResponseHead {
    /// `:status`, from 100 to 999 but never 101.
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// Returns whether another head follows (1xx).
    pub const fn is_interim(&self) -> bool {
        self.status < 200
    }

    /// The `content-length` field. The connection checks it against the received content.
    pub const fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// Fields without `:status`, in order.
    pub fn fields(&self) -> Iter<'_> {
        self.section.iter_from(1)
    }

    /// All lines, `:status` first.
    pub fn lines(&self) -> Iter<'_> {
        self.section.iter()
    }

    /// See [`FieldSection::share`].
    pub fn share(&mut self, pool: &mut BytesMut) -> Bytes {
        self.section.share(pool)
    }

    /// Converts the head to its section, including `:status`, for [`crate::Connection::recycle`].
    pub fn into_section(self) -> FieldSection {
        self.section
    }
}

impl fmt::Debug for ResponseHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ResponseHead").field(&self.section).finish()
    }
}
