//! Arbitrary bytes on any stream, received by a server and by a client. Splitting the bytes
//! differently must not change the events.

use bytes::{Bytes, BytesMut};
use pronghorn_h3::{Config, Connection, ErrorCode, Event, FieldLine, Role, StreamId};

use crate::input::Input;

/// One input step.
enum Step<'a> {
    Data(StreamId, &'a [u8]),
    Fin(StreamId),
    Reset(StreamId, u64),
    StopSending(StreamId),
}

pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let choice = input.byte();
    let role = if choice & 1 == 0 { Role::Server } else { Role::Client };
    let mut steps = Vec::new();
    while !input.is_empty() {
        let step = input.byte();
        let stream = stream(role, usize::from(step >> 4));
        steps.push(match step & 15 {
            0 => Step::Fin(stream),
            1 => Step::Reset(stream, input.byte().into()),
            2 => Step::StopSending(stream),
            _ => Step::Data(stream, input.piece()),
        });
    }
    // The split position determines whether a section is decoded before or after the instructions
    // that follow those it waits for, and a malicious peer can make the result depend on that.
    // Without blocked streams the result is unique.
    let default = Config::default();
    if choice & 2 == 0 {
        let config =
            default.with_qpack_blocked_streams(0).expect("invariant: none is within the range");
        let whole = feed(role, &config, &steps, usize::MAX);
        for cut in [1, 3] {
            assert_eq!(feed(role, &config, &steps, cut), whole, "cut into pieces of {cut}");
        }
    } else {
        feed(role, &default, &steps, usize::MAX);
        feed(role, &default, &steps, 1);
    }
}

/// Returns unidirectional streams of the peer, requests, and streams that the peer must not open.
fn stream(role: Role, choice: usize) -> StreamId {
    let peer = if role == Role::Server { 2 } else { 3 };
    let streams = [
        0,
        4,
        8,
        12,
        peer,
        peer + 4,
        peer + 8,
        peer + 12,
        peer + 16,
        peer + 20,
        16,
        20,
        0,
        4,
        1,
        peer,
    ];
    StreamId(streams[choice])
}

/// Returns the events in short form, and the error that ended the connection.
fn feed(
    role: Role,
    config: &Config,
    steps: &[Step<'_>],
    cut: usize,
) -> (Vec<String>, Option<ErrorCode>) {
    let mut feeder = Feeder::new(role, config.clone());
    for step in steps {
        if let Err(error) = feeder.step(step, cut) {
            feeder.poll();
            return (feeder.events, Some(error));
        }
        feeder.poll();
    }
    (feeder.events, None)
}

struct Feeder {
    connection: Connection,
    events: Vec<String>,
    /// Streams whose receiving side has ended; the transport delivers nothing more of them.
    done: Vec<StreamId>,
    used: Vec<StreamId>,
}

impl Feeder {
    fn new(role: Role, config: Config) -> Self {
        let mut connection = Connection::new(role, config);
        if role == Role::Client {
            for (id, method) in [(0, "GET"), (4, "HEAD"), (8, "CONNECT"), (12, "POST")] {
                let lines: &[(&str, &str)] = match method {
                    "CONNECT" => &[(":method", "CONNECT"), (":authority", "localhost:443")],
                    _ => &[
                        (":method", method),
                        (":scheme", "https"),
                        (":authority", "localhost"),
                        (":path", "/"),
                    ],
                };
                let lines = lines
                    .iter()
                    .map(|(name, value)| FieldLine::new(name.as_bytes(), value.as_bytes()));
                connection
                    .open_request(StreamId(id))
                    .expect("invariant: a new client takes requests");
                connection
                    .encode_headers(StreamId(id), lines, &mut BytesMut::new())
                    .expect("invariant: the request is open");
            }
        }
        Self { connection, events: Vec::new(), done: Vec::new(), used: Vec::new() }
    }

    fn step(&mut self, step: &Step<'_>, cut: usize) -> Result<(), ErrorCode> {
        let stream = match step {
            Step::Data(stream, _)
            | Step::Fin(stream)
            | Step::Reset(stream, _)
            | Step::StopSending(stream) => *stream,
        };
        let is_over = self.done.contains(&stream);
        if !self.used.contains(&stream) {
            self.used.push(stream);
        }
        let result = match step {
            Step::StopSending(_) => self.connection.handle_stop_sending(stream, 0x10c),
            _ if is_over => Ok(()),
            Step::Data(_, data) => data.chunks(cut.max(1)).try_for_each(|piece| {
                self.connection.handle_data(stream, Bytes::copy_from_slice(piece))
            }),
            Step::Fin(_) => {
                self.done.push(stream);
                self.connection.handle_fin(stream)
            }
            Step::Reset(_, code) => {
                self.done.push(stream);
                self.connection.handle_reset(stream, *code)
            }
        };
        result.map_err(|error| error.code())
    }

    /// Handles events as documented.
    fn poll(&mut self) {
        let mut content: Option<StreamId> = None;
        while let Some(event) = self.connection.poll_event() {
            match &event {
                Event::Data { stream, data } => {
                    assert!(!data.is_empty());
                    let text = data.escape_ascii().to_string();
                    match self.events.last_mut() {
                        Some(last) if content == Some(*stream) => last.push_str(&text),
                        _ => self.events.push(format!("{stream} data {text}")),
                    }
                    content = Some(*stream);
                    continue;
                }
                Event::StreamError { stream, .. } => {
                    self.connection.stop_receiving(*stream);
                    self.connection.finish_sending(*stream);
                    self.done.push(*stream);
                }
                Event::Reset { stream, .. } | Event::StopSending { stream, .. } => {
                    self.connection.finish_sending(*stream);
                }
                Event::StopUni { stream, .. } => {
                    self.connection.stop_receiving(*stream);
                    self.done.push(*stream);
                }
                _ => {}
            }
            content = None;
            self.events.push(format!("{event:?}"));
        }
        while self.connection.poll_uni_write().is_some() {}
        assert!(
            self.connection.open_streams() <= self.used.len() + 4,
            "state of streams that were never opened"
        );
    }
}
