//! Connections over TCP: accepting, TLS, protocol selection and timeouts.

mod blocking_io;
mod clear_text;
mod connected;
mod head_clock;
mod info;
mod listener;
mod parked;
mod prior_knowledge;
mod proxy_protocol;
mod queue;
mod serve;
mod stream;
mod tls;
mod watchdog;

pub(crate) use connected::{Connected, Outcome};
pub(crate) use head_clock::HeadClock;
pub(crate) use info::TcpProbe;
pub(crate) use listener::TcpListener;
pub(crate) use stream::{Activity, ExchangeGuard, PeerEnd, TcpStream, UnixStream};
pub(crate) use tls::{HandshakeProgress, TlsStream};
pub(crate) use watchdog::Watchdog;
