//! `pronghorn get`.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::future::Future;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body_util::BodyExt;
use pronghorn_engine::{
    Body, Config, ConnectTimings, Connection, Connector, Group, Incoming, Protocol, Responder,
    Resumption, Target, TlsSummary, Worker, embed_in_tokio,
};

use crate::failure::{Failure, Kind};
use crate::handshakes::{self, exchange_failure};
use crate::plural::counted;
use crate::qlog;
use crate::redirects;
use crate::request_args::{Origin, RequestArgs};
use crate::server::seconds;

const MAX_REDIRECTS: usize = 10;

#[derive(Args)]
pub(crate) struct GetArgs {
    /// URL to fetch, such as https://localhost:8443/
    url: Uri,

    #[command(flatten)]
    request: RequestArgs,

    /// Follow redirects. A POST becomes a GET without a body after 301 and 302, every method but
    /// HEAD after 303; 307 and 308 repeat the request
    #[arg(short = 'L', long)]
    location: bool,

    /// File to write the response body to, only if complete [default: stdout]
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Write a qlog file for each QUIC connection into this folder
    #[arg(long, value_name = "DIR", env = "QLOGDIR")]
    qlog: Option<PathBuf>,

    /// Time out after this many seconds
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    timeout: Duration,

    /// Fetch this many times, each over a new connection that resumes the previous TLS session. The
    /// last response body is kept
    #[arg(long, value_name = "N", default_value = "1", default_value_if("early_data", "true", "2"), value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,

    /// Send the request before the handshake completes (0-RTT), from the second connection on;
    /// --repeat then defaults to 2
    #[arg(long)]
    early_data: bool,

    /// Show protocol, timings and header fields on stderr
    #[arg(short = 'v', long)]
    verbose: bool,
}

pub(crate) fn run(arguments: GetArgs) -> Result<(), Failure> {
    let internal = |error: io::Error| Failure::new(Kind::Internal, error);
    let tls = arguments.request.tls()?;
    let content = arguments.request.content()?.unwrap_or_default();
    let refuse = |_, responder: Responder| drop(responder);
    let qlog = arguments.qlog.as_deref().map(qlog::to_folder).transpose()?;
    let config = Config {
        qlog: qlog.clone(),
        congestion: arguments.request.congestion,
        ..Config::default()
    };
    let mut worker = Worker::new(0, &Group::new(1), config, refuse).map_err(internal)?;
    let connector = worker.connector(&tls).map_err(internal)?;
    let timeout = arguments.timeout;
    let fetch = async move {
        Fetch { arguments, connector, content, connection: None, spoken: None }.run().await
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(internal)?;
    let result = runtime.block_on(drive(&mut worker, timeout, fetch));
    drop(worker);
    if let Some(qlog) = &qlog {
        qlog::conclude(qlog);
    }
    result
}

/// Runs `future` on `worker` to its end or its timeout, and then lets the worker close the
/// connection, since the server would otherwise go on working for it.
async fn drive(
    worker: &mut Worker,
    timeout: Duration,
    future: impl Future<Output = Result<(), Failure>> + 'static,
) -> Result<(), Failure> {
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
    let late = || {
        Failure::new(Kind::TimedOut, "timed out waiting for the server")
            .with_hint("allow more time with --timeout")
    };
    // A result from the last turn is discarded: it came too late, or from an exchange that is being
    // aborted.
    let result = in_time.map_or_else(
        |_| Err(late()),
        |turns| turns.map_err(internal).and(result.take().unwrap_or(Ok(()))),
    );
    let now = Instant::now();
    worker.shut_down(now, Duration::ZERO);
    let goodbye = worker.turn(now).map_err(internal);
    result.and(goodbye)
}

/// One invocation of `pronghorn get`.
struct Fetch {
    arguments: GetArgs,
    connector: Connector,
    content: Bytes,
    connection: Option<(Origin, Connection)>,
    /// Protocol of the last connection: early data must use the same protocol.
    spoken: Option<(Origin, Protocol)>,
}

/// End times of the parts of an exchange, from its start.
struct Timings {
    resolved: Duration,
    /// Whether the connection was opened for this exchange.
    is_new: bool,
    head: Duration,
}

impl Fetch {
    async fn run(mut self) -> Result<(), Failure> {
        let content = self.content.clone();
        for left in (0..self.arguments.repeat).rev() {
            self.content = content.clone();
            // After early data, tickets may come later than the response, so the connection stays
            // open while the next fetch runs.
            let last = self.connection.take();
            self.fetch(left == 0).await?;
            drop(last);
        }
        Ok(())
    }

    /// `deliver`: whether to output the response body, and not only obtain the connection's
    /// session.
    async fn fetch(&mut self, deliver: bool) -> Result<(), Failure> {
        let mut method = self.arguments.request.method(self.arguments.request.data.is_some());
        let mut uri = self.arguments.url.clone();
        let first = Origin::of(&uri)?;
        let mut given = self.arguments.request.headers();
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
        Err(Failure::new(
            Kind::Protocol,
            format_args!("too many redirects: more than {MAX_REDIRECTS}"),
        ))
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
        let reusable = self
            .connection
            .take()
            .filter(|(open, connection)| *open == origin && connection.is_usable());
        let mut connection = if let Some((_, connection)) = reusable {
            connection
        } else {
            let addresses = self.arguments.request.remotes(&origin)?;
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
            eprint_line!("> {method} {target} {}", connection.protocol());
            eprint_line!("> host: {}", origin.authority);
            print_fields('>', request.headers());
        }
        let response = connection.send(request).await.map_err(|error| exchange_failure(&error))?;
        let head = began.elapsed();
        if self.arguments.verbose {
            eprint_line!("< {} {}", connection.protocol(), response.status());
            print_fields('<', response.headers());
        }
        self.spoken = Some((origin.clone(), connection.protocol()));
        self.connection = Some((origin, connection));
        Ok((response, Timings { resolved, is_new, head }))
    }

    async fn connect(
        &self,
        origin: &Origin,
        addresses: &[SocketAddr],
    ) -> Result<Connection, Failure> {
        let mut failure = None;
        let spoken = self
            .spoken
            .as_ref()
            .filter(|(before, _)| before == origin && self.arguments.early_data);
        for &remote in addresses {
            let target = Target {
                remote,
                server_name: origin.host().to_owned(),
                protocol: self.arguments.request.http.or(spoken.map(|(_, protocol)| *protocol)),
                secure: origin.secure,
                resumption: if self.arguments.early_data {
                    Resumption::EarlyData
                } else {
                    Resumption::Session
                },
            };
            match handshakes::connect(&self.connector, &target).await {
                Ok(connection) => {
                    if self.arguments.verbose {
                        eprint_line!("* connected to {remote} with {}", connection.protocol());
                    }
                    return Ok(connection);
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| {
            Failure::new(Kind::UnknownHost, format_args!("{} has no address", origin.host()))
        }))
    }

    async fn deliver(
        &self,
        mut body: Incoming,
        deliver: bool,
        timings: &Timings,
        began: Instant,
    ) -> Result<(), Failure> {
        let mut output =
            if deliver { Output::open(self.arguments.output.as_deref())? } else { Output::Nowhere };
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                Failure::new(
                    Kind::Protocol,
                    format_args!("response aborted after {}: {error}", counted(bytes, "byte")),
                )
            })?;
            if let Some(data) = frame.data_ref() {
                bytes += data.len();
                output.write(data)?;
            } else if let Some(trailers) = frame.trailers_ref()
                && self.arguments.verbose
            {
                eprint_line!("< trailers:");
                print_fields('<', trailers);
            }
        }
        output.finish()?;
        let total = began.elapsed();
        if let Some((_, connection)) = &self.connection {
            // After early data the handshake may still be running; its session serves the next
            // connection.
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

/// Returns the fields to send: given fields replace the default ones.
fn headers(given: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(
        USER_AGENT,
        HeaderValue::from_static(concat!("pronghorn/", env!("CARGO_PKG_VERSION"))),
    );
    headers.insert(http::header::ACCEPT, HeaderValue::from_static("*/*"));
    headers.extend(given.clone());
    headers
}

fn print_fields(mark: char, headers: &HeaderMap) {
    for (name, value) in headers {
        eprint_line!("{mark} {name}: {}", String::from_utf8_lossy(value.as_bytes()));
    }
}

fn print_tls(tls: &TlsSummary) {
    let mut parts = vec![if tls.resumed { "resumed" } else { "full handshake" }.to_owned()];
    parts.extend(
        tls.early_data_accepted.map(|accepted| {
            format!("early data {}", if accepted { "accepted" } else { "refused" })
        }),
    );
    parts.extend(tls.key_exchange.map(|group| format!("{group:?}")));
    parts.extend(tls.cipher_suite.map(|suite| format!("{suite:?}")));
    eprint_line!("* TLS: {}", parts.join(", "));
}

fn print_timings(timings: &Timings, connect: ConnectTimings, bytes: usize, total: Duration) {
    let milliseconds = |duration: Duration| format!("{:.3} ms", duration.as_secs_f64() * 1e3);
    let mut parts = Vec::new();
    if timings.is_new {
        parts.push(format!("resolved {}", milliseconds(timings.resolved)));
        parts.extend(connect.tcp.map(|tcp| format!("TCP {}", milliseconds(tcp))));
        parts.extend(connect.tls.map(|tls| {
            format!("{} {}", if connect.tcp.is_some() { "TLS" } else { "QUIC" }, milliseconds(tls))
        }));
    }
    parts.push(format!("first byte {}", milliseconds(timings.head)));
    parts.push(format!("total {}", milliseconds(total)));
    eprint_line!("* {}; {}", counted(bytes, "byte"), parts.join(", "));
}

/// The destination of a response body. A file appears only when it is complete.
enum Output<'a> {
    Nowhere,
    Stdout(io::Stdout),
    File(&'a Path, tempfile::NamedTempFile),
    /// A device or pipe, which must not be replaced by a file.
    Special(&'a Path, File),
}

impl<'a> Output<'a> {
    fn open(path: Option<&'a Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self::Stdout(io::stdout())) };
        if std::fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
            let special = OpenOptions::new().write(true).open(path);
            return special
                .map(|special| Self::Special(path, special))
                .map_err(|error| output_failure(path, &error));
        }
        let folder =
            path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::Builder::new().prefix(".pronghorn-").tempfile_in(folder);
        file.map(|file| Self::File(path, file)).map_err(|error| output_failure(path, &error))
    }

    fn write(&mut self, data: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Nowhere => Ok(()),
            Self::Stdout(stdout) => {
                stdout.write_all(data).map_err(|error| output_failure(Path::new("stdout"), &error))
            }
            Self::File(path, file) => {
                file.write_all(data).map_err(|error| output_failure(path, &error))
            }
            Self::Special(path, special) => {
                special.write_all(data).map_err(|error| output_failure(path, &error))
            }
        }
    }

    fn finish(self) -> Result<(), Failure> {
        match self {
            Self::Nowhere | Self::Special(..) => Ok(()),
            Self::Stdout(mut stdout) => {
                stdout.flush().map_err(|error| output_failure(Path::new("stdout"), &error))
            }
            Self::File(path, file) => {
                use std::os::unix::fs::PermissionsExt;
                // Temporary files are private; the output file gets the usual permissions.
                let mode = std::fs::Permissions::from_mode(0o644);
                let kept = file
                    .as_file()
                    .set_permissions(mode)
                    .and_then(|()| file.persist(path).map_err(|error| error.error));
                kept.map(drop).map_err(|error| output_failure(path, &error))
            }
        }
    }
}

fn output_failure(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Kind::Output, format_args!("cannot write {}: {error}", path.display()))
}
