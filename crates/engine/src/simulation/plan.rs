//! The plan of one seed: a network, limits, and all actions of client and server.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::network::NetworkConditions;
use crate::{Config, Congestion, EarlyData, Limits, Resumption};

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) conditions: NetworkConditions,
    /// Whether the network is so bad that a connection may time out.
    pub(crate) deadly: bool,
    pub(crate) server: Config,
    pub(crate) client: Config,
    /// The client's use of sessions from earlier connections.
    pub(crate) resumption: Resumption,
    pub(crate) connections: Vec<ConnectionPlan>,
    /// When the server begins to shut down.
    pub(crate) go_away: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(crate) struct ConnectionPlan {
    pub(crate) at: Duration,
    /// When the client closes the connection, regardless of open requests.
    pub(crate) closes: Option<Duration>,
    pub(crate) requests: Vec<Exchange>,
}

/// A request and its response.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    /// Number of the exchange in the plan.
    pub(crate) number: u64,
    /// Time of the request, from the connection's establishment.
    pub(crate) at: Duration,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) upload: Option<Stream>,
    pub(crate) answer: ResponsePlan,
    /// How the client reads the response.
    pub(crate) reading: Reading,
    /// How long the client waits for the head of the response before it abandons the request.
    pub(crate) patience: Option<Duration>,
}

/// Content, and how it is produced.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) size: u64,
    /// Whether the content is in memory as a whole, rather than produced chunk by chunk.
    pub(crate) whole: bool,
    pub(crate) chunk: u64,
    pub(crate) pause: Duration,
    /// Bytes after which the producer fails.
    pub(crate) fails_at: Option<u64>,
    pub(crate) trailers: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum ResponsePlan {
    /// Responds at once, and reads the upload alongside or drops it.
    Now { content: Stream, drops_upload: bool },
    /// Responds after this time.
    Later { after: Duration, content: Stream },
    /// Responds when the whole upload has arrived.
    AfterUpload { reading: Reading, content: Stream },
    /// Echoes the upload as it arrives.
    Echo,
    /// Drops the responder.
    Nothing,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Pause before reading begins.
    pub(crate) waits: Duration,
    /// Pauses after each this many bytes.
    pub(crate) rest_every: u64,
    pub(crate) rest: Duration,
    /// Bytes after which the reader is dropped.
    pub(crate) leaves_at: Option<u64>,
}

impl Plan {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut draw = Draw(ChaCha8Rng::seed_from_u64(seed));
        let deadly = draw.chance(0.15);
        let conditions = draw.conditions(deadly);
        let server = draw.config();
        let client = draw.config();
        let resumption = [Resumption::Off, Resumption::Session, Resumption::EarlyData]
            [draw.0.random_range(0..3)];
        let mut number = 0;
        let connections =
            (0..draw.0.random_range(1..=3)).map(|_| draw.connection(&mut number)).collect();
        let go_away = draw.chance(0.2).then(|| draw.duration(0, 3000));
        Self { conditions, deadly, server, client, resumption, connections, go_away }
    }

    /// Returns a plan with `count` responses of `size` bytes over one connection, requested at once
    /// by a client that waits for any time.
    pub(crate) fn downloads(count: u64, size: u64, conditions: NetworkConditions) -> Self {
        let long = Duration::from_secs(3600);
        let limits = Limits::default()
            .with_handshake_timeout(long / 12)
            .and_then(|limits| limits.with_body_timeout(long))
            .unwrap();
        let content = Stream {
            size,
            whole: false,
            chunk: 10_000,
            pause: Duration::ZERO,
            fails_at: None,
            trailers: false,
        };
        let requests = (0..count).map(|number| Exchange {
            number,
            at: Duration::ZERO,
            fields: Vec::new(),
            upload: None,
            answer: ResponsePlan::Now { content: content.clone(), drops_upload: true },
            reading: Reading {
                waits: Duration::ZERO,
                rest_every: u64::MAX,
                rest: Duration::ZERO,
                leaves_at: None,
            },
            patience: None,
        });
        let connection =
            ConnectionPlan { at: Duration::ZERO, closes: None, requests: requests.collect() };
        // A controller without random numbers of its own.
        let server = Config { congestion: Some(Congestion::Cubic), ..Config::default() };
        Self {
            conditions,
            deadly: false,
            client: Config { limits, ..server.clone() },
            server,
            resumption: Resumption::Off,
            connections: vec![connection],
            go_away: None,
        }
    }

    /// Whether each connection must last until the client closes it.
    pub(crate) fn lasts(&self) -> bool {
        // quinn-proto counts a Retry with a wrong tag as an authenticated packet, and then accepts
        // no other Retry. On the internet each datagram has a checksum, so that takes an attacker
        // on the path.
        let loses_retry =
            self.server.limits.open_handshakes() == 0 && self.conditions.corruption > 0.0;
        !self.deadly && self.go_away.is_none() && !loses_retry
    }
}

struct Draw(ChaCha8Rng);

impl Draw {
    fn chance(&mut self, probability: f64) -> bool {
        self.0.random_bool(probability)
    }

    /// Draws a uniform duration, given in milliseconds.
    fn duration(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(self.0.random_range(from * 1000..=to * 1000))
    }

    /// Draws a size: small numbers are as likely as large ones.
    fn size(&mut self, most: u64) -> u64 {
        let bits = self.0.random_range(0..=most.ilog2());
        self.0.random_range(0..=(1 << bits).min(most))
    }

    fn conditions(&mut self, deadly: bool) -> NetworkConditions {
        let delay = if self.chance(0.3) { self.duration(0, 2) } else { self.duration(1, 150) };
        let mut conditions = NetworkConditions::calm(delay);
        if self.chance(0.6) {
            conditions.loss = self.0.random_range(0.0..0.1);
        }
        if self.chance(0.4) {
            conditions.jitter = self.duration(0, 40);
        }
        if self.chance(0.3) {
            conditions.duplication = self.0.random_range(0.0..0.3);
        }
        if self.chance(0.3) {
            conditions.corruption = self.0.random_range(0.0..0.05);
        }
        if self.chance(0.2) {
            conditions.marking = self.0.random_range(0.0..0.2);
        }
        if self.chance(0.5) {
            conditions.rate = Some(self.0.random_range(100_000..5_000_000));
            conditions.queue = self.0.random_range(10_000..200_000);
        }
        if self.chance(0.2) {
            conditions.mtu = self.0.random_range(1200..1500);
        }
        if self.chance(0.2) {
            let from = self.duration(0, 2000);
            conditions.blackouts.push(from..from + self.duration(10, 3000));
        }
        if self.chance(0.1) {
            // A server ignores another address before the handshake is done, so the handshake must
            // be over: this needs a short path.
            conditions.rebinds =
                (0..self.0.random_range(1..=2)).map(|_| self.duration(4000, 8000)).collect();
            conditions.blackouts.clear();
            conditions.loss = conditions.loss.min(0.02);
        }
        if deadly {
            match self.0.random_range(0..3) {
                0 => conditions.loss = self.0.random_range(0.2..0.6),
                1 => conditions.corruption = self.0.random_range(0.1..0.5),
                _ => {
                    let from = self.duration(0, 3000);
                    conditions.blackouts.push(from..Duration::MAX);
                }
            }
        }
        conditions
    }

    fn config(&mut self) -> Config {
        // Timeouts are not tested here: the network may be as slow as it likes.
        let long = Duration::from_secs(300);
        let patient = Limits::default()
            .with_handshake_timeout(long)
            .and_then(|limits| limits.with_head_timeout(long));
        let patient = patient
            .and_then(|limits| limits.with_body_timeout(long))
            .and_then(|limits| limits.with_response_timeout(long));
        let mut limits = patient.unwrap();
        if self.chance(0.5) {
            limits = limits.with_concurrent_streams(self.0.random_range(1..=8_u32).into()).unwrap();
        }
        if self.chance(0.8) {
            limits = limits.with_stream_window_bytes(self.0.random_range(2_000..100_000)).unwrap();
        }
        if self.chance(0.5) {
            limits =
                limits.with_connection_window_bytes(self.0.random_range(4_000..200_000)).unwrap();
        }
        if self.chance(0.5) {
            limits = limits.with_send_window_bytes(self.0.random_range(4_000..200_000)).unwrap();
        }
        if self.chance(0.2) {
            // Every client must validate its address.
            limits = limits.with_open_handshakes(0).unwrap();
        }
        // quinn-proto's BBR draws its own random numbers, so its runs could not be repeated.
        let congestion = if self.chance(0.3) { Congestion::NewReno } else { Congestion::Cubic };
        let early_data = EarlyData::ALL[self.0.random_range(0..EarlyData::ALL.len())];
        Config { limits, congestion: Some(congestion), early_data, ..Config::default() }
    }

    fn connection(&mut self, number: &mut u64) -> ConnectionPlan {
        let at = if self.chance(0.5) { Duration::ZERO } else { self.duration(0, 2000) };
        let closes = self.chance(0.1).then(|| self.duration(0, 4000));
        let requests = 1 + self.size(24);
        let spread = self.0.random_range(0..3000);
        let requests = (0..requests).map(|_| {
            let at = self.duration(0, spread);
            *number += 1;
            self.exchange(*number - 1, at)
        });
        ConnectionPlan { at, closes, requests: requests.collect() }
    }

    fn exchange(&mut self, number: u64, at: Duration) -> Exchange {
        let upload = self.chance(0.5).then(|| self.stream());
        let fields = (0..self.size(20)).map(|index| (format!("x-field-{index}"), self.value()));
        Exchange {
            number,
            at,
            fields: fields.collect(),
            upload,
            answer: self.answer(),
            reading: self.reading(),
            patience: self.chance(0.1).then(|| self.duration(0, 1000)),
        }
    }

    /// Draws values, repeated and unique ones, some of them long.
    fn value(&mut self) -> String {
        let length = if self.chance(0.05) { self.size(2000) } else { self.size(60) };
        let kind = self.0.random_range(0..4u8);
        let digit = self.0.random_range(0..10u8);
        (0..length)
            .map(|_| {
                if kind == 0 {
                    char::from(self.0.random_range(b'!'..=b'~'))
                } else {
                    char::from(b'0' + digit)
                }
            })
            .collect()
    }

    fn stream(&mut self) -> Stream {
        let size = if self.chance(0.04) {
            self.0.random_range(100_000..1_000_000)
        } else {
            self.size(60_000)
        };
        let whole = self.chance(0.4);
        Stream {
            size,
            whole,
            chunk: 1 + self.size(20_000).max(size / 100),
            pause: if self.chance(0.3) { self.duration(0, 20) } else { Duration::ZERO },
            fails_at: (!whole && self.chance(0.08)).then(|| self.0.random_range(0..=size)),
            trailers: !whole && self.chance(0.2),
        }
    }

    fn answer(&mut self) -> ResponsePlan {
        match self.0.random_range(0..10) {
            0..4 => ResponsePlan::Now { content: self.stream(), drops_upload: self.chance(0.5) },
            4..6 => ResponsePlan::Later { after: self.duration(0, 5000), content: self.stream() },
            6..8 => ResponsePlan::AfterUpload { reading: self.reading(), content: self.stream() },
            8 => ResponsePlan::Echo,
            _ => ResponsePlan::Nothing,
        }
    }

    fn reading(&mut self) -> Reading {
        Reading {
            waits: if self.chance(0.2) { self.duration(0, 4000) } else { Duration::ZERO },
            rest_every: 1 + self.size(100_000).max(8000),
            rest: if self.chance(0.3) { self.duration(0, 200) } else { Duration::ZERO },
            leaves_at: self.chance(0.08).then(|| self.size(40_000)),
        }
    }
}
