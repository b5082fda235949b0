//! The `pronghorn` program: `run` what a configuration file says, `serve` files or `replay` a recorded page over HTTP/1.1, 2 and 3, `get` a URL, `load` a server, run a
//! command behind an emulated `link`.
//!
//! It turns the command line into calls of the libraries and their errors into one line and an exit code; see [`failure`]. [`main`] is all of it:
//! a program with layers of its own (docs/gateway/layers.md) calls it with them.

#![forbid(unsafe_code)]

/// Prints a line on standard error. Unlike `eprintln!` it does not panic when nobody can read it: a server serves on.
macro_rules! tell {
    ($($message:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($message)*);
    }};
}

/// The same with the time in front, for what a server says while it serves.
macro_rules! tell_now {
    ($($message:tt)*) => {
        tell!("{} {}", humantime::format_rfc3339_millis(std::time::SystemTime::now()), format_args!($($message)*))
    };
}

mod admin;
mod answers;
mod client_tls;
mod configuration;
mod control;
mod counted;
mod descriptors;
mod failure;
mod get;
mod handshakes;
mod key_log;
mod limits;
mod link;
mod load;
mod load_table;
mod metrics;
mod qlog;
mod redirects;
mod replay;
mod run;
mod running;
mod serve;
mod server;
mod serving;
mod watch;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
pub use pronghorn_gateway::layers;
use pronghorn_gateway::layers::Registry;

#[derive(Parser)]
#[command(name = "pronghorn", version, about = "HTTP/3 in production: one engine for HTTP/1.1, 2 and 3", max_term_width = 110)]
#[command(after_help = failure::EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the sites of a configuration file: files, redirects, a reverse proxy
    Run(run::RunArgs),
    /// Make a running server read its configuration again, and say what that has changed
    Reload(control::ControlArgs),
    /// Show what a running server serves, and its counters
    Status(control::ControlArgs),
    /// Certificates that a running server orders
    #[command(subcommand)]
    Acme(control::AcmeCommand),
    /// Say all that is wrong with a configuration file
    Check(configuration::CheckArgs),
    /// Write configuration files in one style
    Fmt(configuration::FmtArgs),
    /// Print the JSON Schema of configuration files
    Schema,
    /// Serve the files of a folder over HTTP/1.1, 2 and 3 on one port
    Serve(serve::ServeArgs),
    /// Serve a recorded page over HTTP/1.1, 2 and 3 on one port, with all hosts that it is on
    Replay(replay::ReplayArgs),
    /// Fetch a URL
    Get(get::GetArgs),
    /// Load a server with requests and measure how it answers
    Load(load::LoadArgs),
    /// Run a command behind an emulated network link
    Link(link::LinkArgs),
}

/// Does what the command line says, and tells of errors on standard error. Configurations may name the `layers`.
pub fn main(layers: &Registry) -> ExitCode {
    let command = Arguments::parse().command;
    if matches!(command, Command::Run(_) | Command::Serve(_) | Command::Replay(_) | Command::Load(_)) {
        descriptors::raise_limit();
    }
    let result = match command {
        Command::Run(arguments) => run::run(&arguments, layers).map(|()| ExitCode::SUCCESS),
        Command::Reload(arguments) => control::reload(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Status(arguments) => control::status(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Acme(command) => control::acme(&command).map(|()| ExitCode::SUCCESS),
        Command::Check(arguments) => configuration::check(&arguments, layers).map(|()| ExitCode::SUCCESS),
        Command::Fmt(arguments) => configuration::format(&arguments),
        Command::Schema => configuration::schema(layers).map(|()| ExitCode::SUCCESS),
        Command::Serve(arguments) => serve::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Replay(arguments) => replay::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Get(arguments) => get::run(arguments).map(|()| ExitCode::SUCCESS),
        Command::Load(arguments) => load::run(&arguments),
        Command::Link(arguments) => return link::run(arguments),
    };
    let code = result.unwrap_or_else(|failure| {
        tell!("error: {failure}");
        failure.exit_code()
    });
    pronghorn_gateway::wait_for_threads(THREADS_END);
    code
}

/// How long the threads that renew certificates may take to end.
const THREADS_END: Duration = Duration::from_secs(2);
