//! Connections to servers on the same machine, over Unix sockets.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite};

use super::{ConnectTimings, Connection, Connector, Error, Remote, StatsProbe};
use crate::limits::Limits;
use crate::message::Protocol;
use crate::tcp::UnixStream;

/// The system refuses a connection at once if the server's queue is full, and does not report when
/// there is space again. So it is tried again after a pause, which doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(64);

/// How long to retry while the server's queue is full.
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);

impl Connector {
    /// Connects to the Unix socket at `path`, for HTTP/1.1 or HTTP/2 in clear text.
    ///
    /// # Errors
    ///
    /// If no server listens there, if the socket must not be used, or if the server accepts no
    /// connection for 10 s. HTTP/3 is not supported.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was opened.
    pub async fn connect_unix(
        &self,
        path: &Arc<Path>,
        protocol: Protocol,
    ) -> Result<Connection, Error> {
        if protocol == Protocol::Http3 {
            return Err(Error::Unsupported(protocol));
        }
        let began = Instant::now();
        let stream = self.unix_stream(path).await?;
        let timings = ConnectTimings { tcp: Some(began.elapsed()), tls: None };
        self.speak(
            stream,
            StatsProbe::uncounted(),
            Remote::Unix(path.clone()),
            protocol,
            timings,
            None,
        )
        .await
    }

    /// Connects to the Unix socket at `path` for a protocol that the engine does not implement. The
    /// connection is bound to the worker.
    ///
    /// # Errors
    ///
    /// Those of [`Connector::connect_unix`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was opened.
    pub async fn open_unix(
        &self,
        path: &Arc<Path>,
    ) -> Result<impl AsyncRead + AsyncWrite + Unpin + use<>, Error> {
        self.unix_stream(path).await
    }

    async fn unix_stream(&self, path: &Arc<Path>) -> Result<UnixStream, Error> {
        let failed = |source| Error::Connect { remote: Remote::Unix(path.clone()), source };
        let mut pause = FIRST_PAUSE;
        let until = self.handle.now() + RETRY_TIMEOUT;
        loop {
            match mio::net::UnixStream::connect(path) {
                Ok(socket) => {
                    return UnixStream::new(socket, &self.handle, &Limits::default())
                        .map_err(failed);
                }
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && self.handle.now() < until =>
                {
                    self.handle.sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(error) => return Err(failed(error)),
            }
        }
    }
}
