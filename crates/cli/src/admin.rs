//! The admin API: HTTP/1.1 on a socket that this machine alone reaches, answered by the thread that waits for signals.

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

use crate::answers::{Answer, error};
use crate::failure::{Failure, Kind};
use crate::serving;

/// Connections at once; more wait to be accepted.
const CONNECTIONS: usize = 16;
/// One request and its answer, from the first byte to the last.
const CONNECTION_TIME: Duration = Duration::from_secs(30);
/// Between two looks at whether another server still has the socket.
const TAKEN_PAUSE: Duration = Duration::from_secs(1);
/// Bytes of a request's head.
const HEAD_BYTES: usize = 16 << 10;
/// Bytes of a request's content.
const CONTENT_BYTES: usize = 1 << 10;

/// Who has chosen where the admin API is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The configuration, by `[admin]` or `state_dir`.
    Configured,
    /// Nobody.
    Usual,
}

/// Where the admin API of the server with this configuration file is, for the server and for those who ask it. Where the file does not say it,
/// in the folder of the user's for state, under a name of the configuration's own, since others may be served beside it.
pub(crate) fn address(configured: Option<AdminListen>, file: &Path) -> (AdminListen, Choice) {
    match (configured, serving::state_folder()) {
        (Some(configured), _) => (configured, Choice::Configured),
        (None, Some(folder)) => (AdminListen::Unix(folder.join(config::admin_socket(file))), Choice::Usual),
        (None, None) => (AdminListen::Off, Choice::Configured),
    }
}

/// A socket that listens, and what opens it.
pub(crate) struct Admin {
    socket: Socket,
    token: Option<Token>,
}

enum Socket {
    Unix(std::os::unix::net::UnixListener, SocketFile),
    Tcp(std::net::TcpListener),
    /// Another server has the socket of this path.
    Taken(PathBuf),
}

/// The name of a socket in the file system; taken away at the end, unless another server has taken it over.
struct SocketFile {
    path: PathBuf,
    made: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|now| identity(&now) == self.made) {
            // Left there it is dead, and the next server replaces it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

impl Admin {
    /// Listens at `address`; `None` for nowhere. Where nobody has chosen the address, a server without an admin API is better than none.
    pub(crate) fn bind((address, choice): &(AdminListen, Choice), token: Option<&Token>) -> Result<Option<Self>, Failure> {
        let socket = match address {
            AdminListen::Off => return Ok(None),
            AdminListen::Unix(path) => match bind_unix(path) {
                Ok((listener, file)) => Socket::Unix(listener, file),
                // Perhaps the one before this, which drains.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    tell!(
                        "warning: another server answers at {address}: this one has no admin API until that one ends; give each server its own \
                         `state_dir` in [server], or `listen` in [admin]"
                    );
                    Socket::Taken(path.clone())
                }
                // It is nobody's mistake, and no reason not to serve.
                Err(error) if is_full(&error) || *choice == Choice::Usual => {
                    tell!("warning: there is no admin API until the next start: {}: {error}", path.display());
                    return Ok(None);
                }
                Err(error) => return Err(unix_failure(path, &error)),
            },
            AdminListen::Tcp(address) => Socket::Tcp(bind_tcp(*address).map_err(|error| {
                Failure::new(Kind::Unavailable, format_args!("cannot listen on {address} for the admin API: {error}"))
                    .with_hint("stop what uses the port, or choose another with `listen` in [admin]")
            })?),
        };
        Ok(Some(Self { socket, token: token.cloned() }))
    }

    /// Where it listens; `None` where another server does.
    pub(crate) fn address(&self) -> Option<AdminListen> {
        match &self.socket {
            Socket::Unix(_, file) => Some(AdminListen::Unix(file.path.clone())),
            Socket::Tcp(listener) => listener.local_addr().ok().map(AdminListen::Tcp),
            Socket::Taken(_) => None,
        }
    }

    /// Answers until it is dropped.
    pub(crate) async fn serve(self, answer: impl Fn(&Parts, &[u8]) -> Answer + 'static) {
        let Self { socket, token } = self;
        let answer = Rc::new(move |parts: &Parts, content: &[u8]| match &token {
            Some(token) if !bears(parts, token) => error(StatusCode::UNAUTHORIZED, "the token is missing or wrong"),
            _ => answer(parts, content),
        });
        let socket = match socket {
            Socket::Taken(path) => {
                let (listener, file) = freed(&path).await;
                tell_now!("admin API at {}", AdminListen::Unix(path));
                Socket::Unix(listener, file)
            }
            socket => socket,
        };
        let slots = Arc::new(Semaphore::new(CONNECTIONS));
        let accept = async {
            match &socket {
                Socket::Taken(_) => std::future::pending().await,
                Socket::Unix(listener, _file) => {
                    let listener = UnixListener::from_std(listener.try_clone()?)?;
                    loop {
                        let slot = slot(&slots).await?;
                        match listener.accept().await {
                            Ok((stream, _)) => drop(spawn_local(connection(stream, answer.clone(), slot))),
                            Err(_) => out_of_descriptors().await,
                        }
                    }
                }
                Socket::Tcp(listener) => {
                    let listener = TcpListener::from_std(listener.try_clone()?)?;
                    loop {
                        let slot = slot(&slots).await?;
                        match listener.accept().await {
                            Ok((stream, _)) => drop(spawn_local(connection(stream, answer.clone(), slot))),
                            Err(_) => out_of_descriptors().await,
                        }
                    }
                }
            }
        };
        let ended: io::Result<std::convert::Infallible> = LocalSet::new().run_until(accept).await;
        let Err(error) = ended;
        tell!("warning: the admin API has ended: {error}");
    }
}

/// Listens at `path` once no other server does.
async fn freed(path: &Path) -> (std::os::unix::net::UnixListener, SocketFile) {
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

/// Accepting fails when descriptors run out; at once it would fail again.
async fn out_of_descriptors() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

fn bears(parts: &Parts, token: &Token) -> bool {
    let value = parts.headers.get(AUTHORIZATION).map(http::HeaderValue::as_bytes).unwrap_or_default();
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
                Err(_) => error(StatusCode::PAYLOAD_TOO_LARGE, "the content is too large, or broken off"),
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
    // Whoever left has no use for an error.
    let _ = tokio::time::timeout(CONNECTION_TIME, served).await;
    drop(slot);
}

fn bind_tcp(address: std::net::SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// No other user can connect at any moment: the socket appears under its name with its permissions. One that a server left behind is replaced;
/// one at which a server answers is not, with an error of the kind `AddrInUse`.
fn bind_unix(path: &Path) -> io::Result<(std::os::unix::net::UnixListener, SocketFile)> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    if std::fs::symlink_metadata(path).is_ok_and(|file| !file.file_type().is_socket()) {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is something else of this name"));
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

/// Whether a process listens on the socket of this path.
fn is_answered(path: &Path) -> io::Result<bool> {
    // Without waiting: a connection is refused at once where its queue is full.
    // One that is too long is found out where it is made.
    let Ok(address) = SocketAddrUnix::new(path) else { return Ok(false) };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&probe, &address) {
        Ok(()) => Ok(true),
        Err(error) => Ok(error == Errno::AGAIN),
    }
}

/// Whether the disk takes nothing new from anybody.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::ReadOnlyFilesystem)
}

fn unix_failure(path: &Path, error: &io::Error) -> Failure {
    let (kind, hint) = match error.kind() {
        io::ErrorKind::PermissionDenied => (Kind::Permission, "name a folder that this user may write with `listen` in [admin]"),
        io::ErrorKind::InvalidInput => {
            (Kind::Usage, "a socket's path has 107 bytes at most: choose a shorter one with `listen` in [admin]")
        }
        _ => (Kind::Output, "choose another path with `listen` in [admin], or \"off\""),
    };
    Failure::new(kind, format_args!("cannot make the socket {} of the admin API: {error}", path.display())).with_hint(hint)
}
