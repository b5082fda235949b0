//! How much the kernel holds of datagrams for a socket.

use std::io;
use std::os::fd::AsFd;

use rustix::net::sockopt::{
    set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, set_socket_send_buffer_size, set_socket_send_buffer_size_force,
    socket_recv_buffer_size, socket_send_buffer_size,
};

/// What is asked for where nobody says otherwise. The kernel's own default, 208 KiB, overflows with a burst of handshakes, or with what
/// 1 Gbit/s brings in two milliseconds; this holds 30 ms of it.
pub(crate) const WANTED_BYTES: usize = 4 << 20;

/// What was asked for, and what the kernel grants of it.
///
/// Without `CAP_NET_ADMIN` it is not more than the sysctls `net.core.rmem_max` and `net.core.wmem_max`. What a buffer does not hold while a
/// worker is busy is lost, and QUIC takes that for congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpBuffers {
    /// Bytes asked for, for either direction.
    pub wanted: usize,
    /// Bytes for datagrams that no worker has received yet.
    pub receive: usize,
    /// Bytes for datagrams that the network has not taken yet.
    pub send: usize,
}

impl UdpBuffers {
    /// Asks for buffers of `wanted` bytes, and looks what came of it.
    pub(crate) fn set(socket: impl AsFd, wanted: usize) -> io::Result<Self> {
        let socket = socket.as_fd();
        set_socket_recv_buffer_size_force(socket, wanted).or_else(|_| set_socket_recv_buffer_size(socket, wanted))?;
        set_socket_send_buffer_size_force(socket, wanted).or_else(|_| set_socket_send_buffer_size(socket, wanted))?;
        // Linux counts its own bookkeeping in, for which it doubles what is asked for, and says the double (socket(7)).
        Ok(Self { wanted, receive: socket_recv_buffer_size(socket)? / 2, send: socket_send_buffer_size(socket)? / 2 })
    }

    /// The sysctl to raise for what was asked for, if the kernel gives less.
    pub fn lacking(&self) -> impl Iterator<Item = &'static str> {
        let directions = [("net.core.rmem_max", self.receive), ("net.core.wmem_max", self.send)];
        let wanted = self.wanted;
        directions.into_iter().filter(move |(_, granted)| *granted < wanted).map(|(name, _)| name)
    }

    /// The smaller ones of both.
    pub(crate) fn least(self, other: Self) -> Self {
        Self { wanted: self.wanted.max(other.wanted), receive: self.receive.min(other.receive), send: self.send.min(other.send) }
    }
}
