//! Redis servers of a test.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pronghorn_fleet::sessions::{Address, RedisServers};
use tempfile::TempDir;

use crate::admin::Admin;

/// Only ends a hang.
pub(crate) const HANG: Duration = Duration::from_secs(100);

/// Returns whether Redis is installed. Prints why the test is skipped if it is not.
pub(crate) fn is_installed() -> bool {
    let installed = Command::new("redis-server").arg("--version").output().is_ok();
    if !installed {
        assert!(std::env::var_os("CI").is_none(), "redis-server is missing; run scripts/setup");
        eprintln!("skipped: redis-server is missing; run scripts/setup");
    }
    installed
}

/// Waits until a condition is true.
pub(crate) fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < HANG, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A running server. It is killed at the end.
pub(crate) struct Server {
    folder: TempDir,
    pub(crate) port: u16,
    options: Vec<String>,
    child: Child,
}

impl Server {
    pub(crate) fn start(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options: Vec<_> = options.iter().map(ToString::to_string).collect();
        // Another process may get the port between.
        for _ in 0..20 {
            let port = free_port();
            let mut child = spawn(folder.path(), port, &options);
            if serves(&mut child, port) {
                return Self { folder, port, options, child };
            }
        }
        panic!("redis-server does not start with {options:?}");
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn address(&self) -> Address {
        self.url().parse().unwrap()
    }

    pub(crate) fn servers(&self) -> RedisServers {
        RedisServers::Single(vec![self.address()])
    }

    pub(crate) fn admin(&self) -> Admin {
        Admin::connect(self.port)
    }

    pub(crate) fn dump(&self) -> PathBuf {
        self.folder.path().join("dump.rdb")
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts the server again, at the same port and in the same folder.
    pub(crate) fn restart(&mut self) {
        eventually("the port is free again", || {
            self.child = spawn(self.folder.path(), self.port, &self.options);
            serves(&mut self.child, self.port)
        });
    }

    /// Stops or continues the process.
    pub(crate) fn freeze(&self, is_frozen: bool) {
        use rustix::process::{Pid, Signal, kill_process};
        let signal = if is_frozen { Signal::STOP } else { Signal::CONT };
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(folder: &Path, port: u16, options: &[String]) -> Child {
    let port = port.to_string();
    let folder = folder.to_str().unwrap();
    Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--dir", folder, "--save", "", "--port", &port])
        .args(["--repl-diskless-sync", "no", "--rdbcompression", "no", "--hz", "100"])
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until the process answers or ends.
fn serves(child: &mut Child, port: u16) -> bool {
    let begun = Instant::now();
    loop {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        if Admin::try_connect(port).is_some_and(|mut admin| {
            // A server of another test at this port has another process.
            let info = admin.run("INFO server");
            info.starts_with("-NOAUTH") || info.contains(&format!("process_id:{}\r", child.id()))
        }) {
            return true;
        }
        assert!(begun.elapsed() < HANG, "redis-server does not answer");
        std::thread::sleep(Duration::from_millis(5));
    }
}
