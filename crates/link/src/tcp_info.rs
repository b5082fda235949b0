//! Samples of the kernel's TCP statistics for connections over the link, `--tcp-info FILE`: both
//! ends, at an interval.

mod connection;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::time::ClockId;
use serde::Serialize;

use crate::monotonic::clock_ns;
use crate::netlink::Socket;
use crate::trace_file::TraceFile;
use crate::{Error, Namespace};
use connection::Connection;

/// Each sampling of all connections is followed by at least this many times the processor time that
/// it took, so that sampling uses at most a quarter of a processor.
const SAMPLING_PAUSE_FACTOR: u32 = 3;

const HEADER: &str = "time_ns,end,near_port,far_port,state,rtt_us,rtt_var_us,rto_us,cwnd_packets,ssthresh_packets,mss,\
    unacked_packets,lost_packets,retransmitted_packets,bytes_acked,bytes_received,bytes_sent,bytes_retransmitted,busy_us,\
    receive_window_limited_us,send_buffer_limited_us,delivery_rate_bytes_per_second,congestion\n";

/// Sampling options.
#[derive(Debug, Clone)]
pub struct TcpInfo {
    /// Path of the file, see docs/link.md.
    pub path: PathBuf,
    /// Interval between samples of all connections.
    pub interval: Duration,
}

/// Sampling statistics.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sampled {
    /// The requested interval.
    pub every_ms: f64,
    /// Number of samples of both ends.
    pub samples: u64,
    /// Samples skipped because the machine was busy or has so many sockets that sampling takes too
    /// long.
    pub skipped: u64,
}

/// The end of the link at which a socket is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Near,
    Far,
}

/// The sampling thread.
#[derive(Debug)]
pub(crate) struct Sampler {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<(Sampled, Result<TraceFile, Error>)>,
}

impl Sampler {
    /// Takes a first sample before it returns, so that an unsupported kernel is noticed
    /// immediately.
    pub(crate) fn start(
        near: &Namespace,
        far: &Namespace,
        interval: Duration,
        mut file: TraceFile,
    ) -> Result<Self, Error> {
        let open = |end, namespace: &Namespace| -> Result<(End, Socket), Error> {
            let opened = namespace
                .run(Socket::open_sock_diag)
                .map_err(Error::system("enter a network namespace"))?;
            let mut socket = opened.map_err(missing)?;
            connections(&mut socket).map_err(missing)?;
            Ok((end, socket))
        };
        let mut ends = [open(End::Near, near)?, open(End::Far, far)?];
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("link-tcp-info".into())
            .spawn(move || {
                let mut sampled =
                    Sampled { every_ms: interval.as_secs_f64() * 1e3, samples: 0, skipped: 0 };
                match sample(&mut ends, interval, &stopped, file.rows(), &mut sampled) {
                    Ok(()) => (sampled, Ok(file)),
                    Err(error) => (sampled, Err(file.error(error))),
                }
            })
            .map_err(Error::system("start a thread"))?;
        Ok(Self { stop, thread })
    }

    /// Stops the thread, and gives the file its name.
    pub(crate) fn finish(self) -> (Sampled, Result<(), Error>) {
        // After a failure the thread has ended already.
        let _ = self.stop.send(());
        let (sampled, file) =
            self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (sampled, file.and_then(TraceFile::finish))
    }
}

fn missing(errno: Errno) -> Error {
    match errno {
        Errno::NOENT | Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT | Errno::OPNOTSUPP => {
            Error::SockDiagMissing(errno.into())
        }
        _ => Error::system("ask the kernel about TCP connections")(errno),
    }
}

fn sample(
    ends: &mut [(End, Socket)],
    interval: Duration,
    stopped: &mpsc::Receiver<()>,
    to: &mut impl Write,
    sampled: &mut Sampled,
) -> io::Result<()> {
    to.write_all(HEADER.as_bytes())?;
    let since = Instant::now();
    // Number of the next sample, due at this multiple of the interval.
    let mut due = 0;
    loop {
        let used_before = processor_time();
        for (end, socket) in &mut *ends {
            let time_ns = clock_ns();
            for connection in connections(socket)? {
                write_row(to, time_ns, *end, &connection)?;
            }
        }
        sampled.samples += 1;
        let took = processor_time().saturating_sub(used_before);
        let next = next_due(due, interval, since.elapsed(), took);
        sampled.skipped += next - due - 1;
        due = next;
        let wait = at(due, interval).saturating_sub(since.elapsed());
        match stopped.recv_timeout(wait) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// Returns the number of the sample after `due`, which has just ended.
fn next_due(due: u64, interval: Duration, ended: Duration, took: Duration) -> u64 {
    let rested = ended + took * SAMPLING_PAUSE_FACTOR;
    let next = rested.as_nanos().div_ceil(interval.as_nanos()) as u64;
    next.max(due + 1)
}

/// Processor time of this thread: while it waits for a processor it is no load.
fn processor_time() -> Duration {
    Duration::try_from(rustix::time::clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

fn at(number: u64, interval: Duration) -> Duration {
    Duration::from_nanos(number.saturating_mul(interval.as_nanos() as u64))
}

/// Returns the connections between the two ends, of both families.
fn connections(socket: &mut Socket) -> Result<Vec<Connection>, Errno> {
    let mut connections = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        match socket.tcp_sockets(family as u8, connection::STATES) {
            Ok(replies) => {
                connections.extend(replies.iter().filter_map(|reply| Connection::parse(reply)));
            }
            // A kernel without IPv6.
            Err(Errno::NOENT) if family == libc::AF_INET6 => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(connections)
}

fn write_row(
    to: &mut impl Write,
    time_ns: u64,
    end: End,
    connection: &Connection,
) -> io::Result<()> {
    let (end, near_port, far_port) = match end {
        End::Near => ("near", connection.local_port, connection.remote_port),
        End::Far => ("far", connection.remote_port, connection.local_port),
    };
    writeln!(to, "{time_ns},{end},{near_port},{far_port},{connection}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn samples_stay_on_multiples_of_the_interval() {
        assert_eq!(next_due(0, 10 * MS, MS / 2, MS / 2), 1);
        // Woken 4 ms late, the next is due 5 ms later.
        assert_eq!(next_due(1, 10 * MS, 15 * MS, MS), 2);
        assert_eq!(at(2, 10 * MS), 20 * MS);
    }

    #[test]
    fn slow_sample_is_followed_by_a_pause() {
        // A sample of 8 ms, then a pause of at least 24 ms.
        assert_eq!(next_due(0, 10 * MS, 8 * MS, 8 * MS), 4);
        // A second late: missed samples are not made up for.
        assert_eq!(next_due(3, 10 * MS, 1031 * MS, MS), 104);
    }

    #[test]
    fn ports_are_relative_to_the_end_of_the_link() {
        let connection = Connection::parse(&connection::example()).unwrap();
        let row = |end| {
            let mut row = Vec::new();
            write_row(&mut row, 5, end, &connection).unwrap();
            String::from_utf8(row).unwrap()
        };
        assert!(row(End::Near).starts_with("5,near,40000,443,established,"));
        assert!(row(End::Far).starts_with("5,far,443,40000,established,"));
        assert_eq!(row(End::Near).matches(',').count(), HEADER.matches(',').count());
    }
}
