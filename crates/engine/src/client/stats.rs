//! Reading the counters of an open connection.

use std::future::{Future, ready};
use std::pin::Pin;
use std::rc::Rc;

use crate::TransportStats;
use crate::http3::StatsProbe as Http3StatsProbe;
use crate::tcp::TcpProbe;

/// Reads the counts of a connection. If the connection has ended, they are its last ones.
#[derive(Clone)]
pub struct StatsProbe(Source);

#[derive(Clone)]
enum Source {
    /// The system counts nothing for a Unix socket.
    Uncounted,
    Tcp(Rc<TcpProbe>),
    Quic(Http3StatsProbe),
}

impl StatsProbe {
    pub(super) fn tcp(probe: Rc<TcpProbe>) -> Self {
        Self(Source::Tcp(probe))
    }

    pub(super) fn uncounted() -> Self {
        Self(Source::Uncounted)
    }

    pub(super) fn quic(probe: Http3StatsProbe) -> Self {
        Self(Source::Quic(probe))
    }

    /// Reads the current counts.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub fn read(&self) -> impl Future<Output = TransportStats> + use<> {
        let read: Pin<Box<dyn Future<Output = TransportStats>>> = match &self.0 {
            Source::Uncounted => Box::pin(ready(TransportStats::default())),
            Source::Tcp(probe) => Box::pin(ready(probe.read())),
            Source::Quic(probe) => Box::pin(probe.clone().read()),
        };
        read
    }
}

impl std::fmt::Debug for StatsProbe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StatsProbe").finish_non_exhaustive()
    }
}
