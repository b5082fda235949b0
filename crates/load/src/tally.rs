//! A thread's measurements, in constant memory.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use http::StatusCode;
use pronghorn_engine::{Error, Protocol, TlsSummary, TransportStats};

use crate::schedule::{Phases, Ticket};

/// Maximum recorded duration. Durations are recorded in nanoseconds, to three digits, up to an
/// hour; longer ones count as an hour.
const HIGHEST_NS: u64 = 3_600_000_000_000;
/// Durations below a microsecond are not distinguished.
const LOWEST_NS: u64 = 1_000;
/// A request that begins later than this after it was due is late: system timers are more precise
/// than this.
pub(crate) const LATE: Duration = Duration::from_millis(1);

/// The reason why a request has no complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Connect,
    Handshake,
    Refused,
    Reset,
    Closed,
    TimedOut,
    Protocol,
}

impl Kind {
    pub(crate) const COUNT: usize = 7;

    pub(crate) fn of(error: &Error) -> Self {
        match error {
            Error::Connect { .. } => Self::Connect,
            Error::Handshake { .. } | Error::Unsupported(_) => Self::Handshake,
            Error::Refused(_) => Self::Refused,
            Error::Reset(_) => Self::Reset,
            Error::Closed(_) | Error::Unreachable(_) => Self::Closed,
            Error::Exchange(_) | Error::HeadTooLarge(_) | Error::NoUpgrade(_) => Self::Protocol,
        }
    }
}

/// The result of a request.
#[derive(Debug)]
pub(crate) enum RequestResult {
    Answered {
        status: StatusCode,
        head: Instant,
    },
    Failed(Error),
    TimedOut,
    /// The run was interrupted.
    GivenUp,
}

/// The number of errors of a kind, and the first message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failures {
    pub(crate) count: u64,
    pub(crate) first: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Tally {
    phases: Option<Phases>,
    pub(crate) warm_up: u64,
    /// Measured requests that were begun.
    pub(crate) begun: u64,
    /// Responses by the hundreds of the status, from 1xx.
    pub(crate) classes: [u64; 5],
    pub(crate) failures: [Failures; Kind::COUNT],
    pub(crate) given_up: u64,
    pub(crate) not_started: u64,
    pub(crate) resent: u64,
    /// Requests that began late because all streams were busy.
    pub(crate) held_up: u64,
    /// Responses that ended, and body bytes received, within the measured time, regardless of when
    /// the requests began.
    pub(crate) completed_in_time: u64,
    pub(crate) received_in_time: u64,
    /// Body bytes of measured requests.
    pub(crate) received: u64,
    pub(crate) last_end: Option<Instant>,
    pub(crate) head: Histogram<u64>,
    pub(crate) response: Histogram<u64>,
    pub(crate) connect: Histogram<u64>,
    pub(crate) lag: Histogram<u64>,
    pub(crate) connections: u64,
    pub(crate) connections_failed: u64,
    /// Connections by [`Protocol`], in its order.
    pub(crate) protocols: [u64; 3],
    /// WebSockets opened, refused, and ended by the server.
    pub(crate) websockets: [u64; 3],
    pub(crate) resumed: u64,
    pub(crate) early_data_accepted: u64,
    pub(crate) early_data_refused: u64,
    pub(crate) transport: TransportStats,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            phases: None,
            warm_up: 0,
            begun: 0,
            classes: [0; 5],
            failures: std::array::from_fn(|_| Failures::default()),
            given_up: 0,
            not_started: 0,
            resent: 0,
            held_up: 0,
            completed_in_time: 0,
            received_in_time: 0,
            received: 0,
            last_end: None,
            head: histogram(),
            response: histogram(),
            connect: histogram(),
            lag: histogram(),
            connections: 0,
            connections_failed: 0,
            protocols: [0; 3],
            websockets: [0; 3],
            resumed: 0,
            early_data_accepted: 0,
            early_data_refused: 0,
            transport: TransportStats::default(),
        }
    }

    pub(crate) fn begin(&mut self, phases: Phases) {
        self.phases = Some(phases);
    }

    fn is_in_time(&self, now: Instant) -> bool {
        self.phases.is_some_and(|phases| {
            now >= phases.measured_from && phases.ends.is_none_or(|ends| now < ends)
        })
    }

    /// `paced`: whether a rate set the due time. `held_up`: whether no stream was free then.
    pub(crate) fn on_begun(&mut self, ticket: &Ticket, now: Instant, paced: bool, held_up: bool) {
        if !ticket.measured {
            self.warm_up += 1;
            return;
        }
        self.begun += 1;
        if paced {
            let lag = now.saturating_duration_since(ticket.at);
            record(&mut self.lag, lag);
            self.held_up += u64::from(held_up && lag > LATE);
        }
    }

    pub(crate) fn on_data(&mut self, ticket: &Ticket, now: Instant, bytes: u64) {
        if ticket.measured {
            self.received += bytes;
        }
        if self.is_in_time(now) {
            self.received_in_time += bytes;
        }
    }

    pub(crate) fn on_connected(&mut self, protocol: Protocol, took: Duration) {
        self.connections += 1;
        let index = match protocol {
            Protocol::Http1 => 0,
            Protocol::Http2 => 1,
            Protocol::Http3 => 2,
        };
        self.protocols[index] += 1;
        record(&mut self.connect, took);
    }

    /// Counts a WebSocket request.
    pub(crate) fn on_websocket(&mut self, opened: bool) {
        self.websockets[usize::from(!opened)] += 1;
    }

    pub(crate) fn on_websocket_ended(&mut self) {
        self.websockets[2] += 1;
    }

    pub(crate) fn on_tls(&mut self, tls: &TlsSummary) {
        self.resumed += u64::from(tls.resumed);
        self.early_data_accepted += u64::from(tls.early_data_accepted == Some(true));
        self.early_data_refused += u64::from(tls.early_data_accepted == Some(false));
    }

    pub(crate) fn on_ended(&mut self, ticket: &Ticket, now: Instant, outcome: &RequestResult) {
        let answered = matches!(outcome, RequestResult::Answered { .. });
        if answered && self.is_in_time(now) {
            self.completed_in_time += 1;
            // Responses to warm-up requests count towards the rate, so its time must cover them
            // too.
            self.last_end = self.last_end.max(Some(now));
        }
        if !ticket.measured {
            return;
        }
        self.last_end = self.last_end.max(Some(now));
        match outcome {
            RequestResult::Answered { status, head } => {
                let class = usize::from(status.as_u16() / 100).clamp(1, 5);
                self.classes[class - 1] += 1;
                record(&mut self.head, head.saturating_duration_since(ticket.at));
                record(&mut self.response, now.saturating_duration_since(ticket.at));
            }
            RequestResult::Failed(error) => self.on_failed(Kind::of(error), &error.to_string()),
            RequestResult::TimedOut => {
                self.on_failed(Kind::TimedOut, "no complete response in time");
            }
            RequestResult::GivenUp => self.given_up += 1,
        }
    }

    fn on_failed(&mut self, kind: Kind, message: &str) {
        let failures = &mut self.failures[kind as usize];
        failures.count += 1;
        failures.first.get_or_insert_with(|| message.to_owned());
    }

    /// Adds another thread's measurements.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.phases = self.phases.or(other.phases);
        self.warm_up += other.warm_up;
        self.begun += other.begun;
        self.given_up += other.given_up;
        self.not_started += other.not_started;
        self.resent += other.resent;
        self.held_up += other.held_up;
        self.completed_in_time += other.completed_in_time;
        self.received_in_time += other.received_in_time;
        self.received += other.received;
        self.last_end = self.last_end.max(other.last_end);
        self.connections += other.connections;
        self.connections_failed += other.connections_failed;
        self.resumed += other.resumed;
        self.early_data_accepted += other.early_data_accepted;
        self.early_data_refused += other.early_data_refused;
        self.transport += other.transport;
        let add = |mine: &mut [u64], others: &[u64]| {
            mine.iter_mut().zip(others).for_each(|(mine, other)| *mine += other);
        };
        add(&mut self.classes, &other.classes);
        add(&mut self.protocols, &other.protocols);
        add(&mut self.websockets, &other.websockets);
        for (mine, other) in self.failures.iter_mut().zip(&other.failures) {
            mine.count += other.count;
            mine.first = mine.first.take().or_else(|| other.first.clone());
        }
        let histograms = [&mut self.head, &mut self.response, &mut self.connect, &mut self.lag];
        for (mine, other) in
            histograms.into_iter().zip([&other.head, &other.response, &other.connect, &other.lag])
        {
            mine.add(other).expect("invariant: both have the same bounds");
        }
    }

    /// Returns the measured time: to the planned end, the end of the last of `requests`, or the
    /// interruption, whichever came first.
    pub(crate) fn measured(&self, requests: Option<u64>, interrupted: Option<Instant>) -> Duration {
        let Some(phases) = self.phases else { return Duration::ZERO };
        // After the last of a number of requests nothing is sent until the planned end, so that
        // time is not part of the rate.
        let is_spent = requests.is_some_and(|requests| self.begun >= requests);
        let last_end = self.last_end.filter(|_| is_spent || phases.ends.is_none());
        let end = [phases.ends, interrupted, last_end].into_iter().flatten().min();
        end.map_or(Duration::ZERO, |end| end.saturating_duration_since(phases.measured_from))
    }

    /// Returns the number of requests that were due and not sent. The threads count what was due at
    /// their pace, which may exceed the number of `requests`.
    pub(crate) fn missed(&self, requests: Option<u64>) -> u64 {
        requests.map_or(self.not_started, |requests| {
            self.not_started.min(requests.saturating_sub(self.begun))
        })
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, 3).expect("invariant: the bounds are valid")
}

fn record(histogram: &mut Histogram<u64>, duration: Duration) {
    histogram.saturating_record(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(begins: Instant) -> Tally {
        let mut tally = Tally::new();
        let second = Duration::from_secs(1);
        tally.begin(Phases {
            begins,
            measured_from: begins + second,
            ends: Some(begins + 2 * second),
            grace: second,
        });
        tally
    }

    fn answered(head: Instant) -> RequestResult {
        RequestResult::Answered { status: StatusCode::OK, head }
    }

    #[test]
    fn latency_counts_from_when_the_request_was_due() {
        let begins = Instant::now();
        let mut tally = tally(begins);
        let at = begins + Duration::from_millis(1_000);
        let ticket = Ticket { at, measured: true };
        tally.on_begun(&ticket, at + Duration::from_millis(30), true, true);
        tally.on_ended(
            &ticket,
            at + Duration::from_millis(50),
            &answered(at + Duration::from_millis(40)),
        );
        let near = |histogram: &Histogram<u64>, milliseconds: u64| {
            assert!(
                histogram.equivalent(histogram.max(), milliseconds * 1_000_000),
                "{} is not {milliseconds} ms",
                histogram.max()
            );
        };
        near(&tally.lag, 30);
        near(&tally.head, 40);
        near(&tally.response, 50);
        assert_eq!(tally.held_up, 1);
    }

    #[test]
    fn rate_counts_what_ended_in_the_measured_time_whenever_it_began() {
        let begins = Instant::now();
        let mut tally = tally(begins);
        let milliseconds = |count| begins + Duration::from_millis(count);
        for (at, measured, end) in
            [(500, false, 900), (900, false, 1_100), (1_500, true, 1_600), (1_900, true, 2_100)]
        {
            let ticket = Ticket { at: milliseconds(at), measured };
            tally.on_begun(&ticket, ticket.at, true, true);
            tally.on_data(&ticket, milliseconds(end), 10);
            tally.on_ended(&ticket, milliseconds(end), &answered(milliseconds(end)));
        }
        assert_eq!((tally.warm_up, tally.begun, tally.classes[1]), (2, 2, 2));
        assert_eq!((tally.completed_in_time, tally.received_in_time, tally.received), (2, 20, 20));
        assert_eq!(tally.measured(None, None), Duration::from_secs(1));
        assert_eq!(tally.measured(None, Some(milliseconds(1_250))), Duration::from_millis(250));
    }

    #[test]
    fn number_of_requests_reached_before_the_planned_end_ends_the_measured_time() {
        let begins = Instant::now();
        let mut tally = tally(begins);
        let milliseconds = |count| begins + Duration::from_millis(count);
        for (at, end) in [(1_000, 1_100), (1_100, 1_250)] {
            let ticket = Ticket { at: milliseconds(at), measured: true };
            tally.on_begun(&ticket, ticket.at, false, false);
            tally.on_ended(&ticket, milliseconds(end), &answered(milliseconds(end)));
        }
        assert_eq!(tally.measured(Some(2), None), Duration::from_millis(250));
        assert_eq!(
            tally.measured(Some(3), None),
            Duration::from_secs(1),
            "the planned end came before the third"
        );
        assert_eq!(tally.measured(Some(2), Some(milliseconds(1_200))), Duration::from_millis(200));
    }

    #[test]
    fn response_of_the_warm_up_that_counts_lies_in_the_measured_time() {
        let begins = Instant::now();
        let mut tally = tally(begins);
        let milliseconds = |count| begins + Duration::from_millis(count);
        for (at, measured, end) in [(900, false, 1_500), (1_000, true, 1_100)] {
            let ticket = Ticket { at: milliseconds(at), measured };
            tally.on_begun(&ticket, ticket.at, false, false);
            tally.on_ended(&ticket, milliseconds(end), &answered(milliseconds(end)));
        }
        assert_eq!(
            (tally.completed_in_time, tally.measured(Some(1), None)),
            (2, Duration::from_millis(500))
        );
    }

    #[test]
    fn requests_beyond_their_number_are_not_missed() {
        let mut tally = tally(Instant::now());
        (tally.begun, tally.not_started) = (8, 92);
        assert_eq!((tally.missed(Some(10)), tally.missed(None)), (2, 92));
    }

    #[test]
    fn merged_tallies_hold_the_sum_and_the_first_message() {
        let begins = Instant::now();
        let mut first = tally(begins);
        let mut second = tally(begins);
        let ticket = Ticket { at: begins, measured: true };
        second.on_ended(&ticket, begins, &RequestResult::Failed(Error::Reset("one".to_owned())));
        second.on_ended(&ticket, begins, &RequestResult::TimedOut);
        first.on_ended(&ticket, begins + Duration::from_millis(7), &answered(begins));
        first.merge(&second);
        assert_eq!(first.failures[Kind::Reset as usize].count, 1);
        assert!(
            first.failures[Kind::Reset as usize]
                .first
                .as_ref()
                .is_some_and(|text| text.contains("one"))
        );
        assert_eq!(first.failures[Kind::TimedOut as usize].count, 1);
        assert_eq!((first.response.len(), first.classes[1]), (1, 1));
    }

    #[test]
    fn longer_than_an_hour_counts_as_an_hour() {
        let mut histogram = histogram();
        record(&mut histogram, Duration::from_secs(7_200));
        assert_eq!(histogram.len(), 1);
        assert!(histogram.max() >= HIGHEST_NS);
    }
}
