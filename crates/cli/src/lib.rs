//! The `pronghorn` program: `run` a configuration file, `serve` files or `replay` a recorded page
//! over HTTP/1.1, 2 and 3, `get` a URL, `load` a server, or run a command behind an emulated
//! `link`.
//!
//! It turns the command line into library calls, and their errors into one line and an exit code;
//! see [`failure`]. [`main`] is the whole program: a program with its own layers
//! (docs/gateway/layers.md) calls it with them.

#![forbid(unsafe_code)]

/// Prints a line on standard error. Unlike `eprintln!` it does not panic if standard error is
/// closed: a server continues to serve.
macro_rules! eprint_line {
    ($($message:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($message)*);
    }};
}

/// Like `eprint_line!`, with the time in front, for log lines of a running server.
macro_rules! log_line {
    ($($message:tt)*) => {
        eprint_line!("{} {}", humantime::format_rfc3339_millis(std::time::SystemTime::now()), format_args!($($message)*))
    };
}

mod admin;
mod admin_api;
mod client_tls;
mod configuration;
mod control;
mod descriptors;
mod failure;
mod get;
mod handshakes;
mod identity;
mod json;
mod key_log;
mod limits;
mod link;
mod load;
mod load_table;
mod memory;
mod metrics;
mod plural;
mod qlog;
mod redirects;
mod replay;
mod request_args;
mod run;
mod serve;
mod server;
mod server_state;
mod serving;
mod signer;
mod watch;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
pub use pronghorn_gateway::layers;
use pronghorn_gateway::layers::Registry;

#[derive(Parser)]
#[command(
    name = "pronghorn",
    version,
    about = "HTTP/3 in production: one engine for HTTP/1.1, 2 and 3",
    max_term_width = 110
)]
#[command(after_help = failure::EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the sites of a configuration file: files, redirects, a reverse proxy
    Run(run::RunArgs),
    /// Make a running server reload its configuration, and show what has changed
    Reload(control::ControlArgs),
    /// Show a running server's sites and counters
    Status(control::ControlArgs),
    /// Manage certificates that a running server orders
    #[command(subcommand)]
    Acme(control::AcmeCommand),
    /// Report all errors in a configuration file
    Check(configuration::CheckArgs),
    /// Format configuration files
    Fmt(configuration::FmtArgs),
    /// Print the JSON Schema of configuration files
    Schema,
    /// Serve the files of a folder over HTTP/1.1, 2 and 3 on one port
    Serve(serve::ServeArgs),
    /// Serve a recorded page over HTTP/1.1, 2 and 3 on one port, with all its hosts
    Replay(replay::ReplayArgs),
    /// Fetch a URL
    Get(get::GetArgs),
    /// Send load to a server and measure its responses
    Load(load::LoadArgs),
    /// Sign with private keys for gateways on other machines
    Signer(signer::SignerArgs),
    /// Run a command behind an emulated network link
    Link(link::LinkArgs),
}

/// Runs the command line, and prints errors on standard error. Configurations may use the `layers`.
pub fn main(layers: &Registry) -> ExitCode {
    let command = Arguments::parse().command;
    if matches!(
        command,
        Command::Run(_)
            | Command::Serve(_)
            | Command::Replay(_)
            | Command::Load(_)
            | Command::Signer(_)
    ) {
        descriptors::raise_limit();
    }
    let result = match command {
        Command::Run(arguments) => run::run(&arguments, layers).map(|()| ExitCode::SUCCESS),
        Command::Reload(arguments) => control::reload(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Status(arguments) => control::status(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Acme(command) => control::acme(&command).map(|()| ExitCode::SUCCESS),
        Command::Check(arguments) => {
            configuration::check(&arguments, layers).map(|()| ExitCode::SUCCESS)
        }
        Command::Fmt(arguments) => configuration::format(&arguments),
        Command::Schema => configuration::schema(layers).map(|()| ExitCode::SUCCESS),
        Command::Serve(arguments) => serve::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Replay(arguments) => replay::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Get(arguments) => get::run(arguments).map(|()| ExitCode::SUCCESS),
        Command::Load(arguments) => load::run(&arguments),
        Command::Signer(arguments) => signer::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Link(arguments) => return link::run(arguments),
    };
    let code = result.unwrap_or_else(|failure| {
        eprint_line!("error: {failure}");
        failure.exit_code()
    });
    pronghorn_gateway::wait_for_threads(THREADS_END);
    code
}

/// Maximum time to wait for the threads that renew certificates.
const THREADS_END: Duration = Duration::from_secs(2);
