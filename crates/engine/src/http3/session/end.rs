//! Why sessions end.

/// The cause of a session's end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionEnd {
    /// The peer has closed the session.
    #[error("the peer closed the session with code {code}{}{reason}", if reason.is_empty() { "" } else { ": " })]
    Peer {
        /// The application's code; 0 if the peer sent none.
        code: u32,
        /// The application's reason, at most 1024 bytes.
        reason: String,
    },
    /// This side has closed the session.
    #[error("the session was closed locally with code {code}{}{reason}", if reason.is_empty() { "" } else { ": " })]
    Local {
        /// The code passed to [`close`](crate::WebTransport::close).
        code: u32,
        /// The reason passed to [`close`](crate::WebTransport::close).
        reason: String,
    },
    /// The session's request was reset or violated the protocol, or the connection is gone.
    #[error("the session was lost: {0}")]
    Lost(String),
}
