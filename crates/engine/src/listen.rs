//! Listening sockets. They are bound before any worker runs, so that an address that cannot be
//! bound is reported at once.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::config::Congestion;
use crate::tcp_congestion::{self, CongestionError};
use crate::udp::canonical;
use crate::udp_buffers::{DEFAULT_BYTES, UdpBuffers};

const TCP_BACKLOG: i32 = 4096;
/// Number of ports to try if the kernel's choice for TCP is in use for UDP.
const PORT_ATTEMPTS: usize = 32;

/// The protocols that an address is bound for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transports {
    /// HTTP/1.1 in clear text on TCP.
    ClearTcp,
    /// HTTP/1.1 and HTTP/2 over TLS on TCP.
    SecureTcp,
    /// HTTP/3 on UDP.
    Quic,
    /// HTTP/1.1 and HTTP/2 over TLS on TCP, and HTTP/3 on UDP, on the same port.
    Secure,
}

/// Options for binding an address.
#[derive(Clone, Copy, Debug)]
pub struct Bind {
    /// Protocols to bind for.
    pub transports: Transports,
    /// Congestion controller of accepted TCP connections. `None` leaves the system's.
    pub congestion: Option<Congestion>,
    /// Whether the port may be in use already, in which case the kernel spreads clients over all
    /// its sockets. Only for processes that share it on purpose: otherwise it would go unnoticed
    /// that another server of the same user has the port.
    pub reuse_port: bool,
}

/// The sockets of one address: a TCP socket for each worker and, where HTTP/3 is served, a UDP
/// socket on the same port.
#[derive(Debug)]
pub struct Listener {
    address: SocketAddr,
    secure: bool,
    sockets: Vec<Sockets>,
}

/// One worker's share of a [`Listener`].
#[derive(Debug)]
pub struct Sockets {
    pub(crate) address: SocketAddr,
    pub(crate) secure: bool,
    pub(crate) tcp: Option<TcpListener>,
    pub(crate) udp: Option<UdpSocket>,
}

/// Why an address could not be bound as requested.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address is in use, not an address of this machine, or not permitted.
    #[error("cannot listen on {address} ({transport}): {source}")]
    Address {
        /// Requested address.
        address: SocketAddr,
        /// `TCP` or `UDP`.
        transport: &'static str,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The system does not offer the requested congestion controller for TCP connections.
    #[error(transparent)]
    Congestion(#[from] CongestionError),
}

impl BindError {
    fn tcp(address: SocketAddr) -> impl Fn(io::Error) -> Self {
        move |source| Self::Address { address, transport: "TCP", source }
    }

    fn udp(address: SocketAddr) -> impl Fn(io::Error) -> Self {
        move |source| Self::Address { address, transport: "UDP", source }
    }
}

impl Listener {
    /// Binds `address` as `bind` says, for `workers` workers.
    ///
    /// For [`Transports::Secure`] TCP is bound first and UDP takes the same port, even if the
    /// kernel chooses it (port 0). `[::]` accepts IPv4 as well.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound, or if the system does not have the congestion controller for
    /// TCP or does not let this user choose it.
    pub fn bind(address: SocketAddr, workers: usize, bind: Bind) -> Result<Self, BindError> {
        let is_secure = bind.transports != Transports::ClearTcp;
        if bind.transports == Transports::Quic {
            let udp = bind_udp(address, workers, bind.reuse_port)?;
            let bound = udp[0].local_addr().map(canonical).map_err(BindError::udp(address))?;
            return Ok(Self::new(bound, is_secure, udp.into_iter().map(|udp| (None, Some(udp)))));
        }
        let mut attempt = 0;
        loop {
            attempt += 1;
            let tcp = bind_tcp(address, workers, bind)?;
            let bound = local_address(address, &tcp[0])?;
            if bind.transports != Transports::Secure {
                return Ok(Self::new(
                    bound,
                    is_secure,
                    tcp.into_iter().map(|tcp| (Some(tcp), None)),
                ));
            }
            match bind_udp(bound, workers, bind.reuse_port) {
                Ok(udp) => {
                    return Ok(Self::new(
                        bound,
                        is_secure,
                        tcp.into_iter().map(Some).zip(udp.into_iter().map(Some)),
                    ));
                }
                // Another program uses this UDP port, which the kernel chose for TCP.
                Err(BindError::Address { source, .. })
                    if address.port() == 0
                        && source.kind() == io::ErrorKind::AddrInUse
                        && attempt < PORT_ATTEMPTS => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Binds `address` for HTTP/1.1 and HTTP/2 over TLS on TCP, and HTTP/3 on UDP, for `workers`
    /// workers. See [`Listener::bind`].
    ///
    /// `congestion` is the controller of accepted TCP connections. `None` leaves the system's.
    ///
    /// # Errors
    ///
    /// Like [`Listener::bind`].
    pub fn secure(
        address: SocketAddr,
        workers: usize,
        congestion: Option<Congestion>,
    ) -> Result<Self, BindError> {
        Self::bind(
            address,
            workers,
            Bind { transports: Transports::Secure, congestion, reuse_port: false },
        )
    }

    /// Binds `address` for HTTP/1.1 in clear text on TCP.
    ///
    /// # Errors
    ///
    /// Like [`Listener::bind`].
    pub fn clear(
        address: SocketAddr,
        workers: usize,
        congestion: Option<Congestion>,
    ) -> Result<Self, BindError> {
        Self::bind(
            address,
            workers,
            Bind { transports: Transports::ClearTcp, congestion, reuse_port: false },
        )
    }

    fn new(
        address: SocketAddr,
        secure: bool,
        sockets: impl Iterator<Item = (Option<TcpListener>, Option<UdpSocket>)>,
    ) -> Self {
        let sockets = sockets.map(|(tcp, udp)| Sockets { address, secure, tcp, udp }).collect();
        Self { address, secure, sockets }
    }

    /// Returns the bound address, with the port that the kernel chose if 0 was requested.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether this listener uses TLS (QUIC included).
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// Returns the kernel's name of the congestion controller of accepted TCP connections, read
    /// from the socket.
    ///
    /// # Errors
    ///
    /// If the system call fails, or if there is no TCP socket.
    pub fn tcp_congestion(&self) -> io::Result<String> {
        let first = self
            .sockets
            .first()
            .and_then(|first| first.tcp.as_ref())
            .ok_or(io::ErrorKind::NotFound)?;
        tcp_congestion::in_effect(&SockRef::from(first))
    }

    /// Requests kernel buffers of this size for each UDP socket, in either direction. Returns the
    /// granted size, the smallest of all sockets, or `None` without a UDP socket. Without this call
    /// sockets request 4 MiB.
    ///
    /// TCP sockets are left to the kernel, which sizes their buffers by the needs of the path
    /// (`net.ipv4.tcp_rmem`, `tcp_wmem`).
    ///
    /// # Errors
    ///
    /// If a system call fails.
    pub fn set_udp_buffers(&self, wanted: usize) -> io::Result<Option<UdpBuffers>> {
        let sockets = self.sockets.iter().filter_map(|sockets| sockets.udp.as_ref());
        sockets
            .map(|socket| UdpBuffers::set(socket, wanted))
            .reduce(|one, other| Ok(one?.least(other?)))
            .transpose()
    }

    /// Returns the shares of the workers, in the order of their numbers.
    pub fn into_sockets(self) -> Vec<Sockets> {
        self.sockets
    }
}

/// Binds a UDP socket on any port for outgoing connections: for both address families if the system
/// has IPv6.
pub(crate) fn client_socket() -> io::Result<UdpSocket> {
    let any = |address: SocketAddr| {
        let socket = socket(address, Type::DGRAM, Protocol::UDP, false)?;
        UdpBuffers::set(&socket, DEFAULT_BYTES)?;
        socket.bind(&address.into())?;
        Ok(UdpSocket::from(socket))
    };
    any((std::net::Ipv6Addr::UNSPECIFIED, 0).into())
        .or_else(|_: io::Error| any((std::net::Ipv4Addr::UNSPECIFIED, 0).into()))
}

fn bind_tcp(
    address: SocketAddr,
    workers: usize,
    bind: Bind,
) -> Result<Vec<TcpListener>, BindError> {
    let fail = BindError::tcp(address);
    if !bind.reuse_port {
        refuse_if_taken(address, Type::STREAM, Protocol::TCP).map_err(&fail)?;
    }
    let mut address = address;
    let mut listeners = Vec::with_capacity(workers);
    for _ in 0..workers.max(1) {
        let socket = socket(address, Type::STREAM, Protocol::TCP, true).map_err(&fail)?;
        if let Some(congestion) = bind.congestion {
            // Accepted connections inherit it.
            tcp_congestion::choose(&socket, congestion)?;
        }
        socket.bind(&address.into()).and_then(|()| socket.listen(TCP_BACKLOG)).map_err(&fail)?;
        let listener = TcpListener::from(socket);
        address = local_address(address, &listener)?;
        listeners.push(listener);
    }
    Ok(listeners)
}

fn bind_udp(
    address: SocketAddr,
    workers: usize,
    shared: bool,
) -> Result<Vec<UdpSocket>, BindError> {
    let fail = BindError::udp(address);
    if !shared {
        refuse_if_taken(address, Type::DGRAM, Protocol::UDP).map_err(&fail)?;
    }
    let mut address = address;
    (0..workers.max(1))
        .map(|_| {
            let socket = socket(address, Type::DGRAM, Protocol::UDP, true)?;
            UdpBuffers::set(&socket, DEFAULT_BYTES)?;
            socket.bind(&address.into())?;
            let socket = UdpSocket::from(socket);
            address = socket.local_addr()?;
            Ok(socket)
        })
        .collect::<io::Result<_>>()
        .map_err(fail)
}

/// Fails if another server has the port. Sockets that share a port would silently share it with
/// another server of the same user too; a probe that does not share finds out.
fn refuse_if_taken(address: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<()> {
    if address.port() == 0 {
        return Ok(());
    }
    let probe = socket(address, kind, protocol, false)?;
    if kind == Type::STREAM {
        // Connections of an earlier server in TIME_WAIT do not block the port.
        probe.set_reuse_address(true)?;
    }
    probe.bind(&address.into())?;
    if kind == Type::STREAM { probe.listen(1) } else { Ok(()) }
}

fn socket(address: SocketAddr, kind: Type, protocol: Protocol, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        // `[::]` is every address of both families. Any other IPv6 address is only itself.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    if shared {
        socket.set_reuse_port(true)?;
        if kind == Type::STREAM {
            socket.set_reuse_address(true)?;
        }
    }
    Ok(socket)
}

fn local_address(asked: SocketAddr, listener: &TcpListener) -> Result<SocketAddr, BindError> {
    listener.local_addr().map(canonical).map_err(BindError::tcp(asked))
}
