//! Log lines about keys that are elsewhere.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Receiver of log lines about keys and signers.
type Receiver = Box<dyn Fn(&str) + Send + Sync>;

/// Maximum number of lines that wait for the receiver. Signers are tried at most once a second.
const MAX_EARLY: usize = 100;

/// Where log lines about keys go. Signers are connected before the server has a log: their lines
/// wait for it.
#[derive(Default)]
pub(crate) struct KeyLog {
    receiver: OnceLock<Receiver>,
    early: Mutex<Vec<String>>,
}

impl KeyLog {
    /// Sets the receiver, which gets the lines before it first; the first receiver stays.
    pub(crate) fn set(&self, receiver: Receiver) {
        let mut early = self.early();
        for line in early.drain(..) {
            receiver(&line);
        }
        // It is set once, when the server starts.
        let _ = self.receiver.set(receiver);
    }

    pub(crate) fn line(&self, line: &str) {
        if let Some(receiver) = self.receiver.get() {
            return receiver(line);
        }
        let mut early = self.early();
        // It may have been set meanwhile.
        if let Some(receiver) = self.receiver.get() {
            receiver(line);
        } else if early.len() < MAX_EARLY {
            early.push(line.to_owned());
        }
    }

    fn early(&self) -> MutexGuard<'_, Vec<String>> {
        // A receiver that panics leaves whole lines.
        self.early.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn lines_before_the_receiver_reach_it_first() {
        let log = KeyLog::default();
        log.line("early");
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let lines = seen.clone();
        log.set(Box::new(move |line| lines.lock().unwrap().push(line.to_owned())));
        log.line("late");
        assert_eq!(*seen.lock().unwrap(), ["early", "late"]);
    }
}
