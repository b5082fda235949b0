//! Sends numbered packets over a link and records send and arrival times.

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::addressing::{FAR_IPV4, NEAR_IPV4};
use crate::emulator::request_real_time;
use crate::link::Link;
use crate::monotonic::clock_ns;
use crate::profile::{Direction, MTU};
use crate::{Error, Namespace};

/// IPv4 and UDP headers.
const HEADER_BYTES: usize = 28;
/// Size of a probe on the link.
pub(super) const PROBE_WIRE_BYTES: usize = 128;
const PROBE_INTERVAL: Duration = Duration::from_millis(2);
/// Full packets are sent in bursts of this interval, well below any relevant queue.
const BURST_INTERVAL: Duration = Duration::from_millis(1);
/// Shorter busy periods of a trace are evened out by the queue.
const BUSY_STRETCH_MS: u64 = 50;
/// Excess of the full packets over the rate.
const OVERLOAD: f64 = 1.1;
/// Below the emulator's priority: measuring must not delay it.
const SEND_PRIORITY: i32 = 10;
/// Above the sender's priority, which on a single core would otherwise leave it no time.
const RECEIVE_PRIORITY: i32 = 11;
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Schedule of packets to send.
pub(super) struct Plan {
    wire_bytes: usize,
    packets: u64,
    interval: Duration,
    packets_per_interval: u64,
    /// The measurement ends if nothing arrives for this long after the last packet was sent.
    quiet_time: Duration,
}

impl Plan {
    /// Probes, spaced so that none waits for another one at the profile's rate.
    pub(super) fn probes(direction: &Direction, time: Duration) -> Self {
        let serialisation =
            Duration::from_nanos(direction.serialisation_ns(PROBE_WIRE_BYTES as u64));
        let interval = PROBE_INTERVAL.max(serialisation * 4);
        Self {
            wire_bytes: PROBE_WIRE_BYTES,
            packets: (time.as_nanos() / interval.as_nanos()).max(1) as u64,
            interval,
            packets_per_interval: 1,
            quiet_time: quiet_time(direction),
        }
    }

    /// Full packets, a tenth faster than the rate, or than its busiest period if the rate changes.
    pub(super) fn saturation(
        direction: &Direction,
        mut rate_bits_per_second: u64,
        time: Duration,
    ) -> Self {
        if let Some(trace) = &direction.rate_trace {
            rate_bits_per_second = trace.busiest_bits_per_second(BUSY_STRETCH_MS);
        }
        let packets_per_second = rate_bits_per_second as f64 * OVERLOAD / (MTU as f64 * 8.0);
        let interval = BURST_INTERVAL.max(Duration::from_secs_f64(1.0 / packets_per_second));
        let packets_per_interval = (packets_per_second * interval.as_secs_f64()).ceil();
        let interval = Duration::from_secs_f64(packets_per_interval / packets_per_second);
        Self {
            wire_bytes: MTU,
            packets: (packets_per_second * time.as_secs_f64()).ceil() as u64,
            interval,
            packets_per_interval: packets_per_interval as u64,
            quiet_time: quiet_time(direction),
        }
    }
}

fn quiet_time(direction: &Direction) -> Duration {
    let queue_ns = direction.queue_bytes.map_or(0, |bytes| direction.serialisation_ns(bytes));
    // Each stretch without a packet adds to what already waits.
    let outage_ns = direction.outages.map_or(0, |outages| outages.length_ns[1]);
    let gap_ns = direction.rate_trace.as_ref().map_or(0, |trace| trace.longest_gap_ns());
    Duration::from_nanos(direction.delay_ns + direction.jitter_ns + queue_ns + outage_ns + gap_ns)
        + Duration::from_millis(500)
}

/// Measurements of one direction. Times in nanoseconds of the monotonic clock.
pub(super) struct Sample {
    /// Send time of each packet.
    pub(super) sent_ns: Vec<u64>,
    /// Arrivals in order.
    pub(super) arrivals: Vec<Arrival>,
}

impl Sample {
    pub(super) fn sent(&self) -> u64 {
        self.sent_ns.len() as u64
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    /// Index in the order of sending, from 0.
    pub(super) number: usize,
    pub(super) received_ns: u64,
}

/// Returns two connected sockets, one in each namespace.
pub(super) fn sockets(link: &Link) -> Result<(UdpSocket, UdpSocket), Error> {
    let open = |namespace: &Namespace, address| -> io::Result<UdpSocket> {
        let socket = namespace.run(|| UdpSocket::bind((address, 0)))??;
        // Without privilege, the size is limited by the system; then the smaller buffer must
        // suffice.
        if rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES)
            .is_err()
        {
            rustix::net::sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES)?;
        }
        Ok(socket)
    };
    let connect = || -> io::Result<_> {
        let near = open(link.near(), NEAR_IPV4)?;
        let far = open(link.far(), FAR_IPV4)?;
        near.connect(far.local_addr()?)?;
        far.connect(near.local_addr()?)?;
        Ok((near, far))
    };
    connect().map_err(Error::system("open sockets in the link's namespaces"))
}

/// Sends the plan's packets from one socket to the other.
pub(super) fn measure(from: &UdpSocket, to: &UdpSocket, plan: &Plan) -> io::Result<Sample> {
    to.set_read_timeout(Some(plan.quiet_time))?;
    let all_sent = AtomicBool::new(false);
    let (sent, arrivals) = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(to, plan, &all_sent));
        let sent = scope.spawn(|| {
            let sent = send(from, plan);
            all_sent.store(true, Ordering::Release);
            sent
        });
        let join = |panic| std::panic::resume_unwind(panic);
        (
            sent.join().unwrap_or_else(join),
            receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        )
    });
    Ok(Sample { sent_ns: sent?, arrivals: arrivals? })
}

/// Sends the packets and returns their send times.
fn send(socket: &UdpSocket, plan: &Plan) -> io::Result<Vec<u64>> {
    request_real_time(SEND_PRIORITY);
    let mut payload = vec![0; plan.wire_bytes - HEADER_BYTES];
    let started_ns = clock_ns();
    let mut sent_ns = Vec::with_capacity(plan.packets as usize);
    for burst in 0.. {
        let due_ns = started_ns + burst * plan.interval.as_nanos() as u64;
        let wait_ns = due_ns.saturating_sub(clock_ns());
        if wait_ns > 0 {
            std::thread::sleep(Duration::from_nanos(wait_ns));
        }
        for _ in 0..plan.packets_per_interval {
            if sent_ns.len() as u64 == plan.packets {
                return Ok(sent_ns);
            }
            payload[..8].copy_from_slice(&(sent_ns.len() as u64).to_ne_bytes());
            sent_ns.push(clock_ns());
            socket.send(&payload)?;
        }
    }
    Ok(sent_ns)
}

fn receive(socket: &UdpSocket, plan: &Plan, all_sent: &AtomicBool) -> io::Result<Vec<Arrival>> {
    request_real_time(RECEIVE_PRIORITY);
    let mut arrivals = Vec::with_capacity(plan.packets as usize);
    let mut buffer = vec![0; plan.wire_bytes];
    while (arrivals.len() as u64) < plan.packets {
        // Read before waiting: a packet sent after this is still waited for in full.
        let nothing_follows = all_sent.load(Ordering::Acquire);
        match socket.recv(&mut buffer) {
            Ok(_) => {
                let received_ns = clock_ns();
                let number =
                    u64::from_ne_bytes(buffer[..8].try_into().expect("invariant: eight bytes"))
                        as usize;
                arrivals.push(Arrival { number, received_ns });
            }
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
            {
                if nothing_follows {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(arrivals)
}
