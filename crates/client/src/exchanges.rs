//! HTTP/1.1 exchanges for which the client no longer waits for the server to respond.

use std::time::{Duration, Instant};

use slab::Slab;

use crate::upload::UploadProgress;

/// An exchange is long after this time.
pub(crate) const LONG: Duration = Duration::from_secs(1);

/// The exchanges of one origin.
#[derive(Default)]
pub(crate) struct Exchanges(Slab<Exchange>);

struct Exchange {
    since: Instant,
    /// The request body; `None` once the response head was received.
    content: Option<UploadProgress>,
}

impl Exchanges {
    /// Adds an exchange that begins to send a body, or whose response head was received (without
    /// `content`). Returns its number.
    pub(crate) fn begin(&mut self, now: Instant, content: Option<UploadProgress>) -> usize {
        self.0.insert(Exchange { since: now, content })
    }

    /// Records that the response head was received.
    pub(crate) fn answered(&mut self, number: usize, now: Instant) {
        if let Some(exchange) = self.0.get_mut(number) {
            *exchange = Exchange { since: now, content: None };
        }
    }

    pub(crate) fn end(&mut self, number: usize) {
        self.0.try_remove(number);
    }

    /// Returns the number of exchanges that are long and do not wait for the server.
    pub(crate) fn long(&self, now: Instant) -> usize {
        let is_long = |Exchange { since, content }: &Exchange| {
            let waits_for_client =
                || content.as_ref().is_none_or(|progress| progress.waits_since(*since).is_none());
            now.saturating_duration_since(*since) >= LONG && waits_for_client()
        };
        self.0.iter().filter(|(_, exchange)| is_long(exchange)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_is_long_after_a_second_until_it_ends() {
        let (mut exchanges, start) = (Exchanges::default(), Instant::now());
        let first = exchanges.begin(start, None);
        exchanges.begin(start + LONG, None);
        assert_eq!(exchanges.long(start), 0);
        assert_eq!(exchanges.long(start + LONG), 1);
        assert_eq!(exchanges.long(start + 2 * LONG), 2);
        exchanges.answered(first, start + 2 * LONG);
        assert_eq!(exchanges.long(start + 2 * LONG), 1);
        exchanges.end(first);
        exchanges.end(first);
        assert_eq!(exchanges.long(start + 9 * LONG), 1);
    }
}
