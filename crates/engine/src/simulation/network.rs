//! An in-memory network between two addresses. A seed determines what happens to each datagram.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::trace::Trace;
use crate::transport::{Datagram, Ecn, Transmit};

/// Properties of a network, the same in both directions.
#[derive(Clone, Debug)]
pub(crate) struct NetworkConditions {
    pub(crate) delay: Duration,
    /// Maximum extra delay of each datagram, which reorders them.
    pub(crate) jitter: Duration,
    pub(crate) loss: f64,
    pub(crate) duplication: f64,
    /// Probability that bits are flipped, or the end is cut off.
    pub(crate) corruption: f64,
    /// Probability of a Congestion Experienced mark, if the sender's packets allow marks.
    pub(crate) marking: f64,
    /// Bytes per second, behind a queue of `queue` bytes; `None` for a link without a rate limit.
    pub(crate) rate: Option<u64>,
    pub(crate) queue: u64,
    /// Larger datagrams are dropped silently.
    pub(crate) mtu: usize,
    /// Times, from the beginning, in which everything is lost.
    pub(crate) blackouts: Vec<Range<Duration>>,
    /// Times at which a NAT gives the client another port. Datagrams to the old port still arrive:
    /// a client that only waits could not know of the change, and would never be found again.
    pub(crate) rebinds: Vec<Duration>,
}

impl NetworkConditions {
    /// A network with only a delay.
    pub(crate) fn calm(delay: Duration) -> Self {
        Self {
            delay,
            jitter: Duration::ZERO,
            loss: 0.0,
            duplication: 0.0,
            corruption: 0.0,
            marking: 0.0,
            rate: None,
            queue: 0,
            mtu: 1500,
            blackouts: Vec::new(),
            rebinds: Vec::new(),
        }
    }
}

/// Carries datagrams between a client and a server.
pub(crate) struct Network {
    conditions: NetworkConditions,
    rng: ChaCha8Rng,
    began: Instant,
    client: SocketAddr,
    server: SocketAddr,
    /// When each direction's link has sent its queue: to the server, to the client.
    free_at: [Instant; 2],
    in_flight: BinaryHeap<Reverse<Flight>>,
    sequence: u64,
}

/// Destination of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Server,
    Client,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    arrival: Instant,
    /// Datagrams that arrive at the same instant arrive in the order in which they were sent.
    sequence: u64,
    to: Side,
    from: SocketAddr,
    mark: Option<u8>,
    data: Vec<u8>,
}

impl Network {
    pub(crate) fn new(
        conditions: NetworkConditions,
        seed: u64,
        began: Instant,
        client: SocketAddr,
        server: SocketAddr,
    ) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(seed);
        Self {
            conditions,
            rng,
            began,
            client,
            server,
            free_at: [began; 2],
            in_flight: BinaryHeap::new(),
            sequence: 0,
        }
    }

    /// Changes the network's behaviour from now on.
    pub(crate) fn change_weather(&mut self, conditions: NetworkConditions) {
        self.conditions = conditions;
    }

    /// Sends datagrams like a socket does, split by segment size.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        from: Side,
        transmit: &Transmit,
        data: &[u8],
        trace: &mut Trace,
    ) {
        for datagram in data.chunks(transmit.segment_size.unwrap_or(data.len()).max(1)) {
            trace.note(now, "send", from as u64, datagram.len() as u64);
            let (to, source) = match from {
                Side::Client => (Side::Server, self.outside_address(now)),
                Side::Server => (Side::Client, self.server),
            };
            self.carry(now, to, source, transmit.ecn, datagram);
        }
    }

    fn carry(
        &mut self,
        now: Instant,
        to: Side,
        from: SocketAddr,
        ecn: Option<Ecn>,
        datagram: &[u8],
    ) {
        let since = now.duration_since(self.began);
        let copies = 1 + usize::from(self.draw(self.conditions.duplication));
        let lost = self.draw(self.conditions.loss);
        if lost
            || datagram.len() > self.conditions.mtu
            || self.conditions.blackouts.iter().any(|blackout| blackout.contains(&since))
        {
            return;
        }
        let Some(departure) = self.depart(now, to, datagram.len() as u64) else { return };
        let marked = ecn.is_some() && self.draw(self.conditions.marking);
        for _ in 0..copies {
            let late = self.conditions.jitter.mul_f64(self.rng.random());
            let mut data = datagram.to_vec();
            if self.draw(self.conditions.corruption) {
                self.corrupt(&mut data);
                if is_version_negotiation(&data) {
                    continue;
                }
            }
            self.sequence += 1;
            let mark = ecn.map(|ecn| if marked { Ecn::Ce as u8 } else { ecn as u8 });
            let arrival = departure + self.conditions.delay + late;
            self.in_flight.push(Reverse(Flight {
                arrival,
                sequence: self.sequence,
                to,
                from,
                mark,
                data,
            }));
        }
    }

    /// Returns when the link has sent the datagram; `None` if its queue is full.
    fn depart(&mut self, now: Instant, to: Side, size: u64) -> Option<Instant> {
        let Some(rate) = self.conditions.rate else { return Some(now) };
        let seconds = |bytes: u64| Duration::from_nanos(bytes * 1_000_000_000 / rate);
        let free_at = self.free_at[to as usize].max(now);
        if free_at - now > seconds(self.conditions.queue) {
            return None;
        }
        self.free_at[to as usize] = free_at + seconds(size);
        Some(self.free_at[to as usize])
    }

    fn corrupt(&mut self, data: &mut Vec<u8>) {
        if self.draw(0.2) {
            let length = self.rng.random_range(0..data.len());
            data.truncate(length);
        } else {
            for _ in 0..self.rng.random_range(1..=3) {
                // Headers are the most sensitive part.
                let end = if self.rng.random() { data.len() } else { data.len().min(40) };
                let index = self.rng.random_range(0..end);
                data[index] ^= 1 << self.rng.random_range(0..8);
            }
        }
    }

    fn draw(&mut self, probability: f64) -> bool {
        self.rng.random_bool(probability)
    }

    /// Returns the client's address as the server sees it.
    fn outside_address(&self, now: Instant) -> SocketAddr {
        let since = now.duration_since(self.began);
        let rebinds = self.conditions.rebinds.iter().filter(|at| **at <= since).count();
        SocketAddr::new(self.client.ip(), self.client.port() + rebinds as u16)
    }

    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        self.in_flight.peek().map(|Reverse(flight)| flight.arrival)
    }

    /// Returns the next datagram that has arrived by `now`.
    pub(crate) fn poll_arrival(&mut self, now: Instant) -> Option<(Side, Datagram)> {
        if self.next_arrival()? > now {
            return None;
        }
        let Reverse(flight) = self.in_flight.pop()?;
        let ecn = flight.mark.map(|mark| [Ecn::Ect0, Ecn::Ect1, Ecn::Ce][usize::from(mark)]);
        Some((
            flight.to,
            Datagram {
                remote: flight.from,
                local_ip: None,
                ecn,
                data: BytesMut::from(&flight.data[..]),
            },
        ))
    }
}

/// Whether a datagram is a Version Negotiation packet. Only the datagram's checksum protects those
/// (RFC 8999, section 6), and a client that accepts one abandons its attempt. So damage neither
/// creates nor changes any.
fn is_version_negotiation(datagram: &[u8]) -> bool {
    matches!(datagram, [first, 0, 0, 0, 0, ..] if first & 0x80 != 0)
}
