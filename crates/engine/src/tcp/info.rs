//! The kernel's statistics of a TCP connection.

use std::cell::Cell;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::{Rc, Weak};
use std::time::Duration;

use crate::TransportStats;

/// Reads the statistics of a connection that is owned by a library. It does not keep the socket
/// open.
pub(crate) struct TcpProbe {
    socket: Weak<mio::net::TcpStream>,
    last: Cell<TransportStats>,
}

impl TcpProbe {
    pub(super) fn new(socket: &Rc<mio::net::TcpStream>) -> Rc<Self> {
        Rc::new(Self { socket: Rc::downgrade(socket), last: Cell::default() })
    }

    /// Returns current statistics, or the final ones.
    pub(crate) fn read(&self) -> TransportStats {
        if let Some(socket) = self.socket.upgrade() {
            self.refresh(&socket);
        }
        self.last.get()
    }

    /// Stores the kernel's values; if there are none, the last ones stay.
    pub(super) fn refresh(&self, socket: &mio::net::TcpStream) {
        if let Some(stats) = read(socket) {
            self.last.set(stats);
        }
    }
}

/// Reads the round-trip time of a connection that is owned by a library. It does not keep the
/// socket open.
#[derive(Clone)]
pub(crate) struct TcpPath(Weak<mio::net::TcpStream>);

impl TcpPath {
    pub(super) fn new(socket: &Rc<mio::net::TcpStream>) -> Self {
        Self(Rc::downgrade(socket))
    }

    /// Returns the kernel's current estimate; zero if the connection is gone.
    pub(crate) fn rtt(&self) -> Duration {
        self.0.upgrade().and_then(|socket| read(&socket)).map(|stats| stats.rtt).unwrap_or_default()
    }

    /// Returns the address that the client has connected to; `None` if the connection is gone.
    pub(super) fn local(&self) -> Option<SocketAddr> {
        let address = self.0.upgrade()?.local_addr().ok()?;
        Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
    }
}

/// Returns the path's rate in bytes per second, estimated from the congestion window; `None` if the
/// kernel does not report it.
pub(super) fn bytes_per_second(socket: &impl AsFd) -> Option<u64> {
    let info = kernel(socket)?;
    let in_flight = u64::from(info.tcpi_snd_cwnd) * u64::from(info.tcpi_snd_mss);
    (in_flight * 1_000_000).checked_div(info.tcpi_rtt.into())
}

fn read(socket: &mio::net::TcpStream) -> Option<TransportStats> {
    kernel(socket).map(|info| TransportStats {
        bytes_sent: info.tcpi_bytes_sent,
        bytes_received: info.tcpi_bytes_received,
        packets_sent: info.tcpi_segs_out.into(),
        packets_received: info.tcpi_segs_in.into(),
        packets_lost: info.tcpi_total_retrans.into(),
        rtt: Duration::from_micros(info.tcpi_rtt.into()),
    })
}

#[expect(unsafe_code, reason = "no library offers TCP_INFO")]
fn kernel(socket: &impl AsFd) -> Option<libc::tcp_info> {
    // SAFETY: the structure is plain integers, for which zero is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `length` bytes to `info`; an older one writes fewer and
    // leaves the rest zero.
    let result = unsafe {
        libc::getsockopt(
            descriptor,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    (result == 0).then_some(info)
}
