//! Frame scripts for one connection, and a pair of connections in memory.

use bytes::{Bytes, BytesMut};
use pronghorn_h3::{
    Config, Connection, ErrorCode, Event, FieldLine, Head, Role, SessionEvent, StreamId, UniStream,
    varint,
};
use pronghorn_qpack::Encoder;

pub(crate) const REQUEST: StreamId = StreamId(0);

/// IDs of the unidirectional streams that a peer opens.
pub(crate) struct UniIds {
    pub(crate) control: StreamId,
    pub(crate) encoder: StreamId,
    pub(crate) decoder: StreamId,
    pub(crate) other: StreamId,
}

pub(crate) const fn uni_ids(opener: Role) -> UniIds {
    let low = match opener {
        Role::Client => 2,
        Role::Server => 3,
    };
    UniIds {
        control: StreamId(low),
        encoder: StreamId(low + 4),
        decoder: StreamId(low + 8),
        other: StreamId(low + 12),
    }
}

/// A frame of any type.
pub(crate) fn frame(frame_type: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint::encode(frame_type, &mut out);
    varint::encode(payload.len() as u64, &mut out);
    out.extend_from_slice(payload);
    out
}

pub(crate) fn varints(values: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    for value in values {
        varint::encode(*value, &mut out);
    }
    out
}

/// An encoded field section, valid or not.
pub(crate) fn section(lines: &[(&str, &str)]) -> Vec<u8> {
    let mut out = BytesMut::new();
    let lines = lines.iter().map(|(name, value)| FieldLine::new(name.as_bytes(), value.as_bytes()));
    Encoder::new().encode(0, lines, &mut out);
    out.to_vec()
}

pub(crate) fn headers(lines: &[(&str, &str)]) -> Vec<u8> {
    frame(0x01, &section(lines))
}

pub(crate) fn data(content: &[u8]) -> Vec<u8> {
    frame(0x00, content)
}

pub(crate) fn settings(pairs: &[u64]) -> Vec<u8> {
    frame(0x04, &varints(pairs))
}

pub(crate) const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "example.com"),
    (":path", "/index.html"),
];

/// A head like [`GET`] with other lines after it.
pub(crate) fn get_with(more: &[(&'static str, &'static str)]) -> Vec<u8> {
    let mut lines = GET.to_vec();
    lines.extend_from_slice(more);
    headers(&lines)
}

pub(crate) fn post_with(more: &[(&'static str, &'static str)]) -> Vec<u8> {
    let mut lines = GET.to_vec();
    lines[0].1 = "POST";
    lines.extend_from_slice(more);
    headers(&lines)
}

/// A connection with a scripted peer.
pub(crate) struct Scripted {
    pub(crate) connection: Connection,
    peer: UniIds,
}

impl Scripted {
    pub(crate) fn new(role: Role) -> Self {
        Self::with_config(role, Config::default())
    }

    pub(crate) fn with_config(role: Role, config: Config) -> Self {
        let peer = uni_ids(if role == Role::Server { Role::Client } else { Role::Server });
        Self { connection: Connection::new(role, config), peer }
    }

    pub(crate) fn server() -> Self {
        Self::new(Role::Server)
    }

    /// A client with one request sent on [`REQUEST`].
    pub(crate) fn client(method: &'static str) -> Self {
        let mut scripted = Self::new(Role::Client);
        let mut lines = GET.to_vec();
        lines[0].1 = method;
        if method == "CONNECT" {
            lines = vec![(":method", method), (":authority", "example.com:443")];
        }
        scripted.connection.open_request(REQUEST).expect("a new client takes requests");
        scripted.send(REQUEST, &lines).expect("the request is open");
        scripted
    }

    /// Encodes HEADERS and returns the bytes.
    pub(crate) fn send(
        &mut self,
        stream: StreamId,
        lines: &[(&str, &str)],
    ) -> Result<Bytes, pronghorn_h3::SendError> {
        let mut out = BytesMut::new();
        let lines =
            lines.iter().map(|(name, value)| FieldLine::new(name.as_bytes(), value.as_bytes()));
        self.connection.encode_headers(stream, lines, &mut out)?;
        Ok(out.freeze())
    }

    pub(crate) fn receive(&mut self, stream: StreamId, bytes: &[u8]) -> Result<(), ErrorCode> {
        self.connection
            .handle_data(stream, Bytes::copy_from_slice(bytes))
            .map_err(|error| error.code())
    }

    /// Opens the peer's control stream with these bytes after the stream type.
    pub(crate) fn control(&mut self, bytes: &[u8]) -> Result<(), ErrorCode> {
        let stream = self.peer.control;
        self.open_uni(stream, 0x00, bytes)
    }

    /// Like [`Scripted::control`], byte by byte.
    pub(crate) fn control_in_bytes(&mut self, bytes: &[u8]) -> Result<(), ErrorCode> {
        let stream = self.peer.control;
        let mut all = varints(&[0x00]);
        all.extend_from_slice(bytes);
        all.iter().try_for_each(|byte| self.receive(stream, &[*byte]))
    }

    pub(crate) fn encoder_stream(&mut self, bytes: &[u8]) -> Result<(), ErrorCode> {
        let stream = self.peer.encoder;
        self.open_uni(stream, 0x02, bytes)
    }

    pub(crate) fn decoder_stream(&mut self, bytes: &[u8]) -> Result<(), ErrorCode> {
        let stream = self.peer.decoder;
        self.open_uni(stream, 0x03, bytes)
    }

    pub(crate) fn open_uni(
        &mut self,
        stream: StreamId,
        stream_type: u64,
        bytes: &[u8],
    ) -> Result<(), ErrorCode> {
        let mut all = varints(&[stream_type]);
        all.extend_from_slice(bytes);
        self.receive(stream, &all)
    }

    pub(crate) fn fin(&mut self, stream: StreamId) -> Result<(), ErrorCode> {
        self.connection.handle_fin(stream).map_err(|error| error.code())
    }

    pub(crate) fn reset(&mut self, stream: StreamId, code: ErrorCode) -> Result<(), ErrorCode> {
        self.connection.handle_reset(stream, code.0).map_err(|error| error.code())
    }

    pub(crate) fn peer(&self) -> &UniIds {
        &self.peer
    }

    /// Returns the pending events as short texts.
    pub(crate) fn events(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.connection.poll_event()).map(|event| describe(&event)).collect()
    }

    /// Returns the code of the last event, if it is a stream error.
    pub(crate) fn stream_error(&mut self) -> Option<ErrorCode> {
        match std::iter::from_fn(|| self.connection.poll_event()).last() {
            Some(Event::StreamError { code, .. }) => Some(code),
            _ => None,
        }
    }
}

/// Describes an event in one line.
pub(crate) fn describe(event: &Event) -> String {
    let end_mark = |end: &bool| if *end { " end" } else { "" };
    match event {
        Event::Settings => "settings".into(),
        Event::Head { stream, head: Head::Request(head), end } => {
            let text = |value: Option<&[u8]>| {
                value.map_or_else(|| "-".into(), |value| value.escape_ascii().to_string())
            };
            format!(
                "{stream} {} {}://{}{}{}{}",
                text(Some(head.method())),
                text(head.scheme()),
                text(head.authority()),
                text(head.path()),
                fields(head.fields()),
                end_mark(end)
            )
        }
        Event::Head { stream, head: Head::Response(head), end } => {
            format!("{stream} {}{}{}", head.status(), fields(head.fields()), end_mark(end))
        }
        Event::PriorityUpdate { stream, priority } => format!("{stream} priority {priority}"),
        Event::Data { stream, data } => format!("{stream} data {}", data.escape_ascii()),
        Event::Trailers { stream, section } => {
            format!("{stream} trailers{}", fields(section.iter()))
        }
        Event::Finished { stream } => format!("{stream} finished"),
        Event::Reset { stream, code } => format!("{stream} reset {code}"),
        Event::StreamError { stream, code, .. } => format!("{stream} error {code}"),
        Event::StopSending { stream, code } => format!("{stream} stop sending {code}"),
        Event::Unprocessed { stream } => format!("{stream} unprocessed"),
        Event::GoAway { id } => format!("go away {id}"),
        Event::StopUni { stream, code } => format!("{stream} stop uni {code}"),
        Event::Session(event) => describe_session(event),
    }
}

fn describe_session(event: &SessionEvent) -> String {
    match event {
        SessionEvent::Opened { session, stream } => format!("{stream} opened for {session}"),
        SessionEvent::Data { stream, data } => format!("{stream} {}", data.escape_ascii()),
        SessionEvent::Finished { stream } => format!("{stream} finished"),
        SessionEvent::Reset { stream, code } => {
            format!("{stream} reset {:?}", code.to_application())
        }
        SessionEvent::StopSending { stream, code } => {
            format!("{stream} stop {:?}", code.to_application())
        }
        SessionEvent::Refused { stream, code, limit } => {
            format!("{stream} refused {code} {limit:?}")
        }
        SessionEvent::Datagram { session, payload } => {
            format!("datagram for {session}: {}", payload.escape_ascii())
        }
    }
}

fn fields<'a>(lines: impl Iterator<Item = pronghorn_h3::SectionLine<'a>>) -> String {
    lines
        .flat_map(|line| {
            [
                " ".into(),
                line.name.escape_ascii().to_string(),
                "=".into(),
                line.value.escape_ascii().to_string(),
            ]
        })
        .collect()
}

/// A client and a server, connected by a transport that splits everything into pieces of at most
/// `cut` bytes.
pub(crate) struct Pair {
    pub(crate) client: Connection,
    pub(crate) server: Connection,
    pub(crate) cut: usize,
}

impl Pair {
    pub(crate) fn new(cut: usize) -> Self {
        Self {
            client: Connection::new(Role::Client, Config::default()),
            server: Connection::new(Role::Server, Config::default()),
            cut,
        }
    }

    /// Delivers pending data of the unidirectional streams in both directions.
    pub(crate) fn carry_uni(&mut self) {
        carry_uni(&mut self.client, &mut self.server, &uni_ids(Role::Client), self.cut);
        carry_uni(&mut self.server, &mut self.client, &uni_ids(Role::Server), self.cut);
    }

    pub(crate) fn feed_server(&mut self, stream: StreamId, bytes: &[u8]) {
        deliver(&mut self.server, stream, bytes, self.cut);
    }

    pub(crate) fn feed_client(&mut self, stream: StreamId, bytes: &[u8]) {
        deliver(&mut self.client, stream, bytes, self.cut);
    }
}

fn carry_uni(from: &mut Connection, to: &mut Connection, ids: &UniIds, cut: usize) {
    while let Some((uni, bytes)) = from.poll_uni_write() {
        let stream = match uni {
            UniStream::Control => ids.control,
            UniStream::QpackEncoder => ids.encoder,
            UniStream::QpackDecoder => ids.decoder,
        };
        deliver(to, stream, &bytes, cut);
    }
}

pub(crate) fn deliver(to: &mut Connection, stream: StreamId, bytes: &[u8], cut: usize) {
    for piece in bytes.chunks(cut) {
        to.handle_data(stream, Bytes::copy_from_slice(piece)).expect("our own bytes are valid");
    }
}

/// Returns the pending events as short texts, with split content of a stream joined.
pub(crate) fn joined_events(connection: &mut Connection) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    for event in std::iter::from_fn(|| connection.poll_event()) {
        let text = describe(&event);
        if let Event::Data { stream, data } = &event {
            let prefix = format!("{stream} data ");
            if let Some(last) = joined.last_mut().filter(|last| last.starts_with(&prefix)) {
                last.push_str(&data.escape_ascii().to_string());
                continue;
            }
        }
        joined.push(text);
    }
    joined
}
