//! Log lines about keys that are elsewhere.

use std::sync::OnceLock;

/// Receiver of log lines about keys and signers.
type Receiver = Box<dyn Fn(&str) + Send + Sync>;

/// Where log lines about keys go, once that is set.
#[derive(Default)]
pub(crate) struct KeyLog(OnceLock<Receiver>);

impl KeyLog {
    /// Sets the receiver; the first one stays.
    pub(crate) fn set(&self, receiver: Receiver) {
        // It is set once, when the server starts.
        let _ = self.0.set(receiver);
    }

    pub(crate) fn line(&self, line: &str) {
        if let Some(receiver) = self.0.get() {
            receiver(line);
        }
    }
}
