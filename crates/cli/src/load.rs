//! `pronghorn load`: turns the command line into a run of the library `pronghorn-load`.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use http::Uri;
use pronghorn_engine::Resumption;
use pronghorn_load::{ConnectionUse, Error, Interrupt, Plan, Report, Upload};
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Failure, Kind};
use crate::handshakes::exchange_failure;
use crate::load_table;
use crate::request_args::{Origin, RequestArgs};
use crate::server::seconds;

const AFTER_HELP: &str = "\
Without --rate each stream sends its next request when the previous one is
answered. With it requests are due at fixed times, and their latency counts
from then, regardless of what delayed them. docs/load.md describes the
measurements and the JSON.

SIGINT or SIGTERM end it early, with a report of the measurements so far.

Exit codes:
  0   every request was answered, with any status
  1   requests failed; the report says how
  others as of `pronghorn get`, without a report

Examples:
  pronghorn load --http 3 -c 10 -m 20 -d 10 https://localhost:8443/ --no-verify
  pronghorn load --http 2 --rate 5000 -c 50 -m 10 --warm-up 2 https://example.com/
  pronghorn load --http 2 --websocket -c 10 -m 10 wss://example.com/chat
  pronghorn load --http 3 --connections-per-second 200 -c 100 https://example.com/";

/// Exit code of a run in which some requests failed.
const REQUESTS_FAILED: u8 = 1;

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct LoadArgs {
    /// URLs to request in turn, all with one scheme, host and port
    #[arg(value_name = "URL", required = true)]
    urls: Vec<Uri>,

    #[command(flatten)]
    request: RequestArgs,

    /// Number of open connections
    #[arg(short = 'c', long, value_name = "N", default_value_t = 1)]
    connections: usize,

    /// Number of open requests, or WebSockets, on each connection
    #[arg(short = 'm', long, value_name = "N", default_value_t = 1)]
    streams: usize,

    /// Measure this many requests
    #[arg(short = 'n', long, value_name = "N")]
    requests: Option<u64>,

    /// Measure for this long [default: 10 without --requests]
    #[arg(short = 'd', long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,

    /// Send requests for this long before measuring
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    warm_up: Duration,

    /// Send this many requests per second, regardless of how fast the server answers
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,

    /// Open a connection for each request and close it afterwards; latencies include the connection
    #[arg(long, conflicts_with = "streams")]
    reconnect: bool,

    /// Open this many connections per second with one request on each: combines --reconnect and
    /// --rate
    #[arg(long, value_name = "PER_SECOND", conflicts_with_all = ["streams", "rate"])]
    connections_per_second: Option<f64>,

    /// Resume the TLS session of an earlier connection on new ones; with --reconnect on all
    /// measured ones, as far as the server has issued sessions by then
    #[arg(long)]
    resume: bool,

    /// Send requests before the handshake completes (0-RTT), on resumed sessions; needs --http and
    /// --reconnect
    #[arg(long)]
    early_data: bool,

    /// Number of threads, each with its own sockets and its part of the connections
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,

    /// Send a generated body of this many bytes with each request
    #[arg(long, value_name = "BYTES", conflicts_with = "data")]
    data_size: Option<u64>,

    /// Keep a WebSocket open on each stream, and measure messages and their replies in place of
    /// requests: the body is sent as a message (32 bytes by default), and the next message is its
    /// reply
    #[arg(long, conflicts_with_all = ["reconnect", "connections_per_second", "method", "early_data"])]
    websocket: bool,

    /// Time out a request after this long, including a connection opened for it
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    timeout: Duration,

    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &LoadArgs) -> Result<ExitCode, Failure> {
    let report = carry_out(plan(arguments)?)?;
    let text = if arguments.json {
        let json = serde_json::to_string_pretty(&report)
            .map_err(|error| Failure::new(Kind::Internal, error))?;
        format!("{json}\n")
    } else {
        load_table::table(&report)
    };
    let mut stdout = io::stdout();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|error| {
        Failure::new(Kind::Output, format_args!("cannot write the report: {error}"))
    })?;
    for warning in &report.warnings {
        eprint_line!("warning: {}", warning.message);
    }
    Ok(if report.requests.errors.total > 0 {
        ExitCode::from(REQUESTS_FAILED)
    } else {
        ExitCode::SUCCESS
    })
}

fn plan(arguments: &LoadArgs) -> Result<Plan, Failure> {
    let urls: Vec<_> = arguments
        .urls
        .iter()
        .map(|url| if arguments.websocket { http_url(url) } else { url.clone() })
        .collect();
    let first = urls.first().expect("invariant: the command line asks for a URL");
    let request = &arguments.request;
    let remotes = request.remotes(&Origin::of(first)?)?;
    let mut plan = Plan::new(urls, remotes, request.tls()?);
    plan.protocol = request.http;
    plan.upload = match (request.content()?, arguments.data_size) {
        (Some(content), _) => Upload::Bytes(content),
        (None, Some(size)) => Upload::Size(size),
        (None, None) => Upload::None,
    };
    let with_content = !matches!(plan.upload, Upload::None);
    plan.websocket = arguments.websocket;
    plan.method = request.method(with_content && !plan.websocket);
    plan.headers = request.headers();
    plan.connections = arguments.connections;
    plan.streams = arguments.streams;
    let reconnects = arguments.reconnect || arguments.connections_per_second.is_some();
    plan.connection_use = if reconnects { ConnectionUse::OneRequest } else { ConnectionUse::Kept };
    plan.resumption = match (arguments.early_data, arguments.resume) {
        (true, _) => Resumption::EarlyData,
        (false, true) => Resumption::Session,
        (false, false) => Resumption::Off,
    };
    plan.rate = arguments.rate.or(arguments.connections_per_second);
    plan.requests = arguments.requests;
    if arguments.requests.is_some() || arguments.duration.is_some() {
        plan.duration = arguments.duration;
    }
    plan.warm_up = arguments.warm_up;
    plan.congestion = request.congestion;
    plan.threads = arguments.threads;
    plan.timeout = arguments.timeout;
    plan.check().map_err(|error| {
        Failure::new(Kind::Usage, error).with_hint("see `pronghorn load --help`")
    })?;
    Ok(plan)
}

/// Returns the HTTP URL of a WebSocket URL: `ws` is `http` and `wss` is `https` (RFC 6455 section
/// 3).
fn http_url(url: &Uri) -> Uri {
    let scheme = match url.scheme_str() {
        Some("ws") => "http",
        Some("wss") => "https",
        _ => return url.clone(),
    };
    let mut parts = url.clone().into_parts();
    parts.scheme = scheme.parse().ok();
    Uri::from_parts(parts).unwrap_or_else(|_| url.clone())
}

/// Runs the plan until it is done or a signal ends it. A second signal ends it without a report.
fn carry_out(plan: Plan) -> Result<Report, Failure> {
    let internal = |error: io::Error| {
        Failure::new(Kind::Internal, format_args!("cannot wait for signals: {error}"))
    };
    let interrupt = Interrupt::default();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(internal)?;
    let result = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(internal)?;
        let mut interruption = signal(SignalKind::interrupt()).map_err(internal)?;
        let thread_interrupt = interrupt.clone();
        let mut run =
            tokio::task::spawn_blocking(move || pronghorn_load::run(plan, &thread_interrupt));
        let mut told = false;
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interruption.recv() => {}
                done = &mut run => break done.map_err(|error| Failure::new(Kind::Internal, error)),
            }
            if told {
                return Err(Failure::new(Kind::TimedOut, "interrupted twice; there is no report"));
            }
            told = true;
            interrupt.interrupt();
        }
    });
    // Do not wait for tasks that are still running.
    runtime.shutdown_background();
    result?.map_err(|error| match error {
        Error::Unreachable(error) => exchange_failure(&error),
        Error::Plan(error) => Failure::new(Kind::Usage, error),
        Error::Internal(_) => Failure::new(Kind::Internal, error),
    })
}
