//! The report, as data and as the JSON that `docs/load.md` describes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use pronghorn_engine::Resumption;
use serde::Serialize;

use crate::cpu::Usage;
use crate::generator::ThreadResult;
use crate::plan::{ConnectionUse, Plan};
use crate::tally::{Failures, Kind, LATE, Tally};

/// Name of the JSON layout. A breaking change gets a new number.
pub const SCHEMA: &str = "pronghorn-load-report/1";

/// A thread that is busier than this may be the bottleneck instead of the server.
const BUSY_SHARE: f64 = 0.9;
/// A thread that waits longer than this for a processor delays requests and responses.
const STARVED_SHARE: f64 = 0.1;

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The version of the generator.
    pub version: &'static str,
    /// Settings of the run.
    pub plan: PlanReport,
    /// Whether the run was ended early.
    pub interrupted: bool,
    /// Measured time: from the end of the warm-up to the planned end, or to the end of the last
    /// request.
    pub measured_seconds: f64,
    /// Requests and their results.
    pub requests: Requests,
    /// Bodies, without header fields and framing.
    pub body: Body,
    /// Percentiles of measured requests with a response, and of connections.
    pub latency_us: Latencies,
    /// Connections.
    pub connections: Connections,
    /// WebSockets, in a run that uses them.
    pub websockets: WebSockets,
    /// Transport counters from the end of the warm-up.
    pub transport: Transport,
    /// Generator threads, from the end of the warm-up to the start of the last request.
    pub threads: Vec<Thread>,
    /// Warnings about the validity of the numbers.
    pub warnings: Vec<Warning>,
}

/// The settings of a run.
#[derive(Clone, Debug, Serialize)]
pub struct PlanReport {
    /// URLs, in the order of requests.
    pub urls: Vec<String>,
    /// Request method.
    pub method: String,
    /// `HTTP/1.1`, `HTTP/2`, `HTTP/3`, or `null`: as the server prefers.
    pub protocol: Option<String>,
    /// Whether WebSocket messages are sent in place of requests.
    pub websocket: bool,
    /// Number of open connections.
    pub connections: usize,
    /// Number of open requests on each connection.
    pub streams: usize,
    /// `kept`, or `one_request`.
    pub connection_use: &'static str,
    /// `off`, `session`, or `early_data`.
    pub resumption: &'static str,
    /// `cubic`, `newreno`, `bbr`, or `null`: CUBIC over QUIC, and the system's default over TCP.
    pub congestion: Option<String>,
    /// Requests per second; `null` is as fast as the server answers.
    pub rate_per_second: Option<f64>,
    /// Number of requests to measure; `null` is as many as fit.
    pub requests: Option<u64>,
    /// Time to measure; `null` is until all requests are done.
    pub duration_seconds: Option<f64>,
    /// Time before measuring.
    pub warm_up_seconds: f64,
    /// Timeout of a request.
    pub timeout_seconds: f64,
    /// Size of the body of each request, or of each message.
    pub body_bytes: u64,
}

/// Requests and their results. `begun` is the sum of the classes of `status`, of `errors` and of
/// `given_up`.
#[derive(Clone, Debug, Serialize)]
pub struct Requests {
    /// Measured requests that were begun.
    pub begun: u64,
    /// Requests of the warm-up, which are included in no other number but the rates.
    pub warm_up: u64,
    /// Complete responses by status class.
    pub status: StatusClasses,
    /// Requests without a complete response.
    pub errors: Errors,
    /// Requests in flight when the run was interrupted.
    pub given_up: u64,
    /// Requests due at the fixed rate but not sent by the end.
    pub not_started: u64,
    /// Retries on another connection, because the server had not processed the request.
    pub resent: u64,
    /// Requests begun over a millisecond late because no stream was free.
    pub held_up: u64,
    /// Responses that ended within the measured time, regardless of when they began.
    pub completed_in_time: u64,
    /// The same, per second of measured time.
    pub per_second: f64,
}

/// Complete responses by status class.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StatusClasses {
    /// 101 and others that end an exchange.
    #[serde(rename = "1xx")]
    pub informational: u64,
    /// Successes.
    #[serde(rename = "2xx")]
    pub successful: u64,
    /// Redirects, which are not followed.
    #[serde(rename = "3xx")]
    pub redirection: u64,
    /// Errors of the client.
    #[serde(rename = "4xx")]
    pub client_error: u64,
    /// Errors of the server.
    #[serde(rename = "5xx")]
    pub server_error: u64,
}

/// Requests without a complete response.
#[derive(Clone, Debug, Serialize)]
pub struct Errors {
    /// The sum of the following.
    pub total: u64,
    /// The TCP connection failed.
    pub connect: u64,
    /// The TLS or QUIC handshake failed, or negotiated another protocol.
    pub handshake: u64,
    /// The server refused the request repeatedly.
    pub refused: u64,
    /// The server reset the stream and left the connection open.
    pub reset: u64,
    /// The connection ended before the response.
    pub closed: u64,
    /// The response was not complete in time.
    pub timed_out: u64,
    /// The response violated the protocol.
    pub protocol: u64,
    /// The first message of each kind that occurred.
    pub first: BTreeMap<&'static str, String>,
}

/// Bodies, without header fields and framing.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Body {
    /// Bytes sent on connections for measured requests.
    pub sent_bytes: u64,
    /// Bytes of the responses to measured requests.
    pub received_bytes: u64,
    /// Bytes received within the measured time, per second.
    pub received_bytes_per_second: f64,
}

/// Percentiles in microseconds. Requests are timed from when they were due (at a fixed rate) or
/// begun.
#[derive(Clone, Debug, Serialize)]
pub struct Latencies {
    /// Time to the response head.
    pub head: Latency,
    /// Time to the end of the response.
    pub response: Latency,
    /// Time from the start of a connection until it accepts requests.
    pub connect: Latency,
    /// At a fixed rate: delay between when requests were due and when they were begun.
    pub schedule_lag: Latency,
}

/// Percentiles from a histogram with three significant digits. All are zero if `count` is.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub struct Latency {
    pub count: u64,
    pub min: f64,
    pub mean: f64,
    pub stddev: f64,
    pub p50: f64,
    pub p75: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub p99_9: f64,
    pub p99_99: f64,
    pub max: f64,
}

/// Connections. Kept connections are counted from the start; with one request each, after the
/// warm-up.
#[derive(Clone, Debug, Serialize)]
pub struct Connections {
    /// Connections opened.
    pub opened: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Connections that resumed the session of an earlier one.
    pub resumed: u64,
    /// Connections whose early data the server accepted.
    pub early_data_accepted: u64,
    /// Connections whose early data the server refused, so that it was sent again.
    pub early_data_refused: u64,
    /// Connections opened, by protocol.
    pub protocols: BTreeMap<String, u64>,
}

/// WebSockets, from the start.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct WebSockets {
    /// WebSockets opened.
    pub opened: u64,
    /// WebSockets that the server refused.
    pub failed: u64,
    /// WebSockets ended by the server, or with their connection.
    pub ended: u64,
}

/// Transport counters.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Transport {
    /// Bytes in UDP datagrams or TCP segments, without their headers, including retransmissions.
    pub sent_bytes: u64,
    /// Bytes in UDP datagrams or TCP segments, without their headers.
    pub received_bytes: u64,
    /// QUIC packets, or TCP segments, sent.
    pub sent_packets: u64,
    /// UDP datagrams, or TCP segments, received.
    pub received_packets: u64,
    /// Packets that QUIC declared lost, or segments that TCP retransmitted.
    pub lost_packets: u64,
}

/// A generator thread.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Thread {
    /// Processor time.
    pub cpu_seconds: f64,
    /// Processor time as a share of the elapsed time: 1 is a fully busy thread.
    pub cpu_share: f64,
    /// Share of the time in which the thread was ready to run but had no processor; `null` if the
    /// kernel does not report it.
    pub waiting_share: Option<f64>,
}

/// A warning about the validity of the numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// Name of the warning; `docs/load.md` lists them.
    pub kind: &'static str,
    /// Effect on the numbers.
    pub message: String,
}

impl Report {
    pub(crate) fn new(
        plan: &Plan,
        outcomes: &[ThreadResult],
        interrupted: Option<Instant>,
    ) -> Self {
        let mut tally = Tally::new();
        for outcome in outcomes {
            tally.merge(&outcome.tally);
        }
        let measured = tally.measured(plan.requests, interrupted);
        let per_second = |count: u64| {
            if measured.is_zero() { 0.0 } else { count as f64 / measured.as_secs_f64() }
        };
        let errors = errors(&tally.failures);
        let [informational, successful, redirection, client_error, server_error] = tally.classes;
        let mut report = Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            plan: PlanReport::new(plan),
            interrupted: interrupted.is_some(),
            measured_seconds: measured.as_secs_f64(),
            requests: Requests {
                begun: tally.begun,
                warm_up: tally.warm_up,
                status: StatusClasses {
                    informational,
                    successful,
                    redirection,
                    client_error,
                    server_error,
                },
                errors,
                given_up: tally.given_up,
                not_started: tally.missed(plan.requests),
                resent: tally.resent,
                held_up: tally.held_up,
                completed_in_time: tally.completed_in_time,
                per_second: per_second(tally.completed_in_time),
            },
            body: Body {
                sent_bytes: outcomes.iter().map(|outcome| outcome.body_sent).sum(),
                received_bytes: tally.received,
                received_bytes_per_second: per_second(tally.received_in_time),
            },
            latency_us: Latencies {
                head: latency(&tally.head),
                response: latency(&tally.response),
                connect: latency(&tally.connect),
                schedule_lag: latency(&tally.lag),
            },
            connections: connections(&tally),
            websockets: WebSockets {
                opened: tally.websockets[0],
                failed: tally.websockets[1],
                ended: tally.websockets[2],
            },
            transport: Transport {
                sent_bytes: tally.transport.bytes_sent,
                received_bytes: tally.transport.bytes_received,
                sent_packets: tally.transport.packets_sent,
                received_packets: tally.transport.packets_received,
                lost_packets: tally.transport.packets_lost,
            },
            threads: outcomes.iter().map(|outcome| thread(outcome.usage)).collect(),
            warnings: Vec::new(),
        };
        report.warnings = warnings(&report);
        report
    }
}

impl PlanReport {
    fn new(plan: &Plan) -> Self {
        Self {
            urls: plan.urls.iter().map(ToString::to_string).collect(),
            method: plan.method.to_string(),
            protocol: plan.protocol.map(|protocol| protocol.to_string()),
            websocket: plan.websocket,
            connections: plan.connections,
            streams: plan.streams,
            connection_use: match plan.connection_use {
                ConnectionUse::Kept => "kept",
                ConnectionUse::OneRequest => "one_request",
            },
            resumption: match plan.resumption {
                Resumption::Off => "off",
                Resumption::Session => "session",
                Resumption::EarlyData => "early_data",
            },
            congestion: plan.congestion.map(|congestion| congestion.to_string()),
            rate_per_second: plan.rate,
            requests: plan.requests,
            duration_seconds: plan.duration.as_ref().map(Duration::as_secs_f64),
            warm_up_seconds: plan.warm_up.as_secs_f64(),
            timeout_seconds: plan.timeout.as_secs_f64(),
            body_bytes: plan
                .message()
                .map_or(plan.upload.size().unwrap_or(0), |message| message.len() as u64),
        }
    }
}

fn errors(failures: &[Failures; Kind::COUNT]) -> Errors {
    let count = |kind: Kind| failures[kind as usize].count;
    let named = [
        ("connect", Kind::Connect),
        ("handshake", Kind::Handshake),
        ("refused", Kind::Refused),
        ("reset", Kind::Reset),
        ("closed", Kind::Closed),
        ("timed_out", Kind::TimedOut),
        ("protocol", Kind::Protocol),
    ];
    Errors {
        total: failures.iter().map(|failures| failures.count).sum(),
        connect: count(Kind::Connect),
        handshake: count(Kind::Handshake),
        refused: count(Kind::Refused),
        reset: count(Kind::Reset),
        closed: count(Kind::Closed),
        timed_out: count(Kind::TimedOut),
        protocol: count(Kind::Protocol),
        first: named
            .into_iter()
            .filter_map(|(name, kind)| Some((name, failures[kind as usize].first.clone()?)))
            .collect(),
    }
}

fn connections(tally: &Tally) -> Connections {
    let names = ["HTTP/1.1", "HTTP/2", "HTTP/3"];
    let spoken = names.into_iter().zip(tally.protocols).filter(|(_, count)| *count > 0);
    Connections {
        opened: tally.connections,
        failed: tally.connections_failed,
        resumed: tally.resumed,
        early_data_accepted: tally.early_data_accepted,
        early_data_refused: tally.early_data_refused,
        protocols: spoken.map(|(name, count)| (name.to_owned(), count)).collect(),
    }
}

fn latency(histogram: &Histogram<u64>) -> Latency {
    if histogram.is_empty() {
        return Latency::default();
    }
    let microseconds = |nanoseconds: f64| (nanoseconds / 100.0).round() / 10.0;
    let at = |quantile: f64| microseconds(histogram.value_at_quantile(quantile) as f64);
    Latency {
        count: histogram.len(),
        min: microseconds(histogram.min() as f64),
        mean: microseconds(histogram.mean()),
        stddev: microseconds(histogram.stdev()),
        p50: at(0.5),
        p75: at(0.75),
        p90: at(0.9),
        p95: at(0.95),
        p99: at(0.99),
        p99_9: at(0.999),
        p99_99: at(0.9999),
        max: microseconds(histogram.max() as f64),
    }
}

fn thread(usage: Usage) -> Thread {
    let share = |part: Duration| {
        if usage.elapsed.is_zero() { 0.0 } else { part.as_secs_f64() / usage.elapsed.as_secs_f64() }
    };
    Thread {
        cpu_seconds: usage.used.as_secs_f64(),
        cpu_share: share(usage.used),
        waiting_share: usage.waited.map(share),
    }
}

fn warnings(report: &Report) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |kind, message| warnings.push(Warning { kind, message });
    let percent = |share: f64| (share * 100.0).round();
    let busiest = report.threads.iter().map(|thread| thread.cpu_share).fold(0.0, f64::max);
    if busiest > BUSY_SHARE {
        let message = format!(
            "a generator thread was busy {} % of the time and may be the bottleneck; use more \
                threads",
            percent(busiest)
        );
        warn("generator_busy", message);
    }
    let starved =
        report.threads.iter().filter_map(|thread| thread.waiting_share).fold(0.0, f64::max);
    if starved > STARVED_SHARE {
        let message = format!(
            "a generator thread waited for a processor {} % of the time, which the latencies \
                include; give it dedicated processors",
            percent(starved)
        );
        warn("generator_starved", message);
    }
    let requests = &report.requests;
    let lag = report.latency_us.schedule_lag;
    if requests.held_up * 100 >= requests.begun.max(1) {
        let message = format!(
            "{} of {} requests were late because all streams were busy: the server is slower than \
                the rate, or more connections or streams are needed",
            requests.held_up, requests.begun
        );
        warn("streams_taken", message);
    } else if lag.p99 > LATE.as_secs_f64() * 1e6 {
        warn(
            "generator_late",
            format!(
                "one in a hundred requests was sent {} us late or more: the generator cannot keep \
                    the rate",
                lag.p99
            ),
        );
    }
    if requests.not_started > 0 {
        let message = format!(
            "{} requests were due but not sent: the percentiles do not include them",
            requests.not_started
        );
        warn("not_started", message);
    }
    if requests.errors.total > 0 {
        let message = format!(
            "{} requests failed: the percentiles do not include them",
            requests.errors.total
        );
        warn("errors", message);
    }
    warnings
}
