//! A TLS client that sends exactly the bytes that a test gives it.

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
    /// All bytes received, still encrypted.
    wire: Vec<u8>,
    /// Whether the server has closed its side.
    pub(crate) is_closed: bool,
}

impl RawTls {
    /// Connects with this ALPN protocol, and finishes the handshake.
    pub(crate) fn connect(bench: &mut Bench, trust: &Trust, alpn: &[u8]) -> Self {
        let mut config = trust.client.clone();
        config.alpn_protocols = vec![alpn.to_vec()];
        let socket = TcpStream::connect(bench.address).unwrap();
        // Sent data must not wait for the acknowledgment of earlier data: that takes the kernel 40
        // ms, and the bench hundreds of turns.
        socket.set_nodelay(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        let tls =
            ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap())
                .unwrap();
        let mut raw =
            Self { socket, tls, received: Vec::new(), wire: Vec::new(), is_closed: false };
        bench.turn_until(|_| {
            raw.step();
            !raw.tls.is_handshaking()
        });
        raw
    }

    /// Limits the bytes that the system buffers unread.
    pub(crate) fn let_in_at_most(&self, bytes: usize) {
        socket2::SockRef::from(&self.socket).set_recv_buffer_size(bytes).unwrap();
    }

    /// Sends as much as the socket accepts at once.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.tls.writer().write_all(bytes).unwrap();
        self.step();
    }

    /// Sends as much as the socket accepts at once, without reading.
    pub(crate) fn send_alone(&mut self, bytes: &[u8]) {
        self.tls.writer().write_all(bytes).unwrap();
        self.step_at_most(0);
    }

    /// Closes the sending side.
    pub(crate) fn leave(&mut self) {
        self.tls.send_close_notify();
        self.step();
        assert!(!self.tls.wants_write(), "the socket accepts everything");
        self.socket.shutdown(Shutdown::Write).unwrap();
    }

    /// Transfers the available data in both directions.
    pub(crate) fn step(&mut self) {
        self.step_at_most(usize::MAX);
    }

    /// Sends the available data, and reads about this many bytes.
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

    /// Number of bytes received, read or not. With a full window it grows only after the server's
    /// kernel has seen the client's earlier reads.
    pub(crate) fn arrived(&self) -> usize {
        self.wire.len() + self.socket.peek(&mut vec![0; 1 << 20]).unwrap_or(0)
    }

    /// Returns the lengths of the received records.
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

    /// Whether the server has reset the connection.
    pub(crate) fn is_reset(&self) -> bool {
        self.socket.take_error().unwrap().is_some()
    }

    /// Whether the server has sent close_notify.
    pub(crate) fn is_closed_in_order(&mut self) -> bool {
        self.tls.process_new_packets().is_ok_and(|state| state.peer_has_closed())
    }

    /// Runs turns until the server has closed the connection.
    pub(crate) fn wait_for_close(&mut self, bench: &mut Bench) {
        bench.turn_until(|_| {
            self.step();
            self.is_closed
        });
    }
}

/// Records the bytes read.
struct Recorded<'a>(&'a TcpStream, &'a mut Vec<u8>);

impl Read for Recorded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.0.read(buffer)?;
        self.1.extend_from_slice(&buffer[..count]);
        Ok(count)
    }
}
