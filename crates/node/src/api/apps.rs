//! Applications: creation, routes, certificates and listeners.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use pronghorn_certificates::{Authorities, Source};
use pronghorn_engine::{Config, Transports};

use crate::addon::{Call, DECLARATIVE, Native};
use crate::app::App;
use crate::certificates::{Certificates, Entry};
use crate::clients::Clients;
use crate::declarative::Program;
use crate::js::{Failure, Value};
use crate::listener::{Closing, Listener, Shutdown};
use crate::ports::Sharing;
use crate::router::parameter_names;

/// Size of an application as reported to the garbage collector: what it holds in native memory,
/// including leftovers of its listeners.
const APP_BYTES: i64 = 16 << 10;

pub(super) const FUNCTIONS: [(&str, Native); 19] = [
    ("createApp", create_app),
    ("freeApp", free_app),
    ("route", route),
    ("declare", declare),
    ("setCertificate", set_certificate),
    ("removeServerName", remove_server_name),
    ("askForServerNames", ask_for_server_names),
    ("filterConnections", filter_connections),
    ("nextRemote", next_remote),
    ("pollByThread", poll_by_thread),
    ("listen", listen),
    ("port", port),
    ("address", address),
    ("end", end),
    ("closeConnections", close_connections),
    ("setReferenced", set_referenced),
    ("refreshPorts", refresh_ports),
    ("stats", stats),
    ("openExchanges", open_exchanges),
];

fn app(call: &Call<'_>) -> Result<Rc<App>, Failure> {
    call.addon.app(call.u32(0))
}

fn listener(call: &Call<'_>) -> Option<Rc<Listener>> {
    call.addon.listeners.borrow().get(&call.u32(0)).cloned()
}

/// `createApp(kind, environment, settings)`: creates an application. `kind`: 0 for clear text, 1
/// for TLS, 2 for HTTP/3 and 3 for both; `settings`: lines of `name=value`.
fn create_app(call: &Call<'_>) -> Result<Value, Failure> {
    let transports = match call.u32(0) {
        0 => Transports::ClearTcp,
        1 => Transports::SecureTcp,
        2 => Transports::Quic,
        _ => Transports::Secure,
    };
    let config = config(&call.string(2)?)?;
    let app = Rc::new(App::new(transports, config));
    let number = call.addon.apps.borrow_mut().insert(app.clone()) as u32;
    app.set_number(number);
    call.env.adjust_external_memory(APP_BYTES);
    if transports != Transports::ClearTcp {
        let certificates = Certificates::new(u64::from(call.u32(1)), number);
        app.certificates.set(certificates).map_err(|_| "invariant: it is new")?;
    }
    Ok(call.env.number(number.into()))
}

/// `freeApp(app)`: frees an unreachable application. Its number may be reused.
fn free_app(call: &Call<'_>) -> Result<Value, Failure> {
    let freed = call.addon.apps.borrow_mut().try_remove(call.u32(0) as usize);
    if let Some(app) = freed {
        call.addon.forget(&app);
        call.env.adjust_external_memory(-APP_BYTES);
    }
    Ok(call.env.undefined())
}

fn config(settings: &str) -> Result<Config, Failure> {
    let mut config = Config::default();
    for (name, value) in settings.lines().filter_map(|line| line.split_once('=')) {
        match name {
            "server" => config.server = Some(HeaderValue::from_str(value)?),
            "earlyData" => config.early_data = value.parse()?,
            "congestion" => config.congestion = Some(value.parse()?),
            limit => config.limits = config.limits.with_named(limit, value)?,
        }
    }
    Ok(config)
}

/// `route(app, domain, method or undefined, pattern, handler or undefined)`: sets or removes a
/// route.
fn route(call: &Call<'_>) -> Result<Value, Failure> {
    let method = if call.is_absent(2) { None } else { Some(call.string(2)?.parse()?) };
    let handler = (!call.is_absent(4)).then(|| call.u32(4));
    app(call)?.route(&call.string(1)?, method, &call.string(3)?, handler);
    Ok(call.env.undefined())
}

/// `declare(app, program, pattern)`: returns the number of a handler that runs without JavaScript.
fn declare(call: &Call<'_>) -> Result<Value, Failure> {
    let (app, pattern) = (app(call)?, call.string(2)?);
    let names: Vec<_> = parameter_names(&pattern).collect();
    let program = Program::parse(&call.bytes(1)?, &names)?;
    let number = call.addon.programs.borrow_mut().insert(Rc::new(program));
    app.programs.borrow_mut().push(number);
    Ok(call.env.number(f64::from(number as u32 | DECLARATIVE)))
}

fn certificates(call: &Call<'_>) -> Result<Arc<Certificates>, Failure> {
    Ok(app(call)?
        .certificates
        .get()
        .cloned()
        .ok_or("an App has no TLS: use SSLApp, H3App or Server")?)
}

/// `setCertificate(app or undefined, name or undefined, chain, key, clients, authorities)`: chain,
/// key and authorities are file names, or PEM bytes; `clients`: 0 if clients are not asked for a
/// certificate, 1 if they are, 2 if those without a trusted one are refused. Without an app the
/// arguments are only checked.
fn set_certificate(call: &Call<'_>) -> Result<Value, Failure> {
    let name = if call.is_absent(1) { None } else { Some(call.string(1)?) };
    let clients = match call.u32(4) {
        0 => None,
        wanted => {
            let authorities = with_source(call, 5, Authorities::new)?;
            let authorities = authorities.map_err(|error| {
                format!(
                    "{error}: give the certificates of the authorities that issue client \
                        certificates, in PEM form"
                )
            })?;
            Some(Clients::new(authorities, wanted == 2))
        }
    };
    let entry =
        with_source(call, 2, |cert| with_source(call, 3, |key| Entry::new(cert, key, clients)))???;
    if !call.is_absent(0) {
        certificates(call)?.set(name, entry);
    }
    Ok(call.env.undefined())
}

/// Runs `action` on a file (a string argument) or on bytes (a Uint8Array).
fn with_source<T>(
    call: &Call<'_>,
    index: usize,
    action: impl FnOnce(Source<'_>) -> T,
) -> Result<T, Failure> {
    Ok(if call.is_string(index) {
        action(Source::File(Path::new(&call.string(index)?)))
    } else {
        action(Source::Text(&call.bytes(index)?))
    })
}

/// `removeServerName(app, name)`: removes a name's certificate and routes.
fn remove_server_name(call: &Call<'_>) -> Result<Value, Failure> {
    let name = call.string(1)?.to_ascii_lowercase();
    let app = app(call)?;
    if let Some(certificates) = app.certificates.get() {
        certificates.remove(&name);
    }
    app.remove_domain(&name);
    Ok(call.env.undefined())
}

/// `askForServerNames(app)`: makes the app ask JavaScript for missing server names.
fn ask_for_server_names(call: &Call<'_>) -> Result<Value, Failure> {
    certificates(call)?.ask();
    Ok(call.env.undefined())
}

/// `filterConnections(app)`: enables connection events.
fn filter_connections(call: &Call<'_>) -> Result<Value, Failure> {
    app(call)?.filters.set(true);
    Ok(call.env.undefined())
}

/// `nextRemote()`: returns the client of the next connection event, as address and port.
fn next_remote(call: &Call<'_>) -> Result<Value, Failure> {
    let remote = call.addon.remotes.borrow_mut().pop_front().ok_or("no event is read")?;
    Ok(call.env.string(&format!("{} {}", remote.ip().to_canonical(), remote.port())))
}

/// `pollByThread(whether)`: sets whether another thread waits for later listeners, for hosts whose
/// event loop is not libuv.
fn poll_by_thread(call: &Call<'_>) -> Result<Value, Failure> {
    call.addon.poll_by_thread.set(call.boolean(0));
    Ok(call.env.undefined())
}

/// `listen(app, host or undefined, port, threads, cluster)`: returns the number of the listener.
/// `threads`, `cluster`: whether other threads of this process and other processes of its cluster
/// may share the port.
fn listen(call: &Call<'_>) -> Result<Value, Failure> {
    let port = call.u32(2) as u16;
    let app = app(call)?;
    let sharing = Sharing { by_threads: call.boolean(3), by_cluster: call.boolean(4) };
    let number = if call.is_absent(1) {
        let start =
            |address: IpAddr| Listener::start(call.addon, &app, (address, port).into(), sharing);
        // A machine without IPv6 cannot create the socket.
        start(Ipv6Addr::UNSPECIFIED.into()).or_else(|error| {
            if has_ipv6() { Err(error) } else { start(Ipv4Addr::UNSPECIFIED.into()) }
        })?
    } else {
        let host = call.string(1)?;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let mut addresses = (bare, port)
            .to_socket_addrs()
            .map_err(|error| format!("cannot listen on {host}: {error}"))?;
        let address: SocketAddr = addresses
            .next()
            .ok_or_else(|| format!("cannot listen on {host}: the host has no address"))?;
        Listener::start(call.addon, &app, address, sharing)?
    };
    Ok(call.env.number(number.into()))
}

fn has_ipv6() -> bool {
    std::net::UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

/// `port(listener)`: returns the port, or -1 if the listener has ended.
fn port(call: &Call<'_>) -> Result<Value, Failure> {
    Ok(call.env.number(listener(call).map_or(-1.0, |listener| listener.address().port().into())))
}

/// `address(listener)`: returns IP address and port, as in a URL.
fn address(call: &Call<'_>) -> Result<Value, Failure> {
    Ok(listener(call)
        .map_or(call.env.undefined(), |listener| call.env.string(&listener.address().to_string())))
}

/// `end(listener, grace in milliseconds or undefined)`: shuts the listener down; without a time it
/// only stops accepting connections.
fn end(call: &Call<'_>) -> Result<Value, Failure> {
    let ending = if call.is_absent(1) {
        Shutdown::StopListening
    } else {
        Shutdown::Graceful(
            Duration::try_from_secs_f64(call.f64(1) / 1000.0).unwrap_or(Duration::MAX / 4),
        )
    };
    if let Some(listener) = listener(call) {
        listener.end(ending);
    }
    Ok(call.env.undefined())
}

/// `closeConnections(listener, all)`: closes all connections, or those without an open request.
fn close_connections(call: &Call<'_>) -> Result<Value, Failure> {
    if let Some(listener) = listener(call) {
        listener.close_connections(if call.boolean(1) { Closing::All } else { Closing::Idle });
    }
    Ok(call.env.undefined())
}

/// `setReferenced(listener, whether)`: sets whether the listener keeps the process running.
fn set_referenced(call: &Call<'_>) -> Result<Value, Failure> {
    if let Some(listener) = listener(call) {
        listener.set_referenced(call.boolean(1));
    }
    Ok(call.env.undefined())
}

/// `refreshPorts()`: marks the shared directories of a cluster as used.
fn refresh_ports(call: &Call<'_>) -> Result<Value, Failure> {
    crate::ports::refresh();
    Ok(call.env.undefined())
}

/// `stats(listener)`: returns an object with the counters.
fn stats(call: &Call<'_>) -> Result<Value, Failure> {
    let Some(listener) = listener(call) else { return Ok(call.env.undefined()) };
    let object = call.env.object()?;
    for (name, value) in listener.stats().values() {
        call.env.set(object, name, call.env.number(value as f64))?;
    }
    Ok(object)
}

/// `openExchanges()`: returns the number of unanswered requests of this thread.
fn open_exchanges(call: &Call<'_>) -> Result<Value, Failure> {
    Ok(call.env.number(call.addon.open_exchanges() as f64))
}
