//! Errors of connections.

use pronghorn_websocket::{Error as ProtocolError, FragmentError};

/// The reason why a connection ended without a closing handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer violated the protocol. It was sent a close frame with the error's code.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// A fragment that cannot be sent. The connection goes on.
    #[error(transparent)]
    Fragment(#[from] FragmentError),
    /// The stream or the underlying connection ended early, or
    /// [`Sender::abort`](super::Sender::abort) ended it.
    #[error("the connection ended without a close frame")]
    Aborted,
    /// The peer did not answer a ping or a close in time.
    #[error("timed out waiting for the peer")]
    TimedOut,
    /// Nothing can be sent any more.
    #[error("the connection is closed")]
    Closed,
}
