//! Requests as handlers receive them.

use http::{HeaderMap, Method, Uri};

use super::Peer;
use crate::{Incoming, Upgrade};

/// A request as a handler receives it.
#[derive(Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The target, with scheme and authority where the protocol or the `host` field gives them.
    pub uri: Uri,
    /// The field lines in order, names in lower case.
    pub headers: HeaderMap,
    /// The connection and its client.
    pub peer: Peer,
    /// The protocol that the client asks to switch to: see
    /// [`Responder::upgrade`](crate::Responder::upgrade).
    pub upgrade: Option<Upgrade>,
    /// The body. After an accepted upgrade, all data that the client sends.
    pub body: Incoming,
}
