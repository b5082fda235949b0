//! `rate-limit`: maximum request rate of each client.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::StatusCode;
use http::header::RETRY_AFTER;
use pronghorn_engine::{BodyError, Handle};
use schemars::JsonSchema;
use serde::Deserialize;
use tower_service::Service;

use super::{
    Around, Client, Layer, LocalService, Request, Response, WorkerContext, from_engine, too_early,
};
use crate::config::Time;
use crate::fields::client_address::network_of;
use crate::responses::text;

/// Number of shards of the table, each with its own lock.
const PARTS: usize = 16;

/// Options of `rate-limit`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(super) struct Options {
    /// Maximum number of requests of a client in `per`.
    #[schemars(range(min = 1))]
    requests: u32,
    /// The period of `requests`.
    #[serde(default = "second")]
    per: Time,
    /// Maximum number of requests at once; defaults to `requests`.
    burst: Option<u32>,
    /// Number of leading bits of an IPv6 address that identify a client, since a subscriber has a
    /// whole network.
    #[serde(default = "ipv6_prefix")]
    #[schemars(range(max = 128))]
    ipv6_prefix: u8,
    /// Maximum number of tracked clients on all workers. Beyond that, some are forgotten and start
    /// again. Each takes about 150 bytes.
    #[serde(default = "clients")]
    clients: usize,
}

fn second() -> Time {
    Time::seconds(1)
}

fn ipv6_prefix() -> u8 {
    64
}

fn clients() -> usize {
    100_000
}

/// A token bucket for each client, stored as the time at which it will be full (the generic cell
/// rate algorithm): one number for each client.
pub(super) struct Buckets {
    parts: [Mutex<Part>; PARTS],
    hasher: RandomState,
    began: Instant,
    /// Time that one request costs.
    cost: Duration,
    /// Maximum time that may be owed.
    depth: Duration,
    most_in_part: usize,
    ipv6_prefix: u8,
}

#[derive(Default)]
struct Part {
    full_at: HashMap<IpAddr, Duration>,
    /// The same entries in order of time, the client that owes least first.
    in_order: BTreeSet<(Duration, IpAddr)>,
}

impl Buckets {
    fn new(options: &Options) -> Result<Self, String> {
        let burst = options.burst.unwrap_or(options.requests);
        if options.requests == 0 || burst == 0 {
            return Err("invalid `requests` or `burst`: allow at least 1".to_owned());
        }
        if options.ipv6_prefix > 128 {
            return Err(format!(
                "invalid `ipv6_prefix` {}: an IPv6 address has 128 bits",
                options.ipv6_prefix
            ));
        }
        let cost = options.per.0 / options.requests;
        if cost.is_zero() {
            return Err("rate exceeds one request per nanosecond: remove the layer".to_owned());
        }
        Ok(Self {
            parts: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            began: Instant::now(),
            cost,
            depth: cost.saturating_mul(burst),
            most_in_part: options.clients.div_ceil(PARTS).max(1),
            ipv6_prefix: options.ipv6_prefix,
        })
    }

    /// Takes a token from a client's bucket.
    ///
    /// # Errors
    ///
    /// The time until a token is available.
    fn take(&self, client: IpAddr, now: Instant) -> Result<(), Duration> {
        let now = now.saturating_duration_since(self.began);
        let client = network_of(client, self.ipv6_prefix);
        let part = &self.parts[self.hasher.hash_one(client) as usize % PARTS];
        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
        let known = part.full_at.get(&client).copied();
        let full_at = known.unwrap_or_default().max(now) + self.cost;
        let owed = full_at.saturating_sub(now);
        if owed > self.depth {
            return Err(owed.saturating_sub(self.depth));
        }
        match known {
            Some(known) => drop(part.in_order.remove(&(known, client))),
            // The client that owes least is forgotten, since it gains least by that; a limited
            // client cannot be pushed out.
            None if part.full_at.len() >= self.most_in_part => {
                if let Some((_, least)) = part.in_order.pop_first() {
                    part.full_at.remove(&least);
                }
            }
            None => {}
        }
        part.full_at.insert(client, full_at);
        part.in_order.insert((full_at, client));
        Ok(())
    }
}

pub(super) struct RateLimit(Arc<Buckets>);

impl RateLimit {
    pub(super) fn new(options: &Options) -> Result<Self, String> {
        Buckets::new(options).map(|buckets| Self(Arc::new(buckets)))
    }
}

impl Layer for RateLimit {
    fn around(&self, inner: LocalService, worker: &WorkerContext) -> LocalService {
        LocalService::around(
            WorkerLayer { buckets: self.0.clone(), handle: worker.handle().clone() },
            inner,
        )
    }

    fn is_stateful(&self) -> bool {
        true
    }

    fn needs_client(&self) -> bool {
        true
    }
}

struct WorkerLayer {
    buckets: Arc<Buckets>,
    handle: Handle,
}

impl Around for WorkerLayer {
    async fn call(
        self: Rc<Self>,
        request: Request,
        mut inner: LocalService,
    ) -> Result<Response, BodyError> {
        let Some(&Client(client)) = request.extensions().get::<Client>() else {
            return Ok(too_early());
        };
        match self.buckets.take(client, self.handle.now()) {
            Ok(()) => inner.call(request).await,
            Err(wait) => {
                let answer = text(StatusCode::TOO_MANY_REQUESTS, "too many requests\n");
                // Whole seconds, rounded up.
                Ok(from_engine(answer.with_header(RETRY_AFTER, (wait.as_secs() + 1).into())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn buckets(clients: usize) -> Buckets {
        let options = Options {
            requests: 2,
            per: Time::seconds(1),
            burst: Some(3),
            ipv6_prefix: 64,
            clients,
        };
        Buckets::new(&options).expect("they are right")
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn burst_is_had_at_once_and_then_the_rate() {
        let buckets = buckets(100);
        let (client, start) = (address("192.0.2.1"), buckets.began);
        for _ in 0..3 {
            assert_eq!(buckets.take(client, start), Ok(()));
        }
        assert_eq!(buckets.take(client, start), Err(Duration::from_millis(500)));
        assert_eq!(buckets.take(address("192.0.2.2"), start), Ok(()));
        assert_eq!(buckets.take(client, start + Duration::from_millis(500)), Ok(()));
        assert!(buckets.take(client, start + Duration::from_millis(500)).is_err());
        for _ in 0..3 {
            assert_eq!(buckets.take(client, start + Duration::from_secs(60)), Ok(()));
        }
        assert!(buckets.take(client, start + Duration::from_secs(60)).is_err());
    }

    #[test]
    fn network_of_ipv6_is_one_client() {
        let buckets = buckets(100);
        for host in 1..=3 {
            assert_eq!(buckets.take(address(&format!("2001:db8::{host}")), buckets.began), Ok(()));
        }
        assert!(buckets.take(address("2001:db8::4"), buckets.began).is_err());
        assert_eq!(buckets.take(address("2001:db8:0:1::1"), buckets.began), Ok(()));
    }

    #[test]
    fn table_is_bounded_and_keeps_whoever_is_held_back() {
        let buckets = buckets(64);
        let greedy = address("192.0.2.1");
        for _ in 0..3 {
            assert_eq!(buckets.take(greedy, buckets.began), Ok(()));
        }
        for number in 0..10_000_u32 {
            let _ = buckets.take(Ipv4Addr::from_bits(0x0a00_0000 + number).into(), buckets.began);
        }
        let held: usize =
            buckets.parts.iter().map(|part| part.lock().expect("no panic").full_at.len()).sum();
        let ordered: usize =
            buckets.parts.iter().map(|part| part.lock().expect("no panic").in_order.len()).sum();
        assert_eq!(held, ordered);
        assert!(held <= 64, "{held}");
        assert!(buckets.take(greedy, buckets.began).is_err());
    }
}
