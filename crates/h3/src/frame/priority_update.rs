//! The PRIORITY_UPDATE frame (RFC 9218 section 7.2).

use crate::{
    error::{ConnectionError, ErrorCode},
    priority::Priority,
    stream::StreamId,
    varint,
};

/// Maximum payload: an element ID and a priority field value, which has a few parameters.
pub(crate) const MAX_PAYLOAD: u64 = 1024;

/// Parses the payload of a PRIORITY_UPDATE for a request: stream and priority.
pub(crate) fn decode_request(mut payload: &[u8]) -> Result<(StreamId, Priority), ConnectionError> {
    let stream = decode_element(&mut payload)?;
    //= RFC 9218 section 7.2
    //# The request-stream variant of PRIORITY_UPDATE (type=0xF0700) MUST reference a request stream.  If a server
    //# receives a PRIORITY_UPDATE (type=0xF0700) for a stream ID that is not a request stream, this MUST be treated as a
    //# connection error of type H3_ID_ERROR.
    if StreamId(stream).is_request() {
        Ok((StreamId(stream), Priority::from_field(payload)))
    } else {
        Err(ConnectionError::new(
            ErrorCode::H3_ID_ERROR,
            "a PRIORITY_UPDATE frame refers to no request stream",
        ))
    }
}

/// Returns the error for a PRIORITY_UPDATE for a push: no push is ever promised.
pub(crate) fn refuse_push(mut payload: &[u8]) -> ConnectionError {
    match decode_element(&mut payload) {
        Ok(_) => ConnectionError::new(
            ErrorCode::H3_ID_ERROR,
            "a PRIORITY_UPDATE frame refers to a push that was not promised",
        ),
        Err(error) => error,
    }
}

fn decode_element(payload: &mut &[u8]) -> Result<u64, ConnectionError> {
    varint::decode(payload).ok_or(ConnectionError::new(
        ErrorCode::H3_FRAME_ERROR,
        "a PRIORITY_UPDATE frame ends inside its element ID",
    ))
}
