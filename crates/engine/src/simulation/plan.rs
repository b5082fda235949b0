//! What one seed stands for: a network, limits, and everything that client and server will do.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::network::Weather;
use crate::{Config, Congestion, EarlyData, Limits, Resumption};

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) weather: Weather,
    /// The weather is such that a connection may be lost to it.
    pub(crate) deadly: bool,
    pub(crate) server: Config,
    pub(crate) client: Config,
    /// What the client does with the sessions of earlier connections.
    pub(crate) resumption: Resumption,
    pub(crate) connections: Vec<ConnectionPlan>,
    /// The server begins to end at this time.
    pub(crate) go_away: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(crate) struct ConnectionPlan {
    pub(crate) at: Duration,
    /// The client closes the connection at this time, whatever is still open.
    pub(crate) closes: Option<Duration>,
    pub(crate) requests: Vec<Exchange>,
}

/// One request and its response.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    /// Its number among all of the plan.
    pub(crate) number: u64,
    /// When it is sent, after the connection is there.
    pub(crate) at: Duration,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) upload: Option<Stream>,
    pub(crate) answer: Answer,
    /// How the client reads the response.
    pub(crate) reading: Reading,
    /// After so long the client gives up, if the head of the response has not come.
    pub(crate) patience: Option<Duration>,
}

/// Content and how it is produced.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) size: u64,
    /// In memory as a whole; otherwise produced chunk by chunk.
    pub(crate) whole: bool,
    pub(crate) chunk: u64,
    pub(crate) pause: Duration,
    /// Its producer fails after so many bytes.
    pub(crate) fails_at: Option<u64>,
    pub(crate) trailers: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// At once, without a look at the upload, which is read alongside or dropped.
    Now { content: Stream, drops_upload: bool },
    /// After so long.
    Later { after: Duration, content: Stream },
    /// When the whole upload has come.
    AfterUpload { reading: Reading, content: Stream },
    /// What comes is sent back as it comes.
    Echo,
    /// The responder is dropped.
    Nothing,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Before anything is read.
    pub(crate) waits: Duration,
    /// Rest after each so many bytes.
    pub(crate) rest_every: u64,
    pub(crate) rest: Duration,
    /// Enough after so many bytes: what reads is dropped.
    pub(crate) leaves_at: Option<u64>,
}

impl Plan {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut draw = Draw(ChaCha8Rng::seed_from_u64(seed));
        let deadly = draw.chance(0.15);
        let weather = draw.weather(deadly);
        let server = draw.config();
        let client = draw.config();
        let resumption = [Resumption::Off, Resumption::Session, Resumption::EarlyData][draw.0.random_range(0..3)];
        let mut number = 0;
        let connections = (0..draw.0.random_range(1..=3)).map(|_| draw.connection(&mut number)).collect();
        let go_away = draw.chance(0.2).then(|| draw.duration(0, 3000));
        Self { weather, deadly, server, client, resumption, connections, go_away }
    }

    /// So many responses of so many bytes over one connection, asked for at once by a client that waits as long as it takes.
    pub(crate) fn downloads(count: u64, size: u64, weather: Weather) -> Self {
        let long = Duration::from_secs(3600);
        let limits = Limits::default().with_handshake_timeout(long / 12).and_then(|limits| limits.with_body_timeout(long)).unwrap();
        let content = Stream { size, whole: false, chunk: 10_000, pause: Duration::ZERO, fails_at: None, trailers: false };
        let requests = (0..count).map(|number| Exchange {
            number,
            at: Duration::ZERO,
            fields: Vec::new(),
            upload: None,
            answer: Answer::Now { content: content.clone(), drops_upload: true },
            reading: Reading { waits: Duration::ZERO, rest_every: u64::MAX, rest: Duration::ZERO, leaves_at: None },
            patience: None,
        });
        let connection = ConnectionPlan { at: Duration::ZERO, closes: None, requests: requests.collect() };
        // One that draws no random numbers of its own.
        let server = Config { congestion: Some(Congestion::Cubic), ..Config::default() };
        Self {
            weather,
            deadly: false,
            client: Config { limits, ..server.clone() },
            server,
            resumption: Resumption::Off,
            connections: vec![connection],
            go_away: None,
        }
    }

    /// Whether each connection has to last until the client closes it.
    pub(crate) fn lasts(&self) -> bool {
        // The library counts a Retry whose tag is wrong among the packets that it has authenticated, and then takes no other Retry. On
        // the internet a checksum guards each datagram, so that takes an attacker on the path.
        let loses_retry = self.server.limits.open_handshakes() == 0 && self.weather.corruption > 0.0;
        !self.deadly && self.go_away.is_none() && !loses_retry
    }
}

struct Draw(ChaCha8Rng);

impl Draw {
    fn chance(&mut self, probability: f64) -> bool {
        self.0.random_bool(probability)
    }

    /// Milliseconds, evenly.
    fn duration(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(self.0.random_range(from * 1000..=to * 1000))
    }

    /// Small numbers as often as large ones.
    fn size(&mut self, most: u64) -> u64 {
        let bits = self.0.random_range(0..=most.ilog2());
        self.0.random_range(0..=(1 << bits).min(most))
    }

    fn weather(&mut self, deadly: bool) -> Weather {
        let delay = if self.chance(0.3) { self.duration(0, 2) } else { self.duration(1, 150) };
        let mut weather = Weather::calm(delay);
        if self.chance(0.6) {
            weather.loss = self.0.random_range(0.0..0.1);
        }
        if self.chance(0.4) {
            weather.jitter = self.duration(0, 40);
        }
        if self.chance(0.3) {
            weather.duplication = self.0.random_range(0.0..0.3);
        }
        if self.chance(0.3) {
            weather.corruption = self.0.random_range(0.0..0.05);
        }
        if self.chance(0.2) {
            weather.marking = self.0.random_range(0.0..0.2);
        }
        if self.chance(0.5) {
            weather.rate = Some(self.0.random_range(100_000..5_000_000));
            weather.queue = self.0.random_range(10_000..200_000);
        }
        if self.chance(0.2) {
            weather.mtu = self.0.random_range(1200..1500);
        }
        if self.chance(0.2) {
            let from = self.duration(0, 2000);
            weather.blackouts.push(from..from + self.duration(10, 3000));
        }
        if self.chance(0.1) {
            // A server ignores another address before the handshake is done, so that has to be over: no long way to there.
            weather.rebinds = (0..self.0.random_range(1..=2)).map(|_| self.duration(4000, 8000)).collect();
            weather.blackouts.clear();
            weather.loss = weather.loss.min(0.02);
        }
        if deadly {
            match self.0.random_range(0..3) {
                0 => weather.loss = self.0.random_range(0.2..0.6),
                1 => weather.corruption = self.0.random_range(0.1..0.5),
                _ => {
                    let from = self.duration(0, 3000);
                    weather.blackouts.push(from..Duration::MAX);
                }
            }
        }
        weather
    }

    fn config(&mut self) -> Config {
        // How long peers are waited for is not what is tested here: the network may be as slow as it likes.
        let long = Duration::from_secs(300);
        let patient = Limits::default().with_handshake_timeout(long).and_then(|limits| limits.with_head_timeout(long));
        let patient = patient.and_then(|limits| limits.with_body_timeout(long)).and_then(|limits| limits.with_response_timeout(long));
        let mut limits = patient.unwrap();
        if self.chance(0.5) {
            limits = limits.with_concurrent_streams(self.0.random_range(1..=8_u32).into()).unwrap();
        }
        if self.chance(0.8) {
            limits = limits.with_stream_window_bytes(self.0.random_range(2_000..100_000)).unwrap();
        }
        if self.chance(0.5) {
            limits = limits.with_connection_window_bytes(self.0.random_range(4_000..200_000)).unwrap();
        }
        if self.chance(0.5) {
            limits = limits.with_send_window_bytes(self.0.random_range(4_000..200_000)).unwrap();
        }
        if self.chance(0.2) {
            // Every client has to prove its address.
            limits = limits.with_open_handshakes(0).unwrap();
        }
        // The library's BBR draws random numbers of its own, so its runs could not be repeated.
        let congestion = if self.chance(0.3) { Congestion::NewReno } else { Congestion::Cubic };
        let early_data = EarlyData::ALL[self.0.random_range(0..3)];
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

    /// Values that repeat as well as those that do not, some of them long.
    fn value(&mut self) -> String {
        let length = if self.chance(0.05) { self.size(2000) } else { self.size(60) };
        let kind = self.0.random_range(0..4u8);
        let digit = self.0.random_range(0..10u8);
        (0..length).map(|_| if kind == 0 { char::from(self.0.random_range(b'!'..=b'~')) } else { char::from(b'0' + digit) }).collect()
    }

    fn stream(&mut self) -> Stream {
        let size = if self.chance(0.04) { self.0.random_range(100_000..1_000_000) } else { self.size(60_000) };
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

    fn answer(&mut self) -> Answer {
        match self.0.random_range(0..10) {
            0..4 => Answer::Now { content: self.stream(), drops_upload: self.chance(0.5) },
            4..6 => Answer::Later { after: self.duration(0, 5000), content: self.stream() },
            6..8 => Answer::AfterUpload { reading: self.reading(), content: self.stream() },
            8 => Answer::Echo,
            _ => Answer::Nothing,
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
