//! Response heads (RFC 9114 section 4.3.2), and trailers of both directions.

use pronghorn_qpack::FieldSection;

use super::field::{Name, STRAY_TE, classify, set_content_length};
use crate::{error::StreamFault, head::ResponseHead};

/// Validates a response's field section.
pub(crate) fn response_head(section: FieldSection) -> Result<ResponseHead, StreamFault> {
    let mut status = None;
    let mut content_length = None;
    for (place, line) in section.iter().enumerate() {
        let name = classify(&line)?;
        match name {
            Name::Status if status.is_some() => {
                return Err(StreamFault::malformed("duplicate pseudo-header field"));
            }
            Name::Status if place > 0 => {
                return Err(StreamFault::malformed("a pseudo-header field follows other fields"));
            }
            Name::Status => status = Some(parse_status(line.value)?),
            //= RFC 9114 section 4.3
            //# Pseudo-header fields defined for requests MUST NOT appear in responses; pseudo-header fields defined for
            //# responses MUST NOT appear in requests.
            _ if name.is_pseudo() => {
                return Err(StreamFault::malformed(
                    "a response has a pseudo-header field of requests",
                ));
            }
            Name::ContentLength => set_content_length(&mut content_length, line.value)?,
            Name::Te => return Err(STRAY_TE),
            _ => {}
        }
    }
    //= RFC 9114 section 4.3.2
    //# This pseudo-header field MUST be included in all responses; otherwise, the response is malformed (see Section 4.1.2).
    let status = status.ok_or(StreamFault::malformed("the response has no :status"))?;
    Ok(ResponseHead { section, status, content_length })
}

fn parse_status(value: &[u8]) -> Result<u16, StreamFault> {
    let &[b'1'..=b'9', _, _] = value else {
        return Err(StreamFault::malformed(":status is not a three-digit number"));
    };
    let mut status = 0;
    for byte in value {
        if !byte.is_ascii_digit() {
            return Err(StreamFault::malformed(":status is not a three-digit number"));
        }
        status = status * 10 + u16::from(byte - b'0');
    }
    //= RFC 9114 section 4.5
    //# HTTP/3 does not support the HTTP Upgrade mechanism (Section 7.8 of [HTTP]) or the 101 (Switching Protocols)
    //# informational status code (Section 15.2.2 of [HTTP]).
    if status == 101 {
        return Err(StreamFault::malformed(":status 101 is not permitted in HTTP/3"));
    }
    Ok(status)
}

/// Validates the field section of trailers.
pub(crate) fn check_trailers(section: &FieldSection) -> Result<(), StreamFault> {
    for line in section {
        match classify(&line)? {
            //= RFC 9114 section 4.3
            //# Pseudo-header fields MUST NOT appear in trailer sections.
            //= RFC 9114 section 4.1
            //# On a given stream, receipt of multiple requests or receipt of an additional HTTP response following a final HTTP
            //# response MUST be treated as malformed.
            name if name.is_pseudo() => {
                return Err(StreamFault::malformed("trailers have a pseudo-header field"));
            }
            Name::Te => return Err(STRAY_TE),
            // A recipient that processes the message differently could take these for the target or
            // the end of the message (RFC 9110 section 6.5.1).
            Name::ContentLength | Name::Host => {
                return Err(StreamFault::malformed(
                    "the trailers contain a field that is only permitted in headers",
                ));
            }
            _ => {}
        }
    }
    Ok(())
}
