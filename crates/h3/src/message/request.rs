//! Request heads (RFC 9114 section 4.3.1).

use pronghorn_qpack::FieldSection;

use super::{
    authority::{self, Port},
    field::{Name, check_te, classify, is_token, set_content_length},
};
use crate::{
    error::StreamFault,
    head::{RequestHead, RequestPseudo},
};

/// Control data of a request: value and line index of each pseudo-header field.
#[derive(Default)]
struct Control<'a> {
    method: Option<&'a [u8]>,
    scheme: Option<&'a [u8]>,
    authority: Option<&'a [u8]>,
    path: Option<&'a [u8]>,
    protocol: Option<&'a [u8]>,
    host: Option<&'a [u8]>,
}

/// Validates a request's field section. `latest`: the authority of the connection's latest request,
/// which is known to be valid.
pub(crate) fn request_head(
    section: FieldSection,
    extended_connect: bool,
    latest: &mut Vec<u8>,
) -> Result<RequestHead, StreamFault> {
    let mut control = Control::default();
    let mut pseudo = RequestPseudo::default();
    let mut pseudo_len = 0_u8;
    let mut host = None;
    let mut content_length = None;
    for (place, line) in section.iter().enumerate() {
        let name = classify(&line)?;
        if name.is_pseudo() {
            //= RFC 9114 section 4.3
            //# Any request or response that contains a pseudo-header field that appears in a header section after a
            //# regular header field MUST be treated as malformed.
            if place != usize::from(pseudo_len) {
                return Err(StreamFault::malformed("a pseudo-header field follows other fields"));
            }
            note_pseudo(&mut pseudo, &mut control, name, pseudo_len, line.value)?;
            pseudo_len += 1;
            continue;
        }
        match name {
            Name::Te => check_te(line.value)?,
            Name::ContentLength => set_content_length(&mut content_length, line.value)?,
            Name::Host if host.is_some() => {
                return Err(StreamFault::malformed("duplicate host"));
            }
            Name::Host => {
                host = u32::try_from(place).ok();
                control.host = Some(line.value);
            }
            _ => {}
        }
    }
    control.check(extended_connect, latest)?;
    let is_connect = control.method == Some(b"CONNECT");
    Ok(RequestHead { section, pseudo, pseudo_len, host, content_length, is_connect })
}

fn note_pseudo<'a>(
    pseudo: &mut RequestPseudo,
    control: &mut Control<'a>,
    name: Name,
    place: u8,
    value: &'a [u8],
) -> Result<(), StreamFault> {
    let (field, noted) = match name {
        Name::Method => (&mut pseudo.method, &mut control.method),
        Name::Scheme => (&mut pseudo.scheme, &mut control.scheme),
        Name::Authority => (&mut pseudo.authority, &mut control.authority),
        Name::Path => (&mut pseudo.path, &mut control.path),
        Name::Protocol => (&mut pseudo.protocol, &mut control.protocol),
        //= RFC 9114 section 4.3
        //# Pseudo-header fields defined for requests MUST NOT appear in responses; pseudo-header fields defined for
        //# responses MUST NOT appear in requests.
        _ => {
            return Err(StreamFault::malformed("a request has a pseudo-header field of responses"));
        }
    };
    *noted = Some(value);
    if field.set(place) {
        Ok(())
    } else {
        Err(StreamFault::malformed("duplicate pseudo-header field"))
    }
}

impl Control<'_> {
    /// Checks the rules between pseudo-header fields.
    fn check(&self, extended_connect: bool, latest: &mut Vec<u8>) -> Result<(), StreamFault> {
        let Some(method) = self.method else {
            return Err(StreamFault::malformed("the request has no :method"));
        };
        if !is_token_text(method) {
            return Err(StreamFault::malformed(":method is not a token"));
        }
        if let Some(protocol) = self.protocol {
            if !is_token_text(protocol) {
                return Err(StreamFault::malformed(":protocol is not a token"));
            }
            if !(extended_connect && method == b"CONNECT") {
                return Err(StreamFault::malformed(
                    ":protocol without an offer of extended CONNECT",
                ));
            }
        } else if method == b"CONNECT" {
            return self.check_connect(latest);
        }
        //= RFC 9114 section 4.3.1
        //# All HTTP/3 requests MUST include exactly one value for the :method, :scheme, and :path pseudo-header fields,
        //# unless the request is a CONNECT request; see Section 4.4.
        let (Some(scheme), Some(path)) = (self.scheme, self.path) else {
            return Err(StreamFault::malformed("missing mandatory pseudo-header field"));
        };
        let is_http = is_http(scheme);
        if !is_http && !is_scheme(scheme) {
            return Err(StreamFault::malformed("invalid :scheme"));
        }
        if path.iter().any(|&byte| byte <= b' ' || byte == b'#') {
            return Err(StreamFault::malformed(":path has invalid characters"));
        }
        self.check_authority(latest)?;
        if is_http { self.check_http_target(method, path) } else { Ok(()) }
    }

    /// RFC 9114 section 4.4.
    fn check_connect(&self, latest: &mut Vec<u8>) -> Result<(), StreamFault> {
        //= RFC 9114 section 4.4
        //# The :scheme and :path pseudo-header fields are omitted
        if self.scheme.is_some() || self.path.is_some() {
            return Err(StreamFault::malformed("a CONNECT request has :scheme or :path"));
        }
        //= RFC 9114 section 4.4
        //# The :authority pseudo-header field contains the host and port to connect to
        let authority = self.authority.and_then(authority::parse);
        if !matches!(authority, Some(authority) if matches!(authority.port, Port::Number(1..))) {
            return Err(StreamFault::malformed(
                "a CONNECT request has no :authority with host and port",
            ));
        }
        self.check_authority(latest)
    }

    /// Checks `:authority` and `host`, independent of the scheme.
    fn check_authority(&self, latest: &mut Vec<u8>) -> Result<(), StreamFault> {
        let Some(text) = self.authority.or(self.host) else {
            return Ok(());
        };
        if text.is_empty() || text != latest.as_slice() {
            //= RFC 9114 section 4.3.1
            //# The authority MUST NOT include the deprecated userinfo subcomponent for URIs of scheme "http" or "https".
            //= RFC 9114 section 4.3.1
            //# If these fields are present, they MUST NOT be empty.
            if authority::parse(text).is_none() {
                return Err(StreamFault::malformed(
                    "the authority is not a host with or without port",
                ));
            }
            latest.clear();
            // A longer authority than any host name is parsed each time and not remembered.
            if text.len() <= MAX_NOTED_AUTHORITY {
                latest.extend_from_slice(text);
            }
        }
        //= RFC 9114 section 4.3.1
        //# If both fields are present, they MUST contain the same value.
        if self.host.is_some_and(|host| !host.eq_ignore_ascii_case(text)) {
            return Err(StreamFault::malformed("host and :authority disagree"));
        }
        Ok(())
    }

    fn check_http_target(&self, method: &[u8], path: &[u8]) -> Result<(), StreamFault> {
        //= RFC 9114 section 4.3.1
        //# If the :scheme pseudo-header field identifies a scheme that has a mandatory authority component (including "http"
        //# and "https"), the request MUST contain either an :authority pseudo-header field or a Host header field.
        if self.authority.or(self.host).is_none() {
            return Err(StreamFault::malformed("the request has no authority"));
        }
        //= RFC 9114 section 4.3.1
        //# This pseudo-header field MUST NOT be empty for "http" or "https" URIs;
        //= RFC 9114 section 4.3.1
        //# "http" or "https" URIs that do not contain a path component MUST include a value of / (ASCII 0x2f).
        let is_asterisk_form = path == b"*" && method == b"OPTIONS";
        if path.first() != Some(&b'/') && !is_asterisk_form {
            return Err(StreamFault::malformed(":path does not start with a slash"));
        }
        Ok(())
    }
}

/// The longest DNS name, and a port.
const MAX_NOTED_AUTHORITY: usize = 260;

/// Returns whether the scheme follows the rules of http: an authority, and a path that starts with
/// a slash.
pub(super) fn is_http(scheme: &[u8]) -> bool {
    scheme.eq_ignore_ascii_case(b"https") || scheme.eq_ignore_ascii_case(b"http")
}

fn is_token_text(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|&byte| is_token(byte))
}

/// RFC 3986 section 3.1.
fn is_scheme(scheme: &[u8]) -> bool {
    scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme
            .iter()
            .all(|&byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}
