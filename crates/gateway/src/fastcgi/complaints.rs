//! What an application has to complain of, for the operator.

use std::rc::Rc;

use crate::config::ServerAddress;

/// Bytes that are kept of what is said during one request.
const MAX_BYTES: usize = 8 << 10;

/// Told of what the application at a server said, when its request is over.
pub(crate) type Listener = Rc<dyn Fn(&ServerAddress, &[u8])>;

/// What was said during one request.
pub(super) struct Complaints {
    listener: Listener,
    server: ServerAddress,
    text: Vec<u8>,
}

impl Complaints {
    pub(super) fn new(listener: Listener, server: ServerAddress) -> Self {
        Self { listener, server, text: Vec::new() }
    }

    /// Keeps the first of it.
    pub(super) fn add(&mut self, text: &[u8]) {
        let room = MAX_BYTES - self.text.len();
        self.text.extend_from_slice(&text[..text.len().min(room)]);
    }
}

impl Drop for Complaints {
    fn drop(&mut self) {
        if !self.text.is_empty() {
            (self.listener)(&self.server, &self.text);
        }
    }
}
