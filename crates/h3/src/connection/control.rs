//! The peer's control stream (RFC 9114 section 6.2.1).

use bytes::Bytes;

use super::cost_balance::CostBalance;
use crate::{
    error::{ConnectionError, ErrorCode},
    frame::{
        FrameHeader, FrameType, HeaderReader, PayloadReader, decode_single_varint, priority_update,
        settings::{self, Settings},
        take_up_to,
    },
    limit::Limit,
    priority::Priority,
    role::Role,
    stream::StreamId,
};

/// GOAWAY, MAX_PUSH_ID and CANCEL_PUSH hold one varint.
const MAX_VARINT_LEN: u64 = 8;

/// Meaning of a control stream frame for the connection.
#[derive(Debug)]
pub(super) enum ControlFrame {
    Settings(Settings),
    GoAway { id: u64 },
    PriorityUpdate { stream: StreamId, priority: Priority },
}

/// Reads the peer's control stream.
#[derive(Debug)]
pub(super) struct ControlStream {
    role: Role,
    reading: Reading,
    header: HeaderReader,
    payload: PayloadReader,
    has_settings: bool,
    max_push_id: Option<u64>,
    go_away: Option<u64>,
}

/// What the reader expects next.
#[derive(Debug)]
enum Reading {
    Header,
    Payload(FrameType),
    Skipped { left: u64 },
}

impl ControlStream {
    pub(super) fn new(role: Role) -> Self {
        Self {
            role,
            reading: Reading::Header,
            header: HeaderReader::default(),
            payload: PayloadReader::default(),
            has_settings: false,
            max_push_id: None,
            go_away: None,
        }
    }

    /// Returns the last ID of the peer's GOAWAY frames, if any.
    pub(super) const fn go_away(&self) -> Option<u64> {
        self.go_away
    }

    /// Reads bytes until a relevant frame is complete. Returns `None` when all bytes are used up.
    pub(super) fn read(
        &mut self,
        data: &mut Bytes,
        cost_balance: &mut CostBalance,
    ) -> Result<Option<ControlFrame>, ConnectionError> {
        loop {
            match &mut self.reading {
                Reading::Header if data.is_empty() => return Ok(None),
                Reading::Header => {
                    if let Some(header) = self.header.read(data) {
                        self.reading = self.on_header(header, cost_balance)?;
                    }
                }
                Reading::Skipped { left } => {
                    take_up_to(left, data);
                    if *left > 0 {
                        return Ok(None);
                    }
                    self.reading = Reading::Header;
                }
                Reading::Payload(frame_type) => {
                    let frame_type = *frame_type;
                    let Some(payload) = self.payload.read(data) else {
                        return Ok(None);
                    };
                    self.reading = Reading::Header;
                    if let Some(frame) = self.on_payload(frame_type, &payload)? {
                        return Ok(Some(frame));
                    }
                }
            }
        }
    }

    fn on_header(
        &mut self,
        header: FrameHeader,
        cost_balance: &mut CostBalance,
    ) -> Result<Reading, ConnectionError> {
        //= RFC 9114 section 6.2.1
        //# If the first frame of the control stream is any other frame type, this MUST be treated as a connection error
        //# of type H3_MISSING_SETTINGS.
        if !self.has_settings && header.frame_type != FrameType::SETTINGS {
            return Err(ConnectionError::new(
                ErrorCode::H3_MISSING_SETTINGS,
                "the control stream does not begin with SETTINGS",
            ));
        }
        let limit = match header.frame_type {
            //= RFC 9114 section 7.2.4
            //# If an endpoint receives a second SETTINGS frame on the control stream, the endpoint MUST respond with a
            //# connection error of type H3_FRAME_UNEXPECTED.
            FrameType::SETTINGS if self.has_settings => {
                return Err(unexpected("a second SETTINGS frame"));
            }
            FrameType::SETTINGS => {
                self.has_settings = true;
                settings::MAX_PAYLOAD
            }
            FrameType::GOAWAY | FrameType::CANCEL_PUSH => MAX_VARINT_LEN,
            FrameType::MAX_PUSH_ID if self.role == Role::Server => MAX_VARINT_LEN,
            FrameType::PRIORITY_UPDATE_REQUEST | FrameType::PRIORITY_UPDATE_PUSH
                if self.role == Role::Server =>
            {
                priority_update::MAX_PAYLOAD
            }
            //= RFC 9114 section 7.2.1
            //# If a DATA frame is received on a control stream, the recipient MUST respond with a connection error of
            //# type H3_FRAME_UNEXPECTED.
            FrameType::DATA => return Err(unexpected("a DATA frame on the control stream")),
            //= RFC 9114 section 7.2.2
            //# If a HEADERS frame is received on a control stream, the recipient MUST respond with a connection error
            //# of type H3_FRAME_UNEXPECTED.
            FrameType::HEADERS => return Err(unexpected("a HEADERS frame on the control stream")),
            //= RFC 9114 section 7.2.5
            //# If a PUSH_PROMISE frame is received on the control stream, the client MUST respond with a connection
            //# error of type H3_FRAME_UNEXPECTED.
            FrameType::PUSH_PROMISE => {
                return Err(unexpected("a PUSH_PROMISE frame on the control stream"));
            }
            //= RFC 9114 section 7.2.7
            //# A client MUST treat the receipt of a MAX_PUSH_ID frame as a connection error of type H3_FRAME_UNEXPECTED.
            FrameType::MAX_PUSH_ID => return Err(unexpected("a MAX_PUSH_ID frame from a server")),
            FrameType::PRIORITY_UPDATE_REQUEST | FrameType::PRIORITY_UPDATE_PUSH => {
                return Err(unexpected("a PRIORITY_UPDATE frame from a server"));
            }
            frame_type if frame_type.is_http2_reserved() => {
                return Err(unexpected("a reserved HTTP/2 frame type"));
            }
            //= RFC 9114 section 9
            //# Implementations MUST ignore unknown or unsupported values in all extensible protocol elements.
            _ => {
                cost_balance.on_useless_frame(header.len);
                cost_balance.verdict()?;
                return Ok(Reading::Skipped { left: header.len });
            }
        };
        if header.len > limit {
            return Err(too_long(header.frame_type));
        }
        if header.frame_type != FrameType::SETTINGS {
            cost_balance.on_control_frame();
            cost_balance.verdict()?;
        }
        self.payload.start(header.len as usize);
        Ok(Reading::Payload(header.frame_type))
    }

    fn on_payload(
        &mut self,
        frame_type: FrameType,
        payload: &[u8],
    ) -> Result<Option<ControlFrame>, ConnectionError> {
        match frame_type {
            FrameType::SETTINGS => {
                return Ok(Some(ControlFrame::Settings(Settings::decode(payload)?)));
            }
            FrameType::GOAWAY => {
                let id = decode_single_varint(payload)?;
                self.on_go_away(id)?;
                return Ok(Some(ControlFrame::GoAway { id }));
            }
            FrameType::MAX_PUSH_ID => self.on_max_push_id(decode_single_varint(payload)?)?,
            FrameType::CANCEL_PUSH => {
                decode_single_varint(payload)?;
                //= RFC 9114 section 7.2.3
                //# If a CANCEL_PUSH frame is received that references a push ID greater than currently allowed on the
                //# connection, this MUST be treated as a connection error of type H3_ID_ERROR.
                //= RFC 9114 section 7.2.3
                //# If a server receives a CANCEL_PUSH frame for a push ID that has not yet been mentioned by a
                //# PUSH_PROMISE frame, this MUST be treated as a connection error of type H3_ID_ERROR.
                // A client permits no push; a server has promised none, which is the same error.
                return Err(id_error("a CANCEL_PUSH frame names a push that does not exist"));
            }
            FrameType::PRIORITY_UPDATE_REQUEST => {
                let (stream, priority) = priority_update::decode_request(payload)?;
                return Ok(Some(ControlFrame::PriorityUpdate { stream, priority }));
            }
            FrameType::PRIORITY_UPDATE_PUSH => return Err(priority_update::refuse_push(payload)),
            _ => unreachable!("invariant: on_header collects no other payload"),
        }
        Ok(None)
    }

    fn on_go_away(&mut self, id: u64) -> Result<(), ConnectionError> {
        //= RFC 9114 section 7.2.6
        //# A client MUST treat receipt of a GOAWAY frame containing a stream ID of any other type as a connection error
        //# of type H3_ID_ERROR.
        if self.role == Role::Client && !StreamId(id).is_request() {
            return Err(id_error("a GOAWAY frame has an ID that is not a request stream"));
        }
        //= RFC 9114 section 5.2
        //# Receiving a GOAWAY containing a larger identifier than previously received MUST be treated as a connection
        //# error of type H3_ID_ERROR.
        if self.go_away.replace(id).is_some_and(|earlier| id > earlier) {
            return Err(id_error("the ID of a GOAWAY frame increased"));
        }
        Ok(())
    }

    fn on_max_push_id(&mut self, id: u64) -> Result<(), ConnectionError> {
        //= RFC 9114 section 7.2.7
        //# A MAX_PUSH_ID frame cannot reduce the maximum push ID; receipt of a MAX_PUSH_ID frame that contains a smaller
        //# value than previously received MUST be treated as a connection error of type H3_ID_ERROR.
        if self.max_push_id.replace(id).is_some_and(|earlier| id < earlier) {
            return Err(id_error("a MAX_PUSH_ID frame reduces the limit"));
        }
        Ok(())
    }
}

const fn unexpected(reason: &'static str) -> ConnectionError {
    ConnectionError::new(ErrorCode::H3_FRAME_UNEXPECTED, reason)
}

const fn id_error(reason: &'static str) -> ConnectionError {
    ConnectionError::new(ErrorCode::H3_ID_ERROR, reason)
}

/// A frame with a single varint longer than eight bytes is malformed; other frames only exceed the
/// buffering limit.
const fn too_long(frame_type: FrameType) -> ConnectionError {
    match frame_type {
        FrameType::SETTINGS => ConnectionError::limit_reached(Limit::SettingsSize),
        FrameType::PRIORITY_UPDATE_REQUEST | FrameType::PRIORITY_UPDATE_PUSH => {
            ConnectionError::limit_reached(Limit::PriorityUpdateSize)
        }
        _ => ConnectionError::new(
            ErrorCode::H3_FRAME_ERROR,
            "a frame's payload is not exactly one integer",
        ),
    }
}
