//! A client and a server of one transport, with the simulation's network between them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pronghorn_h3::StreamId;

use super::subject::{Limits, Subject};
use crate::simulation::network::{Network, NetworkConditions, Side};
use crate::simulation::trace::Trace;
use crate::transport::{Closed, ConnectionKey, Datagram, Dir, Event, Read, Transport, Write};

/// Maximum virtual time for any wait.
const PATIENCE: Duration = Duration::from_secs(120);

/// Datagrams of one GSO train.
const SEGMENTS: usize = 10;

/// An endpoint, and the events that it has reported.
pub(super) struct End<T> {
    pub(super) transport: T,
    pub(super) events: Vec<(ConnectionKey, Event)>,
    /// The stream to read when the end of a connection is reported, and the result of that read.
    pub(super) last_stream: Option<StreamId>,
    pub(super) last_read: Option<(Vec<u8>, Read)>,
    /// Number of datagrams sent.
    pub(super) sent: usize,
    pub(super) last_sent: Vec<u8>,
}

pub(super) struct Pair<S: Subject> {
    pub(super) subject: S,
    pub(super) client: End<S::Transport>,
    pub(super) server: End<S::Transport>,
    pub(super) began: Instant,
    pub(super) now: Instant,
    /// Numbers of the server's datagrams that get lost.
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
    /// Creates a pair on a network that has only a delay of 10 ms.
    pub(super) fn new(limits: &Limits) -> Self {
        Self::over(NetworkConditions::calm(Duration::from_millis(10)), limits, limits)
    }

    pub(super) fn over(conditions: NetworkConditions, client: &Limits, server: &Limits) -> Self {
        let subject = S::new();
        let began = Instant::now();
        let network = Network::new(conditions, 1, began, client_address(), server_address());
        let end = |transport| End {
            transport,
            events: Vec::new(),
            last_stream: None,
            last_read: None,
            sent: 0,
            last_sent: Vec::new(),
        };
        let (client, server) = (subject.client(client), subject.server(server, 0));
        Self {
            subject,
            client: end(client),
            server: end(server),
            began,
            now: began,
            lost: 0..0,
            network,
            trace: Trace::new(began, false),
        }
    }

    /// Creates a connected pair. Returns the connection's keys on both sides.
    pub(super) fn connected(limits: &Limits) -> (Self, ConnectionKey, ConnectionKey) {
        let mut pair = Self::new(limits);
        let (client, server) = pair.connect();
        (pair, client, server)
    }

    pub(super) fn begin_connecting(&mut self) -> ConnectionKey {
        self.client
            .transport
            .connect(self.now, server_address(), "localhost", self.subject.tls())
            .unwrap()
    }

    /// Connects, and takes the events of that.
    pub(super) fn connect(&mut self) -> (ConnectionKey, ConnectionKey) {
        let known: Vec<_> = self.server.events.iter().map(|(key, _)| *key).collect();
        let client = self.begin_connecting();
        self.run_until(|pair| {
            pair.client
                .take(client, |event| matches!(event, Event::Connected { .. }).then_some(()))
                .is_some()
        });
        self.run_until(|pair| {
            pair.server.events.iter().any(|(key, event)| {
                !known.contains(key) && matches!(event, Event::Connected { .. })
            })
        });
        let server = self
            .server
            .events
            .iter()
            .rfind(|(_, event)| matches!(event, Event::Connected { .. }))
            .unwrap()
            .0;
        self.server.events.retain(|(key, _)| *key != server);
        (client, server)
    }

    /// Advances to the next instant at which something happens. Returns false if nothing ever will.
    pub(super) fn step(&mut self) -> bool {
        self.exchange();
        let wants = self.client.transport.wants_to_send() || self.server.transport.wants_to_send();
        assert!(!wants, "poll_transmit returned None although there is something to send");
        // Read only now, since sending sets timers.
        let timeouts = [
            self.client.transport.poll_timeout(),
            self.server.transport.poll_timeout(),
            self.network.next_arrival(),
        ];
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

    /// Takes events and sends packets at the current time.
    pub(super) fn exchange(&mut self) {
        for (side, end) in [(Side::Client, &mut self.client), (Side::Server, &mut self.server)] {
            end.collect();
            let mut buffer = Vec::new();
            while let Some(transmit) = end.transport.poll_transmit(self.now, SEGMENTS, &mut buffer)
            {
                let data = &buffer[..transmit.size];
                let segment = transmit.segment_size.unwrap_or(transmit.size);
                assert!(
                    transmit.size > 0 && data.len().div_ceil(segment) <= SEGMENTS,
                    "{transmit:?}"
                );
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

    /// Runs until `is_done` returns true.
    ///
    /// # Panics
    ///
    /// When it does not within [`PATIENCE`].
    #[track_caller]
    pub(super) fn run_until(&mut self, mut is_done: impl FnMut(&mut Self) -> bool) {
        let began = self.now;
        self.exchange();
        while !is_done(self) {
            let goes_on = self.step();
            assert!(
                goes_on && self.now - began < PATIENCE,
                "timed out; client: {:?}, server: {:?}",
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
            let timeouts = [
                self.client.transport.poll_timeout(),
                self.server.transport.poll_timeout(),
                self.network.next_arrival(),
            ];
            if timeouts.into_iter().flatten().min().is_none_or(|next| next > until) {
                break;
            }
            self.step();
        }
        self.now = until;
    }

    /// Skips time without running either endpoint, not even timers, and drops the datagrams in
    /// flight.
    pub(super) fn sleep(&mut self, duration: Duration) {
        self.now += duration;
        while self.network.poll_arrival(self.now).is_some() {}
    }

    /// Changes the network's behaviour from now on.
    pub(super) fn change_weather(&mut self, conditions: NetworkConditions) {
        self.network.change_weather(conditions);
    }

    /// Sends a datagram from an unknown address.
    pub(super) fn send_from_stranger(&mut self, data: &[u8]) {
        let datagram = Datagram {
            remote: "203.0.113.7:7".parse().unwrap(),
            local_ip: None,
            ecn: None,
            data: data.into(),
        };
        self.server.transport.handle_datagram(self.now, datagram);
    }

    /// Writes everything on the client's stream and ends it. Returns what the server reads.
    pub(super) fn upload(
        &mut self,
        keys: (ConnectionKey, ConnectionKey),
        stream: StreamId,
        content: &[u8],
    ) -> Vec<u8> {
        let mut chunks = VecDeque::from([Bytes::copy_from_slice(content)]);
        let mut received = Vec::new();
        let mut is_finished = false;
        self.run_until(|pair| {
            if !is_finished
                && pair.client.transport.write(keys.0, stream, &mut chunks, usize::MAX, false, None)
                    == Write::Done
            {
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
            let (key, event) =
                self.transport.poll_event().expect("an event, since `has_events` returned true");
            if let (Event::Closed(_), Some(stream)) = (&event, self.last_stream) {
                self.last_read = Some(self.read(key, stream));
            }
            self.events.push((key, event));
        }
        assert!(
            self.transport.poll_event().is_none(),
            "an event although `has_events` returned false"
        );
    }

    /// Takes the first event of a connection for which `pick` returns something.
    pub(super) fn take<R>(
        &mut self,
        key: ConnectionKey,
        pick: impl Fn(&Event) -> Option<R>,
    ) -> Option<R> {
        let (place, found) = self.events.iter().enumerate().find_map(|(place, (of, event))| {
            (*of == key).then(|| pick(event)).flatten().map(|found| (place, found))
        })?;
        self.events.remove(place);
        Some(found)
    }

    pub(super) fn take_closed(&mut self, key: ConnectionKey) -> Option<Closed> {
        self.take(
            key,
            |event| if let Event::Closed(reason) = event { Some(reason.clone()) } else { None },
        )
    }

    pub(super) fn take_readable(&mut self, key: ConnectionKey) -> Option<StreamId> {
        self.take(
            key,
            |event| if let Event::Readable(stream) = event { Some(*stream) } else { None },
        )
    }

    /// Reads the available data.
    pub(super) fn read(&mut self, key: ConnectionKey, stream: StreamId) -> (Vec<u8>, Read) {
        let mut received = Vec::new();
        let read = self.transport.read(key, stream, |data| {
            received.extend_from_slice(&data);
            true
        });
        (received, read)
    }

    /// Reads the available data. Returns whether that was the end.
    pub(super) fn read_to(
        &mut self,
        key: ConnectionKey,
        stream: StreamId,
        into: &mut Vec<u8>,
    ) -> bool {
        let (received, read) = self.read(key, stream);
        into.extend_from_slice(&received);
        match read {
            Read::Finished => true,
            Read::Blocked | Read::Gone => false,
            Read::Left => panic!("the read ended early"),
            Read::Reset(code) => panic!("the stream was reset with {code}"),
        }
    }

    /// Reads the available data, and returns its length.
    pub(super) fn read_count(&mut self, key: ConnectionKey, stream: StreamId) -> usize {
        let mut received = Vec::new();
        self.read_to(key, stream, &mut received);
        received.len()
    }

    /// Writes as much as the transport accepts, up to the given size. Returns the number of bytes.
    pub(super) fn write_up_to(
        &mut self,
        key: ConnectionKey,
        stream: StreamId,
        size: usize,
    ) -> (usize, Write) {
        let mut chunks = VecDeque::from([content(size).into()]);
        let written = self.transport.write(key, stream, &mut chunks, usize::MAX, false, None);
        (size - chunks.iter().map(Bytes::len).sum::<usize>(), written)
    }

    /// Ends a stream after the data written so far.
    pub(super) fn finish(&mut self, key: ConnectionKey, stream: StreamId) {
        self.transport.write(key, stream, &mut VecDeque::new(), 0, true, None);
    }

    pub(super) fn open(&mut self, key: ConnectionKey, dir: Dir) -> StreamId {
        self.transport.open(key, dir).expect("the peer allows another stream")
    }
}

/// Returns bytes that differ from place to place.
pub(super) fn content(size: usize) -> Vec<u8> {
    (0..size).map(|place| (place ^ ((place >> 8) * 31)) as u8).collect()
}
