//! A TLS client that sends what the test wants, byte by byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use crate::support::{Bench, Trust};

pub(crate) struct RawTls {
    socket: TcpStream,
    tls: ClientConnection,
    pub(crate) received: Vec<u8>,
    /// What came, as it came.
    wire: Vec<u8>,
    /// The server has closed its side.
    pub(crate) is_closed: bool,
}

impl RawTls {
    /// Connects and finishes the handshake, with this ALPN protocol.
    pub(crate) fn connect(bench: &mut Bench, trust: &Trust, alpn: &[u8]) -> Self {
        let mut config = trust.client.clone();
        config.alpn_protocols = vec![alpn.to_vec()];
        let socket = TcpStream::connect(bench.address).unwrap();
        // What is sent must not wait for the acknowledgement of what was sent before: that takes the kernel 40 ms, and the bench hundreds of turns.
        socket.set_nodelay(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        let tls = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
        let mut raw = Self { socket, tls, received: Vec::new(), wire: Vec::new(), is_closed: false };
        bench.turn_until(|_| {
            raw.step();
            !raw.tls.is_handshaking()
        });
        raw
    }

    /// How much the system takes that was not read.
    pub(crate) fn let_in_at_most(&self, bytes: usize) {
        socket2::SockRef::from(&self.socket).set_recv_buffer_size(bytes).unwrap();
    }

    /// Sends as much as the socket takes at once.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.tls.writer().write_all(bytes).unwrap();
        self.step();
    }

    /// The same, and takes nothing.
    pub(crate) fn send_alone(&mut self, bytes: &[u8]) {
        self.tls.writer().write_all(bytes).unwrap();
        self.step_at_most(0);
    }

    /// Sends no more.
    pub(crate) fn leave(&mut self) {
        self.tls.send_close_notify();
        self.step();
        assert!(!self.tls.wants_write(), "the socket takes what it is given");
        self.socket.shutdown(Shutdown::Write).unwrap();
    }

    /// Moves what there is, in both directions.
    pub(crate) fn step(&mut self) {
        self.step_at_most(usize::MAX);
    }

    /// The same, but takes no more bytes than that from the network, or a little more.
    pub(crate) fn step_at_most(&mut self, bytes: usize) {
        while self.tls.wants_write() && self.tls.write_tls(&mut self.socket).is_ok() {}
        let before = self.wire.len();
        while self.wire.len() - before < bytes {
            match self.tls.read_tls(&mut Recorded(&self.socket, &mut self.wire)) {
                Ok(0) => self.is_closed = true,
                Ok(_) => {
                    self.tls.process_new_packets().unwrap();
                    self.read();
                    continue;
                }
                Err(error) => self.is_closed |= error.kind() != ErrorKind::WouldBlock,
            }
            break;
        }
    }

    fn read(&mut self) {
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = self.tls.reader().read(&mut piece) {
            self.received.extend_from_slice(&piece[..count]);
        }
    }

    /// Number of bytes received, read or not. With a full window it grows only after the server's kernel has seen the client's earlier reads.
    pub(crate) fn arrived(&self) -> usize {
        self.wire.len() + self.socket.peek(&mut vec![0; 1 << 20]).unwrap_or(0)
    }

    /// The lengths of the records that have come.
    pub(crate) fn records(&self) -> Vec<usize> {
        let (mut rest, mut lengths) = (&self.wire[..], Vec::new());
        while let Some((&[_, _, _, high, low], after)) = rest.split_first_chunk() {
            let length = usize::from(u16::from_be_bytes([high, low]));
            let Some(after) = after.get(length..) else { break };
            lengths.push(length);
            rest = after;
        }
        lengths
    }

    /// Whether the server has closed its side without taking what came.
    pub(crate) fn is_reset(&self) -> bool {
        self.socket.take_error().unwrap().is_some()
    }

    /// Whether the server has said within TLS that it sends no more.
    pub(crate) fn is_closed_in_order(&mut self) -> bool {
        self.tls.process_new_packets().is_ok_and(|state| state.peer_has_closed())
    }

    /// Turns until the server has closed.
    pub(crate) fn wait_for_close(&mut self, bench: &mut Bench) {
        bench.turn_until(|_| {
            self.step();
            self.is_closed
        });
    }
}

/// Keeps what is read.
struct Recorded<'a>(&'a TcpStream, &'a mut Vec<u8>);

impl Read for Recorded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.0.read(buffer)?;
        self.1.extend_from_slice(&buffer[..count]);
        Ok(count)
    }
}
