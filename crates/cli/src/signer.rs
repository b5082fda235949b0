//! `pronghorn signer`.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use http::header::{ALLOW, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use pronghorn_fleet::signer::Server;
use pronghorn_fleet::signer::server::{Config, Fault, Problem, StartError};
use pronghorn_gateway::config::{AdminListen, Token};
use tokio::signal::unix::{SignalKind, signal};

use crate::admin::{Admin, Choice};
use crate::admin_api::{Answer, error};
use crate::failure::{Failure, Kind};
use crate::metrics;
use crate::plural::counted;

#[derive(Args)]
pub(crate) struct SignerArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE", default_value = "signer.toml")]
    config: PathBuf,

    /// Check the configuration, its files and its tokens, and do not serve
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(arguments: &SignerArgs) -> Result<(), Failure> {
    let file = &arguments.config;
    let config = Config::load(file).map_err(failure)?;
    let admin = admin(&config).map_err(failure)?;
    let settings = config.open().map_err(failure)?;
    let (keys, clients) = config.counts();
    let counts = format!("{}, {}", counted(keys, "key"), counted(clients, "client"));
    if arguments.check {
        eprint_line!("{}: {counts}: no errors", file.display());
        return Ok(());
    }
    let admin = match admin {
        Some((listen, token)) => Admin::bind(&(listen, Choice::Configured), token.as_ref())?,
        None => None,
    };
    let server = Server::start(settings, |line| log_line!("{line}"))
        .map_err(|error| start_failure(&error))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| internal("cannot wait for signals", &error))?;
    runtime.block_on(serve(server, admin, &config, &format!("{counts} of {}", file.display())))
}

/// Serves until a signal ends the signer. A second signal ends it at once.
async fn serve(
    server: Server,
    admin: Option<Admin>,
    config: &Config,
    what: &str,
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| internal("cannot wait for signals", &error);
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(failed)?;
    for address in server.addresses() {
        eprint_line!("listening on {address}");
    }
    if let Some(address) = admin.as_ref().and_then(Admin::address) {
        eprint_line!("admin API at {address}");
    }
    eprint_line!("serving {what}");
    let server = Rc::new(server);
    let answering = {
        let server = server.clone();
        async move {
            if let Some(admin) = admin {
                // Returns only when it fails, which ends no signer.
                admin.serve(move |parts, _| answer(&server, parts)).await;
            }
            std::future::pending::<()>().await;
        }
    };
    let hang_ups = async {
        while hang_up.recv().await.is_some() {
            log_line!("warning: SIGHUP does not reload the configuration; restart the signer");
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = hang_ups => {}
        () = answering => {}
    }
    let Some(server) = Rc::into_inner(server) else { return Ok(()) };
    drain(server, config.grace(), &mut terminate, &mut interrupt).await
}

async fn drain(
    server: Server,
    grace: Duration,
    terminate: &mut tokio::signal::unix::Signal,
    interrupt: &mut tokio::signal::unix::Signal,
) -> Result<(), Failure> {
    log_line!("shutting down: answering what is in flight");
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // The receiver is gone after a second signal.
        let _ = ended.send(server.shutdown(grace));
    });
    let aborted = tokio::select! {
        aborted = end => aborted.unwrap_or(0),
        _ = terminate.recv() => 0,
        _ = interrupt.recv() => 0,
    };
    if aborted > 0 {
        log_line!(
            "warning: {} aborted after {grace:?}; allow more time with `grace`",
            counted(aborted, "connection")
        );
    }
    Ok(())
}

fn answer(server: &Server, parts: &Parts) -> Answer {
    if parts.uri.path() != "/metrics" {
        return error(StatusCode::NOT_FOUND, "unknown endpoint; the endpoint is GET /metrics");
    }
    if parts.method != Method::GET {
        let mut refused = error(StatusCode::METHOD_NOT_ALLOWED, "the method must be GET");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return refused;
    }
    let mut answer = Response::new(Full::new(server.metrics().into()));
    let kind = HeaderValue::from_static(metrics::CONTENT_TYPE);
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

/// Returns where the admin API listens, and its token.
fn admin(config: &Config) -> Result<Option<(AdminListen, Option<Token>)>, Problem> {
    let Some(table) = config.admin() else { return Ok(None) };
    let span = table.listen.span();
    let problem = |message: String, hint: &str| Problem {
        hint: Some(hint.to_owned()),
        ..config.problem(&span, message)
    };
    let listen: AdminListen = table
        .listen
        .get_ref()
        .parse()
        .map_err(|message| Problem { hint: None, ..config.problem(&span, message) })?;
    let token = table.token.clone().map(token);
    let listen = match listen {
        AdminListen::Unix(path) => AdminListen::Unix(config.folder().join(path)),
        AdminListen::Tcp(address) if !address.ip().is_loopback() => {
            return Err(problem(
                format!("the admin API cannot listen on {address}"),
                "use a loopback address or unix:PATH",
            ));
        }
        AdminListen::Tcp(_) if token.is_none() => {
            return Err(problem(
                "the admin API listens on a port and has no token".to_owned(),
                "set `token` in [admin], or use unix:PATH",
            ));
        }
        other => other,
    };
    Ok(Some((listen, token)))
}

/// The gateway's type of a secret, which is never shown.
fn token(text: String) -> Token {
    let token = serde_json::from_value(serde_json::Value::String(text));
    token.expect("invariant: a token is any string")
}

fn failure(problem: Problem) -> Failure {
    let kind = match problem.fault {
        Fault::Malformed => Kind::Malformed,
        Fault::Missing => Kind::Missing,
        Fault::Permission => Kind::Permission,
        Fault::Unavailable => Kind::Unavailable,
    };
    Failure::new(kind, problem)
}

fn start_failure(error: &StartError) -> Failure {
    match error {
        StartError::Bind { source, .. } => {
            let (kind, hint) = match source.kind() {
                std::io::ErrorKind::AddrInUse => (
                    Kind::Unavailable,
                    "stop the process that uses the port, or choose another with `listen`",
                ),
                std::io::ErrorKind::PermissionDenied => (
                    Kind::Permission,
                    "use a port of 1024 or more, or grant the program CAP_NET_BIND_SERVICE",
                ),
                _ => (Kind::Unavailable, "use an address of this machine"),
            };
            Failure::new(kind, error).with_hint(hint)
        }
        StartError::Thread(_) => Failure::new(Kind::Internal, error),
    }
}

fn internal(what: &str, error: &std::io::Error) -> Failure {
    Failure::new(Kind::Internal, format_args!("{what}: {error}"))
}
