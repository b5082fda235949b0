//! The life of a server, whatever it serves: its sockets, its secret, the signals that it hears.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pronghorn_engine::{BindError, Congestion, CongestionError, Identity, Listener, Secret, Stats, UdpBuffers, Workers};
use pronghorn_gateway::{CertificateError, Loaded, SecretError, kept_secret};
use tokio::signal::unix::{SignalKind, signal};

use crate::counted::counted;
use crate::descriptors;
use crate::failure::{Failure, Kind};

/// How a user says what hints speak of: on the command line, or in a file.
pub(crate) struct Words {
    pub(crate) listen: &'static str,
    pub(crate) state_dir: &'static str,
    pub(crate) congestion: &'static str,
    pub(crate) udp_buffer: &'static str,
    pub(crate) certificate: &'static str,
    pub(crate) grace: &'static str,
}

/// Counters are summed over the workers; what the store of sessions holds is there once for all of them.
pub(crate) fn totals(stats: &[Arc<Stats>], identity: Option<&Identity>) -> serde_json::Map<String, serde_json::Value> {
    let mut total = serde_json::Map::new();
    for (name, value) in stats.iter().flat_map(|stats| stats.values()) {
        let sum = total.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0) + value;
        total.insert(name.to_owned(), sum.into());
    }
    let sessions = identity.and_then(Identity::sessions).map(|sessions| sessions.values()).unwrap_or_default();
    total.extend(sessions.into_iter().map(|(name, value)| (name.to_owned(), value.into())));
    total
}

pub(crate) fn print_stats(stats: &[Arc<Stats>], identity: Option<&Identity>) {
    tell!("{}", serde_json::Value::Object(totals(stats, identity)));
}

/// What a server does when it hears signals that do not end it.
pub(crate) struct Heeds<'a> {
    /// Looks at its configuration again (SIGHUP).
    pub(crate) reload: &'a dyn Fn(),
    /// Opens its logs again (SIGUSR1).
    pub(crate) reopen: &'a dyn Fn(),
}

/// Waits for a signal, then for the workers. A second signal ends at once. `ready` is called when signals are heard; without `heeds` those
/// signals have their usual effect. `beside` is what else the waiting thread does until the workers have ended.
pub(crate) fn serve_until_told(
    workers: Workers,
    grace: impl Fn() -> Duration,
    ready: impl FnOnce(),
    heeds: Option<&Heeds<'_>>,
    words: &Words,
    beside: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let internal = |error: io::Error| Failure::new(Kind::Internal, format_args!("cannot wait for signals: {error}"));
    let stats: Vec<_> = workers.stats().cloned().collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(internal)?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(internal)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(internal)?;
        let mut hang_up = heeds.map(|_| signal(SignalKind::hangup()).map_err(internal)).transpose()?;
        let mut user = heeds.map(|_| signal(SignalKind::user_defined1()).map_err(internal)).transpose()?;
        ready();
        let lacks = descriptors::watch(stats.clone());
        let beside = async { tokio::join!(beside, lacks) };
        tokio::pin!(beside);
        let mut told = false;
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                Some(()) = async { hang_up.as_mut()?.recv().await }, if hang_up.is_some() => {
                    if let Some(heeds) = heeds {
                        (heeds.reload)();
                    }
                    continue;
                }
                Some(()) = async { user.as_mut()?.recv().await }, if user.is_some() => {
                    if let Some(heeds) = heeds {
                        (heeds.reopen)();
                    }
                    continue;
                }
                _ = &mut beside => unreachable!("invariant: lacks are watched for until the server has ended"),
                () = workers.finished() => break,
            }
            if told {
                return Err(Failure::new(Kind::TimedOut, "told twice to end; open requests were dropped"));
            }
            told = true;
            workers.shut_down(grace());
        }
        Ok(())
    })?;
    workers.join().map_err(|error| Failure::new(Kind::Internal, format_args!("a worker failed: {error}")))?;
    let cut_off = stats.iter().map(|stats| stats.requests_cut_off.value()).sum::<u64>();
    if cut_off > 0 {
        let (requests, grace) = (counted(cut_off, "request"), grace().as_secs_f64());
        let were = if cut_off == 1 { "was" } else { "were" };
        tell!(
            "warning: {requests} {were} cut off, still running {grace} s after the server was told to end; allow more with {}",
            words.grace
        );
    }
    Ok(())
}

/// What connection IDs, tokens and stateless resets are derived from. `folder`: where it is kept; without one, in the user's own.
pub(crate) fn secret(folder: Option<&Path>, words: &Words) -> Result<Secret, Failure> {
    if let Some(folder) = folder {
        return kept_secret(folder).map_err(|error| secret_failure(&error, words));
    }
    let folder = state_folder();
    match folder.as_deref().map(kept_secret) {
        Some(Ok(secret)) => return Ok(secret),
        // Nobody asked for state, and a server that may write nowhere has to serve too.
        Some(Err(SecretError::File { path, source })) => tell!("no state is kept: {} cannot be used: {source}", path.display()),
        Some(Err(error)) => return Err(secret_failure(&error, words)),
        None => tell!("no state is kept: there is no home folder"),
    }
    Ok(Secret::random())
}

/// Where state is kept that no folder was named for: `pronghorn` in the user's folder for state (XDG Base Directory Specification).
pub(crate) fn state_folder() -> Option<PathBuf> {
    let base = directories::BaseDirs::new()?;
    Some(base.state_dir().unwrap_or_else(|| base.data_dir()).join("pronghorn"))
}

fn secret_failure(error: &SecretError, words: &Words) -> Failure {
    let folder = words.state_dir;
    let (kind, hint) = match error {
        SecretError::File { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            (Kind::Permission, format!("name a folder that this user may write with {folder}"))
        }
        SecretError::OpenToOthers { .. } => {
            (Kind::Permission, "delete it if somebody may have read it, or take the others' permissions away (chmod 600)".to_owned())
        }
        SecretError::ForeignOwner { .. } => (Kind::Permission, format!("name a folder of this user's own with {folder}")),
        SecretError::WrongSize { .. } => (Kind::Malformed, "delete it, and a new one is made".to_owned()),
        _ => (Kind::Output, format!("name another folder with {folder}")),
    };
    Failure::new(kind, error).with_hint(hint)
}

/// A certificate for development, kept in the user's folder for data.
pub(crate) fn development_certificate() -> Option<Result<Loaded, CertificateError>> {
    let base = directories::BaseDirs::new()?;
    Some(Loaded::for_development(&base.data_dir().join("pronghorn")))
}

pub(crate) fn certificate_failure(error: &CertificateError, words: &Words) -> Failure {
    let advice = error.hint("give", "the certificate chain with --cert and its key with --key");
    let (kind, hint) = match error {
        CertificateError::Both(both) => {
            let [cert, key] = both.each_ref().map(|error| certificate_failure(error, words));
            return cert.and(key);
        }
        CertificateError::File { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => (Kind::Permission, advice),
        CertificateError::File { .. } => (Kind::Missing, advice),
        CertificateError::Malformed { .. }
        | CertificateError::Encrypted { .. }
        | CertificateError::UnsupportedKey { .. }
        | CertificateError::Unusable { .. } => (Kind::Malformed, advice),
        CertificateError::Keeping { source, .. } => {
            let kind = if source.kind() == io::ErrorKind::PermissionDenied { Kind::Permission } else { Kind::Output };
            (kind, format!("give {}", words.certificate))
        }
        CertificateError::Generation(_) => (Kind::Internal, format!("give {}", words.certificate)),
    };
    Failure::new(kind, error).with_hint(hint)
}

/// Binds one address for all workers.
pub(crate) fn bind(
    address: SocketAddr,
    is_secure: bool,
    workers: usize,
    congestion: Option<Congestion>,
    words: &Words,
) -> Result<Listener, Failure> {
    let bound = if is_secure { Listener::secure(address, workers, congestion) } else { Listener::clear(address, workers, congestion) };
    bound.map_err(|error| bind_failure(&error, words))
}

/// Sizes the buffers of the UDP sockets, and says so in one line if the kernel gives less.
pub(crate) fn size_buffers(listeners: &[Listener], wanted: usize, words: &Words) -> Result<(), Failure> {
    for listener in listeners {
        let buffers = listener
            .set_udp_buffers(wanted)
            .map_err(|error| Failure::new(Kind::Internal, format_args!("cannot size the buffers of UDP sockets: {error}")))?;
        let Some(buffers) = buffers else { continue };
        let settings: Vec<_> = buffers.lacking().map(|setting| format!("{setting}={wanted}")).collect();
        if !settings.is_empty() {
            let UdpBuffers { receive, send, .. } = buffers;
            tell!(
                "warning: the kernel gives UDP sockets buffers of {receive} bytes to receive and {send} to send, not the {wanted} asked \
                 for: bursts will be lost; run `sysctl -w {}`, or ask for less with {}",
                settings.join(" "),
                words.udp_buffer
            );
            // One line is enough for all of them.
            break;
        }
    }
    Ok(())
}

fn bind_failure(error: &BindError, words: &Words) -> Failure {
    let source = match error {
        BindError::Address { source, .. } => source,
        BindError::Congestion(error) => return congestion_failure(error, words),
    };
    match source.kind() {
        io::ErrorKind::AddrInUse => {
            Failure::new(Kind::Unavailable, error).with_hint(format!("stop what uses the port, or choose another with {}", words.listen))
        }
        io::ErrorKind::PermissionDenied => {
            Failure::new(Kind::Permission, error).with_hint("use a port of 1024 or more, or give the program CAP_NET_BIND_SERVICE")
        }
        io::ErrorKind::AddrNotAvailable => Failure::new(Kind::Unavailable, error).with_hint("give an address of this machine"),
        _ => Failure::new(Kind::Unavailable, error),
    }
}

fn congestion_failure(error: &CongestionError, words: &Words) -> Failure {
    let kernel = |setting: &str| std::fs::read_to_string(format!("/proc/sys/net/ipv4/{setting}")).unwrap_or_default();
    match error {
        CongestionError::Missing(_) => {
            let available = kernel("tcp_available_congestion_control");
            let hint = format!("it has {}; load another as `modprobe tcp_bbr` does, or leave {} out", available.trim(), words.congestion);
            Failure::new(Kind::Usage, error).with_hint(hint)
        }
        CongestionError::Forbidden(congestion) => {
            let name = congestion.kernel_name();
            Failure::new(Kind::Permission, error)
                .with_hint(format!("add {name} to the sysctl net.ipv4.tcp_allowed_congestion_control, or leave {} out", words.congestion))
        }
        _ => Failure::new(Kind::Unavailable, error).with_hint(format!("leave {} out", words.congestion)),
    }
}
