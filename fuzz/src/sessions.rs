//! Arbitrary bytes on streams of WebTransport sessions, in datagrams and in capsules, received by a
//! server and by a client. Splitting the bytes differently must not change the events; a stream has
//! no event before it is opened or after its last one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use pronghorn_h3::capsule::{Capsule, Error, Reader};
use pronghorn_h3::{Config, Connection, ErrorCode, Event, Role, SessionEvent, StreamId};

use crate::input::Input;

/// One input step.
enum Step<'a> {
    Data(StreamId, &'a [u8]),
    Fin(StreamId),
    Reset(StreamId),
    Datagram(&'a [u8]),
    Begin(StreamId),
    End(StreamId),
}

/// Requests that may become sessions.
const SESSIONS: [u64; 4] = [0, 4, 400, 1 << 20];
/// Fewer than there are streams, so that some are refused.
const WAITING_STREAMS: u32 = 3;

pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let choice = input.byte();
    if choice & 2 != 0 {
        return capsules(data);
    }
    let role = if choice & 1 == 0 { Role::Server } else { Role::Client };
    let mut steps = Vec::new();
    while !input.is_empty() {
        let step = input.byte();
        let place = usize::from(step >> 4);
        steps.push(match step & 15 {
            0 => Step::Fin(stream(role, place)),
            1 => Step::Reset(stream(role, place)),
            2..=4 => Step::Datagram(input.piece()),
            5 => Step::Begin(StreamId(SESSIONS[place % SESSIONS.len()])),
            6 => Step::End(StreamId(SESSIONS[place % SESSIONS.len()])),
            _ => Step::Data(stream(role, place), input.piece()),
        });
    }
    let whole = feed(role, &steps, usize::MAX);
    for cut in [1, 3] {
        assert_eq!(feed(role, &steps, cut), whole, "cut into pieces of {cut}");
    }
}

/// Returns a stream of the peer, alternately bidirectional and unidirectional.
fn stream(role: Role, place: usize) -> StreamId {
    let place = place as u64;
    let (bidi, uni) = if role == Role::Server { (8, 2) } else { (1, 3) };
    StreamId(if place.is_multiple_of(2) { bidi } else { uni } + 4 * (place / 2))
}

/// Events of each stream and of each session's datagrams, abbreviated. Their relative order is not
/// fixed: the split position of a waiting stream determines how much is buffered here, and thus
/// reported at once, and how much remains with the transport.
type Events = BTreeMap<(StreamId, bool), Vec<String>>;

/// Returns the session events, and the error that ended the connection.
fn feed(role: Role, steps: &[Step<'_>], cut: usize) -> (Events, Option<ErrorCode>) {
    let config = Config::default()
        .with_webtransport_sessions(4)
        .and_then(|config| config.with_max_waiting_streams(WAITING_STREAMS));
    let mut feeder = Feeder {
        connection: Connection::new(role, config.expect("invariant: both are within their ranges")),
        events: Events::new(),
        opened: BTreeSet::new(),
        over: BTreeSet::new(),
        ended: BTreeSet::new(),
        unread: BTreeMap::new(),
    };
    for step in steps {
        if let Err(code) = feeder.step(step, cut) {
            feeder.poll();
            return (feeder.events, Some(code));
        }
        feeder.poll();
    }
    (feeder.events, None)
}

struct Feeder<'a> {
    connection: Connection,
    events: Events,
    opened: BTreeSet<StreamId>,
    /// Streams without further events.
    over: BTreeSet<StreamId>,
    /// Streams whose receiving side has ended; the transport delivers nothing more of them.
    ended: BTreeSet<StreamId>,
    /// Data that the transport buffers for streams that are not being read.
    unread: BTreeMap<StreamId, VecDeque<&'a [u8]>>,
}

impl<'a> Feeder<'a> {
    fn step(&mut self, step: &Step<'a>, cut: usize) -> Result<(), ErrorCode> {
        match step {
            Step::Data(stream, _) | Step::Fin(stream) | Step::Reset(stream)
                if self.ended.contains(stream) => {}
            Step::Data(stream, data) => {
                self.unread.entry(*stream).or_default().extend(data.chunks(cut.max(1)));
                self.read(*stream)?;
            }
            // The end of a waiting stream comes after its buffered data.
            Step::Fin(stream) if self.connection.is_blocked(*stream) => {}
            Step::Fin(stream) => {
                self.ended.insert(*stream);
                self.connection.handle_fin(*stream).map_err(|error| error.code())?;
            }
            Step::Reset(stream) => {
                self.ended.insert(*stream);
                self.connection.handle_reset(*stream, 0x10c).map_err(|error| error.code())?;
            }
            Step::Datagram(data) => self
                .connection
                .handle_datagram(Bytes::copy_from_slice(data))
                .map_err(|error| error.code())?,
            Step::Begin(session) => self.connection.begin_session(*session),
            Step::End(session) => self.connection.end_session(*session),
        }
        while let Some(stream) = self.connection.poll_unblocked() {
            self.read(stream)?;
        }
        Ok(())
    }

    fn read(&mut self, stream: StreamId) -> Result<(), ErrorCode> {
        while !self.connection.is_blocked(stream)
            && !self.ended.contains(&stream)
            && let Some(piece) = self.unread.get_mut(&stream).and_then(VecDeque::pop_front)
        {
            self.connection
                .handle_data(stream, Bytes::copy_from_slice(piece))
                .map_err(|error| error.code())?;
        }
        Ok(())
    }

    /// Handles events as documented.
    fn poll(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            match event {
                Event::Session(event) => self.on_session_event(&event),
                Event::StreamError { stream, .. } => self.give_up(stream),
                Event::StopUni { stream, .. } => {
                    self.ended.insert(stream);
                    self.connection.stop_receiving(stream);
                }
                Event::Reset { stream, .. } | Event::StopSending { stream, .. } => {
                    self.connection.finish_sending(stream);
                }
                _ => {}
            }
        }
        while self.connection.poll_uni_write().is_some() {}
    }

    fn on_session_event(&mut self, event: &SessionEvent) {
        let stream = match *event {
            SessionEvent::Opened { stream, .. } => {
                assert!(self.opened.insert(stream), "{stream} was opened twice");
                stream
            }
            SessionEvent::Data { stream, ref data } => {
                assert!(self.opened.contains(&stream) && !data.is_empty());
                assert!(!self.over.contains(&stream), "data of {stream} after its end");
                let text = data.escape_ascii().to_string();
                let events = self.events.entry((stream, false)).or_default();
                match events.last_mut().filter(|last| last.starts_with("data ")) {
                    Some(last) => last.push_str(&text),
                    None => events.push(format!("data {text}")),
                }
                return;
            }
            SessionEvent::Finished { stream } | SessionEvent::Reset { stream, .. } => {
                assert!(
                    self.opened.contains(&stream) && self.over.insert(stream),
                    "{stream} ended twice"
                );
                stream
            }
            SessionEvent::StopSending { stream, .. } => stream,
            SessionEvent::Refused { stream, .. } => {
                self.over.insert(stream);
                self.give_up(stream);
                stream
            }
            SessionEvent::Datagram { session, .. } => session,
        };
        let is_datagram = matches!(event, SessionEvent::Datagram { .. });
        self.events.entry((stream, is_datagram)).or_default().push(format!("{event:?}"));
    }

    fn give_up(&mut self, stream: StreamId) {
        self.ended.insert(stream);
        self.connection.stop_receiving(stream);
        self.connection.finish_sending(stream);
    }
}

/// Reads the content of a session's request.
fn capsules(data: &[u8]) {
    let whole = read_capsules(data, usize::MAX);
    for cut in [1, 3, 100] {
        assert_eq!(read_capsules(data, cut), whole, "cut into pieces of {cut}");
    }
}

fn read_capsules(data: &[u8], cut: usize) -> (Vec<Capsule>, Result<(), Error>) {
    let mut reader = Reader::default();
    let mut found = Vec::new();
    for piece in data.chunks(cut.max(1)) {
        let mut piece = Bytes::copy_from_slice(piece);
        loop {
            match reader.read(&mut piece) {
                Ok(Some(capsule)) => found.push(capsule),
                Ok(None) => break,
                Err(error) => return (found, Err(error)),
            }
        }
        assert!(piece.is_empty(), "what is left would be lost");
    }
    (found, reader.finish())
}
