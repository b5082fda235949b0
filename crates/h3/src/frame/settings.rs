//! The SETTINGS frame (RFC 9114 section 7.2.4).

use bytes::{BufMut, BytesMut};

use super::{FrameHeader, FrameType};
use crate::{
    error::{ConnectionError, ErrorCode},
    varint,
};

/// Maximum payload, which is far more settings than exist.
pub(crate) const MAX_PAYLOAD: u64 = 4096;

/// The identifier of a setting.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SettingId(pub u64);

impl SettingId {
    /// SETTINGS_QPACK_MAX_TABLE_CAPACITY (RFC 9204 section 5).
    pub const QPACK_MAX_TABLE_CAPACITY: Self = Self(0x01);
    /// SETTINGS_MAX_FIELD_SECTION_SIZE (RFC 9114 section 7.2.4.1).
    pub const MAX_FIELD_SECTION_SIZE: Self = Self(0x06);
    /// SETTINGS_QPACK_BLOCKED_STREAMS (RFC 9204 section 5).
    pub const QPACK_BLOCKED_STREAMS: Self = Self(0x07);
    /// SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 9220 section 3).
    pub const ENABLE_CONNECT_PROTOCOL: Self = Self(0x08);
    /// SETTINGS_H3_DATAGRAM (RFC 9297 section 2.1.1).
    pub const H3_DATAGRAM: Self = Self(0x33);
    /// SETTINGS_ENABLE_WEBTRANSPORT (draft-ietf-webtrans-http3-02 section 8.2), used by browsers.
    pub const ENABLE_WEBTRANSPORT: Self = Self(0x2b60_3742);
    /// SETTINGS_WEBTRANSPORT_MAX_SESSIONS (draft-ietf-webtrans-http3-07 section 8.2).
    pub const WEBTRANSPORT_MAX_SESSIONS: Self = Self(0xc671_706a);
    /// SETTINGS_WT_MAX_SESSIONS (draft-ietf-webtrans-http3-14 section 9.2, the same in 13), used by
    /// Safari.
    pub const WT_MAX_SESSIONS: Self = Self(0x14e9_cd29);

    /// Returns whether HTTP/2 used this identifier for a setting that HTTP/3 does not have.
    pub(crate) const fn is_http2_reserved(self) -> bool {
        matches!(self.0, 0x00 | 0x02..=0x05)
    }
}

/// The peer's SETTINGS. Missing settings have their default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// Maximum size of a field section; `None` means no limit.
    pub max_field_section_size: Option<u64>,
    /// Maximum capacity of the peer's dynamic table, in bytes.
    pub qpack_max_table_capacity: u64,
    /// Number of streams that may be blocked on the peer's dynamic table.
    pub qpack_blocked_streams: u64,
    /// Whether the peer supports extended CONNECT.
    pub enable_connect_protocol: bool,
    /// Whether the peer supports HTTP datagrams.
    pub h3_datagram: bool,
    /// Whether the peer supports WebTransport draft 02.
    pub enable_webtransport: bool,
    /// Maximum concurrent WebTransport sessions as defined in draft 07; 0 for none.
    pub webtransport_max_sessions: u64,
    /// Maximum concurrent WebTransport sessions as defined in drafts 13 and 14. More than one would
    /// require flow control per session.
    pub wt_max_sessions: u64,
}

impl Settings {
    /// Returns whether the peer supports a WebTransport draft that this crate supports. All of them
    /// need HTTP datagrams.
    pub const fn supports_webtransport(&self) -> bool {
        self.h3_datagram
            && (self.enable_webtransport
                || self.webtransport_max_sessions > 0
                || self.wt_max_sessions > 0)
    }

    /// Parses the payload of a SETTINGS frame.
    pub(crate) fn decode(mut payload: &[u8]) -> Result<Self, ConnectionError> {
        let mut settings = Self::default();
        let mut seen = Vec::new();
        while !payload.is_empty() {
            let (Some(id), Some(value)) =
                (varint::decode(&mut payload), varint::decode(&mut payload))
            else {
                return Err(ConnectionError::new(
                    ErrorCode::H3_FRAME_ERROR,
                    "a SETTINGS frame ends inside a setting",
                ));
            };
            settings.set(SettingId(id), value)?;
            seen.push(id);
        }
        //= RFC 9114 section 7.2.4
        //# The same setting identifier MUST NOT occur more than once in the SETTINGS frame.
        seen.sort_unstable();
        if seen.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(settings_error("duplicate setting"));
        }
        Ok(settings)
    }

    pub(crate) fn set(&mut self, id: SettingId, value: u64) -> Result<(), ConnectionError> {
        match id {
            SettingId::MAX_FIELD_SECTION_SIZE => self.max_field_section_size = Some(value),
            SettingId::QPACK_MAX_TABLE_CAPACITY => self.qpack_max_table_capacity = value,
            SettingId::QPACK_BLOCKED_STREAMS => self.qpack_blocked_streams = value,
            SettingId::ENABLE_CONNECT_PROTOCOL => self.enable_connect_protocol = boolean(value)?,
            SettingId::H3_DATAGRAM => self.h3_datagram = boolean(value)?,
            SettingId::ENABLE_WEBTRANSPORT => self.enable_webtransport = boolean(value)?,
            SettingId::WEBTRANSPORT_MAX_SESSIONS => self.webtransport_max_sessions = value,
            SettingId::WT_MAX_SESSIONS => self.wt_max_sessions = value,
            //= RFC 9114 section 7.2.4.1
            //# These reserved settings MUST NOT be sent, and their receipt MUST be treated as a connection error of
            //# type H3_SETTINGS_ERROR.
            id if id.is_http2_reserved() => {
                return Err(settings_error("reserved HTTP/2 setting"));
            }
            //= RFC 9114 section 7.2.4
            //# An implementation MUST ignore any parameter with an identifier it does not understand.
            //= RFC 9114 section 7.2.4.1
            //# Endpoints MUST NOT consider such settings to have any meaning upon receipt.
            _ => {}
        }
        Ok(())
    }
}

/// Appends a SETTINGS frame.
pub(crate) fn encode(settings: &[(SettingId, u64)], out: &mut BytesMut) {
    let len: usize = settings
        .iter()
        .map(|(id, value)| varint::encoded_len(id.0) + varint::encoded_len(*value))
        .sum();
    FrameHeader::encode(FrameType::SETTINGS, len as u64, out);
    out.reserve(len);
    for (id, value) in settings {
        put_pair(id.0, *value, out);
    }
}

fn put_pair(id: u64, value: u64, out: &mut impl BufMut) {
    varint::encode(id, out);
    varint::encode(value, out);
}

fn boolean(value: u64) -> Result<bool, ConnectionError> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(settings_error("a boolean setting is neither 0 nor 1")),
    }
}

const fn settings_error(reason: &'static str) -> ConnectionError {
    ConnectionError::new(ErrorCode::H3_SETTINGS_ERROR, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(settings: &[(SettingId, u64)]) -> Result<Settings, ErrorCode> {
        let mut frame = BytesMut::new();
        encode(settings, &mut frame);
        // Type and length are one byte each here.
        Settings::decode(&frame[2..]).map_err(|error| error.code())
    }

    #[test]
    fn known_settings_are_read_and_others_ignored() {
        let settings = decode(&[
            (SettingId(0x4d4d), 7),
            (SettingId::MAX_FIELD_SECTION_SIZE, 100_000),
            (SettingId::QPACK_MAX_TABLE_CAPACITY, 4096),
            (SettingId::QPACK_BLOCKED_STREAMS, 16),
            (SettingId::H3_DATAGRAM, 1),
        ]);
        let expected = Settings {
            max_field_section_size: Some(100_000),
            qpack_max_table_capacity: 4096,
            qpack_blocked_streams: 16,
            h3_datagram: true,
            ..Settings::default()
        };
        assert_eq!(settings, Ok(expected));
        assert_eq!(decode(&[]), Ok(Settings::default()));
    }

    #[test]
    fn repeated_setting_is_refused_known_or_not() {
        for id in [SettingId::MAX_FIELD_SECTION_SIZE, SettingId(0x1234)] {
            assert_eq!(
                decode(&[(id, 1), (SettingId(0x99), 1), (id, 1)]),
                Err(ErrorCode::H3_SETTINGS_ERROR)
            );
        }
    }

    #[test]
    fn http2_settings_are_refused() {
        for id in [0, 2, 3, 4, 5] {
            assert_eq!(decode(&[(SettingId(id), 1)]), Err(ErrorCode::H3_SETTINGS_ERROR));
        }
    }

    #[test]
    fn yes_or_no_beyond_one_is_refused() {
        for id in [
            SettingId::ENABLE_CONNECT_PROTOCOL,
            SettingId::H3_DATAGRAM,
            SettingId::ENABLE_WEBTRANSPORT,
        ] {
            assert_eq!(decode(&[(id, 2)]), Err(ErrorCode::H3_SETTINGS_ERROR));
        }
    }

    #[test]
    fn truncated_setting_is_a_frame_error() {
        for payload in [&[0x06][..], &[0x46], &[0x06, 0x40]] {
            assert_eq!(Settings::decode(payload).unwrap_err().code(), ErrorCode::H3_FRAME_ERROR);
        }
    }
}
