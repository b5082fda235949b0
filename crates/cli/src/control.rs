//! `pronghorn reload`, `status` and `acme`: clients of a running server's admin API.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, Subcommand};
use http::header::{AUTHORIZATION, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use pronghorn_gateway::config::{AdminAccess, AdminListen, Fault, Problem};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::admin;
use crate::configuration;
use crate::failure::{Failure, Kind};
use crate::plural::counted;
use crate::server_state::UNCHANGED;

/// Maximum time for a response. A reload opens folders, certificates and logs, which a slow disk
/// may delay.
const ANSWER_TIME: Duration = Duration::from_secs(60);

#[derive(Args)]
pub(crate) struct ControlArgs {
    /// Configuration file of the server, which gives the admin API's address
    #[arg(short, long, value_name = "FILE", default_value = "pronghorn.toml")]
    config: PathBuf,

    /// Address of the admin API, unix:PATH or a loopback address; the configuration file is then
    /// not read
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<AdminListen>,

    /// Token of the admin API, if --admin is given and a token is required
    #[arg(
        long,
        env = "PRONGHORN_ADMIN_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN",
        requires = "admin"
    )]
    token: Option<String>,
}

#[derive(Subcommand)]
pub(crate) enum AcmeCommand {
    /// Make a running server order the certificate of a host at once, without waiting after a
    /// failure
    Retry(RetryArgs),
}

#[derive(Args)]
pub(crate) struct RetryArgs {
    /// Host name
    host: String,

    #[command(flatten)]
    server: ControlArgs,
}

pub(crate) fn acme(command: &AcmeCommand) -> Result<(), Failure> {
    let AcmeCommand::Retry(RetryArgs { host, server }) = command;
    let path = format!("/certificates/{}/retry", utf8_percent_encode(host, NON_ALPHANUMERIC));
    request(server, Method::POST, &path)?;
    print(&format!(
        "ordering the certificate of {host} again; see `pronghorn status` and the server's \
            standard error for the result\n"
    ))
}

pub(crate) fn reload(arguments: &ControlArgs) -> Result<(), Failure> {
    let answer = request(arguments, Method::POST, "/reload")?;
    let list = |name: &str| {
        let values = answer.get(name).and_then(Value::as_array).into_iter().flatten();
        values.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let mut lines = vec![format!(
        "serving {} of {}",
        counted(answer.get("sites").unwrap_or(&Value::Null), "site"),
        answer.get("file").and_then(Value::as_str).unwrap_or_default()
    )];
    if list("changes").is_empty() {
        lines.push(UNCHANGED.to_owned());
    }
    for (name, words) in [
        ("hosts_added", "added: "),
        ("hosts_removed", "removed: "),
        ("changes", ""),
        ("warnings", "warning: "),
    ] {
        lines.extend(list(name).iter().map(|one| format!("{words}{one}")));
    }
    lines.extend(
        list("needs_restart")
            .iter()
            .map(|key| format!("warning: {key} has changed; restart the server to apply it")),
    );
    let switched = answer.get("switched_by_hand").and_then(Value::as_array).into_iter().flatten();
    lines.extend(switched.map(|site| format!("warning: still switched by the admin API: {site}")));
    print(&(lines.join("\n") + "\n"))
}

pub(crate) fn status(arguments: &ControlArgs) -> Result<(), Failure> {
    let answer = request(arguments, Method::GET, "/status")?;
    print(&format!("{answer:#}\n"))
}

/// Sends a request to the admin API, and returns the body of a successful response.
fn request(arguments: &ControlArgs, method: Method, path: &str) -> Result<Value, Failure> {
    let mut syntax = None;
    let (address, token) = if let Some(address) = &arguments.admin {
        (address.clone(), arguments.token.clone())
    } else {
        let access =
            AdminAccess::read(&arguments.config).map_err(|problem| unknown_address(&problem))?;
        syntax = access.syntax;
        (
            admin::address(access.address, &arguments.config).0,
            access.token.as_ref().map(|token| token.reveal().to_owned()),
        )
    };
    let mut request = Request::builder().method(method).uri(path).header(HOST, "localhost");
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|_| {
        Failure::new(
            Kind::Usage,
            "invalid token: it has characters that a header field cannot carry",
        )
    })?;
    let internal = |error: io::Error| {
        Failure::new(Kind::Internal, format_args!("cannot wait for the network: {error}"))
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(internal)?;
    let exchanged = runtime
        .block_on(async { tokio::time::timeout(ANSWER_TIME, exchange(&address, request)).await });
    let (status, content) = exchanged
        .map_err(|_| {
            Failure::new(
                Kind::TimedOut,
                format_args!("no answer from {address} within {} s", ANSWER_TIME.as_secs()),
            )
        })?
        .map_err(|failure| match &syntax {
            Some(problem) if failure.kind() == Kind::Unavailable => {
                eprint_line!("{problem}");
                let file = arguments.config.display();
                Failure::new(
                    Kind::Malformed,
                    format_args!(
                        "{file} is malformed, and no server answers at the address that it seems \
                            to give: {address}"
                    ),
                )
                .with_hint("fix the file, or give the admin API's address with --admin")
            }
            _ => failure,
        })?;
    let answer: Value = serde_json::from_slice(&content).unwrap_or_default();
    if status.is_success() {
        return Ok(answer);
    }
    for problem in answer.get("problems").and_then(Value::as_array).into_iter().flatten() {
        eprint_line!("{}", problem.get("text").and_then(Value::as_str).unwrap_or_default());
    }
    let more = answer.get("more_problems").and_then(Value::as_u64).unwrap_or(0);
    if let Some(line) = configuration::more_problems(usize::try_from(more).unwrap_or(usize::MAX)) {
        eprint_line!("{line}");
    }
    let error = answer.get("error").and_then(Value::as_str).unwrap_or("no error message");
    Err(match status {
        StatusCode::UNPROCESSABLE_ENTITY => Failure::new(Kind::Malformed, error),
        StatusCode::UNAUTHORIZED => {
            Failure::new(Kind::Permission, error).with_hint("use the value of `token` in [admin]")
        }
        StatusCode::NOT_FOUND | StatusCode::CONFLICT => Failure::new(Kind::Unavailable, error),
        _ => Failure::new(Kind::Protocol, format_args!("{address} answered {status}: {error}")),
    })
}

/// Returns the failure if the admin API's address cannot be read from the file.
fn unknown_address(problem: &Problem) -> Failure {
    let kind = match problem.fault {
        Fault::Malformed => Kind::Malformed,
        Fault::Missing => Kind::Missing,
        Fault::Permission => Kind::Permission,
    };
    let message = Problem { hint: None, ..problem.clone() };
    let hint = problem.hint.as_deref().map(|hint| format!("{hint}, or ")).unwrap_or_default();
    Failure::new(kind, message).with_hint(format!(
        "{hint}give the admin API's address with --admin, and its token with --token"
    ))
}

async fn exchange(
    address: &AdminListen,
    request: Request<Empty<Bytes>>,
) -> Result<(StatusCode, Bytes), Failure> {
    let unreachable = |error: io::Error| {
        let (kind, hint) = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                (Kind::Permission, "run this as the user that the server runs as")
            }
            _ => (Kind::Unavailable, "check that the server runs with this configuration"),
        };
        Failure::new(kind, format_args!("cannot reach the admin API at {address}: {error}"))
            .with_hint(hint)
    };
    match address {
        AdminListen::Off => Err(Failure::new(
            Kind::Unavailable,
            "the admin API is off in this configuration",
        )
        .with_hint(
            "set `listen` in [admin], or `state_dir` in [server]; SIGHUP also makes a server \
                reload",
        )),
        AdminListen::Unix(path) => {
            send(UnixStream::connect(path).await.map_err(unreachable)?, request).await
        }
        AdminListen::Tcp(address) => {
            send(TcpStream::connect(address).await.map_err(unreachable)?, request).await
        }
    }
}

async fn send<S>(stream: S, request: Request<Empty<Bytes>>) -> Result<(StatusCode, Bytes), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let broken = |error: hyper::Error| {
        Failure::new(Kind::Protocol, format_args!("connection to the admin API failed: {error}"))
    };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let answer = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    };
    tokio::pin!(answer, connection);
    // The response carries the connection's error too.
    let mut is_open = true;
    loop {
        tokio::select! {
            answered = &mut answer => return answered.map_err(broken),
            _ = &mut connection, if is_open => is_open = false,
        }
    }
}

fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        // The reader has closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result
            .map_err(|error| Failure::new(Kind::Output, format_args!("cannot write: {error}"))),
    }
}
