//! `pronghorn run`.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use clap::Args;
use http::HeaderValue;
use pronghorn_engine::{
    AltSvc, Config as EngineConfig, Group, Listener, Secret, TrustedProxies, Workers,
};
use pronghorn_gateway::config::{AdminListen, Config, EarlyData, Server};
use pronghorn_gateway::layers::Registry;
use pronghorn_gateway::{Fleet, Gateway};
use pronghorn_gateway::{ServerCondition, ServerState};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::admin::{self, Admin};
use crate::admin_api;
use crate::configuration;
use crate::failure::{Failure, Kind};
use crate::identity;
use crate::plural::counted;
use crate::qlog;
use crate::server_state::Running;
use crate::serving::{self, SettingNames, SignalHandlers};
use crate::watch;

const SETTING_NAMES: SettingNames = SettingNames {
    listen: "`listen` in [server]",
    state_dir: "`state_dir` in [server]",
    congestion: "`congestion` in [server]",
    udp_buffer: "`udp_buffer` in [server]",
    certificate: "the site a certificate of its own",
    grace: "`grace` in [server]",
};

/// Capacity of the queues of server state changes and of upstream problems to log.
const CHANGES: usize = 256;
/// Time after the last logged problem of an upstream until the number of suppressed ones is logged.
const SUPPRESSED_AFTER: Duration = Duration::from_secs(1);

#[derive(Args)]
pub(crate) struct RunArgs {
    /// Configuration file. SIGHUP makes the server reload it
    #[arg(short, long, value_name = "FILE", default_value = "pronghorn.toml")]
    config: PathBuf,

    /// Print all counters as one line of JSON on stderr at the end
    #[arg(long)]
    stats: bool,
}

pub(crate) fn run(arguments: &RunArgs, layers: &Registry) -> Result<(), Failure> {
    let file = &arguments.config;
    let config = configuration::load(file)?;
    let count = worker_count(&config.server);
    let (listeners, gateway, https_port) = open(file, &config, layers, count)?;
    let secret = https_port
        .map(|_| serving::secret(config.state_dir().as_deref(), &SETTING_NAMES))
        .transpose()?;
    let fleet = fleet(&config, secret.as_ref())?;
    let identity =
        https_port.map(|_| identity::of_gateway(&gateway, fleet.as_ref())).transpose()?;
    let group = match (&fleet, &secret) {
        (Some(fleet), Some(_)) => fleet.group(count),
        (None, Some(secret)) => Group::with_secret(count, secret),
        (_, None) => Group::new(count),
    };
    let addresses: Vec<_> =
        listeners.iter().map(|listener| (listener.address(), listener.is_secure())).collect();
    let admin =
        Admin::bind(&admin::address(config.admin_address(), file), config.admin.token.as_ref())?;
    let engine = engine_config(file, &config)?;
    let log = UpstreamLog::of(&gateway);
    gateway.connect_signers(|line| log_line!("{line}"));
    let handlers = gateway.clone();
    let workers = Workers::start(group.clone(), listeners, identity.as_ref(), &engine, move |_| {
        handlers.handler()
    })
    .map_err(|error| Failure::new(Kind::Internal, format_args!("cannot start: {error}")))?;
    let has_slow_keys = Cell::new(gateway.has_slow_keys());
    let running = Rc::new(Running {
        file: file.clone(),
        reloaded: RefCell::default(),
        gateway,
        fleet,
        group,
        control: workers.control().clone(),
        listeners: addresses,
        stats: workers.stats().cloned().collect(),
        memory: workers.memory().clone(),
        identity: RefCell::new(identity),
        started: SystemTime::now(),
        has_slow_keys,
        reloads: Cell::new(0),
        failed_reloads: Cell::new(0),
        config,
    });
    order_certificates(&running.gateway)?;
    serve(&running, workers, admin, log)?;
    if let Some(qlog) = &engine.qlog {
        qlog::conclude(qlog);
    }
    if arguments.stats {
        serving::print_stats(&running.stats, running.identity.borrow().as_ref());
    }
    Ok(())
}

fn worker_count(server: &Server) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    server.workers.map_or_else(cores, usize::from)
}

/// Binds the listeners and opens the gateway. Returns them with the port of the TLS listener.
///
/// Sockets are bound last, so that no client waits while the configuration is built. Port 0 is
/// bound first, since responses contain its number.
fn open(
    file: &Path,
    config: &Config,
    layers: &Registry,
    workers: usize,
) -> Result<(Vec<Listener>, Gateway, Option<u16>), Failure> {
    let server = &config.server;
    let port =
        server.listen.iter().find(|listen| listen.secure).map(|listen| listen.address.port());
    if port != Some(0) {
        let gateway = configuration::open(file, config, layers, port)?;
        return Ok((bind(server, workers)?, gateway, port));
    }
    let listeners = bind(server, workers)?;
    let port = listeners
        .iter()
        .find(|listener| listener.is_secure())
        .map(|listener| listener.address().port());
    let gateway = configuration::open(file, config, layers, port)?;
    Ok((listeners, gateway, port))
}

fn fleet(config: &Config, secret: Option<&Secret>) -> Result<Option<Fleet>, Failure> {
    let machine = || secret.cloned().unwrap_or_else(Secret::random);
    Fleet::start(config, machine, |line| log_line!("{line}")).map_err(|problems| {
        let lines = configuration::lines(&problems).collect::<Vec<_>>().join("\n");
        Failure::new(Kind::Malformed, lines)
    })
}

fn order_certificates(gateway: &Gateway) -> Result<(), Failure> {
    gateway.order_certificates(|line| log_line!("{line}")).map_err(|error| {
        let names = &SETTING_NAMES;
        Failure::new(Kind::Output, format_args!("cannot order certificates: {error}"))
            .with_hint(format!("set {} to a folder that this user can write to", names.state_dir))
    })
}

/// Serves until a signal ends the server.
fn serve(
    running: &Rc<Running>,
    workers: Workers,
    admin: Option<Admin>,
    log: UpstreamLog,
) -> Result<(), Failure> {
    let grace = running.config.server.grace.0;
    let admin_address = admin.as_ref().and_then(Admin::address);
    let ready = || print_startup(running, admin_address.as_ref());
    let (serving, watched, gateway) = (running.clone(), running.clone(), running.gateway.clone());
    let admin_api = async move {
        if let Some(admin) = admin {
            admin.serve(move |parts, content| admin_api::answer(&serving, parts, content)).await;
        }
    };
    let beside = async move {
        tokio::join!(
            admin_api,
            watch::watch(watched),
            log_upstream_failures(&gateway, log.failures),
            log_server_changes(log.changes)
        );
    };
    // The reload itself logs the errors.
    let handlers = SignalHandlers {
        reload: &|| drop(running.reload()),
        reopen: &|| drop(running.reopen_log()),
    };
    let served = serving::serve_until_signal(
        workers,
        || grace,
        ready,
        Some(&handlers),
        &SETTING_NAMES,
        beside,
    );
    running.gateway.finish_logs();
    served
}

fn print_startup(running: &Running, admin_address: Option<&AdminListen>) {
    for (address, is_secure) in &running.listeners {
        let in_clear = if running.config.server.http2_prior_knowledge { "h1, h2" } else { "h1" };
        let (scheme, protocols) =
            if *is_secure { ("https", "h1, h2, h3") } else { ("http", in_clear) };
        eprint_line!("listening on {scheme}://{address} ({protocols})");
    }
    if let Some(address) = admin_address {
        eprint_line!("admin API at {address}");
    }
    let sites = counted(running.config.sites.len(), "site");
    eprint_line!("serving {sites} of {}", running.file.display());
}

/// Queues of what workers report of upstreams. Workers do not wait for standard error.
struct UpstreamLog {
    /// State changes of servers; those that are not logged can be queried.
    changes: mpsc::Receiver<ServerState>,
    failures: mpsc::Receiver<String>,
}

impl UpstreamLog {
    fn of(gateway: &Gateway) -> Self {
        let (send_change, changes) = mpsc::channel(CHANGES);
        gateway.on_upstream_server_change(move |server| drop(send_change.try_send(server)));
        let (send_failure, failures) = mpsc::channel(CHANGES);
        gateway.on_upstream_failure(move |line| send_failure.try_send(line).is_ok());
        Self { changes, failures }
    }
}

/// Logs state changes of upstream servers.
async fn log_server_changes(mut changes: mpsc::Receiver<ServerState>) {
    while let Some(ServerState { upstream, server, condition }) = changes.recv().await {
        match condition {
            ServerCondition::Up => log_line!("upstream {upstream}: {server} is back in rotation"),
            ServerCondition::Ejected => {
                log_line!("warning: upstream {upstream}: {server} ejected: requests to it failed");
            }
            ServerCondition::Down => {
                log_line!("warning: upstream {upstream}: {server} is down: its checks failed");
            }
        }
    }
}

/// Logs problems with upstreams, and a while after the last line the number of suppressed ones.
async fn log_upstream_failures(gateway: &Gateway, mut failures: mpsc::Receiver<String>) {
    let mut has_more = false;
    loop {
        let line = if has_more {
            timeout(SUPPRESSED_AFTER, failures.recv()).await
        } else {
            Ok(failures.recv().await)
        };
        match line {
            Ok(Some(line)) => {
                log_line!("warning: {line}");
                has_more = true;
            }
            Ok(None) => return,
            Err(_) => has_more = gateway.log_suppressed(),
        }
    }
}

fn bind(server: &Server, workers: usize) -> Result<Vec<Listener>, Failure> {
    let congestion = server.congestion.map(Into::into);
    let bind = |listen: &pronghorn_gateway::config::Listen| {
        serving::bind(listen.address, listen.secure, workers, congestion, &SETTING_NAMES)
    };
    let listeners: Vec<_> = server.listen.iter().map(bind).collect::<Result<_, _>>()?;
    let buffer = usize::try_from(server.udp_buffer.0).unwrap_or(usize::MAX);
    serving::size_buffers(&listeners, buffer, &SETTING_NAMES)?;
    Ok(listeners)
}

fn trusted_proxies(server: &Server) -> Option<TrustedProxies> {
    let networks: Vec<_> = server.proxy_protocol.iter().map(|network| network.0).collect();
    let contain = move |address: IpAddr| {
        networks.iter().any(|network| network.contains(&address.to_canonical()))
    };
    (!server.proxy_protocol.is_empty()).then(|| TrustedProxies::new(contain))
}

fn engine_config(file: &Path, config: &Config) -> Result<EngineConfig, Failure> {
    let server = &config.server;
    let name = HeaderValue::try_from(&server.name).map_err(|_| {
        Failure::new(
            Kind::Malformed,
            format_args!("{}: invalid header value for `name` in [server]", file.display()),
        )
    })?;
    Ok(EngineConfig {
        limits: config.limits.clone(),
        congestion: server.congestion.map(Into::into),
        initial_window_datagrams: server.initial_window,
        // Each route has a policy of its own.
        early_data: match server.early_data {
            EarlyData::Off => pronghorn_engine::EarlyData::Off,
            EarlyData::Safe | EarlyData::Hold | EarlyData::All => pronghorn_engine::EarlyData::All,
        },
        http2_prior_knowledge: server.http2_prior_knowledge,
        server: Some(name).filter(|name| !name.is_empty()),
        // Each site sets its own.
        alt_svc: AltSvc::Off,
        trusted_proxies: trusted_proxies(server),
        qlog: config.qlog().map(|(folder, rule)| qlog::by_rule(&folder, rule)).transpose()?,
        ..EngineConfig::default()
    })
}
