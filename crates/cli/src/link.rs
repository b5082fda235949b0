//! `pronghorn link`: turns the command line into a run or a calibration of the library
//! `pronghorn-link`.

use std::ffi::OsString;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use pronghorn_link::report::ReportFile;
use pronghorn_link::run::{FAR_GRACE, Far, Run};
use pronghorn_link::{Error, Options, Profile, TcpInfo};

const AFTER_HELP: &str = "\
The client's end of the link is 10.77.0.1 and fd77::1; COMMAND runs there.
The server's end is 10.77.0.2 and fd77::2; the --far command runs there.
Both are unnamed network namespaces that reach nothing but each other. Root is not
needed if user namespaces are allowed and /dev/net/tun can be opened. Processes
that the commands leave running end with the link.

Exit codes:
  COMMAND's own, or 128 and the number of the signal that ended it
  1    --calibrate: the link does not do what the profile says
  2    invalid usage, a congestion control unknown to this kernel, or a resolver
       that is not on the link
  65   the profile is malformed
  66   the profile is missing or unreadable
  69   the --far command ended or did not listen in time, or there is no TUN
       device, no tcp_diag in the kernel (--tcp-info), no /etc/resolv.conf
       (--resolver)
  70   a system call failed that should have worked
  73   the report or a trace cannot be written
  77   not permitted to create namespaces or to open /dev/net/tun
  126  COMMAND or the --far command cannot be run
  127  COMMAND or the --far command does not exist

Examples:
  pronghorn link profiles/lte.toml --far-ready 443 \\
      --far 'pronghorn serve site --listen 10.77.0.2:443' \\
      -- pronghorn get https://10.77.0.2/ --no-verify
  pronghorn link --calibrate profiles/lte.toml";

/// Run a command behind an emulated network link, or measure such a link.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct LinkArgs {
    /// Link profile, a TOML file (see docs/link.md)
    #[arg(value_name = "PROFILE")]
    profile: PathBuf,

    /// Command line to run at the server's end, split at spaces as in a shell, but without
    /// expansion
    ///
    /// It starts before COMMAND and gets SIGTERM when COMMAND has ended, then SIGKILL after 12
    /// seconds. Its output goes to standard error.
    #[arg(long, value_name = "COMMANDLINE", conflicts_with = "calibrate")]
    far: Option<String>,

    /// Start COMMAND once this TCP port listens at the server's end
    #[arg(long, value_name = "PORT", requires = "far", value_parser = clap::value_parser!(u16).range(1..))]
    far_ready: Option<u16>,

    /// Time that the port may take to listen
    #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "far_ready")]
    far_ready_seconds: u64,

    /// Command line to run to completion at the server's end, once the port listens and before
    /// COMMAND starts. Repeat for more
    ///
    /// For example a request, so that COMMAND's is not the first request to a fresh server. It does
    /// not cross the link, and may take as long as the port. The report says how it ended.
    #[arg(long, value_name = "COMMANDLINE", requires = "far_ready")]
    far_warm_up: Vec<String>,

    /// Seed of loss, jitter, outages and the position in a trace: the same profile and seed lose
    /// the same packets in each direction
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Turn the profile's jitter and reordering off
    #[arg(long)]
    no_jitter: bool,

    /// Write statistics of the link to this file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Write one row for each packet that reached the link to this file, as CSV
    #[arg(long, value_name = "FILE", conflicts_with = "calibrate")]
    packets: Option<PathBuf>,

    /// Write samples of the kernel's TCP_INFO of all connections over the link to this file, as CSV
    #[arg(long, value_name = "FILE", conflicts_with = "calibrate")]
    tcp_info: Option<PathBuf>,

    /// Interval between samples
    #[arg(long, value_name = "MS", default_value_t = 10, requires = "tcp_info", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    tcp_info_every_ms: u64,

    /// TCP congestion control of all connections over the link, at both ends [default: the
    /// kernel's]
    #[arg(long, value_name = "NAME", conflicts_with = "calibrate")]
    tcp_congestion: Option<String>,

    /// Initial congestion window of TCP connections over the link, in segments, at both ends
    /// [default: the kernel's, 10]
    #[arg(long, value_name = "N", conflicts_with = "calibrate", value_parser = clap::value_parser!(u32).range(1..=1000))]
    tcp_initial_window: Option<u32>,

    /// Whether TCP connections over the link return to their initial window after an idle period,
    /// at both ends: on or off [default: the kernel's, on]
    #[arg(long, value_name = "on|off", conflicts_with = "calibrate")]
    tcp_slow_start_after_idle: Option<Switch>,

    /// Make the commands resolve names only at this address on the link
    ///
    /// They see an /etc/resolv.conf that names it and an /etc/hosts with localhost only. Port 53;
    /// usually 10.77.0.2, where a server started with --far listens.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "calibrate")]
    resolver: Option<IpAddr>,

    /// Measure rate, delay and loss against the profile and print PASS or FAIL
    #[arg(long)]
    calibrate: bool,

    /// With --calibrate: length of each of the three measurements (probes, full rate up, full rate
    /// down)
    #[arg(long, value_name = "N", default_value_t = 5, requires = "calibrate", value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,

    /// Program to run at the client's end, with its arguments
    #[arg(
        last = true,
        value_name = "COMMAND",
        required_unless_present = "calibrate",
        conflicts_with = "calibrate"
    )]
    command: Vec<OsString>,
}

impl LinkArgs {
    fn profile(&self) -> Result<Profile, Error> {
        let profile = Profile::load(&self.profile)?;
        Ok(if self.no_jitter { profile.without_jitter() } else { profile })
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Switch {
    On,
    Off,
}

/// Runs `pronghorn link` to its end. Must be called before the program starts a thread: without
/// root, the process is moved into a user namespace.
pub(crate) fn run(args: LinkArgs) -> ExitCode {
    let done = if args.calibrate { calibrate(&args) } else { run_command(args) };
    ExitCode::from(done.unwrap_or_else(|error| {
        eprint_line!("error: {error}");
        error.exit_code()
    }))
}

fn run_command(args: LinkArgs) -> Result<u8, Error> {
    let warm_ups =
        args.far_warm_up.iter().map(|line| Far::split(line)).collect::<Result<_, _>>()?;
    let far = args.far.as_deref().map(Far::split).transpose()?.map(|argv| Far {
        argv,
        warm_ups,
        ready_port: args.far_ready,
        ready_timeout: Duration::from_secs(args.far_ready_seconds),
        grace: FAR_GRACE,
    });
    pronghorn_link::run::run(&Run {
        profile: args.profile()?,
        options: Options {
            seed: args.seed,
            tcp_congestion: args.tcp_congestion,
            tcp_initial_window: args.tcp_initial_window,
            tcp_slow_start_after_idle: args
                .tcp_slow_start_after_idle
                .map(|switch| matches!(switch, Switch::On)),
            packets: args.packets,
            resolver: args.resolver,
            tcp_info: args.tcp_info.map(|path| TcpInfo {
                path,
                interval: Duration::from_millis(args.tcp_info_every_ms),
            }),
        },
        command: args.command,
        far,
        report: args.report,
    })
}

fn calibrate(args: &LinkArgs) -> Result<u8, Error> {
    let profile = args.profile()?;
    let report = args.report.as_deref().map(ReportFile::prepare).transpose()?;
    pronghorn_link::enter_user_namespace_unless_root()?;
    eprint_line!(
        "pronghorn link: calibrating {}, about {} s",
        profile.name,
        pronghorn_link::calibrate::takes_seconds(&profile, args.seconds)
    );
    let calibration = pronghorn_link::calibrate::calibrate(&profile, args.seed, args.seconds)?;
    // The exit code gives the result even if standard output is closed.
    let _ = writeln!(std::io::stdout(), "{calibration}");
    if let Some(report) = report {
        report.write(&calibration)?;
    }
    Ok(u8::from(!calibration.passed))
}
