//! Error output of applications, for the operator's log.

use std::rc::Rc;

use crate::config::ServerAddress;

/// Maximum bytes of error output kept for one request.
const MAX_BYTES: usize = 8 << 10;

/// Receives the error output of the application at a server when the request is over.
pub(crate) type Listener = Rc<dyn Fn(&ServerAddress, &[u8])>;

/// Error output of one request.
pub(super) struct ErrorOutput {
    listener: Listener,
    server: ServerAddress,
    text: Vec<u8>,
}

impl ErrorOutput {
    pub(super) fn new(listener: Listener, server: ServerAddress) -> Self {
        Self { listener, server, text: Vec::new() }
    }

    /// Adds output, up to [`MAX_BYTES`].
    pub(super) fn add(&mut self, text: &[u8]) {
        let room = MAX_BYTES - self.text.len();
        self.text.extend_from_slice(&text[..text.len().min(room)]);
    }
}

impl Drop for ErrorOutput {
    fn drop(&mut self) {
        if !self.text.is_empty() {
            (self.listener)(&self.server, &self.text);
        }
    }
}
