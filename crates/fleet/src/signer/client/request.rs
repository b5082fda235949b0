//! Requests on their way to an address.

use std::sync::mpsc::SyncSender;
use std::time::Instant;

use crate::signer::error::SignError;
use crate::signer::protocol::Operation;

/// A request for one address.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) operation: Operation,
    pub(super) reply: Reply,
    pub(super) deadline: Instant,
}

/// Where the answer of one address goes.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) position: usize,
    pub(super) sender: SyncSender<(usize, Result<Vec<u8>, SignError>)>,
}

impl Reply {
    pub(super) fn send(self, result: Result<Vec<u8>, SignError>) {
        // Each address answers once, for which there is capacity; the caller may have timed out.
        let _ = self.sender.try_send((self.position, result));
    }
}
