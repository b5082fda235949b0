//! Gradual announcement of HTTP/3 in `alt-svc`: to a growing share of clients, with a growing
//! lifetime.

use std::cell::RefCell;
use std::hash::Hasher;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use http::HeaderValue;
use siphasher::sip::SipHasher13;

/// The lifetime announced to the first clients.
const FIRST_MAX_AGE: Duration = Duration::from_secs(60);
/// How long a worker announces the same values.
const STEP: Duration = Duration::from_secs(10);

/// A ramp: `since` is its start, and `takes` the time in which the share of clients grows from none
/// to all.
#[derive(Clone, Debug)]
pub(crate) struct Ramp {
    pub(crate) since: SystemTime,
    pub(crate) takes: Duration,
    pub(crate) port: u16,
    pub(crate) max_age: Duration,
}

/// The values announced now.
#[derive(Clone)]
struct Step {
    /// HTTP/3 is announced to clients whose number is below this; numbers have 32 bits.
    below: u64,
    value: Option<HeaderValue>,
}

/// A worker's cache of the current step.
#[derive(Default)]
pub(crate) struct RampCache(RefCell<Option<(Instant, Step)>>);

impl Ramp {
    fn step(&self, now: SystemTime) -> Step {
        // Zero before the start.
        let gone = now.duration_since(self.since).unwrap_or_default();
        let share =
            if self.takes.is_zero() { 1.0 } else { gone.div_duration_f64(self.takes).min(1.0) };
        let first = FIRST_MAX_AGE.min(self.max_age);
        let max_age = first + self.max_age.saturating_sub(first).mul_f64(share);
        let value =
            HeaderValue::try_from(format!("h3=\":{}\"; ma={}", self.port, max_age.as_secs())).ok();
        Step { below: (share * (1_u64 << 32) as f64) as u64, value }
    }

    /// Returns the `alt-svc` value for a client at `address`.
    pub(crate) fn value(&self, climb: &RampCache, address: IpAddr) -> Option<HeaderValue> {
        let mut at = climb.0.borrow_mut();
        let now = Instant::now();
        if at.as_ref().is_none_or(|(until, _)| now >= *until) {
            *at = Some((now + STEP, self.step(SystemTime::now())));
        }
        let (_, step) = at.as_ref()?;
        step.value.clone().filter(|_| number(address) < step.below)
    }
}

/// Returns a client's number. It is stable, so that a client that was told about HTTP/3 stays in
/// the share; an IPv6 client is identified by its /64.
fn number(address: IpAddr) -> u64 {
    let mut hasher = SipHasher13::new();
    match address.to_canonical() {
        IpAddr::V4(address) => hasher.write(&address.octets()),
        IpAddr::V6(address) => hasher.write(&address.octets()[..8]),
    }
    hasher.finish() >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn hears(ramp: &Ramp, gone: Duration) -> (usize, Option<HeaderValue>) {
        let step = ramp.step(ramp.since + gone);
        let clients = (0..1000_u32)
            .filter(|client| {
                number(IpAddr::from((0xc000_0000 + client).to_be_bytes())) < step.below
            })
            .count();
        (clients, step.value)
    }

    #[test]
    fn share_and_age_grow_together() {
        let ramp = Ramp { since: SystemTime::UNIX_EPOCH, takes: 10 * DAY, port: 443, max_age: DAY };
        assert_eq!(
            hears(&ramp, Duration::ZERO),
            (0, Some(HeaderValue::from_static("h3=\":443\"; ma=60")))
        );
        let (half, value) = hears(&ramp, 5 * DAY);
        assert!((400..600).contains(&half), "{half}");
        assert_eq!(value, Some(HeaderValue::from_static("h3=\":443\"; ma=43230")));
        let (more, _) = hears(&ramp, 7 * DAY);
        assert!(more > half);
        assert_eq!(
            hears(&ramp, 10 * DAY),
            (1000, Some(HeaderValue::from_static("h3=\":443\"; ma=86400")))
        );
        assert_eq!(hears(&ramp, 100 * DAY).0, 1000);
    }

    #[test]
    fn nobody_hears_before_it_begins() {
        let ramp = Ramp { since: SystemTime::now() + DAY, takes: DAY, port: 443, max_age: DAY };
        assert_eq!(ramp.value(&RampCache::default(), IpAddr::from([127, 0, 0, 1])), None);
        let ramp = Ramp { since: SystemTime::now() - 2 * DAY, ..ramp };
        assert!(ramp.value(&RampCache::default(), IpAddr::from([127, 0, 0, 1])).is_some());
    }

    #[test]
    fn subscriber_with_ipv6_is_one_client() {
        assert_eq!(
            number("2001:db8::1".parse().unwrap()),
            number("2001:db8::ffff:1".parse().unwrap())
        );
        assert_eq!(
            number("192.0.2.1".parse().unwrap()),
            number("::ffff:192.0.2.1".parse().unwrap())
        );
    }
}
