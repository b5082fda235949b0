//! Exchanges on HTTP/1.1 connections that no longer wait for the server to begin.

use std::time::{Duration, Instant};

use slab::Slab;

use crate::loan::Loan;

/// After this time an exchange is a long one.
pub(crate) const LONG: Duration = Duration::from_secs(1);

/// Those of one origin.
#[derive(Default)]
pub(crate) struct Underway(Slab<Exchange>);

struct Exchange {
    since: Instant,
    /// What is sent; `None` once the head of the response is there.
    content: Option<Loan>,
}

impl Underway {
    /// One begins to be sent with content, or its response has come (`content` is none then). Returns its number.
    pub(crate) fn begin(&mut self, now: Instant, content: Option<Loan>) -> usize {
        self.0.insert(Exchange { since: now, content })
    }

    /// The head of its response has come.
    pub(crate) fn answered(&mut self, number: usize, now: Instant) {
        if let Some(exchange) = self.0.get_mut(number) {
            *exchange = Exchange { since: now, content: None };
        }
    }

    pub(crate) fn end(&mut self, number: usize) {
        self.0.try_remove(number);
    }

    /// How many go on for long without the server's doing.
    pub(crate) fn long(&self, now: Instant) -> usize {
        let is_long = |Exchange { since, content }: &Exchange| {
            let waits_for_client = || content.as_ref().is_none_or(|loan| loan.waits_since(*since).is_none());
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
        let (mut underway, start) = (Underway::default(), Instant::now());
        let first = underway.begin(start, None);
        underway.begin(start + LONG, None);
        assert_eq!(underway.long(start), 0);
        assert_eq!(underway.long(start + LONG), 1);
        assert_eq!(underway.long(start + 2 * LONG), 2);
        underway.answered(first, start + 2 * LONG);
        assert_eq!(underway.long(start + 2 * LONG), 1);
        underway.end(first);
        underway.end(first);
        assert_eq!(underway.long(start + 9 * LONG), 1);
    }
}
