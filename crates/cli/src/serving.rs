//! The life cycle of every server: its sockets, its secret, its signals.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pronghorn_engine::{
    BindError, Congestion, CongestionError, Identity, Listener, Secret, Stats, UdpBuffers, Workers,
};
use pronghorn_gateway::{CertificateError, Loaded, SecretError, stored_secret};
use tokio::signal::unix::{SignalKind, signal};

use crate::descriptors;
use crate::failure::{Failure, Kind};
use crate::memory;
use crate::plural::counted;

/// Names of settings for hints: command-line options or keys of the configuration file.
pub(crate) struct SettingNames {
    pub(crate) listen: &'static str,
    pub(crate) state_dir: &'static str,
    pub(crate) congestion: &'static str,
    pub(crate) udp_buffer: &'static str,
    pub(crate) certificate: &'static str,
    pub(crate) grace: &'static str,
}

/// Returns the counters, summed over the workers, and the session store's, which all workers share.
pub(crate) fn totals(
    stats: &[Arc<Stats>],
    identity: Option<&Identity>,
) -> serde_json::Map<String, serde_json::Value> {
    let mut total = serde_json::Map::new();
    for (name, value) in stats.iter().flat_map(|stats| stats.values()) {
        let sum = total.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0) + value;
        total.insert(name.to_owned(), sum.into());
    }
    let sessions =
        identity.and_then(Identity::sessions).map(|sessions| sessions.values()).unwrap_or_default();
    total.extend(sessions.into_iter().map(|(name, value)| (name.to_owned(), value.into())));
    total
}

pub(crate) fn print_stats(stats: &[Arc<Stats>], identity: Option<&Identity>) {
    eprint_line!("{}", serde_json::Value::Object(totals(stats, identity)));
}

/// Handlers of signals that do not end the server.
pub(crate) struct SignalHandlers<'a> {
    /// Reloads the configuration (SIGHUP).
    pub(crate) reload: &'a dyn Fn(),
    /// Reopens the logs (SIGUSR1).
    pub(crate) reopen: &'a dyn Fn(),
}

/// Waits for a signal, then for the workers. A second signal ends at once. `ready` is called once
/// signals are handled; without `handlers`, SIGHUP and SIGUSR1 have their default effect. `beside`
/// runs on the waiting thread until the workers have ended.
pub(crate) fn serve_until_signal(
    workers: Workers,
    grace: impl Fn() -> Duration,
    ready: impl FnOnce(),
    handlers: Option<&SignalHandlers<'_>>,
    names: &SettingNames,
    beside: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let internal = |error: io::Error| {
        Failure::new(Kind::Internal, format_args!("cannot wait for signals: {error}"))
    };
    let stats: Vec<_> = workers.stats().cloned().collect();
    let _program = memory::count_program(workers.memory());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(internal)?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(internal)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(internal)?;
        let mut hang_up =
            handlers.map(|_| signal(SignalKind::hangup()).map_err(internal)).transpose()?;
        let mut user =
            handlers.map(|_| signal(SignalKind::user_defined1()).map_err(internal)).transpose()?;
        ready();
        let lacks = descriptors::watch(stats.clone());
        let pressure = memory::log_pressure(workers.memory());
        let beside = async { tokio::join!(beside, lacks, pressure) };
        tokio::pin!(beside);
        let mut told = false;
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                Some(()) = async { hang_up.as_mut()?.recv().await }, if hang_up.is_some() => {
                    if let Some(handlers) = handlers {
                        (handlers.reload)();
                    }
                    continue;
                }
                Some(()) = async { user.as_mut()?.recv().await }, if user.is_some() => {
                    if let Some(handlers) = handlers {
                        (handlers.reopen)();
                    }
                    continue;
                }
                _ = &mut beside => unreachable!("invariant: lacks are watched for until the server \
                    has ended"),
                () = workers.finished() => break,
            }
            if told {
                return Err(Failure::new(
                    Kind::TimedOut,
                    "interrupted twice; open requests were dropped",
                ));
            }
            told = true;
            workers.shut_down(grace());
        }
        Ok(())
    })?;
    workers
        .join()
        .map_err(|error| Failure::new(Kind::Internal, format_args!("a worker failed: {error}")))?;
    let cut_off = stats.iter().map(|stats| stats.requests_cut_off.value()).sum::<u64>();
    if cut_off > 0 {
        let (requests, grace) = (counted(cut_off, "request"), grace().as_secs_f64());
        let were = if cut_off == 1 { "was" } else { "were" };
        log_line!(
            "warning: {requests} {were} aborted, still running {grace} s after the shutdown began; \
                allow more time with {}",
            names.grace
        );
    }
    Ok(())
}

/// Loads the secret that connection IDs, tokens and stateless resets are derived from. `folder`:
/// where it is stored; if `None`, the user's state folder.
pub(crate) fn secret(folder: Option<&Path>, names: &SettingNames) -> Result<Secret, Failure> {
    if let Some(folder) = folder {
        return stored_secret(folder).map_err(|error| secret_failure(&error, names));
    }
    let folder = state_folder();
    match folder.as_deref().map(stored_secret) {
        Some(Ok(secret)) => return Ok(secret),
        // No state folder was configured, and a server without a writable folder must still run.
        Some(Err(SecretError::File { path, source })) => {
            eprint_line!("state is not saved: cannot use {}: {source}", path.display());
        }
        Some(Err(error)) => return Err(secret_failure(&error, names)),
        None => eprint_line!("state is not saved: no home folder"),
    }
    Ok(Secret::random())
}

/// Returns the default folder for state: `pronghorn` in the user's state folder (XDG Base Directory
/// Specification).
pub(crate) fn state_folder() -> Option<PathBuf> {
    let base = directories::BaseDirs::new()?;
    Some(base.state_dir().unwrap_or_else(|| base.data_dir()).join("pronghorn"))
}

fn secret_failure(error: &SecretError, names: &SettingNames) -> Failure {
    let folder = names.state_dir;
    let (kind, hint) = match error {
        SecretError::File { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            (Kind::Permission, format!("set {folder} to a folder that this user can write to"))
        }
        SecretError::OpenToOthers { .. } => (
            Kind::Permission,
            "delete it if another user may have read it, or remove the permissions of other users \
                (chmod 600)"
                .to_owned(),
        ),
        SecretError::ForeignOwner { .. } => {
            (Kind::Permission, format!("set {folder} to a folder that this user owns"))
        }
        SecretError::WrongSize { .. } => {
            (Kind::Malformed, "delete it, and a new one is created".to_owned())
        }
        _ => (Kind::Output, format!("set {folder} to another folder")),
    };
    Failure::new(kind, error).with_hint(hint)
}

/// Loads or creates the development certificate in the user's data folder.
pub(crate) fn development_certificate() -> Option<Result<Loaded, CertificateError>> {
    let base = directories::BaseDirs::new()?;
    Some(Loaded::for_development(&base.data_dir().join("pronghorn")))
}

pub(crate) fn certificate_failure(error: &CertificateError, names: &SettingNames) -> Failure {
    let advice = error.hint("give", "the certificate chain with --cert and its key with --key");
    let (kind, hint) = match error {
        CertificateError::Both(both) => {
            let [cert, key] = both.each_ref().map(|error| certificate_failure(error, names));
            return cert.and(key);
        }
        CertificateError::File { source, .. }
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            (Kind::Permission, advice)
        }
        CertificateError::File { .. } => (Kind::Missing, advice),
        CertificateError::Malformed { .. }
        | CertificateError::Version { .. }
        | CertificateError::Order { .. }
        | CertificateError::Encrypted { .. }
        | CertificateError::UnsupportedKey { .. }
        | CertificateError::Unusable { .. } => (Kind::Malformed, advice),
        CertificateError::Store { source, .. } => {
            let kind = if source.kind() == io::ErrorKind::PermissionDenied {
                Kind::Permission
            } else {
                Kind::Output
            };
            (kind, format!("give {}", names.certificate))
        }
        CertificateError::Generation(_) => (Kind::Internal, format!("give {}", names.certificate)),
    };
    Failure::new(kind, error).with_hint(hint)
}

/// Binds one address for all workers.
pub(crate) fn bind(
    address: SocketAddr,
    is_secure: bool,
    workers: usize,
    congestion: Option<Congestion>,
    names: &SettingNames,
) -> Result<Listener, Failure> {
    let bound = if is_secure {
        Listener::secure(address, workers, congestion)
    } else {
        Listener::clear(address, workers, congestion)
    };
    bound.map_err(|error| bind_failure(&error, names))
}

/// Sets the buffer sizes of the UDP sockets, and warns if the kernel grants less.
pub(crate) fn size_buffers(
    listeners: &[Listener],
    wanted: usize,
    names: &SettingNames,
) -> Result<(), Failure> {
    for listener in listeners {
        let buffers = listener.set_udp_buffers(wanted).map_err(|error| {
            Failure::new(
                Kind::Internal,
                format_args!("cannot size the buffers of UDP sockets: {error}"),
            )
        })?;
        let Some(buffers) = buffers else { continue };
        let settings: Vec<_> =
            buffers.sysctls_to_raise().map(|setting| format!("{setting}={wanted}")).collect();
        if !settings.is_empty() {
            let UdpBuffers { receive, send, .. } = buffers;
            eprint_line!(
                "warning: the kernel limits UDP socket buffers to {receive} bytes for receiving \
                    and {send} for sending, below the {wanted} requested: bursts will be lost; run \
                    `sysctl -w {}`, or request less with {}",
                settings.join(" "),
                names.udp_buffer
            );
            // One warning covers all listeners.
            break;
        }
    }
    Ok(())
}

fn bind_failure(error: &BindError, names: &SettingNames) -> Failure {
    let source = match error {
        BindError::Address { source, .. } => source,
        BindError::Congestion(error) => return congestion_failure(error, names.congestion),
    };
    match source.kind() {
        io::ErrorKind::AddrInUse => Failure::new(Kind::Unavailable, error).with_hint(format!(
            "stop the process that uses the port, or choose another with {}",
            names.listen
        )),
        io::ErrorKind::PermissionDenied => Failure::new(Kind::Permission, error)
            .with_hint("use a port of 1024 or more, or grant the program CAP_NET_BIND_SERVICE"),
        io::ErrorKind::AddrNotAvailable => {
            Failure::new(Kind::Unavailable, error).with_hint("use an address of this machine")
        }
        _ => Failure::new(Kind::Unavailable, error),
    }
}

/// `setting`: the option that names the controller.
pub(crate) fn congestion_failure(error: &CongestionError, setting: &str) -> Failure {
    let kernel = |setting: &str| {
        std::fs::read_to_string(format!("/proc/sys/net/ipv4/{setting}")).unwrap_or_default()
    };
    match error {
        CongestionError::Missing(_) => {
            let available = kernel("tcp_available_congestion_control");
            let hint = format!(
                "available are {}; load another, such as with `modprobe tcp_bbr`, or leave {} out",
                available.trim(),
                setting
            );
            Failure::new(Kind::Usage, error).with_hint(hint)
        }
        CongestionError::Forbidden(congestion) => {
            let name = congestion.kernel_name();
            Failure::new(Kind::Permission, error).with_hint(format!(
                "add {name} to the sysctl net.ipv4.tcp_allowed_congestion_control, or leave \
                    {setting} out"
            ))
        }
        _ => Failure::new(Kind::Unavailable, error).with_hint(format!("leave {setting} out")),
    }
}
