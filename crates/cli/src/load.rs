//! `pronghorn load`: what was typed, turned into a run of the library `pronghorn-load`.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use pronghorn_engine::{Congestion, Protocol, Resumption};
use pronghorn_load::{ConnectionUse, Error, Interrupt, Plan, Report, Upload};
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Failure, Kind};
use crate::get::{Origin, header, protocol, read_content, resolve};
use crate::handshakes::exchange_failure;
use crate::server::seconds;
use crate::{client_tls, key_log, load_table};

const AFTER_HELP: &str = "\
Without --rate each stream sends its next request when the last one is
answered. With it requests are due at fixed times, and their latency counts
from then, whatever kept them from being sent. docs/load.md says what is
measured, and describes the JSON.

SIGINT or SIGTERM end it early, with a report of what was measured.

Exit codes:
  0   every request was answered, with whatever status
  1   requests failed; the report says which way
  others as of `pronghorn get`, without a report

Examples:
  pronghorn load --http 3 -c 10 -m 20 -d 10 https://localhost:8443/ --no-verify
  pronghorn load --http 2 --rate 5000 -c 50 -m 10 --warm-up 2 https://example.com/
  pronghorn load --http 2 --websocket -c 10 -m 10 wss://example.com/chat
  pronghorn load --http 3 --connections-per-second 200 -c 100 https://example.com/";

/// What a run ended with that answered some requests and failed others.
const REQUESTS_FAILED: u8 = 1;

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct LoadArgs {
    /// What to ask for, in turn; all of one scheme, host and port
    #[arg(value_name = "URL", required = true)]
    urls: Vec<Uri>,

    /// Version to speak: 1.1, 2 or 3 [default: 2 or 1.1, as the server prefers]
    #[arg(long, value_name = "VERSION", value_parser = protocol)]
    http: Option<Protocol>,

    /// Connections open at once
    #[arg(short = 'c', long, value_name = "N", default_value_t = 1)]
    connections: usize,

    /// Requests, or WebSockets, open at once on each connection
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

    /// Send this many requests a second, however fast the server answers
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,

    /// Open a connection for each request and close it afterwards; latencies hold that too
    #[arg(long, conflicts_with = "streams")]
    reconnect: bool,

    /// Open this many connections a second with a request on each: --reconnect and --rate in one
    #[arg(long, value_name = "PER_SECOND", conflicts_with_all = ["streams", "rate"])]
    connections_per_second: Option<f64>,

    /// New connections resume the TLS session of an earlier one; with --reconnect all of the measured ones, as far
    /// as the server has given sessions by then
    #[arg(long)]
    resume: bool,

    /// Requests are sent before the handshake is done (0-RTT), on resumed sessions; needs --http and --reconnect
    #[arg(long)]
    early_data: bool,

    /// Congestion controller of what is sent, over QUIC and TCP: cubic, newreno or bbr [default: cubic over QUIC, the system's over TCP]
    #[arg(long, value_name = "NAME")]
    congestion: Option<Congestion>,

    /// Threads, each with its own sockets and its part of the connections
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,

    /// Method [default: GET, or POST with content]
    #[arg(short = 'X', long, value_name = "METHOD")]
    method: Option<Method>,

    /// Header field to send, as 'name: value'. Repeat for more
    #[arg(short = 'H', long, value_name = "FIELD", value_parser = header)]
    header: Vec<(HeaderName, HeaderValue)>,

    /// File to send as content of each request
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,

    /// Send so many bytes of content with each request, made as they are sent
    #[arg(long, value_name = "BYTES", conflicts_with = "data")]
    data_size: Option<u64>,

    /// Hold a WebSocket open on each stream, and measure messages over it and their answers in place of requests: what is sent is the
    /// content (32 bytes without), and what is waited for the next message
    #[arg(long, conflicts_with_all = ["reconnect", "connections_per_second", "method", "early_data"])]
    websocket: bool,

    /// Give up a request after this long, a connection opened for it included
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    timeout: Duration,

    /// Take any certificate
    #[arg(long)]
    no_verify: bool,

    /// Trust the certificates of this PEM file instead of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "no_verify")]
    cacert: Option<PathBuf>,

    /// Connect to this host and port whatever the URL says
    #[arg(long, value_name = "HOST:PORT")]
    connect_to: Option<String>,

    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &LoadArgs) -> Result<ExitCode, Failure> {
    let report = carry_out(plan(arguments)?)?;
    let text = if arguments.json {
        let json = serde_json::to_string_pretty(&report).map_err(|error| Failure::new(Kind::Internal, error))?;
        format!("{json}\n")
    } else {
        load_table::table(&report)
    };
    let mut stdout = io::stdout();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|error| Failure::new(Kind::Output, format_args!("cannot write the report: {error}")))?;
    for warning in &report.warnings {
        tell!("warning: {}", warning.message);
    }
    Ok(if report.requests.errors.total > 0 { ExitCode::from(REQUESTS_FAILED) } else { ExitCode::SUCCESS })
}

fn plan(arguments: &LoadArgs) -> Result<Plan, Failure> {
    let urls: Vec<_> = arguments.urls.iter().map(|url| if arguments.websocket { http_url(url) } else { url.clone() }).collect();
    let first = urls.first().expect("invariant: the command line asks for a URL");
    let remotes = resolve(arguments.connect_to.as_deref(), &Origin::of(first)?)?;
    let mut tls = client_tls::config(arguments.cacert.as_deref(), !arguments.no_verify)?;
    if let Some(key_log) = key_log::from_environment()? {
        tls.key_log = key_log;
    }
    let mut plan = Plan::new(urls, remotes, tls);
    plan.protocol = arguments.http;
    plan.upload = match (&arguments.data, arguments.data_size) {
        (Some(path), _) => Upload::Bytes(read_content(path)?),
        (None, Some(size)) => Upload::Size(size),
        (None, None) => Upload::None,
    };
    let with_content = !matches!(plan.upload, Upload::None);
    plan.websocket = arguments.websocket;
    plan.method = arguments.method.clone().unwrap_or(if with_content && !plan.websocket { Method::POST } else { Method::GET });
    plan.headers = HeaderMap::new();
    for (name, value) in &arguments.header {
        plan.headers.append(name.clone(), value.clone());
    }
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
    plan.congestion = arguments.congestion;
    plan.threads = arguments.threads;
    plan.timeout = arguments.timeout;
    plan.check().map_err(|error| Failure::new(Kind::Usage, error).with_hint("see `pronghorn load --help`"))?;
    Ok(plan)
}

/// What a WebSocket is asked for at: `ws` is `http` and `wss` is `https` (RFC 6455 section 3).
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

/// Runs until it is done, or a signal ends it. A second signal ends it without a report.
fn carry_out(plan: Plan) -> Result<Report, Failure> {
    let internal = |error: io::Error| Failure::new(Kind::Internal, format_args!("cannot wait for signals: {error}"));
    let interrupt = Interrupt::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(internal)?;
    let result = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(internal)?;
        let mut interruption = signal(SignalKind::interrupt()).map_err(internal)?;
        let thread_interrupt = interrupt.clone();
        let mut run = tokio::task::spawn_blocking(move || pronghorn_load::run(plan, &thread_interrupt));
        let mut told = false;
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interruption.recv() => {}
                done = &mut run => break done.map_err(|error| Failure::new(Kind::Internal, error)),
            }
            if told {
                return Err(Failure::new(Kind::TimedOut, "told twice to end; there is no report"));
            }
            told = true;
            interrupt.interrupt();
        }
    });
    // Whatever still runs there is not waited for.
    runtime.shutdown_background();
    result?.map_err(|error| match error {
        Error::Unreachable(error) => exchange_failure(&error),
        Error::Plan(error) => Failure::new(Kind::Usage, error),
        Error::Internal(_) => Failure::new(Kind::Internal, error),
    })
}
