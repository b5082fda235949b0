//! A server without TLS that sends exactly the bytes that a test gives it, and nothing by itself.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use http::Request;
use pronghorn_engine::{Body, Connection, Protocol, Resumption, Target};

use crate::support::Bench;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;

pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const CANCEL: u32 = 8;

pub(crate) struct RawServer {
    listener: TcpListener,
    socket: Option<TcpStream>,
    pub(crate) received: Vec<u8>,
    /// Whether the client has closed its side.
    pub(crate) is_closed: bool,
}

/// A received HTTP/2 frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) content: Vec<u8>,
}

impl RawServer {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { listener, socket: None, received: Vec::new(), is_closed: false }
    }

    /// Connects the bench's client, and accepts the connection.
    pub(crate) fn connect(&mut self, bench: &mut Bench, protocol: Protocol) -> Connection {
        let target = Target {
            remote: self.listener.local_addr().unwrap(),
            server_name: "localhost".to_owned(),
            protocol: Some(protocol),
            secure: false,
            resumption: Resumption::default(),
        };
        let connector = bench.connector.clone();
        let connection = bench.run(async move { connector.connect(&target).await.unwrap() });
        let (socket, _) = self.listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.set_nodelay(true).unwrap();
        (self.socket, self.is_closed) = (Some(socket), false);
        self.received.clear();
        connection
    }

    /// Closes the connection.
    pub(crate) fn close(&mut self) {
        self.socket = None;
    }

    /// Reads the available bytes.
    pub(crate) fn step(&mut self) {
        let mut buffer = [0; 16 << 10];
        let Some(socket) = &mut self.socket else { return };
        loop {
            match socket.read(&mut buffer) {
                Ok(0) => break self.is_closed = true,
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => break self.is_closed = true,
            }
        }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        assert!(self.try_send(bytes), "the client has closed the connection");
    }

    /// Sends bytes. Returns whether the client's side is open.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.socket.as_mut().unwrap().write_all(bytes.as_ref()).is_ok()
    }

    /// Returns the complete HTTP/2 frames.
    pub(crate) fn frames(&mut self) -> Vec<Frame> {
        self.step();
        let mut rest = self.received.strip_prefix(PREFACE).unwrap_or_default();
        let mut frames = Vec::new();
        while let [a, b, c, kind, flags, stream @ ..] = rest
            && let Some((stream, after)) = stream.split_first_chunk()
            && let Some((content, after)) =
                after.split_at_checked(u32::from_be_bytes([0, *a, *b, *c]) as usize)
        {
            frames.push(Frame {
                kind: *kind,
                flags: *flags,
                stream: u32::from_be_bytes(*stream),
                content: content.to_vec(),
            });
            rest = after;
        }
        frames
    }

    /// Returns the streams of the received requests.
    pub(crate) fn requests(&mut self) -> Vec<u32> {
        self.frames()
            .into_iter()
            .filter(|frame| frame.kind == HEADERS)
            .map(|frame| frame.stream)
            .collect()
    }

    /// Returns the codes with which the client has reset this stream.
    pub(crate) fn resets(&mut self, stream: u32) -> Vec<u32> {
        let resets = self
            .frames()
            .into_iter()
            .filter(|frame| frame.kind == RST_STREAM && frame.stream == stream);
        resets.map(|frame| u32::from_be_bytes(frame.content.try_into().unwrap())).collect()
    }
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let size = u32::try_from(content.len()).unwrap().to_be_bytes();
    [&size[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

pub(crate) fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let content: Vec<u8> = values
        .iter()
        .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
        .collect();
    frame(SETTINGS, 0, 0, &content)
}

/// Encodes these fields as HEADERS, followed by CONTINUATIONs if they are large.
pub(crate) fn head(stream: u32, fields: &[(&str, &str)], ends: bool) -> Vec<u8> {
    const CONTINUATION: u8 = 9;
    const END_HEADERS: u8 = 4;
    const FRAME_BYTES: usize = 16 << 10;
    let mut section = Vec::new();
    for (name, value) in fields {
        section.push(0);
        for text in [name, value] {
            put_length(text.len(), &mut section);
            section.extend_from_slice(text.as_bytes());
        }
    }
    let pieces: Vec<_> = section.chunks(FRAME_BYTES).collect();
    let mut out = Vec::new();
    for (number, piece) in pieces.iter().enumerate() {
        let (kind, first) = if number == 0 { (HEADERS, u8::from(ends)) } else { (CONTINUATION, 0) };
        let last = if number + 1 == pieces.len() { END_HEADERS } else { 0 };
        out.extend(frame(kind, first | last, stream, piece));
    }
    out
}

/// Encodes a length with a prefix of seven bits (RFC 7541, section 5.1).
fn put_length(length: usize, out: &mut Vec<u8>) {
    if length < 127 {
        return out.push(length as u8);
    }
    out.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        out.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    out.push(rest as u8);
}

pub(crate) fn post(body: Body) -> Request<Body> {
    Request::post("http://localhost/").body(body).unwrap()
}

pub(crate) fn ask(path: &str) -> Request<Body> {
    Request::get(format!("http://localhost{path}")).body(Body::empty()).unwrap()
}
