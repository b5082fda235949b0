//! One connection, on which requests are pipelined.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::spawn_local;
use tokio::time::timeout;

use super::address::{Address, Endpoint};
use super::client_tls::RedisTls;
use super::reply::{Decoder, Reply};

/// Time to connect and log in.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Requests that wait for replies on one connection.
const OUTSTANDING_REQUESTS: usize = 4096;
/// Bytes of requests that are written together.
const WRITE_BYTES: usize = 64 << 10;
/// Free space in the buffer before each read.
const READ_BYTES: usize = 4 << 10;

/// Why a connection is unusable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Down(Rc<str>);

impl Down {
    pub(crate) fn new(reason: impl fmt::Display) -> Self {
        Self(reason.to_string().into())
    }
}

impl fmt::Display for Down {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<io::Error> for Down {
    fn from(error: io::Error) -> Self {
        Self::new(error)
    }
}

/// User and password for servers whose address has none.
#[derive(Clone, Default)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

/// Appends a command to a request.
pub(crate) fn command(request: &mut Vec<u8>, parts: &[&[u8]]) {
    request.extend(format!("*{}\r\n", parts.len()).bytes());
    for part in parts {
        request.extend(format!("${}\r\n", part.len()).bytes());
        request.extend_from_slice(part);
        request.extend_from_slice(b"\r\n");
    }
}

struct Request {
    bytes: Vec<u8>,
    waiting: Waiting,
}

/// A request that was sent, or is about to be.
struct Waiting {
    missing: usize,
    replies: Vec<Reply>,
    answer: oneshot::Sender<Vec<Reply>>,
}

/// A connection to one process of one server: it ends when that process does, unless there is a
/// proxy between. Clones share it; it closes with the last of them.
#[derive(Clone)]
pub(crate) struct Connection {
    requests: mpsc::UnboundedSender<Request>,
    outstanding: Rc<Cell<usize>>,
    closing: Rc<Notify>,
    closed: watch::Receiver<Option<Down>>,
}

impl Connection {
    /// Connects and logs in. Runs in a `LocalSet`.
    pub(crate) async fn open(
        address: &Address,
        login: &Login,
        tls: Option<&RedisTls>,
    ) -> Result<Self, Down> {
        let opening = async {
            let connection = Self::over(connect(address, tls).await?);
            connection.log_in(address, login).await?;
            Ok(connection)
        };
        let late = |_| Down::new(format_args!("no connection within {CONNECT_TIMEOUT:?}"));
        timeout(CONNECT_TIMEOUT, opening).await.map_err(late)?
    }

    fn over(stream: Box<dyn Stream>) -> Self {
        let (requests, queue) = mpsc::unbounded_channel();
        let (close, closed) = watch::channel(None);
        let outstanding = Rc::new(Cell::new(0));
        let closing = Rc::new(Notify::new());
        let (in_flight, asked_to_close) = (outstanding.clone(), closing.clone());
        spawn_local(async move {
            let reason = tokio::select! {
                reason = drive(stream, queue, &in_flight) => reason,
                () = asked_to_close.notified() => Down::new("the connection was closed"),
            };
            close.send_replace(Some(reason));
        });
        Self { requests, outstanding, closing, closed }
    }

    async fn log_in(&self, address: &Address, login: &Login) -> Result<(), Down> {
        let user = address.user.as_ref().or(login.user.as_ref());
        let password = address.password.as_ref().or(login.password.as_ref());
        let database = address.database.to_string();
        let mut commands: Vec<Vec<&[u8]>> = Vec::new();
        match (user, password) {
            (Some(user), Some(password)) => {
                commands.push(vec![b"AUTH", user.as_bytes(), password.as_bytes()]);
            }
            (None, Some(password)) => commands.push(vec![b"AUTH", password.as_bytes()]),
            (_, None) => {}
        }
        if address.database != 0 {
            commands.push(vec![b"SELECT", database.as_bytes()]);
        }
        // Each by itself: the first refusal is the reason, the others follow from it.
        for parts in commands {
            let mut request = Vec::new();
            command(&mut request, &parts);
            if let Some(Reply::Error(error)) = self.request(request, 1).await?.first() {
                return Err(Down::new(error));
            }
        }
        Ok(())
    }

    /// Sends commands and returns their replies, of which there are `replies`.
    pub(crate) async fn request(&self, bytes: Vec<u8>, replies: usize) -> Result<Vec<Reply>, Down> {
        if self.outstanding.get() >= OUTSTANDING_REQUESTS {
            return Err(Down::new(format_args!("{OUTSTANDING_REQUESTS} requests have no reply")));
        }
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { missing: replies, replies: Vec::with_capacity(replies), answer };
        self.outstanding.set(self.outstanding.get() + 1);
        if self.requests.send(Request { bytes, waiting }).is_err() {
            return Err(self.reason());
        }
        match answered.await {
            Ok(replies) => Ok(replies),
            Err(_) => Err(self.closed().await),
        }
    }

    /// Sends one command and returns its reply.
    pub(crate) async fn command(&self, parts: &[&[u8]]) -> Result<Reply, Down> {
        let mut request = Vec::new();
        command(&mut request, parts);
        let reply = self.request(request, 1).await?.pop();
        reply.ok_or_else(|| Down::new("no reply"))
    }

    /// Ends the connection, and with it the requests that have no reply.
    pub(crate) fn close(&self) {
        self.closing.notify_one();
    }

    /// Waits until the connection has ended and returns the reason.
    pub(crate) async fn closed(&self) -> Down {
        let mut closed = self.closed.clone();
        let _ = closed.wait_for(Option::is_some).await;
        self.reason()
    }

    fn reason(&self) -> Down {
        self.closed.borrow().clone().unwrap_or_else(|| Down::new("the connection was closed"))
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

async fn connect(address: &Address, tls: Option<&RedisTls>) -> Result<Box<dyn Stream>, Down> {
    let (host, port, secured) = match &address.endpoint {
        Endpoint::Unix(path) => return Ok(Box::new(UnixStream::connect(path).await?)),
        Endpoint::Tcp { host, port, tls } => (host, *port, *tls),
    };
    let stream = TcpStream::connect((host.as_str(), port)).await?;
    stream.set_nodelay(true)?;
    if !secured {
        return Ok(Box::new(stream));
    }
    let tls = tls.ok_or_else(|| Down::new("TLS is not configured"))?;
    let name = ServerName::try_from(host.clone()).map_err(Down::new)?;
    Ok(Box::new(tls.connector().connect(name, stream).await?))
}

/// Writes requests and reads replies until either fails.
async fn drive(
    stream: Box<dyn Stream>,
    queue: mpsc::UnboundedReceiver<Request>,
    outstanding: &Cell<usize>,
) -> Down {
    let (read, write) = tokio::io::split(stream);
    let waiting = RefCell::default();
    tokio::select! {
        reason = write_requests(write, queue, &waiting) => reason,
        reason = read_replies(read, &waiting, outstanding) => reason,
    }
}

async fn write_requests(
    mut stream: impl AsyncWrite + Unpin,
    mut queue: mpsc::UnboundedReceiver<Request>,
    waiting: &RefCell<VecDeque<Waiting>>,
) -> Down {
    while let Some(request) = queue.recv().await {
        let mut bytes = request.bytes;
        waiting.borrow_mut().push_back(request.waiting);
        while bytes.len() < WRITE_BYTES
            && let Ok(request) = queue.try_recv()
        {
            bytes.extend_from_slice(&request.bytes);
            waiting.borrow_mut().push_back(request.waiting);
        }
        let written = async {
            stream.write_all(&bytes).await?;
            stream.flush().await
        };
        if let Err(error) = written.await {
            return error.into();
        }
    }
    Down::new("the connection is not used any more")
}

async fn read_replies(
    mut stream: impl AsyncRead + Unpin,
    waiting: &RefCell<VecDeque<Waiting>>,
    outstanding: &Cell<usize>,
) -> Down {
    let mut decoder = Decoder::default();
    loop {
        match decoder.next() {
            Ok(Some(reply)) => {
                if let Err(reason) = hand_over(reply, &mut waiting.borrow_mut(), outstanding) {
                    return reason;
                }
                continue;
            }
            Ok(None) => {}
            Err(error) => return Down::new(error),
        }
        decoder.buffer().reserve(READ_BYTES);
        match stream.read_buf(decoder.buffer()).await {
            Ok(0) => return Down::new("the server closed the connection"),
            Ok(_) => {}
            Err(error) => return error.into(),
        }
    }
}

fn hand_over(
    reply: Reply,
    waiting: &mut VecDeque<Waiting>,
    outstanding: &Cell<usize>,
) -> Result<(), Down> {
    let Some(first) = waiting.front_mut() else {
        // Such as the error with which a server refuses a connection.
        return Err(match reply {
            Reply::Error(error) => Down::new(error),
            _ => Down::new("the server sent a reply to no request"),
        });
    };
    first.replies.push(reply);
    first.missing -= 1;
    if first.missing == 0
        && let Some(done) = waiting.pop_front()
    {
        outstanding.set(outstanding.get() - 1);
        // No reader: its command has timed out.
        let _ = done.answer.send(done.replies);
    }
    Ok(())
}
