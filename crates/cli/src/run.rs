//! `pronghorn run`.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use clap::Args;
use http::HeaderValue;
use pronghorn_engine::{AltSvc, Balancers, Config as EngineConfig, Group, Listener, Workers};
use pronghorn_gateway::Gateway;
use pronghorn_gateway::config::{Config, Server};
use pronghorn_gateway::layers::Registry;
use pronghorn_gateway::{ServerCondition, ServerState};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::admin::{self, Admin};
use crate::answers;
use crate::configuration;
use crate::counted::counted;
use crate::failure::{Failure, Kind};
use crate::key_log;
use crate::qlog;
use crate::running::Running;
use crate::serving::{self, Heeds, Words};
use crate::watch;

const WORDS: Words = Words {
    listen: "`listen` in [server]",
    state_dir: "`state_dir` in [server]",
    congestion: "`congestion` in [server]",
    udp_buffer: "`udp_buffer` in [server]",
    certificate: "the site a certificate of its own",
    grace: "`grace` in [server]",
};

/// Changes of servers that may wait to be told, and as many troubles of upstreams.
const CHANGES: usize = 256;
/// After a line of an upstream's trouble, until it is said how many came after it.
const LEFT_OUT_AFTER: Duration = Duration::from_secs(1);

#[derive(Args)]
pub(crate) struct RunArgs {
    /// The configuration file. SIGHUP makes the server read it again
    #[arg(short, long, value_name = "FILE", default_value = "pronghorn.toml")]
    config: PathBuf,

    /// At the end, print all counters as one line of JSON on stderr
    #[arg(long)]
    stats: bool,
}

pub(crate) fn run(arguments: &RunArgs, layers: &Registry) -> Result<(), Failure> {
    let file = &arguments.config;
    let config = configuration::load(file)?;
    let server = &config.server;
    let workers = server.workers.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let mut https_port = server.listen.iter().find(|listen| listen.secure).map(|listen| listen.address.port());
    // Sockets are bound last, so that no client has to wait until the configuration is built. Port 0 is bound first: responses name its number.
    let (listeners, gateway) = if https_port == Some(0) {
        let listeners = bind(server, workers)?;
        https_port = listeners.iter().find(|listener| listener.is_secure()).map(|listener| listener.address().port());
        (listeners, configuration::open(file, &config, layers, https_port)?)
    } else {
        let gateway = configuration::open(file, &config, layers, https_port)?;
        (bind(server, workers)?, gateway)
    };
    let identity = https_port.map(|_| identity(&gateway)).transpose()?;
    let group = match https_port {
        Some(_) => Group::with_secret(workers, &serving::secret(config.state_dir().as_deref(), &WORDS)?),
        None => Group::new(workers),
    };
    let addresses: Vec<_> = listeners.iter().map(|listener| (listener.address(), listener.is_secure())).collect();
    let admin = Admin::bind(&admin::address(config.admin_address(), file), config.admin.token.as_ref())?;
    let engine = engine_config(file, &config)?;
    let (tell_change, changes) = mpsc::channel(CHANGES);
    // A worker does not wait for whoever reads standard error; what is then not told can be asked for.
    gateway.on_upstream_server_change(move |server| drop(tell_change.try_send(server)));
    let (tell_trouble, troubles) = mpsc::channel(CHANGES);
    gateway.on_upstream_trouble(move |line| tell_trouble.try_send(line).is_ok());
    let handlers = gateway.clone();
    let workers = Workers::start(group, listeners, identity.as_ref(), &engine, move |_| handlers.handler())
        .map_err(|error| Failure::new(Kind::Internal, format_args!("cannot start: {error}")))?;
    let stats: Vec<_> = workers.stats().cloned().collect();
    let grace = config.server.grace.0;
    let running = Rc::new(Running {
        file: file.clone(),
        config,
        reloaded: RefCell::default(),
        gateway,
        listeners: addresses,
        stats,
        identity,
        started: SystemTime::now(),
        reloads: Cell::new(0),
        failed_reloads: Cell::new(0),
    });
    running.gateway.order_certificates(|line| tell_now!("{line}")).map_err(|error| {
        Failure::new(Kind::Output, format_args!("certificates cannot be ordered: {error}"))
            .with_hint(format!("name a folder that this user may write with {}", WORDS.state_dir))
    })?;
    let admin_address = admin.as_ref().and_then(Admin::address);
    let ready = || {
        for (address, is_secure) in &running.listeners {
            let in_clear = if running.config.server.http2_prior_knowledge { "h1, h2" } else { "h1" };
            let (scheme, protocols) = if *is_secure { ("https", "h1, h2, h3") } else { ("http", in_clear) };
            tell!("listening on {scheme}://{address} ({protocols})");
        }
        if let Some(address) = admin_address {
            tell!("admin API at {address}");
        }
        tell!("serving {} of {}", counted(running.config.sites.len(), "site"), file.display());
    };
    let beside = {
        let (running, watched, telling) = (running.clone(), running.clone(), running.gateway.clone());
        let serve = async move {
            if let Some(admin) = admin {
                admin.serve(move |parts, content| answers::answer(&running, parts, content)).await;
            }
        };
        async move {
            tokio::join!(serve, watch::watch(watched), tell_troubles(&telling, troubles), tell_changes(changes));
        }
    };
    // What is wrong has been told.
    let heeds = Heeds { reload: &|| drop(running.reload()), reopen: &|| drop(running.reopen_log()) };
    let served = serving::serve_until_told(workers, || grace, ready, Some(&heeds), &WORDS, beside);
    running.gateway.finish_logs();
    served?;
    if let Some(qlog) = &engine.qlog {
        qlog::conclude(qlog);
    }
    if arguments.stats {
        serving::print_stats(&running.stats, running.identity.as_ref());
    }
    Ok(())
}

/// Says which servers of upstreams go out and come back.
async fn tell_changes(mut changes: mpsc::Receiver<ServerState>) {
    while let Some(ServerState { upstream, server, condition }) = changes.recv().await {
        match condition {
            ServerCondition::Up => tell_now!("upstream {upstream}: {server} is asked again"),
            ServerCondition::LeftAlone => tell_now!("warning: upstream {upstream}: {server} is left alone: requests to it failed"),
            ServerCondition::Down => tell_now!("warning: upstream {upstream}: {server} is down: its checks failed"),
        }
    }
}

/// Says what goes wrong with upstreams, and a while after the last line how many were left out.
async fn tell_troubles(gateway: &Gateway, mut troubles: mpsc::Receiver<String>) {
    let mut has_more = false;
    loop {
        let line = if has_more { timeout(LEFT_OUT_AFTER, troubles.recv()).await } else { Ok(troubles.recv().await) };
        match line {
            Ok(Some(line)) => {
                tell_now!("warning: {line}");
                has_more = true;
            }
            Ok(None) => return,
            Err(_) => has_more = gateway.tell_left_out(),
        }
    }
}

fn bind(server: &Server, workers: usize) -> Result<Vec<Listener>, Failure> {
    let congestion = server.congestion.map(Into::into);
    let bind = |listen: &pronghorn_gateway::config::Listen| serving::bind(listen.address, listen.secure, workers, congestion, &WORDS);
    let listeners: Vec<_> = server.listen.iter().map(bind).collect::<Result<_, _>>()?;
    let buffer = usize::try_from(server.udp_buffer.0).unwrap_or(usize::MAX);
    serving::size_buffers(&listeners, buffer, &WORDS)?;
    Ok(listeners)
}

fn identity(gateway: &Gateway) -> Result<pronghorn_engine::Identity, Failure> {
    let identity = gateway.identity().map_err(|error| Failure::new(Kind::Internal, format_args!("no TLS: {error}")))?;
    Ok(match key_log::from_environment()? {
        Some(key_log) => identity.with_key_log(&key_log),
        None => identity,
    })
}

fn balancers(server: &Server) -> Option<Balancers> {
    let networks: Vec<_> = server.proxy_protocol.iter().map(|network| network.0).collect();
    let contain = move |address: IpAddr| networks.iter().any(|network| network.contains(&address.to_canonical()));
    (!server.proxy_protocol.is_empty()).then(|| Balancers::new(contain))
}

fn engine_config(file: &Path, config: &Config) -> Result<EngineConfig, Failure> {
    let server = &config.server;
    let name = HeaderValue::try_from(&server.name)
        .map_err(|_| Failure::new(Kind::Malformed, format_args!("{}: `name` in [server] is no value of a field", file.display())))?;
    Ok(EngineConfig {
        limits: config.limits.clone(),
        congestion: server.congestion.map(Into::into),
        initial_window_datagrams: server.initial_window,
        early_data: server.early_data.into(),
        http2_prior_knowledge: server.http2_prior_knowledge,
        server: Some(name).filter(|name| !name.is_empty()),
        // Each site says its own.
        alt_svc: AltSvc::Off,
        balancers: balancers(server),
        qlog: config.qlog().map(|(folder, rule)| qlog::by_rule(&folder, rule)).transpose()?,
        ..EngineConfig::default()
    })
}
