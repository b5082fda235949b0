//! The events of one connection.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use pronghorn_h3::{self as h3, ErrorCode, FieldLine, Head, Settings, StreamId};
use qlog::events::connectivity::{ConnectionClosed, ConnectionClosedTrigger, TransportOwner};
use qlog::events::h3::{
    H3FrameCreated, H3FrameParsed, H3Owner, H3ParametersSet, Http3Frame, HttpHeader,
};
use qlog::events::quic::{StreamSide, StreamState, StreamStateUpdated};
use qlog::events::{ApplicationErrorCode, Event, EventData, EventImportance, JsonEvent, RawInfo};
use quinn_proto::{QlogConfig, QlogStream};
use serde::Serialize;
use serde_json::json;

use super::Records;
use crate::field_line::is_secret;
use crate::transport::{Closed, Write};

/// Replaces a secret value.
const REDACTED: &str = "(not shown)";

/// Writes the events of one connection. The transport writes its own through a part of it.
#[derive(Clone)]
pub(crate) struct Trace {
    records: Arc<Records>,
    began: Instant,
    transport: QlogStream,
}

/// Direction of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Sent,
    Received,
}

impl Trace {
    pub(super) fn begin(records: Records, now: Instant) -> Option<Self> {
        let records = Arc::new(records);
        let mut config = QlogConfig::default();
        config
            .writer(Box::new(Lines { records: records.clone(), line: Vec::new() }))
            .start_time(now);
        let transport = config.into_stream()?;
        Some(Self { records, began: now, transport })
    }

    /// Returns the stream for the transport's own events.
    pub(crate) fn transport(&self) -> QlogStream {
        self.transport.clone()
    }

    /// Records the SETTINGS of one side.
    pub(crate) fn settings(&self, now: Instant, is_ours: bool, settings: &Settings) {
        self.event(
            now,
            EventData::H3ParametersSet(H3ParametersSet {
                owner: Some(if is_ours { H3Owner::Local } else { H3Owner::Remote }),
                max_field_section_size: settings.max_field_section_size,
                max_table_capacity: Some(settings.qpack_max_table_capacity),
                blocked_streams_count: Some(settings.qpack_blocked_streams),
                enable_connect_protocol: Some(settings.enable_connect_protocol.into()),
                h3_datagram: Some(settings.h3_datagram.into()),
                waits_for_settings: None,
            }),
        );
    }

    /// Records an event from the peer, as HTTP/3 parsed it.
    pub(crate) fn received(&self, now: Instant, event: &h3::Event, settings: Option<&Settings>) {
        match event {
            h3::Event::Settings => {
                if let Some(settings) = settings {
                    self.settings(now, false, settings);
                }
            }
            h3::Event::Head { stream, head: Head::Request(head), .. } => {
                self.stream_state(now, *stream, StreamSide::Receiving, StreamState::Open);
                self.headers(now, Direction::Received, *stream, head.lines().map(Into::into));
            }
            h3::Event::Head { stream, head: Head::Response(head), .. } => {
                self.headers(now, Direction::Received, *stream, head.lines().map(Into::into));
            }
            h3::Event::Trailers { stream, section } => {
                self.headers(now, Direction::Received, *stream, section.iter().map(Into::into));
            }
            h3::Event::Data { stream, data } => self.data_received(now, *stream, data.len() as u64),
            h3::Event::Finished { stream } => {
                self.stream_state(now, *stream, StreamSide::Receiving, StreamState::DataRead);
            }
            h3::Event::Reset { stream, .. } => {
                self.stream_state(now, *stream, StreamSide::Receiving, StreamState::ResetRead);
            }
            h3::Event::StreamError { stream, code, reason, .. } => {
                self.stream_error(now, *stream, *code, reason);
            }
            h3::Event::Unprocessed { stream } => {
                self.stream_error(
                    now,
                    *stream,
                    ErrorCode::H3_REQUEST_REJECTED,
                    "the server is shutting down and did not process the request",
                );
            }
            // The `qlog` crate's type requires the stream, which an application of HTTP/3 does not
            // see.
            h3::Event::GoAway { id } => {
                self.json(
                    now,
                    EventImportance::Core,
                    "http:frame_parsed",
                    json!({ "frame": { "frame_type": "goaway", "id": id } }),
                );
            }
            h3::Event::PriorityUpdate { stream, priority } => {
                let frame = json!({ "frame_type": "priority_update", "element_id": u64::from(*stream), "field_value": priority.to_string() });
                self.json(
                    now,
                    EventImportance::Core,
                    "http:frame_parsed",
                    json!({ "frame": frame }),
                );
            }
            h3::Event::StopSending { .. } | h3::Event::StopUni { .. } | h3::Event::Session(_) => {}
        }
    }

    /// Records a HEADERS frame: a head or trailers. Secret values are redacted.
    pub(crate) fn headers<'a>(
        &self,
        now: Instant,
        way: Direction,
        stream: StreamId,
        lines: impl IntoIterator<Item = FieldLine<'a>>,
    ) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let header = |line: FieldLine<'_>| HttpHeader {
            name: text(line.name),
            value: if line.never_index || is_secret(line.name) {
                REDACTED.to_owned()
            } else {
                text(line.value)
            },
        };
        self.frame(
            now,
            way,
            stream,
            None,
            Http3Frame::Headers { headers: lines.into_iter().map(header).collect() },
        );
    }

    /// Records a DATA frame that is sent.
    pub(crate) fn data_sent(&self, now: Instant, stream: StreamId, len: u64) {
        let raw = Some(RawInfo { length: None, payload_length: Some(len), data: None });
        self.frame(now, Direction::Sent, stream, Some(len), Http3Frame::Data { raw });
    }

    /// Records content that the peer sent. It arrives in pieces, which are not its frames.
    pub(crate) fn data_received(&self, now: Instant, stream: StreamId, len: u64) {
        // As JSON because the `qlog` crate does not export the type of `from` and `to`.
        let data = json!({ "stream_id": u64::from(stream), "length": len, "from": "transport", "to": "application" });
        self.json(now, EventImportance::Base, "transport:data_moved", data);
    }

    /// Records that a stream reached a state.
    pub(crate) fn stream_state(
        &self,
        now: Instant,
        stream: StreamId,
        side: StreamSide,
        new: StreamState,
    ) {
        let update = StreamStateUpdated {
            stream_id: stream.into(),
            stream_type: None,
            old: None,
            new,
            stream_side: Some(side),
        };
        self.event(now, EventData::StreamStateUpdated(update));
    }

    /// Records the result of a write.
    pub(crate) fn wrote(
        &self,
        now: Instant,
        stream: StreamId,
        write: &Write,
        is_last: bool,
        waiting_bytes: usize,
    ) {
        match write {
            Write::Done if is_last => {
                self.stream_state(now, stream, StreamSide::Sending, StreamState::DataSent);
            }
            Write::Done | Write::More | Write::Stopped => {}
            Write::Blocked => self.stream_blocked(now, stream, waiting_bytes),
        }
    }

    /// Records that the transport takes no more of a stream for now: flow control, the congestion
    /// window or the send window is full. qlog has no event for this; the prefix names its owner.
    fn stream_blocked(&self, now: Instant, stream: StreamId, waiting_bytes: usize) {
        let data = json!({ "stream_id": u64::from(stream), "waiting_bytes": waiting_bytes });
        self.json(now, EventImportance::Extra, "pronghorn:stream_blocked", data);
    }

    /// Records an error of a message or a stream.
    pub(crate) fn stream_error(
        &self,
        now: Instant,
        stream: StreamId,
        code: ErrorCode,
        reason: &str,
    ) {
        let data = json!({ "stream_id": u64::from(stream), "code": code.0, "reason": reason });
        self.json(now, EventImportance::Core, "pronghorn:stream_error", data);
    }

    /// Records that this side closes the connection with an error.
    pub(crate) fn closed_with(&self, now: Instant, code: u64, reason: &str) {
        self.closed_event(
            now,
            TransportOwner::Local,
            Some(code),
            reason.to_owned(),
            ConnectionClosedTrigger::Application,
        );
    }

    /// Records that the connection ended.
    pub(crate) fn closed(&self, now: Instant, closed: &Closed) {
        let (owner, code, trigger) = match closed {
            Closed::Locally => return,
            Closed::ByPeer { code, .. } => {
                (TransportOwner::Remote, Some(*code), ConnectionClosedTrigger::Application)
            }
            Closed::TimedOut => (TransportOwner::Local, None, ConnectionClosedTrigger::IdleTimeout),
            Closed::Reset => {
                (TransportOwner::Remote, None, ConnectionClosedTrigger::StatelessReset)
            }
            Closed::Transport(_) => (TransportOwner::Local, None, ConnectionClosedTrigger::Error),
        };
        self.closed_event(now, owner, code, closed.to_string(), trigger);
    }

    fn closed_event(
        &self,
        now: Instant,
        owner: TransportOwner,
        code: Option<u64>,
        reason: String,
        trigger: ConnectionClosedTrigger,
    ) {
        let application_code = code.map(ApplicationErrorCode::Value);
        let event = ConnectionClosed {
            owner: Some(owner),
            connection_code: None,
            application_code,
            internal_code: None,
            reason: Some(reason),
            trigger: Some(trigger),
        };
        self.event(now, EventData::ConnectionClosed(event));
    }

    fn frame(
        &self,
        now: Instant,
        way: Direction,
        stream: StreamId,
        length: Option<u64>,
        frame: Http3Frame,
    ) {
        let stream_id = stream.into();
        self.event(
            now,
            match way {
                Direction::Sent => EventData::H3FrameCreated(H3FrameCreated {
                    stream_id,
                    length,
                    frame,
                    raw: None,
                }),
                Direction::Received => {
                    EventData::H3FrameParsed(H3FrameParsed { stream_id, length, frame, raw: None })
                }
            },
        );
    }

    fn event(&self, now: Instant, data: EventData) {
        self.write(&Event::with_time(self.time(now), data));
    }

    fn json(&self, now: Instant, importance: EventImportance, name: &str, data: serde_json::Value) {
        self.write(&JsonEvent { time: self.time(now), importance, name: name.to_owned(), data });
    }

    fn time(&self, now: Instant) -> f32 {
        now.saturating_duration_since(self.began).as_secs_f32() * 1e3
    }

    fn write(&self, event: &impl Serialize) {
        // RFC 7464: a record separator, the text, a line feed.
        let mut record = vec![0x1e];
        if serde_json::to_writer(&mut record, event).is_ok() {
            record.push(b'\n');
            self.records.send(record);
        }
    }
}

/// Splits the transport's output into records.
struct Lines {
    records: Arc<Records>,
    line: Vec<u8>,
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        // JSON text contains no line feed.
        if self.line.last() == Some(&b'\n') {
            self.records.send(std::mem::take(&mut self.line));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
