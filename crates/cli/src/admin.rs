//! The admin API: HTTP/1.1 on a local socket or loopback address, served by the thread that waits
//! for signals.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use pronghorn_gateway::config::{self, AdminListen, Token};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{LocalSet, spawn_local};

use crate::admin_api::{Answer, error};
use crate::failure::{Failure, Kind};
use crate::serving;

/// Maximum number of concurrent connections; further ones wait to be accepted.
const CONNECTIONS: usize = 16;
/// Maximum time for one request and its response, from the first byte to the last.
const CONNECTION_TIME: Duration = Duration::from_secs(30);
/// Interval between checks whether another server still has the socket.
const TAKEN_PAUSE: Duration = Duration::from_secs(1);
/// Maximum size of a request head.
const HEAD_BYTES: usize = 16 << 10;
/// Maximum size of a request body.
const CONTENT_BYTES: usize = 1 << 10;

/// The origin of the admin API's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The configuration, by `[admin]` or `state_dir`.
    Configured,
    /// The default.
    Default,
}

/// Returns the admin API's address of the server with this configuration file, for the server and
/// its clients. If the file does not set one, it is a socket in the user's state folder, with a
/// name derived from the configuration file, since other servers may share the folder.
pub(crate) fn address(configured: Option<AdminListen>, file: &Path) -> (AdminListen, Choice) {
    match (configured, serving::state_folder()) {
        (Some(configured), _) => (configured, Choice::Configured),
        (None, Some(folder)) => {
            (AdminListen::Unix(folder.join(config::admin_socket(file))), Choice::Default)
        }
        (None, None) => (AdminListen::Off, Choice::Configured),
    }
}

/// A listening socket and the token that requests must send.
pub(crate) struct Admin {
    socket: Socket,
    token: Option<Token>,
}

enum Socket {
    Unix(std::os::unix::net::UnixListener, SocketFile),
    Tcp(std::net::TcpListener),
    /// Another server listens on the socket of this path.
    InUse(PathBuf),
}

/// The file name of a socket. Dropping it removes the file, unless another server has replaced it.
struct SocketFile {
    path: PathBuf,
    made: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|now| identity(&now) == self.made) {
            // A socket file that remains is stale, and the next server replaces it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

impl Admin {
    /// Listens at `address`. Returns `None` if the admin API is off, or if the default address
    /// cannot be used: a server without an admin API is better than none.
    pub(crate) fn bind(
        (address, choice): &(AdminListen, Choice),
        token: Option<&Token>,
    ) -> Result<Option<Self>, Failure> {
        let socket = match address {
            AdminListen::Off => return Ok(None),
            AdminListen::Unix(path) => match bind_unix(path) {
                Ok((listener, file)) => Socket::Unix(listener, file),
                // It may be the previous server, which is draining.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    eprint_line!(
                        "warning: another server listens at {address}: no admin API until that \
                            server ends; give each server its own `state_dir` in [server], or \
                            `listen` in [admin]"
                    );
                    Socket::InUse(path.clone())
                }
                // A full disk is no configuration error, and no reason not to serve.
                Err(error) if is_full(&error) || *choice == Choice::Default => {
                    eprint_line!(
                        "warning: admin API unavailable until the next start: {}: {error}",
                        path.display()
                    );
                    return Ok(None);
                }
                Err(error) => return Err(unix_failure(path, &error)),
            },
            AdminListen::Tcp(address) => Socket::Tcp(bind_tcp(*address).map_err(|error| {
                Failure::new(
                    Kind::Unavailable,
                    format_args!("cannot listen on {address} for the admin API: {error}"),
                )
                .with_hint(
                    "stop the process that uses the port, or choose another with `listen` in \
                        [admin]",
                )
            })?),
        };
        Ok(Some(Self { socket, token: token.cloned() }))
    }

    /// Returns the listening address; `None` while another server has it.
    pub(crate) fn address(&self) -> Option<AdminListen> {
        match &self.socket {
            Socket::Unix(_, file) => Some(AdminListen::Unix(file.path.clone())),
            Socket::Tcp(listener) => listener.local_addr().ok().map(AdminListen::Tcp),
            Socket::InUse(_) => None,
        }
    }

    /// Serves requests until dropped.
    pub(crate) async fn serve(self, answer: impl Fn(&Parts, &[u8]) -> Answer + 'static) {
        let Self { socket, token } = self;
        let answer = Rc::new(move |parts: &Parts, content: &[u8]| match &token {
            Some(token) if !has_token(parts, token) => {
                error(StatusCode::UNAUTHORIZED, "missing or invalid token")
            }
            _ => answer(parts, content),
        });
        let socket = match socket {
            Socket::InUse(path) => {
                let (listener, file) = bind_when_free(&path).await;
                log_line!("admin API at {}", AdminListen::Unix(path));
                Socket::Unix(listener, file)
            }
            socket => socket,
        };
        let slots = Arc::new(Semaphore::new(CONNECTIONS));
        // Needs no descriptor: connections may have taken all of them meanwhile.
        let accept = async move {
            match socket {
                Socket::InUse(_) => std::future::pending().await,
                Socket::Unix(listener, _file) => {
                    let listener = UnixListener::from_std(listener)?;
                    loop {
                        let slot = slot(&slots).await?;
                        match listener.accept().await {
                            Ok((stream, _)) => {
                                drop(spawn_local(connection(stream, answer.clone(), slot)));
                            }
                            Err(_) => out_of_descriptors().await,
                        }
                    }
                }
                Socket::Tcp(listener) => {
                    let listener = TcpListener::from_std(listener)?;
                    loop {
                        let slot = slot(&slots).await?;
                        match listener.accept().await {
                            Ok((stream, _)) => {
                                drop(spawn_local(connection(stream, answer.clone(), slot)));
                            }
                            Err(_) => out_of_descriptors().await,
                        }
                    }
                }
            }
        };
        let ended: io::Result<std::convert::Infallible> = LocalSet::new().run_until(accept).await;
        let Err(error) = ended;
        eprint_line!("warning: the admin API has stopped: {error}");
    }
}

/// Listens at `path` once no other server does.
async fn bind_when_free(path: &Path) -> (std::os::unix::net::UnixListener, SocketFile) {
    loop {
        tokio::time::sleep(TAKEN_PAUSE).await;
        if let Ok(bound) = bind_unix(path) {
            return bound;
        }
    }
}

async fn slot(slots: &Arc<Semaphore>) -> io::Result<OwnedSemaphorePermit> {
    slots.clone().acquire_owned().await.map_err(io::Error::other)
}

/// Accepting fails when file descriptors run out; an immediate retry would fail too.
async fn out_of_descriptors() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

fn has_token(parts: &Parts, token: &Token) -> bool {
    let value =
        parts.headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes).unwrap_or_default();
    value.strip_prefix(b"Bearer ").is_some_and(|given| token.is(given))
}

async fn connection<S, F>(stream: S, answer: Rc<F>, slot: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
    F: Fn(&Parts, &[u8]) -> Answer + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer.clone();
        async move {
            let (parts, content) = request.into_parts();
            let content = Limited::new(content, CONTENT_BYTES).collect().await;
            let answer = match content {
                Ok(content) => answer(&parts, &content.to_bytes()),
                Err(_) => {
                    error(StatusCode::PAYLOAD_TOO_LARGE, "request body too large or incomplete")
                }
            };
            Ok::<Response<Full<Bytes>>, std::convert::Infallible>(answer)
        }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(CONNECTION_TIME)
        .max_buf_size(HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // The client has closed the connection, so the error cannot be reported.
    let _ = tokio::time::timeout(CONNECTION_TIME, served).await;
    drop(slot);
}

fn bind_tcp(address: std::net::SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Binds a Unix socket. No other user can connect at any moment: the socket is renamed into place
/// with its permissions set. A stale socket is replaced; if a server answers on it, returns an
/// error of the kind `AddrInUse`.
fn bind_unix(path: &Path) -> io::Result<(std::os::unix::net::UnixListener, SocketFile)> {
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    if std::fs::symlink_metadata(path).is_ok_and(|file| !file.file_type().is_socket()) {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "another file of this name exists",
        ));
    }
    if is_answered(path)? {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    let private = tempfile::Builder::new().prefix(".a").tempdir_in(folder)?;
    let new = private.path().join("s");
    let listener = std::os::unix::net::UnixListener::bind(&new)?;
    listener.set_nonblocking(true)?;
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600))?;
    let made = identity(&std::fs::symlink_metadata(&new)?);
    std::fs::rename(&new, path)?;
    Ok((listener, SocketFile { path: path.to_owned(), made }))
}

/// Returns whether a process listens on the socket of this path.
fn is_answered(path: &Path) -> io::Result<bool> {
    // Non-blocking: a connection is refused at once if its queue is full. A path that is too long
    // fails when the socket is created.
    let Ok(address) = SocketAddrUnix::new(path) else { return Ok(false) };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&probe, &address) {
        Ok(()) => Ok(true),
        Err(error) => Ok(error == Errno::AGAIN),
    }
}

/// Returns whether the disk accepts no new data.
fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::ReadOnlyFilesystem
    )
}

fn unix_failure(path: &Path, error: &io::Error) -> Failure {
    let (kind, hint) = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            (Kind::Permission, "set `listen` in [admin] to a folder that this user can write to")
        }
        io::ErrorKind::InvalidInput => (
            Kind::Usage,
            "a socket path has at most 107 bytes: choose a shorter one with `listen` in [admin]",
        ),
        _ => (Kind::Output, "choose another path with `listen` in [admin], or \"off\""),
    };
    Failure::new(
        kind,
        format_args!("cannot create the admin API socket {}: {error}", path.display()),
    )
    .with_hint(hint)
}
