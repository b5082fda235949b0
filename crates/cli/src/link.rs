//! `pronghorn link`: what was typed, turned into a run or a calibration of the library `pronghorn-link`.

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
Both are network namespaces without a name that reach nothing but each other.
The rights of root are not needed where user namespaces are allowed and
/dev/net/tun may be opened. What the commands leave running ends with the link.

Exit codes:
  COMMAND's own, or 128 and the number of the signal that ended it
  1    --calibrate: the link does not do what the profile says
  2    wrong use, a congestion control unknown to this kernel, or a resolver that
       is not on the link
  65   the profile is malformed
  66   the profile is missing or unreadable
  69   the --far command ended or did not listen in time, or there is no TUN
       device, no tcp_diag in the kernel (--tcp-info), no /etc/resolv.conf
       (--resolver)
  70   a system call failed that should have worked
  73   the report or a trace cannot be written
  77   not permitted to make namespaces or to open /dev/net/tun
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

    /// Command line to run at the server's end, split at blanks as a shell does, but nothing is expanded
    ///
    /// It starts before COMMAND and gets SIGTERM when COMMAND has ended, then SIGKILL after 12 seconds. Its output goes to
    /// standard error.
    #[arg(long, value_name = "COMMANDLINE", conflicts_with = "calibrate")]
    far: Option<String>,

    /// Start COMMAND once this TCP port listens at the server's end
    #[arg(long, value_name = "PORT", requires = "far", value_parser = clap::value_parser!(u16).range(1..))]
    far_ready: Option<u16>,

    /// How long the port may take to listen
    #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "far_ready")]
    far_ready_seconds: u64,

    /// Command line to run at the server's end, to its end, once the port listens and before COMMAND starts. Repeat for more
    ///
    /// For example a request, so that COMMAND's is not the first that a fresh server gets. It does not cross the link, and may take as long
    /// as the port. The report says how it ended.
    #[arg(long, value_name = "COMMANDLINE", requires = "far_ready")]
    far_warm_up: Vec<String>,

    /// Seed of loss, jitter, outages and the place in a trace: the same profile and seed lose the same packets of each direction
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Leave the profile's jitter and reordering out
    #[arg(long)]
    no_jitter: bool,

    /// Write what the link did to this file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Write one row for each packet that reached the link to this file, as CSV
    #[arg(long, value_name = "FILE", conflicts_with = "calibrate")]
    packets: Option<PathBuf>,

    /// Write samples of the kernel's TCP_INFO of all connections over the link to this file, as CSV
    #[arg(long, value_name = "FILE", conflicts_with = "calibrate")]
    tcp_info: Option<PathBuf>,

    /// From one sample to the next
    #[arg(long, value_name = "MS", default_value_t = 10, requires = "tcp_info", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    tcp_info_every_ms: u64,

    /// TCP congestion control of all connections over the link, at both ends [default: the kernel's]
    #[arg(long, value_name = "NAME", conflicts_with = "calibrate")]
    tcp_congestion: Option<String>,

    /// Segments that a TCP connection over the link sends before it knows its path, at both ends [default: the kernel's, 10]
    #[arg(long, value_name = "N", conflicts_with = "calibrate", value_parser = clap::value_parser!(u32).range(1..=1000))]
    tcp_initial_window: Option<u32>,

    /// Whether a TCP connection over the link begins with its initial window again when it has sent nothing for a while, at both ends:
    /// on or off [default: the kernel's, on]
    #[arg(long, value_name = "on|off", conflicts_with = "calibrate")]
    tcp_slow_start_after_idle: Option<Switch>,

    /// Let the commands look up names at this address on the link, and nowhere else
    ///
    /// They see an /etc/resolv.conf that names it and an /etc/hosts with localhost alone. Port 53; usually 10.77.0.2, where a server that
    /// --far starts listens.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "calibrate")]
    resolver: Option<IpAddr>,

    /// Measure rate, delay and loss against the profile and say PASS or FAIL
    #[arg(long)]
    calibrate: bool,

    /// With --calibrate: length of each of the three measurements (probes, full rate up, full rate down)
    #[arg(long, value_name = "N", default_value_t = 5, requires = "calibrate", value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,

    /// Program to run at the client's end, with its arguments
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "calibrate", conflicts_with = "calibrate")]
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

/// Runs `pronghorn link` to its end. Call it before the program starts a thread: without root, the process is moved into
/// a user namespace.
pub(crate) fn run(args: LinkArgs) -> ExitCode {
    let done = if args.calibrate { calibrate(&args) } else { run_command(args) };
    ExitCode::from(done.unwrap_or_else(|error| {
        tell!("error: {error}");
        error.exit_code()
    }))
}

fn run_command(args: LinkArgs) -> Result<u8, Error> {
    let warm_ups = args.far_warm_up.iter().map(|line| Far::split(line)).collect::<Result<_, _>>()?;
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
            tcp_slow_start_after_idle: args.tcp_slow_start_after_idle.map(|switch| matches!(switch, Switch::On)),
            packets: args.packets,
            resolver: args.resolver,
            tcp_info: args.tcp_info.map(|path| TcpInfo { path, interval: Duration::from_millis(args.tcp_info_every_ms) }),
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
    tell!("pronghorn link: calibrating {}, about {} s", profile.name, pronghorn_link::calibrate::takes_seconds(&profile, args.seconds));
    let calibration = pronghorn_link::calibrate::calibrate(&profile, args.seed, args.seconds)?;
    // The exit code says the same to a reader who has gone.
    let _ = writeln!(std::io::stdout(), "{calibration}");
    if let Some(report) = report {
        report.write(&calibration)?;
    }
    Ok(u8::from(!calibration.passed))
}
