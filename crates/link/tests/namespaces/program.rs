//! The test program in other roles, so that the tests need no other programs: the core of
//! `pronghorn link`, a TCP listener, a client, and others.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pronghorn_link::run::{FAR_GRACE, Far, Run};
use pronghorn_link::{Error, Options, Profile, TcpInfo};

/// Environment variable that selects the role.
const ROLE: &str = "PRONGHORN_TEST_ROLE";

pub(crate) fn main_if_asked() -> Option<i32> {
    let role = std::env::var(ROLE).ok()?;
    let words: Vec<String> = std::env::args().skip(1).collect();
    match role.as_str() {
        "link" => Some(link(&words)),
        "listen" => {
            let listener = TcpListener::bind(&words[0]).expect("bind");
            println!("listening");
            for stream in listener.incoming() {
                stream.expect("accept").write_all(b"hello").expect("write");
            }
            None
        }
        "connect" => {
            let mut text = String::new();
            let mut stream = TcpStream::connect(&words[0]).expect("connect at the first attempt");
            stream.read_to_string(&mut text).expect("read");
            print!("{text}");
            Some(0)
        }
        // Closes its connection late: once the file given as the second word exists.
        "linger" => {
            let mut stream = TcpStream::connect(&words[0]).expect("connect");
            stream.read_to_end(&mut Vec::new()).expect("read");
            println!("connected");
            while !Path::new(&words[1]).exists() {
                std::thread::sleep(Duration::from_millis(10));
            }
            Some(0)
        }
        "burn" => {
            burn(Duration::from_secs_f64(words[0].parse().expect("seconds")));
            Some(0)
        }
        _ => panic!("unknown role {role}"),
    }
}

/// Uses this much CPU time, however long it takes.
fn burn(time: Duration) {
    let used = || {
        Duration::try_from(rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime))
            .expect("a positive time")
    };
    while used() < time {
        std::hint::spin_loop();
    }
}

/// `pronghorn link` without its command line.
fn link(words: &[String]) -> i32 {
    let text = |name: &str| std::env::var(name).ok();
    let milliseconds = |text: String| Duration::from_millis(text.parse().expect("a number"));
    let run = || -> Result<u8, Error> {
        pronghorn_link::run::run(&Run {
            profile: Profile::from_toml(&text("PROFILE").expect("PROFILE is set"))?,
            options: Options {
                seed: 1,
                tcp_congestion: text("CONGESTION"),
                packets: text("PACKETS").map(PathBuf::from),
                tcp_info: text("TCP_INFO")
                    .map(|path| TcpInfo { path: path.into(), interval: Duration::from_millis(10) }),
                resolver: text("RESOLVER").map(|address| address.parse().expect("an address")),
                ..Options::default()
            },
            command: words.iter().map(OsString::from).collect(),
            far: text("FAR")
                .map(|line| {
                    Far::split(&line).map(|argv| Far {
                        argv,
                        ready_port: text("READY").map(|port| port.parse().expect("a port")),
                        warm_ups: text("WARM_UPS")
                            .iter()
                            .flat_map(|lines| lines.lines())
                            .map(|line| Far::split(line).expect("words"))
                            .collect(),
                        ready_timeout: text("READY_MS")
                            .map_or(Duration::from_secs(20), milliseconds),
                        grace: text("GRACE_MS").map_or(FAR_GRACE, milliseconds),
                    })
                })
                .transpose()?,
            report: text("REPORT").map(PathBuf::from),
        })
    };
    run().map_or_else(
        |error| {
            eprintln!("{error}");
            error.exit_code().into()
        },
        i32::from,
    )
}

/// `pronghorn link` running `command` over a link with 2 ms each way.
pub(crate) fn link_command(command: &[&str]) -> Command {
    let mut link = myself("link");
    link.args(command).env("PROFILE", "name='t'\n[up]\ndelay_ms=2\n[down]\ndelay_ms=2");
    link
}

/// This program in another role.
pub(crate) fn myself(role: &str) -> Command {
    copy_of_myself(&path(), role)
}

/// A copy of this program in another role.
pub(crate) fn copy_of_myself(copy: &Path, role: &str) -> Command {
    let mut command = Command::new(copy);
    command.env(ROLE, role);
    command
}

/// A command line that runs this program in another role, for shells and `--far`.
pub(crate) fn shell(role: &str, argument: &str) -> String {
    shell_of(&path(), role, argument)
}

/// Like [`shell`], with a copy of this program.
pub(crate) fn shell_of(copy: &Path, role: &str, argument: &str) -> String {
    format!("env {ROLE}={role} {} {argument}", copy.display())
}

pub(crate) fn path() -> PathBuf {
    std::env::current_exe().expect("the test program has a path")
}
