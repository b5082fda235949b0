//! How a policy handles requests in early data.

use crate::config::EarlyData;
use crate::message::Request;

impl EarlyData {
    /// Returns what the policy does with a request, in early data or not.
    pub fn treat(self, request: &Request) -> EarlyRequest {
        if !request.peer.early_data {
            return EarlyRequest::Answer;
        }
        // The client would send the tunnel's data again together with the request.
        let is_safe = request.method.is_safe() && request.upgrade.is_none();
        match self {
            Self::All => EarlyRequest::Answer,
            Self::SafeMethods | Self::Hold if is_safe => EarlyRequest::Answer,
            Self::Hold => EarlyRequest::Hold,
            Self::Off | Self::SafeMethods => EarlyRequest::Refuse,
        }
    }
}

/// What to do with a request, by a policy for early data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyRequest {
    /// Answer it now.
    Answer,
    /// Answer 425 (Too Early, RFC 8470), so that the client repeats it after the handshake.
    Refuse,
    /// Answer it after [`Responder::handshake`](crate::Responder::handshake).
    Hold,
}
