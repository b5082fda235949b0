//! HTTP/3 is announced to more and more clients, for longer and longer.

use std::cell::RefCell;
use std::hash::Hasher;
use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use http::HeaderValue;
use siphasher::sip::SipHasher13;

/// What the first clients hear: how long they remember HTTP/3.
const FIRST_MAX_AGE: Duration = Duration::from_secs(60);
/// For how long a worker says the same.
const STEP: Duration = Duration::from_secs(10);

/// From when on, and for how long, the share of clients grows from none to all.
#[derive(Clone, Debug)]
pub(crate) struct Ramp {
    pub(crate) since: SystemTime,
    pub(crate) takes: Duration,
    pub(crate) port: u16,
    pub(crate) max_age: Duration,
}

/// What is said at the moment.
#[derive(Clone)]
struct Step {
    /// Clients whose number is below this hear of HTTP/3; numbers have 32 bits.
    below: u64,
    value: Option<HeaderValue>,
}

/// A worker's own part of a ramp.
#[derive(Default)]
pub(crate) struct Climb(RefCell<Option<(Instant, Step)>>);

impl Ramp {
    fn step(&self, now: SystemTime) -> Step {
        // Before it begins: nothing.
        let gone = now.duration_since(self.since).unwrap_or_default();
        let share = if self.takes.is_zero() { 1.0 } else { gone.div_duration_f64(self.takes).min(1.0) };
        let first = FIRST_MAX_AGE.min(self.max_age);
        let max_age = first + self.max_age.saturating_sub(first).mul_f64(share);
        let value = HeaderValue::try_from(format!("h3=\":{}\"; ma={}", self.port, max_age.as_secs())).ok();
        Step { below: (share * (1_u64 << 32) as f64) as u64, value }
    }

    /// What a client at `address` hears.
    pub(crate) fn value(&self, climb: &Climb, address: IpAddr) -> Option<HeaderValue> {
        let mut at = climb.0.borrow_mut();
        let now = Instant::now();
        if at.as_ref().is_none_or(|(until, _)| now >= *until) {
            *at = Some((now + STEP, self.step(SystemTime::now())));
        }
        let (_, step) = at.as_ref()?;
        step.value.clone().filter(|_| number(address) < step.below)
    }
}

/// Always the same for a client, so that who has heard of HTTP/3 goes on to; an IPv6 client has all of its /64.
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
        let clients = (0..1000_u32).filter(|client| number(IpAddr::from((0xc000_0000 + client).to_be_bytes())) < step.below).count();
        (clients, step.value)
    }

    #[test]
    fn share_and_age_grow_together() {
        let ramp = Ramp { since: SystemTime::UNIX_EPOCH, takes: 10 * DAY, port: 443, max_age: DAY };
        assert_eq!(hears(&ramp, Duration::ZERO), (0, Some(HeaderValue::from_static("h3=\":443\"; ma=60"))));
        let (half, value) = hears(&ramp, 5 * DAY);
        assert!((400..600).contains(&half), "{half}");
        assert_eq!(value, Some(HeaderValue::from_static("h3=\":443\"; ma=43230")));
        let (more, _) = hears(&ramp, 7 * DAY);
        assert!(more > half);
        assert_eq!(hears(&ramp, 10 * DAY), (1000, Some(HeaderValue::from_static("h3=\":443\"; ma=86400"))));
        assert_eq!(hears(&ramp, 100 * DAY).0, 1000);
    }

    #[test]
    fn nobody_hears_before_it_begins() {
        let ramp = Ramp { since: SystemTime::now() + DAY, takes: DAY, port: 443, max_age: DAY };
        assert_eq!(ramp.value(&Climb::default(), IpAddr::from([127, 0, 0, 1])), None);
        let ramp = Ramp { since: SystemTime::now() - 2 * DAY, ..ramp };
        assert!(ramp.value(&Climb::default(), IpAddr::from([127, 0, 0, 1])).is_some());
    }

    #[test]
    fn subscriber_with_ipv6_is_one_client() {
        assert_eq!(number("2001:db8::1".parse().unwrap()), number("2001:db8::ffff:1".parse().unwrap()));
        assert_eq!(number("192.0.2.1".parse().unwrap()), number("::ffff:192.0.2.1".parse().unwrap()));
    }
}
