//! Runs a command behind a link, optionally with a far command at the other end, and reports what
//! happened on the link.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::control::{Control, LoadMark};
use crate::cpu::CpuTime;
use crate::emulator::ClockStart;
use crate::hystart::Hystart;
use crate::machine::{Machine, Snapshot};
use crate::report::{CommandReport, Commands, ReportFile};
use crate::signals::{Arrived, Signals};
use crate::{
    Error, Link, Namespace, Options, Profile, cpu, enter_user_namespace_unless_root, link,
};

/// Default time that the far command may take to end after SIGTERM, before SIGKILL.
pub const FAR_GRACE: Duration = Duration::from_secs(12);
/// Interval at which the far namespace is checked for the listening port.
const READY_INTERVAL: Duration = Duration::from_millis(10);

/// Commands to run, and the link between them.
#[derive(Debug, Clone)]
pub struct Run {
    /// Profile of the link.
    pub profile: Profile,
    /// Options of the link, such as its seed and TCP congestion control.
    pub options: Options,
    /// Program and arguments for the client's namespace.
    pub command: Vec<OsString>,
    /// Program and arguments for the server's namespace.
    pub far: Option<Far>,
    /// Path of the JSON report.
    pub report: Option<PathBuf>,
}

/// The command in the server's namespace.
#[derive(Debug, Clone)]
pub struct Far {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// TCP port on which the far command must listen before COMMAND starts.
    pub ready_port: Option<u16>,
    /// Timeout for that.
    pub ready_timeout: Duration,
    /// Programs and arguments that run in the same namespace one after the other, each to its end,
    /// before COMMAND starts. Each may take up to `ready_timeout`.
    pub warm_ups: Vec<Vec<OsString>>,
    /// Time that it may take to end after SIGTERM, before SIGKILL.
    pub grace: Duration,
}

impl Far {
    /// Splits a command line at blanks like a shell, with quotes and backslashes; nothing is
    /// expanded.
    pub fn split(command_line: &str) -> Result<Vec<OsString>, Error> {
        let words = shell_words::split(command_line)
            .map_err(|error| Error::BadCommand(format!("--far `{command_line}`: {error}")))?;
        if words.is_empty() {
            return Err(Error::BadCommand("--far is empty: give a command line".into()));
        }
        Ok(words.into_iter().map(OsString::from).collect())
    }
}

/// Runs COMMAND to its end and returns the program's exit code: COMMAND's own, or 128 plus its
/// signal.
///
/// COMMAND has this process's standard streams and inherited descriptors; the far command reads
/// nothing and writes both its streams to standard error. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1
/// and SIGUSR2 are forwarded to COMMAND; they stay blocked in the calling thread when this returns.
/// Processes that the commands left running are ended.
///
/// Unless the process is root, it is moved into a user namespace, so call this before starting
/// threads.
pub fn run(run: &Run) -> Result<u8, Error> {
    if run.command.is_empty() {
        return Err(Error::BadCommand("no COMMAND given: add `-- COMMAND [ARG...]`".into()));
    }
    refuse_one_file_for_two(run)?;
    let report_file = run.report.as_deref().map(ReportFile::prepare).transpose()?;
    enter_user_namespace_unless_root()?;
    let signals = Signals::block().map_err(Error::system("block signals"))?;
    let (control, theirs) = Control::new().map_err(Error::system("make a socket"))?;
    let link = Link::start(&run.profile, &run.options)?;
    for warning in link.warnings() {
        warn(warning);
    }
    let mut far = match &run.far {
        None => None,
        Some(far) => match Process::start_far(&link, far, &signals)? {
            Started::Running(process) => Some(process),
            Started::Interrupted(signal) => return Ok(code_of_signal(signal)),
        },
    };
    let warm_ups = match &run.far {
        Some(wanted) => match warm_up(&link, wanted, &signals)? {
            WarmedUp::Done(reports) => reports,
            WarmedUp::Interrupted(signal) => {
                if let Some(far) = &mut far {
                    far.end(wanted.grace)?;
                }
                return Ok(code_of_signal(signal));
            }
        },
        None => Vec::new(),
    };
    // A signal that arrived while the link was being created, before COMMAND could receive it.
    if let Some(signal) = signals.next() {
        return Ok(code_of_signal(signal.number));
    }
    let mut load = Load::new(&link, control);
    let (variable, descriptor) =
        Control::hand_over(&theirs).map_err(Error::system("hand on a socket"))?;
    let mut near = Process::start(&run.command, |mut command| {
        command.env(variable, descriptor);
        link.spawn_near(command)
    })?;
    drop(theirs);
    supervise(&mut near, far.as_mut(), &signals, &mut load)?;
    let (machine, hystart) = load.finish();
    if let (Some(process), Some(far)) = (&mut far, &run.far) {
        process.end(far.grace)?;
    }
    let already_told = link.warnings().len();
    let link::Ended { mut report, traces, near_cpu, far_cpu } = link.end()?;
    report.warnings.iter().skip(already_told).for_each(|warning| warn(warning));
    let code = near.code();
    report.machine = Some(machine);
    report.hystart = hystart;
    report.commands = Some(Commands {
        near: near.report(near_cpu),
        far: far.map(|far| far.report(far_cpu)),
        warm_ups,
    });
    if !report.clean {
        warn(
            "this run is not clean: the link was late or dropped packets on its own (see clean, \
                lateness_us, tun_drops in the report)",
        );
    }
    if let Some(file) = report_file {
        file.write(&report)?;
    }
    traces?;
    Ok(code)
}

fn refuse_one_file_for_two(run: &Run) -> Result<(), Error> {
    let tcp_info = run.options.tcp_info.as_ref().map(|asked| &asked.path);
    let files = [
        ("--report", run.report.as_ref()),
        ("--packets", run.options.packets.as_ref()),
        ("--tcp-info", tcp_info),
    ];
    for (at, (flag, path)) in files.iter().enumerate() {
        let same = files[..at].iter().find(|(_, earlier)| path.is_some() && earlier == path);
        if let (Some((earlier, _)), Some(path)) = (same, path) {
            return Err(Error::BadCommand(format!(
                "{earlier} and {flag} both name {}: give each a file of its own",
                path.display()
            )));
        }
    }
    Ok(())
}

fn warn(message: &str) {
    // If standard error cannot be written, the warning is still in the report.
    let _ = writeln!(std::io::stderr(), "warning: {message}");
}

/// Waits for COMMAND's end. Forwards signals meanwhile, and warns if the far command ends first.
fn supervise(
    near: &mut Process,
    mut far: Option<&mut Process>,
    signals: &Signals,
    load: &mut Load<'_>,
) -> Result<(), Error> {
    while near.status.is_none() {
        let running_far = far.as_deref().filter(|far| far.status.is_none()).map(|far| &far.pidfd);
        wait(&near.pidfd, running_far, signals, load.control.fd(), None)?;
        load.handle_orders()?;
        while let Some(Arrived { number, from_terminal }) = signals.next() {
            if !from_terminal {
                near.signal(number);
            }
        }
        near.try_wait()?;
        if let Some(far) = far.as_deref_mut().filter(|far| far.status.is_none())
            && let Some(status) = far.try_wait()?
        {
            warn(&format!("the far command ended before COMMAND did ({status})"));
        }
    }
    Ok(())
}

/// Waits until a process ends, a signal arrives or the time is over.
fn wait(
    first: &OwnedFd,
    second: Option<&OwnedFd>,
    signals: &Signals,
    control: Option<BorrowedFd<'_>>,
    timeout: Option<Duration>,
) -> Result<(), Error> {
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: timeout.as_secs() as i64,
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let signals = signals.as_fd();
    let mut fds =
        vec![PollFd::new(first, PollFlags::IN), PollFd::from_borrowed_fd(signals, PollFlags::IN)];
    fds.extend(second.map(|fd| PollFd::new(fd, PollFlags::IN)));
    fds.extend(control.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
    match rustix::event::poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(Error::system("wait for the commands")(errno)),
    }
}

/// The part of the run that is measured: all of COMMAND, or the part that it marks.
struct Load<'a> {
    link: &'a Link,
    control: Control,
    start: Figures,
    /// Statistics at the end marked by COMMAND.
    end: Option<Figures>,
}

struct Figures {
    machine: Snapshot,
    /// HyStart counters of the server, which sends most of the data.
    hystart: Option<Hystart>,
}

impl Figures {
    fn of(link: &Link) -> Self {
        let machine = Snapshot::of(link.emulator_thread(), &link.near_roots(), &link.far_roots());
        Self { machine, hystart: Hystart::of(link.far()) }
    }
}

impl<'a> Load<'a> {
    /// Begins the load now.
    fn new(link: &'a Link, control: Control) -> Self {
        Self { link, control, start: Figures::of(link), end: None }
    }

    fn handle_orders(&mut self) -> Result<(), Error> {
        let Self { link, control, start, end } = self;
        control.handle(|mark| {
            match mark {
                LoadMark::Start => {
                    let figures = Figures::of(link);
                    if let Err(refused) = link.start_clock(ClockStart::NextFlow)? {
                        return Ok(Err(refused));
                    }
                    (*start, *end) = (figures, None);
                }
                // A repeated `end` has no effect.
                LoadMark::End if end.is_some() => {}
                LoadMark::End => {
                    link.freeze_lateness()?;
                    *end = Some(Figures::of(link));
                }
            }
            Ok(Ok(()))
        })
    }

    fn finish(self) -> (Machine, Option<Hystart>) {
        let end_marked = self.end.is_some();
        let (start, end) = (self.start, self.end.unwrap_or_else(|| Figures::of(self.link)));
        let hystart = start.hystart.zip(end.hystart).map(|(start, end)| end.since(start));
        (Machine::between(&start.machine, &end.machine, end_marked), hystart)
    }
}

enum WarmedUp {
    Done(Vec<CommandReport>),
    Interrupted(i32),
}

/// Runs the warm-ups. A failed warm-up is logged and reported; it does not end the run, because
/// only the reader of the report can tell whether it matters. Processes that it started are killed,
/// because they would run beside the load.
fn warm_up(link: &Link, far: &Far, signals: &Signals) -> Result<WarmedUp, Error> {
    let mut reports = Vec::with_capacity(far.warm_ups.len());
    for argv in &far.warm_ups {
        let mut process = Process::start(argv, |mut command| {
            command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
            link.spawn_far(command)
        })?;
        let deadline = Instant::now() + far.ready_timeout;
        while process.try_wait()?.is_none() {
            if let Some(signal) = signals.next() {
                process.kill_group()?;
                return Ok(WarmedUp::Interrupted(signal.number));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                process.kill_group()?;
                break;
            }
            wait(&process.pidfd, None, signals, None, Some(left))?;
        }
        if process.code() != 0 {
            let ended = process.status.map_or_else(String::new, |status| format!(" ({status})"));
            warn(&format!(
                "the warm-up `{}` failed{ended}",
                argv.join(std::ffi::OsStr::new(" ")).to_string_lossy()
            ));
        }
        // The warm-up was waited for; processes that it left running count for the far command.
        reports.push(process.report(CpuTime::default()));
    }
    Ok(WarmedUp::Done(reports))
}

enum Started {
    Running(Process),
    Interrupted(i32),
}

/// A command and its exit status.
struct Process {
    argv: Vec<OsString>,
    /// PID, valid until it was waited for.
    pid: Pid,
    pidfd: OwnedFd,
    status: Option<ExitStatus>,
    /// Processor time of the process and of the children that it waited for, once it has ended.
    cpu: CpuTime,
    killed: bool,
}

impl Process {
    fn start(
        argv: &[OsString],
        spawn: impl FnOnce(Command) -> io::Result<Child>,
    ) -> Result<Self, Error> {
        let (program, arguments) =
            argv.split_first().expect("invariant: checked before the link was made");
        let mut command = Command::new(program);
        command.args(arguments);
        let child = spawn(command).map_err(|source| {
            let program = program.clone();
            match source.kind() {
                io::ErrorKind::NotFound => Error::ProgramMissing { program, source },
                _ => Error::ProgramNotStarted { program, source },
            }
        })?;
        let pid = Pid::from_child(&child);
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())
            .map_err(Error::system("open a process"))?;
        Ok(Self {
            argv: argv.to_vec(),
            pid,
            pidfd,
            status: None,
            cpu: CpuTime::default(),
            killed: false,
        })
    }

    fn start_far(link: &Link, far: &Far, signals: &Signals) -> Result<Started, Error> {
        let errors = io::stderr()
            .as_fd()
            .try_clone_to_owned()
            .map_err(Error::system("duplicate standard error"))?;
        let mut process = Self::start(&far.argv, |mut command| {
            // A separate process group: Ctrl-C is for COMMAND, which may want to finish its
            // exchange with the far side.
            command.stdin(Stdio::null()).stdout(errors).process_group(0);
            link.spawn_far(command)
        })?;
        let Some(port) = far.ready_port else {
            return Ok(Started::Running(process));
        };
        let deadline = Instant::now() + far.ready_timeout;
        loop {
            if let Some(status) = process.try_wait()? {
                return Err(Error::FarEndedEarly { status, port });
            }
            if listens(link.far(), port)
                .map_err(Error::system("read the far namespace's sockets"))?
            {
                return Ok(Started::Running(process));
            }
            if let Some(signal) = signals.next() {
                process.end(far.grace)?;
                return Ok(Started::Interrupted(signal.number));
            }
            if Instant::now() >= deadline {
                return Err(Error::FarNotReady { port, seconds: far.ready_timeout.as_secs() });
            }
            wait(&process.pidfd, None, signals, None, Some(READY_INTERVAL))?;
        }
    }

    fn try_wait(&mut self) -> Result<Option<ExitStatus>, Error> {
        if self.status.is_none()
            && let Some(ended) =
                cpu::try_wait(self.pidfd.as_fd()).map_err(Error::system("wait for a command"))?
        {
            self.record(ended);
        }
        Ok(self.status)
    }

    fn record(&mut self, ended: cpu::Ended) {
        self.status = Some(ended.status);
        self.cpu = ended.cpu;
    }

    fn signal(&self, number: i32) {
        // A process that has just ended needs no signal.
        if let Some(signal) = Signal::from_named_raw(number) {
            let _ = rustix::process::pidfd_send_signal(&self.pidfd, signal);
        }
    }

    /// Sends SIGTERM, and SIGKILL if the process does not end in time.
    fn end(&mut self, grace: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + grace;
        if self.try_wait()?.is_none() {
            self.signal(libc::SIGTERM);
        }
        while self.try_wait()?.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.killed = true;
                self.signal(libc::SIGKILL);
                self.record(
                    cpu::wait(self.pidfd.as_fd()).map_err(Error::system("wait for a command"))?,
                );
                return Ok(());
            }
            let left =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
            match rustix::event::poll(&mut fds, Some(&left)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(Error::system("wait for a command")(errno)),
            }
        }
        Ok(())
    }

    /// Sends SIGKILL to a process that leads a group, and to its whole group.
    fn kill_group(&mut self) -> Result<(), Error> {
        // Until it is waited for, no other group can have its number.
        if self.try_wait()?.is_none() {
            self.killed = true;
            rustix::process::kill_process_group(self.pid, Signal::KILL)
                .map_err(Error::system("end a command"))?;
            self.record(
                cpu::wait(self.pidfd.as_fd()).map_err(Error::system("wait for a command"))?,
            );
        }
        Ok(())
    }

    /// Exit code from 0 to 255, as a shell reports it.
    fn code(&self) -> u8 {
        let status = self.status.unwrap_or_default();
        match (status.code(), status.signal()) {
            (Some(code), _) => code as u8,
            (None, Some(signal)) => code_of_signal(signal),
            (None, None) => 0,
        }
    }

    /// `others`: processor time of the processes at its end of the link that it did not wait for.
    fn report(&self, others: CpuTime) -> CommandReport {
        let mut cpu_seconds = self.cpu;
        cpu_seconds += others;
        CommandReport {
            argv: self.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            exit_code: self.status.and_then(|status| status.code()),
            signal: self.status.and_then(|status| status.signal()),
            killed: self.killed,
            cpu_seconds,
        }
    }
}

fn code_of_signal(signal: i32) -> u8 {
    128 + signal as u8
}

/// Returns whether a process listens on the TCP port, at any address. Reads the socket table
/// instead of connecting, so that the server gets no unwanted connection.
fn listens(namespace: &Namespace, port: u16) -> io::Result<bool> {
    namespace.run(|| {
        let tables = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
        let found = tables.into_iter().any(|table| {
            // A machine without IPv6 has no tcp6.
            std::fs::read_to_string(Path::new(table)).is_ok_and(|text| table_listens(&text, port))
        });
        Ok(found)
    })?
}

fn table_listens(table: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let port = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_whitespace();
        let local = fields.nth(1).unwrap_or_default();
        local.ends_with(&port) && fields.nth(1) == Some(LISTEN)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_listening_socket_on_the_port_counts() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
             \x20  0: 0100007F:01BB 00000000:0000 0A 00000000:00000000\n\
             \x20  1: 0100007F:1F90 0100007F:C350 01 00000000:00000000\n";
        assert!(table_listens(table, 443));
        assert!(!table_listens(table, 8080));
        assert!(!table_listens(table, 44));
    }

    #[test]
    fn far_command_line_is_split_like_a_shell_does() {
        let words = Far::split(r#"serve "my dir" --listen 10.77.0.2:443 --name it\'s"#).unwrap();
        assert_eq!(words, ["serve", "my dir", "--listen", "10.77.0.2:443", "--name", "it's"]);
        assert_eq!(Far::split("serve \"open").unwrap_err().exit_code(), 2);
        assert_eq!(Far::split("  ").unwrap_err().exit_code(), 2);
    }
}
