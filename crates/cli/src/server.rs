//! The common part of the commands that serve: their options, and the server's life cycle.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Args;
use http::HeaderValue;
use pronghorn_engine::{Config, Congestion, EarlyData, Group, Handler, Limits, Listener, Workers};
use pronghorn_gateway::config::{ListenHost, overlap};
use pronghorn_gateway::{AccessLog, Loaded, certificate_faults};

use crate::failure::{Failure, Kind};
use crate::key_log;
use crate::limits::{self, LimitArgument};
use crate::qlog;
use crate::serving::{self, SettingNames};

const SETTING_NAMES: SettingNames = SettingNames {
    listen: "--listen",
    state_dir: "--state-dir",
    congestion: "--congestion",
    udp_buffer: "--udp-buffer",
    certificate: "--cert and --key",
    grace: "--grace",
};

/// Options of every command that serves.
#[derive(Args)]
pub(crate) struct ServerArgs {
    /// Address to listen on: HOST:PORT for TLS with HTTP/1.1, 2 and 3; http://HOST:PORT for clear
    /// text. Repeat for more
    #[arg(long, value_name = "ADDR", default_value = "[::]:8443")]
    listen: Vec<ListenHost>,

    /// Certificate chain in PEM form; without one, a development certificate is created
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,

    /// Private key in PEM form
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,

    /// Number of worker threads, each with its own sockets [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: Option<u16>,

    /// Congestion controller for QUIC and TCP: cubic, newreno or bbr [default: cubic over QUIC, the
    /// system's over TCP]
    #[arg(long, value_name = "NAME")]
    congestion: Option<Congestion>,

    /// Initial congestion window of QUIC, in datagrams of 1472 bytes
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u16).range(2..=1000))]
    initial_window: u16,

    /// Size of the kernel's buffers for each UDP socket, per direction
    #[arg(long, value_name = "BYTES", default_value = "4MiB", value_parser = limits::bytes)]
    udp_buffer: usize,

    /// Requests to answer before the handshake completes (0-RTT): none (off), those with a safe
    /// method, while others get 425 (safe) or wait (hold), or all (all)
    #[arg(long, value_name = "POLICY", default_value_t)]
    early_data: EarlyData,

    /// Value of the `server` header field in responses; empty for none
    #[arg(long, value_name = "TEXT", default_value = "pronghorn")]
    server: HeaderValue,

    /// Close a connection that has been idle for this long; same as --limit idle_timeout=…
    /// [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    idle_timeout: Option<Duration>,

    /// Set a limit on what clients may use, such as connections=5000, idle_timeout=60s or
    /// field_section_bytes=16KiB. Repeat for more
    #[arg(long = "limit", value_name = "NAME=VALUE", value_parser = limits::parse)]
    limits: Vec<LimitArgument>,

    /// Print all limits in effect, with the memory that they allow, and exit
    #[arg(long)]
    list_limits: bool,

    /// Folder for state that must survive a restart [default: pronghorn in the user's state folder]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,

    /// Time that running requests may take to finish on SIGTERM
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    grace: Duration,

    /// Write a qlog file for each QUIC connection into this folder
    #[arg(long, value_name = "DIR", env = "QLOGDIR")]
    qlog: Option<PathBuf>,

    /// Do not log requests
    #[arg(long)]
    quiet: bool,

    /// Print all counters as one line of JSON on stderr at the end
    #[arg(long)]
    stats: bool,
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=1e9).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("use a number of seconds, such as 10 or 0.5".to_owned()),
    }
}

/// The service of a command.
pub(crate) struct Service<M> {
    /// Description for the startup line, such as `serving site`.
    pub(crate) description: String,
    /// Creates the handler of a worker.
    pub(crate) handler: M,
}

/// Serves until a signal ends it. `open` is called once the command line is checked, with the
/// access log unless it is off.
pub(crate) fn run<H, M>(
    arguments: &ServerArgs,
    open: impl FnOnce(Option<Arc<AccessLog>>) -> Result<Service<M>, Failure>,
) -> Result<(), Failure>
where
    H: Handler,
    M: Fn() -> H + Send + Sync + 'static,
{
    let workers = arguments
        .workers
        .map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let limits = limits(arguments)?;
    if arguments.list_limits {
        return limits::list(&limits, workers);
    }
    let log = (!arguments.quiet).then(|| Arc::new(AccessLog::new(io::stderr())));
    let Service { description, handler } = open(log.clone())?;
    let secure = arguments.listen.iter().any(|address| address.secure);
    let mut loaded = if secure { Some(identity(arguments)?) } else { None };
    if let Some(loaded) = &mut loaded
        && let Some(key_log) = key_log::from_environment()?
    {
        loaded.identity = loaded.identity.clone().with_key_log(&key_log);
    }
    let listeners = bind(arguments, workers)?;
    serving::size_buffers(&listeners, arguments.udp_buffer, &SETTING_NAMES)?;
    let group = if secure {
        Group::with_secret(
            workers,
            &serving::secret(arguments.state_dir.as_deref(), &SETTING_NAMES)?,
        )
    } else {
        Group::new(workers)
    };
    let addresses: Vec<_> =
        listeners.iter().map(|listener| (listener.address(), listener.is_secure())).collect();
    let tcp_congestion = listeners.first().and_then(|listener| listener.tcp_congestion().ok());

    let qlog = arguments.qlog.as_deref().map(qlog::to_folder).transpose()?;
    let config = Config {
        limits,
        congestion: arguments.congestion,
        initial_window_datagrams: arguments.initial_window,
        early_data: arguments.early_data,
        server: Some(arguments.server.clone()).filter(|server| !server.is_empty()),
        qlog: qlog.clone(),
        ..Config::default()
    };
    let identity = loaded.as_ref().map(|loaded| &loaded.identity);
    let workers = Workers::start(group, listeners, identity, &config, move |_| handler())
        .map_err(|error| Failure::new(Kind::Internal, format_args!("cannot start: {error}")))?;

    let stats: Vec<_> = workers.stats().cloned().collect();
    let ready = || {
        print_startup(
            arguments,
            &description,
            &addresses,
            tcp_congestion.as_deref(),
            loaded.as_ref(),
        );
    };
    serving::serve_until_signal(
        workers,
        || arguments.grace,
        ready,
        None,
        &SETTING_NAMES,
        std::future::pending(),
    )?;
    // Flushes the access log before the counters are printed.
    drop(log);
    // The last reference waits for the files, so it must not be dropped by a worker.
    drop(config);
    if let Some(qlog) = &qlog {
        qlog::conclude(qlog);
    }
    if arguments.stats {
        serving::print_stats(&stats, identity);
    }
    Ok(())
}

fn print_startup(
    arguments: &ServerArgs,
    description: &str,
    addresses: &[(SocketAddr, bool)],
    tcp_congestion: Option<&str>,
    loaded: Option<&Loaded>,
) {
    for (address, secure) in addresses {
        let (scheme, protocols) =
            if *secure { ("https", "h1, h2, h3") } else { ("http", "h1, h2") };
        eprint_line!("listening on {scheme}://{address} ({protocols})");
    }
    let (quic, tcp) =
        (arguments.congestion.unwrap_or_default(), tcp_congestion.unwrap_or("unknown"));
    eprint_line!("{description} with congestion control {quic} over QUIC, {tcp} over TCP");
    let Some(loaded) = loaded else { return };
    let (spki, cert) = (&loaded.spki_sha256, loaded.cert.display());
    eprint_line!("certificate {cert}, SPKI SHA-256 {spki}");
    if arguments.cert.is_some() {
        for fault in certificate_faults(&loaded.key, &loaded.cert, &[], SystemTime::now()) {
            eprint_line!("warning: {}; {}", fault.message, fault.hint);
        }
    }
    let port = addresses.iter().find(|(_, secure)| *secure).map(|(address, _)| address.port());
    if let (None, Some(port)) = (&arguments.cert, port) {
        eprint_line!(
            "the certificate is self-signed; Chromium accepts it, and uses HTTP/3 at once, with:"
        );
        eprint_line!(
            "  --user-data-dir=$(mktemp -d) --ignore-certificate-errors-spki-list={spki} \
                --origin-to-force-quic-on=localhost:{port} https://localhost:{port}/"
        );
    }
}

fn limits(arguments: &ServerArgs) -> Result<Limits, Failure> {
    let limits = match arguments.idle_timeout {
        Some(timeout) => Limits::default().with_idle_timeout(timeout),
        None => Ok(Limits::default()),
    };
    limits
        .and_then(|limits| limits::apply(limits, &arguments.limits))
        .map_err(|error| Failure::new(Kind::Usage, error))
}

fn identity(arguments: &ServerArgs) -> Result<Loaded, Failure> {
    let loaded = match (&arguments.cert, &arguments.key) {
        (Some(cert), Some(key)) => Loaded::from_files(cert, key),
        _ => serving::development_certificate().ok_or_else(|| {
            Failure::new(Kind::Missing, "no home folder to store a certificate in")
                .with_hint("set HOME, or give --cert and --key")
        })?,
    };
    loaded.map_err(|error| serving::certificate_failure(&error, &SETTING_NAMES))
}

fn bind(arguments: &ServerArgs, workers: usize) -> Result<Vec<Listener>, Failure> {
    let mut listeners: Vec<Listener> = Vec::new();
    let mut requested: Vec<SocketAddr> = Vec::new();
    for listen in &arguments.listen {
        let address = listen.resolve().map_err(|error| {
            Failure::new(Kind::UnknownHost, format_args!("cannot listen on {listen}: {error}"))
                .with_hint("use an address of this machine")
        })?;
        if let Some(other) = requested.iter().find(|other| overlap(**other, address)) {
            return Err(Failure::new(
                Kind::Usage,
                format_args!("--listen addresses {other} and {address} overlap"),
            )
            .with_hint("remove one, or use another port"));
        }
        requested.push(address);
        listeners.push(serving::bind(
            address,
            listen.secure,
            workers,
            arguments.congestion,
            &SETTING_NAMES,
        )?);
    }
    Ok(listeners)
}
