//! `pronghorn get`.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use http::header::USER_AGENT;
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri};
use http_body_util::BodyExt;
use pronghorn_engine::{
    Body, Config, Congestion, ConnectTimings, Connection, Connector, Group, Incoming, Protocol, Responder, Resumption, Target, TlsSummary,
    Worker, embed_in_tokio,
};

use crate::client_tls;
use crate::counted::counted;
use crate::failure::{Failure, Kind};
use crate::handshakes::{self, exchange_failure};
use crate::key_log;
use crate::qlog;
use crate::redirects;
use crate::server::seconds;

const MAX_REDIRECTS: usize = 10;

#[derive(Args)]
pub(crate) struct GetArgs {
    /// What to fetch, such as https://localhost:8443/
    url: Uri,

    /// Version to speak: 1.1, 2 or 3 [default: 2 or 1.1, as the server prefers]
    #[arg(long, value_name = "VERSION", value_parser = protocol)]
    http: Option<Protocol>,

    /// Take any certificate
    #[arg(long)]
    no_verify: bool,

    /// Trust the certificates of this PEM file instead of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "no_verify")]
    cacert: Option<PathBuf>,

    /// Method [default: GET, or POST with --data]
    #[arg(short = 'X', long, value_name = "METHOD")]
    method: Option<Method>,

    /// Header field to send, as 'name: value'. Repeat for more
    #[arg(short = 'H', long, value_name = "FIELD", value_parser = header)]
    header: Vec<(HeaderName, HeaderValue)>,

    /// File to send as content
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,

    /// Follow redirects. A POST becomes a GET without content after 301 and 302, every method but HEAD after 303; 307 and 308 repeat the request
    #[arg(short = 'L', long)]
    location: bool,

    /// Connect to this host and port whatever the URL says
    #[arg(long, value_name = "HOST:PORT")]
    connect_to: Option<String>,

    /// File to write the content to, whole or not at all [default: stdout]
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Write a qlog file for each QUIC connection into this folder
    #[arg(long, value_name = "DIR", env = "QLOGDIR")]
    qlog: Option<PathBuf>,

    /// Congestion controller of what is sent, over QUIC and TCP: cubic, newreno or bbr [default: cubic over QUIC, the system's over TCP]
    #[arg(long, value_name = "NAME")]
    congestion: Option<Congestion>,

    /// Give up after this long
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    timeout: Duration,

    /// Fetch this many times, each over a new connection that resumes the TLS session of the one before. The last content is kept
    #[arg(long, value_name = "N", default_value = "1", default_value_if("early_data", "true", "2"), value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,

    /// Send the request before the handshake is done (0-RTT), from the second connection on; there are two if --repeat says nothing else
    #[arg(long)]
    early_data: bool,

    /// Show protocol, timings and header fields on stderr
    #[arg(short = 'v', long)]
    verbose: bool,
}

pub(crate) fn protocol(text: &str) -> Result<Protocol, String> {
    match text {
        "1.1" => Ok(Protocol::Http1),
        "2" => Ok(Protocol::Http2),
        "3" => Ok(Protocol::Http3),
        _ => Err("write 1.1, 2 or 3".to_owned()),
    }
}

pub(crate) fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("write it as 'name: value'")?;
    let name = name.trim().parse().map_err(|_| format!("{name:?} is no field name"))?;
    let value = value.trim().parse().map_err(|_| format!("{value:?} is no field value"))?;
    Ok((name, value))
}

pub(crate) fn run(arguments: GetArgs) -> Result<(), Failure> {
    let internal = |error: io::Error| Failure::new(Kind::Internal, error);
    let mut tls = client_tls::config(arguments.cacert.as_deref(), !arguments.no_verify)?;
    if let Some(key_log) = key_log::from_environment()? {
        tls.key_log = key_log;
    }
    let content = arguments.data.as_deref().map(read_content).transpose()?.unwrap_or_default();
    let refuse = |_, responder: Responder| drop(responder);
    let qlog = arguments.qlog.as_deref().map(qlog::to_folder).transpose()?;
    let config = Config { qlog: qlog.clone(), congestion: arguments.congestion, ..Config::default() };
    let mut worker = Worker::new(0, &Group::new(1), config, refuse).map_err(internal)?;
    let connector = worker.connector(&tls).map_err(internal)?;
    let timeout = arguments.timeout;
    let fetch = async move { Fetch { arguments, connector, content, connection: None, spoken: None }.run().await };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(internal)?;
    let result = runtime.block_on(drive(&mut worker, timeout, fetch));
    drop(worker);
    if let Some(qlog) = &qlog {
        qlog::conclude(qlog);
    }
    result
}

pub(crate) fn read_content(path: &Path) -> Result<Bytes, Failure> {
    std::fs::read(path).map(Bytes::from).map_err(|error| {
        Failure::new(Kind::Missing, format_args!("cannot read {}: {error}", path.display())).with_hint("--data takes the name of a file")
    })
}

/// Runs `future` on `worker` to its end, or as long as it may take, and gives the worker a moment to say goodbye to the server, which else would
/// work on for nobody.
async fn drive(worker: &mut Worker, timeout: Duration, future: impl Future<Output = Result<(), Failure>> + 'static) -> Result<(), Failure> {
    let internal = |error: io::Error| Failure::new(Kind::Internal, error);
    let result = Rc::new(RefCell::new(None));
    let slot = result.clone();
    worker.handle().spawn(async move {
        let done = future.await;
        *slot.borrow_mut() = Some(done);
    });
    let mut turns_after = 0;
    let turns = embed_in_tokio(worker, |_, _| {
        turns_after += usize::from(result.borrow().is_some());
        turns_after > 0
    });
    let in_time = tokio::time::timeout(timeout, turns).await;
    let late = || Failure::new(Kind::TimedOut, "the server took too long").with_hint("allow more with --timeout");
    // What comes of it in the last turn is too late, and in the middle of its end.
    let result = in_time.map_or_else(|_| Err(late()), |turns| turns.map_err(internal).and(result.take().unwrap_or(Ok(()))));
    let now = Instant::now();
    worker.shut_down(now, Duration::ZERO);
    let goodbye = worker.turn(now).map_err(internal);
    result.and(goodbye)
}

/// One invocation.
struct Fetch {
    arguments: GetArgs,
    connector: Connector,
    content: Bytes,
    connection: Option<(Origin, Connection)>,
    /// What the last connection spoke: early data has to be in the words of one protocol.
    spoken: Option<(Origin, Protocol)>,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    secure: bool,
    authority: Authority,
}

impl Origin {
    pub(crate) fn of(uri: &Uri) -> Result<Self, Failure> {
        let bad =
            || Failure::new(Kind::Usage, format_args!("{uri} is not a URL to fetch")).with_hint("write https://HOST/ or http://HOST/");
        let secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(bad()),
        };
        Ok(Self { secure, authority: uri.authority().cloned().ok_or_else(bad)? })
    }

    fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.secure { 443 } else { 80 })
    }
}

/// Where the parts of an exchange end, from its beginning.
struct Timings {
    resolved: Duration,
    /// The connection was opened for this exchange.
    is_new: bool,
    head: Duration,
}

impl Fetch {
    async fn run(mut self) -> Result<(), Failure> {
        let content = self.content.clone();
        for left in (0..self.arguments.repeat).rev() {
            self.content = content.clone();
            // After early data, tickets may come later than the answer: the connection stays for as long as the next one takes.
            let last = self.connection.take();
            self.fetch(left == 0).await?;
            drop(last);
        }
        Ok(())
    }

    /// `deliver`: the content is wanted, and not only the connection's session.
    async fn fetch(&mut self, deliver: bool) -> Result<(), Failure> {
        let with_content = self.arguments.data.is_some();
        let mut method = self.arguments.method.clone().unwrap_or(if with_content { Method::POST } else { Method::GET });
        let mut uri = self.arguments.url.clone();
        let first = Origin::of(&uri)?;
        let mut given: HeaderMap = self.arguments.header.iter().cloned().collect();
        for _ in 0..=MAX_REDIRECTS {
            let began = Instant::now();
            let (response, timings) = self.exchange(&method, &uri, &given, began).await?;
            match redirects::target(&response, &uri) {
                Some(target) if self.arguments.location => {
                    if redirects::becomes_get(response.status(), &method) {
                        method = Method::GET;
                        self.content = Bytes::new();
                        redirects::remove_content_fields(&mut given);
                    }
                    uri = target?;
                    if Origin::of(&uri)? != first {
                        redirects::remove_fields_of_the_origin(&mut given);
                    }
                }
                _ => return self.deliver(response.into_body(), deliver, &timings, began).await,
            }
        }
        Err(Failure::new(Kind::Protocol, format_args!("more than {MAX_REDIRECTS} redirects")))
    }

    async fn exchange(
        &mut self,
        method: &Method,
        uri: &Uri,
        given: &HeaderMap,
        began: Instant,
    ) -> Result<(Response<Incoming>, Timings), Failure> {
        let origin = Origin::of(uri)?;
        let mut resolved = Duration::ZERO;
        let mut is_new = false;
        let reusable = self.connection.take().filter(|(open, connection)| *open == origin && connection.is_usable());
        let mut connection = if let Some((_, connection)) = reusable {
            connection
        } else {
            let addresses = resolve(self.arguments.connect_to.as_deref(), &origin)?;
            resolved = began.elapsed();
            let connection = self.connect(&origin, &addresses).await?;
            is_new = true;
            connection
        };
        let mut request = Request::new(Body::from(self.content.clone()));
        *request.method_mut() = method.clone();
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = headers(given);
        if self.arguments.verbose {
            let target = uri.path_and_query().map_or("/", |target| target.as_str());
            tell!("> {method} {target} {}", connection.protocol());
            tell!("> host: {}", origin.authority);
            print_fields('>', request.headers());
        }
        let response = connection.send(request).await.map_err(|error| exchange_failure(&error))?;
        let head = began.elapsed();
        if self.arguments.verbose {
            tell!("< {} {}", connection.protocol(), response.status());
            print_fields('<', response.headers());
        }
        self.spoken = Some((origin.clone(), connection.protocol()));
        self.connection = Some((origin, connection));
        Ok((response, Timings { resolved, is_new, head }))
    }

    async fn connect(&self, origin: &Origin, addresses: &[SocketAddr]) -> Result<Connection, Failure> {
        let mut failure = None;
        let spoken = self.spoken.as_ref().filter(|(before, _)| before == origin && self.arguments.early_data);
        for &remote in addresses {
            let target = Target {
                remote,
                server_name: origin.host().to_owned(),
                protocol: self.arguments.http.or(spoken.map(|(_, protocol)| *protocol)),
                secure: origin.secure,
                resumption: if self.arguments.early_data { Resumption::EarlyData } else { Resumption::Session },
            };
            match handshakes::connect(&self.connector, &target).await {
                Ok(connection) => {
                    if self.arguments.verbose {
                        tell!("* connected to {remote} with {}", connection.protocol());
                    }
                    return Ok(connection);
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| Failure::new(Kind::UnknownHost, format_args!("{} has no address", origin.host()))))
    }

    async fn deliver(&self, mut body: Incoming, deliver: bool, timings: &Timings, began: Instant) -> Result<(), Failure> {
        let mut output = if deliver { Output::open(self.arguments.output.as_deref())? } else { Output::Nowhere };
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                Failure::new(Kind::Protocol, format_args!("the response broke off after {}: {error}", counted(bytes, "byte")))
            })?;
            if let Some(data) = frame.data_ref() {
                bytes += data.len();
                output.write(data)?;
            } else if let Some(trailers) = frame.trailers_ref()
                && self.arguments.verbose
            {
                tell!("< trailers:");
                print_fields('<', trailers);
            }
        }
        output.finish()?;
        let total = began.elapsed();
        if let Some((_, connection)) = &self.connection {
            // After early data it may still go on; what it brings serves the next connection.
            connection.handshake().await.map_err(|error| exchange_failure(&error))?;
            if self.arguments.verbose {
                print_timings(timings, connection.timings(), bytes, total);
                if timings.is_new
                    && let Some(tls) = connection.tls()
                {
                    print_tls(&tls);
                }
            }
        }
        Ok(())
    }
}

/// The fields to send: those that were given take the place of the usual ones.
fn headers(given: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("pronghorn/", env!("CARGO_PKG_VERSION"))));
    headers.insert(http::header::ACCEPT, HeaderValue::from_static("*/*"));
    headers.extend(given.clone());
    headers
}

pub(crate) fn resolve(connect_to: Option<&str>, origin: &Origin) -> Result<Vec<SocketAddr>, Failure> {
    let resolved = match connect_to {
        Some(address) => address.to_socket_addrs(),
        None => (origin.host(), origin.port()).to_socket_addrs(),
    };
    let name = connect_to.unwrap_or(origin.host());
    match resolved.map(Iterator::collect::<Vec<_>>) {
        Ok(addresses) if !addresses.is_empty() => Ok(addresses),
        Ok(_) => Err(Failure::new(Kind::UnknownHost, format_args!("{name} has no address"))),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            Err(Failure::new(Kind::Usage, format_args!("{name}: {error}")).with_hint("--connect-to takes HOST:PORT"))
        }
        Err(error) => {
            let hint = match connect_to {
                Some(_) => "check the name given with --connect-to, and this machine's DNS",
                None => "check the name's spelling and this machine's DNS, or name an address with --connect-to",
            };
            Err(Failure::new(Kind::UnknownHost, format_args!("cannot resolve {name}: {error}")).with_hint(hint))
        }
    }
}

fn print_fields(mark: char, headers: &HeaderMap) {
    for (name, value) in headers {
        tell!("{mark} {name}: {}", String::from_utf8_lossy(value.as_bytes()));
    }
}

fn print_tls(tls: &TlsSummary) {
    let mut parts = vec![if tls.resumed { "resumed" } else { "full handshake" }.to_owned()];
    parts.extend(tls.early_data_accepted.map(|accepted| format!("early data {}", if accepted { "accepted" } else { "refused" })));
    parts.extend(tls.key_exchange.map(|group| format!("{group:?}")));
    parts.extend(tls.cipher_suite.map(|suite| format!("{suite:?}")));
    tell!("* TLS: {}", parts.join(", "));
}

fn print_timings(timings: &Timings, connect: ConnectTimings, bytes: usize, total: Duration) {
    let milliseconds = |duration: Duration| format!("{:.3} ms", duration.as_secs_f64() * 1e3);
    let mut parts = Vec::new();
    if timings.is_new {
        parts.push(format!("resolved {}", milliseconds(timings.resolved)));
        parts.extend(connect.tcp.map(|tcp| format!("TCP {}", milliseconds(tcp))));
        parts.extend(connect.tls.map(|tls| format!("{} {}", if connect.tcp.is_some() { "TLS" } else { "QUIC" }, milliseconds(tls))));
    }
    parts.push(format!("first byte {}", milliseconds(timings.head)));
    parts.push(format!("total {}", milliseconds(total)));
    tell!("* {}; {}", counted(bytes, "byte"), parts.join(", "));
}

/// Where the content goes. A file appears only when it is whole.
enum Output<'a> {
    Nowhere,
    Stdout(io::Stdout),
    File(&'a Path, tempfile::NamedTempFile),
    /// A device or a pipe, which no file may take the place of.
    Special(&'a Path, File),
}

impl<'a> Output<'a> {
    fn open(path: Option<&'a Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self::Stdout(io::stdout())) };
        if std::fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
            let special = OpenOptions::new().write(true).open(path);
            return special.map(|special| Self::Special(path, special)).map_err(|error| output_failure(path, &error));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::Builder::new().prefix(".pronghorn-").tempfile_in(folder);
        file.map(|file| Self::File(path, file)).map_err(|error| output_failure(path, &error))
    }

    fn write(&mut self, data: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Nowhere => Ok(()),
            Self::Stdout(stdout) => stdout.write_all(data).map_err(|error| output_failure(Path::new("stdout"), &error)),
            Self::File(path, file) => file.write_all(data).map_err(|error| output_failure(path, &error)),
            Self::Special(path, special) => special.write_all(data).map_err(|error| output_failure(path, &error)),
        }
    }

    fn finish(self) -> Result<(), Failure> {
        match self {
            Self::Nowhere | Self::Special(..) => Ok(()),
            Self::Stdout(mut stdout) => stdout.flush().map_err(|error| output_failure(Path::new("stdout"), &error)),
            Self::File(path, file) => {
                use std::os::unix::fs::PermissionsExt;
                // Temporary files are private; what the user asked for is like any other file of theirs.
                let mode = std::fs::Permissions::from_mode(0o644);
                let kept = file.as_file().set_permissions(mode).and_then(|()| file.persist(path).map_err(|error| error.error));
                kept.map(drop).map_err(|error| output_failure(path, &error))
            }
        }
    }
}

fn output_failure(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Kind::Output, format_args!("cannot write {}: {error}", path.display()))
}
