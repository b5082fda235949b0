//! SETTINGS frames, compared with an independent implementation of RFC 9114 sections 7.2.4 and
//! 7.2.4.1.

use std::collections::BTreeMap;

use bytes::Bytes;
use pronghorn_h3::{Config, Connection, ErrorCode, Event, Role, StreamId, varint};

pub(crate) fn run(data: &[u8]) {
    // The control stream's type, the frame's type and its length.
    let mut stream = vec![0x00, 0x04];
    varint::encode(data.len() as u64, &mut stream);
    stream.extend_from_slice(data);
    let mut connection = Connection::new(Role::Server, Config::default());
    let result = connection.handle_data(StreamId(2), Bytes::from(stream));
    match reference(data) {
        Ok(settings) => {
            assert!(result.is_ok(), "{result:?} for {settings:?}");
            assert!(matches!(connection.poll_event(), Some(Event::Settings)));
            let found = connection.peer_settings().expect("invariant: there was the event");
            let value = |id| settings.get(&id).copied();
            assert_eq!(found.max_field_section_size, value(6));
            assert_eq!(found.qpack_max_table_capacity, value(1).unwrap_or(0));
            assert_eq!(found.qpack_blocked_streams, value(7).unwrap_or(0));
            assert_eq!(found.enable_connect_protocol, value(8) == Some(1));
            assert_eq!(found.h3_datagram, value(0x33) == Some(1));
        }
        Err(codes) => {
            let error = result.expect_err("an invalid SETTINGS frame");
            assert!(codes.contains(&error.code()), "{error:?} instead of {codes:?}");
        }
    }
}

/// Returns the settings, or the error codes that an endpoint may use.
fn reference(mut payload: &[u8]) -> Result<BTreeMap<u64, u64>, Vec<ErrorCode>> {
    /// No endpoint sends this many settings; this implementation accepts no more.
    const LONGEST: usize = 4096;
    if payload.len() > LONGEST {
        return Err(vec![ErrorCode::H3_EXCESSIVE_LOAD, ErrorCode::H3_FRAME_ERROR]);
    }
    let mut settings = BTreeMap::new();
    let mut codes = Vec::new();
    while !payload.is_empty() {
        let (Some(id), Some(value)) = (number(&mut payload), number(&mut payload)) else {
            codes.push(ErrorCode::H3_FRAME_ERROR);
            break;
        };
        let is_boolean = id == 0x08 || id == 0x33 || id == 0x2b60_3742;
        let is_known_from_http2 = [0x00, 0x02, 0x03, 0x04, 0x05].contains(&id);
        if settings.insert(id, value).is_some() || is_known_from_http2 || (is_boolean && value > 1)
        {
            codes.push(ErrorCode::H3_SETTINGS_ERROR);
        }
    }
    if codes.is_empty() { Ok(settings) } else { Err(codes) }
}

/// Reads a variable-length integer (RFC 9000 section 16).
fn number(input: &mut &[u8]) -> Option<u64> {
    let length = 1 << (input.first()? >> 6);
    let (bytes, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some(
        bytes[1..]
            .iter()
            .fold(u64::from(bytes[0] & 0x3f), |value, byte| value << 8 | u64::from(*byte)),
    )
}
