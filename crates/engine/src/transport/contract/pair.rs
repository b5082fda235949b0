//! A client and a server of one transport, with the simulation's network between them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pronghorn_h3::StreamId;

use super::subject::{Limits, Subject};
use crate::simulation::network::{Network, Side, Weather};
use crate::simulation::trace::Trace;
use crate::transport::{Closed, ConnectionKey, Datagram, Dir, Event, Read, Transport, Write};

/// The most that anything may take, in virtual time.
const PATIENCE: Duration = Duration::from_secs(120);

/// Datagrams of one GSO train.
const SEGMENTS: usize = 10;

/// One endpoint, and what it has reported.
pub(super) struct End<T> {
    pub(super) transport: T,
    pub(super) events: Vec<(ConnectionKey, Event)>,
    /// The stream that is read when the end of a connection is told, and what that brings.
    pub(super) last_stream: Option<StreamId>,
    pub(super) last_read: Option<(Vec<u8>, Read)>,
    /// Datagrams that it has sent.
    pub(super) sent: usize,
    pub(super) last_sent: Vec<u8>,
}

pub(super) struct Pair<S: Subject> {
    pub(super) subject: S,
    pub(super) client: End<S::Transport>,
    pub(super) server: End<S::Transport>,
    pub(super) began: Instant,
    pub(super) now: Instant,
    /// The server's datagrams that get lost, by their number.
    pub(super) lost: std::ops::Range<usize>,
    network: Network,
    trace: Trace,
}

pub(super) fn server_address() -> SocketAddr {
    "192.0.2.1:443".parse().unwrap()
}

pub(super) fn client_address() -> SocketAddr {
    "198.51.100.1:40000".parse().unwrap()
}

impl<S: Subject> Pair<S> {
    /// On a network that is nothing but 10 ms long.
    pub(super) fn new(limits: &Limits) -> Self {
        Self::over(Weather::calm(Duration::from_millis(10)), limits, limits)
    }

    pub(super) fn over(weather: Weather, client: &Limits, server: &Limits) -> Self {
        let subject = S::new();
        let began = Instant::now();
        let network = Network::new(weather, 1, began, client_address(), server_address());
        let end = |transport| End { transport, events: Vec::new(), last_stream: None, last_read: None, sent: 0, last_sent: Vec::new() };
        let (client, server) = (subject.client(client), subject.server(server, 0));
        Self { subject, client: end(client), server: end(server), began, now: began, lost: 0..0, network, trace: Trace::new(began, false) }
    }

    /// A client and a server that have connected, and the names they have for that.
    pub(super) fn connected(limits: &Limits) -> (Self, ConnectionKey, ConnectionKey) {
        let mut pair = Self::new(limits);
        let (client, server) = pair.connect();
        (pair, client, server)
    }

    pub(super) fn begin_connecting(&mut self) -> ConnectionKey {
        self.client.transport.connect(self.now, server_address(), "localhost", self.subject.tls()).unwrap()
    }

    /// Connects; the events of that are taken.
    pub(super) fn connect(&mut self) -> (ConnectionKey, ConnectionKey) {
        let known: Vec<_> = self.server.events.iter().map(|(key, _)| *key).collect();
        let client = self.begin_connecting();
        self.run_until(|pair| pair.client.take(client, |event| matches!(event, Event::Connected { .. }).then_some(())).is_some());
        self.run_until(|pair| {
            pair.server.events.iter().any(|(key, event)| !known.contains(key) && matches!(event, Event::Connected { .. }))
        });
        let server = self.server.events.iter().rfind(|(_, event)| matches!(event, Event::Connected { .. })).unwrap().0;
        self.server.events.retain(|(key, _)| *key != server);
        (client, server)
    }

    /// Goes on by one instant at which something happens. Returns false if nothing ever will.
    pub(super) fn step(&mut self) -> bool {
        self.exchange();
        let wants = self.client.transport.wants_to_send() || self.server.transport.wants_to_send();
        assert!(!wants, "poll_transmit has returned nothing, and yet there is something to send");
        // Only now: what was sent has set timers.
        let timeouts = [self.client.transport.poll_timeout(), self.server.transport.poll_timeout(), self.network.next_arrival()];
        let Some(next) = timeouts.into_iter().flatten().min() else { return false };
        self.now = self.now.max(next);
        self.client.transport.handle_timeout(self.now);
        self.server.transport.handle_timeout(self.now);
        while let Some((side, datagram)) = self.network.poll_arrival(self.now) {
            match side {
                Side::Server => self.server.transport.handle_datagram(self.now, datagram),
                Side::Client => self.client.transport.handle_datagram(self.now, datagram),
            }
        }
        self.exchange();
        true
    }

    /// Takes events and sends packets, at the present time.
    pub(super) fn exchange(&mut self) {
        for (side, end) in [(Side::Client, &mut self.client), (Side::Server, &mut self.server)] {
            end.collect();
            let mut buffer = Vec::new();
            while let Some(transmit) = end.transport.poll_transmit(self.now, SEGMENTS, &mut buffer) {
                let data = &buffer[..transmit.size];
                let segment = transmit.segment_size.unwrap_or(transmit.size);
                assert!(transmit.size > 0 && data.len().div_ceil(segment) <= SEGMENTS, "{transmit:?}");
                end.last_sent = data[..segment.min(data.len())].to_vec();
                for datagram in data.chunks(segment) {
                    end.sent += 1;
                    if side == Side::Client || !self.lost.contains(&(end.sent - 1)) {
                        self.network.send(self.now, side, &transmit, datagram, &mut self.trace);
                    }
                }
            }
            end.collect();
        }
    }

    /// # Panics
    ///
    /// When it does not become true.
    #[track_caller]
    pub(super) fn run_until(&mut self, mut is_done: impl FnMut(&mut Self) -> bool) {
        let began = self.now;
        self.exchange();
        while !is_done(self) {
            let goes_on = self.step();
            assert!(
                goes_on && self.now - began < PATIENCE,
                "it does not happen; client: {:?}, server: {:?}",
                self.client.events,
                self.server.events
            );
        }
    }

    /// Lets time pass.
    pub(super) fn run_for(&mut self, duration: Duration) {
        let until = self.now + duration;
        self.exchange();
        loop {
            let timeouts = [self.client.transport.poll_timeout(), self.server.transport.poll_timeout(), self.network.next_arrival()];
            if timeouts.into_iter().flatten().min().is_none_or(|next| next > until) {
                break;
            }
            self.step();
        }
        self.now = until;
    }

    /// Lets nobody hear anything for so long, not even a clock, and drops what is on its way.
    pub(super) fn sleep(&mut self, duration: Duration) {
        self.now += duration;
        while self.network.poll_arrival(self.now).is_some() {}
    }

    /// From here on the network does this.
    pub(super) fn change_weather(&mut self, weather: Weather) {
        self.network.change_weather(weather);
    }

    /// A datagram from an address of no one.
    pub(super) fn strange(&mut self, data: &[u8]) {
        let datagram = Datagram { remote: "203.0.113.7:7".parse().unwrap(), local_ip: None, ecn: None, data: data.into() };
        self.server.transport.handle_datagram(self.now, datagram);
    }

    /// Writes everything on the client's stream and ends it, while `read` says what the server reads of it.
    pub(super) fn upload(&mut self, keys: (ConnectionKey, ConnectionKey), stream: StreamId, content: &[u8]) -> Vec<u8> {
        let mut chunks = VecDeque::from([Bytes::copy_from_slice(content)]);
        let mut received = Vec::new();
        let mut is_finished = false;
        self.run_until(|pair| {
            if !is_finished && pair.client.transport.write(keys.0, stream, &mut chunks, usize::MAX, false, None) == Write::Done {
                pair.client.finish(keys.0, stream);
                is_finished = true;
            }
            pair.server.read_to(keys.1, stream, &mut received)
        });
        received
    }
}

impl<T: Transport> End<T> {
    fn collect(&mut self) {
        while self.transport.has_events() {
            let (key, event) = self.transport.poll_event().expect("an event where `has_events` says that there is one");
            if let (Event::Closed(_), Some(stream)) = (&event, self.last_stream) {
                self.last_read = Some(self.read(key, stream));
            }
            self.events.push((key, event));
        }
        assert!(self.transport.poll_event().is_none(), "an event where `has_events` says that there is none");
    }

    /// Takes the first event of a connection of which `pick` makes something.
    pub(super) fn take<R>(&mut self, key: ConnectionKey, pick: impl Fn(&Event) -> Option<R>) -> Option<R> {
        let (place, found) = self
            .events
            .iter()
            .enumerate()
            .find_map(|(place, (of, event))| (*of == key).then(|| pick(event)).flatten().map(|found| (place, found)))?;
        self.events.remove(place);
        Some(found)
    }

    pub(super) fn take_closed(&mut self, key: ConnectionKey) -> Option<Closed> {
        self.take(key, |event| if let Event::Closed(reason) = event { Some(reason.clone()) } else { None })
    }

    pub(super) fn take_readable(&mut self, key: ConnectionKey) -> Option<StreamId> {
        self.take(key, |event| if let Event::Readable(stream) = event { Some(*stream) } else { None })
    }

    /// Reads what is there.
    pub(super) fn read(&mut self, key: ConnectionKey, stream: StreamId) -> (Vec<u8>, Read) {
        let mut received = Vec::new();
        let read = self.transport.read(key, stream, |data| {
            received.extend_from_slice(&data);
            true
        });
        (received, read)
    }

    /// Reads what is there. Returns whether that was the end.
    pub(super) fn read_to(&mut self, key: ConnectionKey, stream: StreamId, into: &mut Vec<u8>) -> bool {
        let (received, read) = self.read(key, stream);
        into.extend_from_slice(&received);
        match read {
            Read::Finished => true,
            Read::Blocked | Read::Gone => false,
            Read::Left => panic!("nobody wanted the read to end"),
            Read::Reset(code) => panic!("the stream was reset with {code}"),
        }
    }

    /// Reads what is there, and returns how much that was.
    pub(super) fn read_count(&mut self, key: ConnectionKey, stream: StreamId) -> usize {
        let mut received = Vec::new();
        self.read_to(key, stream, &mut received);
        received.len()
    }

    /// Writes as much as the transport takes, up to so many bytes, and returns how much that was.
    pub(super) fn write_up_to(&mut self, key: ConnectionKey, stream: StreamId, size: usize) -> (usize, Write) {
        let mut chunks = VecDeque::from([content(size).into()]);
        let written = self.transport.write(key, stream, &mut chunks, usize::MAX, false, None);
        (size - chunks.iter().map(Bytes::len).sum::<usize>(), written)
    }

    /// Ends a stream behind what was written.
    pub(super) fn finish(&mut self, key: ConnectionKey, stream: StreamId) {
        self.transport.write(key, stream, &mut VecDeque::new(), 0, true, None);
    }

    pub(super) fn open(&mut self, key: ConnectionKey, dir: Dir) -> StreamId {
        self.transport.open(key, dir).expect("the peer allows another stream")
    }
}

/// Bytes that are not the same in two places.
pub(super) fn content(size: usize) -> Vec<u8> {
    (0..size).map(|place| (place ^ ((place >> 8) * 31)) as u8).collect()
}
