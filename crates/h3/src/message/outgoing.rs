//! Validation of sent field sections.

use pronghorn_qpack::{FieldLine, OutgoingLine};

use super::{field::is_connection_specific, request::is_http, word_scan::has_capitals};

/// Validates the lines of a section while they are encoded.
#[derive(Debug)]
pub(crate) struct OutgoingSection {
    kind: SectionKind,
    extended_connect_offered: bool,
    has_fields: bool,
    has_host: bool,
    pseudo: Pseudo,
    is_connect: bool,
    needs_authority: bool,
    fault: Option<&'static str>,
}

/// Kind of a sent section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SectionKind {
    Request,
    Response,
    Trailers,
}

/// The pseudo-header fields seen so far.
#[derive(Debug, Default)]
struct Pseudo {
    method: bool,
    scheme: bool,
    authority: bool,
    path: bool,
    protocol: bool,
    status: bool,
}

impl OutgoingSection {
    pub(crate) fn new(kind: SectionKind, extended_connect_offered: bool) -> Self {
        Self {
            kind,
            extended_connect_offered,
            has_fields: false,
            has_host: false,
            pseudo: Pseudo::default(),
            is_connect: false,
            needs_authority: false,
            fault: None,
        }
    }

    /// Returns whether to send the line: HTTP/3 does not permit some fields.
    #[inline]
    pub(crate) fn takes(&mut self, outgoing: &OutgoingLine<'_>) -> bool {
        if outgoing.is_checked() {
            // The static table, and therefore ready lines, contain no name that HTTP/3 forbids.
            debug_assert!(
                !is_connection_specific(outgoing.line.name) && !has_capitals(outgoing.line.name),
                "{outgoing:?}"
            );
            self.has_fields = true;
            return true;
        }
        let line = &outgoing.line;
        if line.name.first() == Some(&b':') {
            if let Err(fault) = self.on_pseudo(line) {
                self.fault = Some(fault);
            }
            return true;
        }
        //= RFC 9114 section 4.2
        //# An endpoint MUST NOT generate an HTTP/3 field section containing connection-specific fields; any message
        //# containing connection-specific fields MUST be treated as malformed.
        //= RFC 9114 section 4.1
        //# Transfer codings (see Section 7 of [HTTP/1.1]) are not defined for HTTP/3; the Transfer-Encoding header field
        //# MUST NOT be used.
        if is_connection_specific(line.name) || self.is_stray_te(line) {
            return false;
        }
        self.has_fields = true;
        if self.kind == SectionKind::Request && line.name == b"host" {
            //= RFC 9114 section 4.3.1
            //# If both fields are present, they MUST contain the same value.
            // Never send both `host` and `:authority`.
            if self.pseudo.authority {
                return false;
            }
            self.has_host = !line.value.is_empty();
        }
        //= RFC 9114 section 4.2
        //# Characters in field names MUST be converted to lowercase prior to their encoding.
        // Lower-casing is the caller's job; most names are lower-case already.
        if has_capitals(line.name) {
            self.fault = Some("a field name has upper-case letters");
        }
        true
    }

    //= RFC 9114 section 4.2
    //# The only exception to this is the TE header field, which MAY be present in an HTTP/3 request header; when it is,
    //# it MUST NOT contain any value other than "trailers".
    fn is_stray_te(&self, line: &FieldLine<'_>) -> bool {
        line.name == b"te" && (self.kind != SectionKind::Request || line.value != b"trailers")
    }

    fn on_pseudo(&mut self, line: &FieldLine<'_>) -> Result<(), &'static str> {
        //= RFC 9114 section 4.3
        //# All pseudo-header fields MUST appear in the header section before regular header fields.
        if self.has_fields {
            return Err("a pseudo-header field follows other fields");
        }
        let seen = match (self.kind, line.name) {
            (SectionKind::Request, b":method") => {
                self.is_connect = line.value == b"CONNECT";
                &mut self.pseudo.method
            }
            (SectionKind::Request, b":scheme") => {
                self.needs_authority = is_http(line.value);
                &mut self.pseudo.scheme
            }
            //= RFC 9114 section 4.3.1
            //# The authority MUST NOT include the deprecated userinfo subcomponent for URIs of scheme "http" or "https".
            (SectionKind::Request, b":authority") if line.value.contains(&b'@') => {
                return Err("the authority has userinfo");
            }
            (SectionKind::Request, b":authority") if line.value.is_empty() => {
                return Err("the authority is empty");
            }
            (SectionKind::Request, b":authority") => &mut self.pseudo.authority,
            (SectionKind::Request, b":path") => &mut self.pseudo.path,
            //= RFC 9114 section 7.2.4.2
            //# An HTTP implementation MUST NOT send frames or requests that would be invalid based on its current
            //# understanding of the peer's settings.
            (SectionKind::Request, b":protocol") if !self.extended_connect_offered => {
                return Err("the peer does not support extended CONNECT");
            }
            (SectionKind::Request, b":protocol") => &mut self.pseudo.protocol,
            //= RFC 9114 section 4.5
            //# HTTP/3 does not support the HTTP Upgrade mechanism (Section 7.8 of [HTTP]) or the 101 (Switching
            //# Protocols) informational status code (Section 15.2.2 of [HTTP]).
            (SectionKind::Response, b":status") if line.value == b"101" => {
                return Err(":status 101 is not permitted in HTTP/3");
            }
            (SectionKind::Response, b":status") => &mut self.pseudo.status,
            //= RFC 9114 section 4.3
            //# Endpoints MUST NOT generate pseudo-header fields other than those defined in this document.
            //= RFC 9114 section 4.3
            //# Pseudo-header fields defined for requests MUST NOT appear in responses; pseudo-header fields defined for
            //# responses MUST NOT appear in requests.
            //= RFC 9114 section 4.3
            //# Pseudo-header fields MUST NOT appear in trailer sections.
            _ => return Err("a pseudo-header field is not permitted here"),
        };
        if std::mem::replace(seen, true) { Err("duplicate pseudo-header field") } else { Ok(()) }
    }

    /// Returns the error of the section after its last line, if any.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        self.fault.or_else(|| {
            let Pseudo { method, scheme, authority, path, protocol, status } = self.pseudo;
            match self.kind {
                //= RFC 9114 section 4.4
                //# A CONNECT request MUST be constructed as follows:
                SectionKind::Request if self.is_connect && !protocol => {
                    (scheme || path || !authority)
                        .then_some("a CONNECT request has :scheme or :path, or no :authority")
                }
                SectionKind::Request if !(method && scheme && path) => {
                    Some("missing mandatory pseudo-header field")
                }
                //= RFC 9114 section 4.3.1
                //# If the :scheme pseudo-header field identifies a scheme that has a mandatory authority component (including
                //# "http" and "https"), the request MUST contain either an :authority pseudo-header field or a Host header
                //# field.
                SectionKind::Request => (self.needs_authority && !authority && !self.has_host)
                    .then_some("the request has no authority"),
                SectionKind::Response => (!status).then_some("the response has no :status"),
                SectionKind::Trailers => None,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use pronghorn_qpack::static_table;

    use super::*;

    #[test]
    fn fields_of_the_static_table_belong_into_every_section() {
        for index in 0..static_table::LEN as u8 {
            let line = FieldLine::new(static_table::name(index), static_table::value(index));
            for kind in [SectionKind::Request, SectionKind::Response, SectionKind::Trailers] {
                let mut section = OutgoingSection::new(kind, true);
                assert!(
                    line.name.starts_with(b":")
                        || section.takes(&line.into()) && section.fault.is_none(),
                    "{line:?}"
                );
            }
        }
    }
}
