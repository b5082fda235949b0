//! Clients that send at full speed to one server, through a shared link.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use pronghorn_h3::StreamId;

use super::pair::server_address;
use super::subject::{Limits, Subject};
use crate::transport::{ConnectionKey, Datagram, Dir, Event, Transport};

/// The link to the server. The way back has the same delay and no rate limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) bytes_per_second: u64,
    /// One-way delay.
    pub(super) delay: Duration,
    /// Maximum bytes in the link's queue.
    pub(super) queue: u64,
    /// Interval at which the server's interface delivers packets, so that acknowledgments come in
    /// groups.
    pub(super) grouping: Duration,
}

struct Client<T> {
    transport: T,
    address: SocketAddr,
    begins: Duration,
    key: Option<ConnectionKey>,
    stream: Option<StreamId>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    arrival: Instant,
    sequence: u64,
    from: SocketAddr,
    to: SocketAddr,
    data: Vec<u8>,
}

pub(super) struct Bottleneck<S: Subject> {
    subject: S,
    link: Link,
    began: Instant,
    now: Instant,
    clients: Vec<Client<S::Transport>>,
    server: S::Transport,
    /// The address of each of the server's connections, and the content received from each address.
    remotes: HashMap<ConnectionKey, SocketAddr>,
    received: HashMap<SocketAddr, u64>,
    /// Content that is written repeatedly.
    content: Bytes,
    free_at: Instant,
    flights: BinaryHeap<Reverse<Flight>>,
    sequence: u64,
    /// Datagrams sent to the server, and those dropped because the queue was full.
    pub(super) sent: u64,
    pub(super) dropped: u64,
}

impl<S: Subject> Bottleneck<S> {
    pub(super) fn new(link: Link, limits: &Limits) -> Self {
        let subject = S::new();
        let (began, server) = (Instant::now(), subject.server(limits, 0));
        Self {
            subject,
            link,
            began,
            now: began,
            clients: Vec::new(),
            server,
            remotes: HashMap::new(),
            received: HashMap::new(),
            content: vec![7; 1 << 16].into(),
            free_at: began,
            flights: BinaryHeap::new(),
            sequence: 0,
            sent: 0,
            dropped: 0,
        }
    }

    /// Adds a client that begins to send at `begins`.
    pub(super) fn add(&mut self, limits: &Limits, begins: Duration) {
        let number = self.clients.len() as u8 + 1;
        let address = SocketAddr::from(([198, 51, 100, number], 40_000));
        // Endpoints with different numbers generate different connection IDs.
        let transport = self.subject.server(limits, number);
        self.clients.push(Client { transport, address, begins, key: None, stream: None });
    }

    /// Lets time pass. Returns each client's share of the link's capacity in that time.
    pub(super) fn run_for(&mut self, lasting: Duration) -> Vec<f64> {
        let until = self.now + lasting;
        let before = self.received();
        while self.now < until {
            self.send();
            let begins = self
                .clients
                .iter()
                .filter(|client| client.key.is_none())
                .map(|client| self.began + client.begins);
            let timeouts: Vec<_> =
                begins.chain(self.flights.peek().map(|Reverse(flight)| flight.arrival)).collect();
            let transports = self
                .clients
                .iter_mut()
                .map(|client| &mut client.transport)
                .chain([&mut self.server]);
            let next = transports
                .filter_map(Transport::poll_timeout)
                .chain(timeouts)
                .min()
                .unwrap_or(until);
            self.now = next.max(self.now).min(until);
            self.receive();
        }
        let carried = self.link.bytes_per_second as f64 * lasting.as_secs_f64();
        self.received()
            .iter()
            .zip(before)
            .map(|(after, before)| (after - before) as f64 / carried)
            .collect()
    }

    fn received(&self) -> Vec<u64> {
        self.clients
            .iter()
            .map(|client| self.received.get(&client.address).copied().unwrap_or_default())
            .collect()
    }

    fn send(&mut self) {
        let since = self.now - self.began;
        let mut chunks = VecDeque::new();
        let mut buffer = Vec::new();
        for at in 0..self.clients.len() {
            let client = &mut self.clients[at];
            if client.key.is_none() && since >= client.begins {
                let key = client.transport.connect(
                    self.now,
                    server_address(),
                    "localhost",
                    self.subject.tls(),
                );
                client.key = Some(key.expect("a valid address and name"));
            }
            if let (Some(key), Some(stream)) = (client.key, client.stream) {
                chunks.clear();
                chunks.push_back(self.content.clone());
                client.transport.write(key, stream, &mut chunks, usize::MAX, false, None);
            }
            let from = client.address;
            while let Some(transmit) =
                self.clients[at].transport.poll_transmit(self.now, 10, &mut buffer)
            {
                for datagram in
                    buffer[..transmit.size].chunks(transmit.segment_size.unwrap_or(transmit.size))
                {
                    self.carry(from, datagram);
                }
            }
        }
        while let Some(transmit) = self.server.poll_transmit(self.now, 10, &mut buffer) {
            for datagram in
                buffer[..transmit.size].chunks(transmit.segment_size.unwrap_or(transmit.size))
            {
                self.fly(self.now + self.link.delay, server_address(), transmit.remote, datagram);
            }
        }
    }

    /// Sends a datagram over the link to the server.
    fn carry(&mut self, from: SocketAddr, datagram: &[u8]) {
        let Link { bytes_per_second, delay, queue, grouping } = self.link;
        let seconds = |bytes: u64| Duration::from_nanos(bytes * 1_000_000_000 / bytes_per_second);
        self.sent += 1;
        let free_at = self.free_at.max(self.now);
        if free_at - self.now > seconds(queue) {
            self.dropped += 1;
            return;
        }
        self.free_at = free_at + seconds(datagram.len() as u64);
        let mut arrival = self.free_at + delay;
        if !grouping.is_zero() {
            let groups = (arrival - self.began).as_nanos().div_ceil(grouping.as_nanos());
            arrival = self.began + grouping * u32::try_from(groups).expect("a short run");
        }
        self.fly(arrival, from, server_address(), datagram);
    }

    fn fly(&mut self, arrival: Instant, from: SocketAddr, to: SocketAddr, datagram: &[u8]) {
        self.sequence += 1;
        self.flights.push(Reverse(Flight {
            arrival,
            sequence: self.sequence,
            from,
            to,
            data: datagram.to_vec(),
        }));
    }

    fn receive(&mut self) {
        for transport in
            self.clients.iter_mut().map(|client| &mut client.transport).chain([&mut self.server])
        {
            transport.handle_timeout(self.now);
        }
        while self.flights.peek().is_some_and(|Reverse(flight)| flight.arrival <= self.now) {
            let Some(Reverse(flight)) = self.flights.pop() else { break };
            let datagram = Datagram {
                remote: flight.from,
                local_ip: None,
                ecn: None,
                data: BytesMut::from(&flight.data[..]),
            };
            match self.clients.iter_mut().find(|client| client.address == flight.to) {
                Some(client) => client.transport.handle_datagram(self.now, datagram),
                None => self.server.handle_datagram(self.now, datagram),
            }
        }
        for client in &mut self.clients {
            while let Some((key, event)) = client.transport.poll_event() {
                if matches!(event, Event::Connected { .. }) {
                    client.stream = client.transport.open(key, Dir::Bidi);
                }
                assert!(!matches!(event, Event::Closed(_)), "{event:?}");
            }
        }
        while let Some((key, event)) = self.server.poll_event() {
            match event {
                Event::Accepted { remote } => _ = self.remotes.insert(key, remote),
                Event::Readable(stream) => {
                    let received = self.received.entry(self.remotes[&key]).or_default();
                    self.server.read(key, stream, |data| {
                        *received += data.len() as u64;
                        true
                    });
                }
                _ => {}
            }
        }
    }
}
