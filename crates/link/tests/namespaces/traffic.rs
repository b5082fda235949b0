//! Packets over a link are counted, delayed and lost as configured.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use pronghorn_link::report::DirectionReport;
use pronghorn_link::scheduler::{Scheduler, Verdict, Way};
use pronghorn_link::{FAR_IPV4, FAR_IPV6, Link, NEAR_IPV4, Namespace, Options, Profile};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("udp_echo_counters_add_up_over_ipv4", || udp_echo_counters_add_up(FAR_IPV4.into(), 28)),
    ("udp_echo_counters_add_up_over_ipv6", || udp_echo_counters_add_up(FAR_IPV6.into(), 48)),
    ("seed_decides_which_packets_are_lost", seed_decides_which_packets_are_lost),
    (
        "schedule_begins_with_the_clients_first_packet",
        schedule_begins_with_the_clients_first_packet,
    ),
    ("no_packet_arrives_before_its_delay", no_packet_arrives_before_its_delay),
    ("tcp_transfer_survives_loss_in_wire_packets", tcp_transfer_survives_loss_in_wire_packets),
    (
        "configured_congestion_control_is_used_by_both_ends_and_families",
        configured_congestion_control_is_used,
    ),
    ("default_congestion_control_is_reported", default_congestion_control_is_reported),
    (
        "unknown_congestion_control_is_refused_with_the_known_ones",
        unknown_congestion_control_is_refused,
    ),
    (
        "slow_start_after_idle_is_applied_and_reported",
        slow_start_after_idle_is_applied_and_reported,
    ),
    ("idle_link_carries_nothing", idle_link_carries_nothing),
    ("link_ends_while_its_programs_run", link_ends_while_its_programs_run),
    ("namespaces_reach_nothing_but_each_other", namespaces_reach_nothing_but_each_other),
];

/// Timeout of a failing test; passing tests never reach it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn profile(up: &str, down: &str) -> Profile {
    Profile::from_toml(&format!("name = \"t\"\n[up]\n{up}\n[down]\n{down}\n")).unwrap()
}

pub(crate) fn start(profile: &Profile, options: &Options) -> Link {
    Link::start(profile, options).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn udp(namespace: &Namespace, address: impl Into<IpAddr>) -> UdpSocket {
    let address = SocketAddr::new(address.into(), 0);
    let socket = namespace.run(|| UdpSocket::bind(address)).unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

pub(crate) fn assert_adds_up(direction: &DirectionReport) {
    let parts = direction.counters.packets_out
        + direction.counters.packets_lost
        + direction.counters.packets_queue_dropped
        + direction.counters.packets_blocked
        + direction.counters.packets_policed
        + direction.counters.packets_held_at_end
        + direction.counters.packets_overflowed
        + direction.counters.packets_oversized
        + direction.counters.packets_write_failed;
    assert_eq!(direction.counters.packets_in, parts, "{direction:?}");
}

fn udp_echo_counters_add_up(far_address: IpAddr, header_bytes: u64) {
    const COUNT: u64 = 200;
    const PAYLOAD: u64 = 100;
    let link = start(&profile("delay_ms = 1", "delay_ms = 1"), &Options::default());
    let any: IpAddr = if far_address.is_ipv4() { [0, 0, 0, 0].into() } else { [0u16; 8].into() };
    let (near, far) = (udp(link.near(), any), udp(link.far(), far_address));
    let mut buffer = [0; 2000];
    for number in 0..COUNT {
        let mut payload = [0; PAYLOAD as usize];
        payload[..8].copy_from_slice(&number.to_be_bytes());
        near.send_to(&payload, far.local_addr().unwrap()).unwrap();
        let (length, from) = far.recv_from(&mut buffer).unwrap();
        far.send_to(&buffer[..length], from).unwrap();
        let (length, from) = near.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..length], from), (&payload[..], far.local_addr().unwrap()));
    }
    let report = link.stop().unwrap();
    for direction in [&report.up, &report.down] {
        assert_adds_up(direction);
        assert_eq!((direction.counters.packets_in, direction.counters.packets_out), (COUNT, COUNT));
        assert_eq!(direction.counters.bytes_out, COUNT * (PAYLOAD + header_bytes));
        assert_eq!(direction.tun_drops, 0);
    }
    assert_eq!(report.flows.len(), 1, "{:?}", report.flows);
    let flow = &report.flows[0];
    assert_eq!((flow.protocol.as_str(), flow.far_address), ("udp", far_address));
    assert_eq!(flow.near_port, Some(near.local_addr().unwrap().port()));
    assert_eq!(flow.far_port, Some(far.local_addr().unwrap().port()));
    assert_eq!((flow.counters.up.packets, flow.counters.down.packets), (COUNT, COUNT));
}

/// For each packet, the real link does the same as the scheduler in virtual time.
fn seed_decides_which_packets_are_lost() {
    const COUNT: u32 = 400;
    let bursts = "loss_percent = 15\nloss_burst_packets = 3";
    let states = "gilbert_elliott = { good_to_bad_percent = 5, bad_to_good_percent = 30, \
        loss_in_good_percent = 1 }";
    for (seed, loss) in [
        (5, "loss_percent = 15"),
        (6, "loss_percent = 15"),
        (5, bursts),
        (5, states),
        (5, "lose_packets = [1, 7, 300]"),
    ] {
        let profile = profile(&format!("delay_ms = 0\n{loss}"), "delay_ms = 0");
        let mut scheduler = Scheduler::new(&profile.up, seed, Way::Up);
        let link = start(&profile, &Options { seed, ..Options::default() });
        let (near, far) = (udp(link.near(), NEAR_IPV4), udp(link.far(), FAR_IPV4));
        let mut lost = 0;
        for number in 0..COUNT {
            near.send_to(&number.to_be_bytes(), far.local_addr().unwrap()).unwrap();
            if scheduler.handle_packet(32, number.into()) == Verdict::Lost {
                lost += 1;
                continue;
            }
            let mut buffer = [0; 4];
            far.recv(&mut buffer).unwrap();
            assert_eq!(u32::from_be_bytes(buffer), number);
        }
        let report = link.stop().unwrap();
        // The last packets may be lost ones, for which the test did not wait.
        assert!(
            report.up.counters.packets_lost <= lost && report.up.counters.packets_lost + 10 > lost,
            "{:?}",
            report.up
        );
        assert_eq!(report.down.counters.packets_in, 0);
        assert_adds_up(&report.up);
    }
}

/// From the client's first packet on, whenever it comes, the link does the same as the scheduler
/// for each packet. The queued bytes at a packet's arrival, and that no packet is early, do not
/// depend on the load of the machine.
fn schedule_begins_with_the_clients_first_packet() {
    const COUNT: usize = 300;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packets.csv");
    let by_time = "rate_mbit_per_second = 3\nqueue_ms = 1000\ndelay_ms = 5\njitter_ms = \
        4\noutage_ms = [50, 150]\noutage_every_ms = [200, 300]";
    let profile = profile(by_time, "delay_ms = 1");
    for start_ms in [0, 300, 1000] {
        let link = start(
            &profile,
            &Options { seed: 5, packets: Some(path.clone()), ..Options::default() },
        );
        let (near, far) = (udp(link.near(), NEAR_IPV4), udp(link.far(), FAR_IPV4));
        let server_first = near.local_addr().unwrap();
        far.send_to(b"the server's own", server_first).unwrap();
        near.recv(&mut [0; 20]).unwrap();
        std::thread::sleep(Duration::from_millis(start_ms));
        let to = far.local_addr().unwrap();
        std::thread::scope(|scope| {
            // Paced, so that at least two outages occur.
            scope.spawn(|| {
                for _ in 0..COUNT {
                    near.send_to(&[0; 500], to).unwrap();
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
            let mut buffer = [0; 600];
            for _ in 0..COUNT {
                far.recv(&mut buffer).unwrap();
            }
        });
        let report = link.stop().unwrap();
        assert!(
            report.time_zero_seconds.unwrap() * 1e3 >= start_ms as f64,
            "{:?}",
            report.time_zero_seconds
        );
        let log = std::fs::read_to_string(&path).unwrap();
        let rows: Vec<Vec<&str>> = log.lines().map(|line| line.split(',').collect()).collect();
        let column = |name: &str| rows[0].iter().position(|column| *column == name).unwrap();
        let [arrived, left, way, bytes, queue] =
            ["arrived_ns", "left_ns", "way", "bytes", "queue_bytes"].map(column);
        let number = |row: &[&str], column: usize| row[column].parse::<u64>().unwrap();
        let up: Vec<_> = rows.iter().skip(1).filter(|row| row[way] == "up").collect();
        assert_eq!(up.len(), COUNT);
        let zero_ns = number(up[0], arrived);
        let mut scheduler = Scheduler::new(&profile.up, 5, Way::Up);
        let mut waited = 0;
        for row in up {
            let since_ns = number(row, arrived) - zero_ns;
            assert_eq!(number(row, queue), scheduler.queued_bytes(since_ns), "{start_ms} {row:?}");
            let Verdict::Deliver { deadline_ns } =
                scheduler.handle_packet(number(row, bytes) as usize, since_ns)
            else {
                panic!("{row:?}")
            };
            assert!(number(row, left) - zero_ns >= deadline_ns, "{start_ms} {row:?}");
            waited += u32::from(deadline_ns - since_ns > 20_000_000);
        }
        assert!(waited > 5, "no outage occurred: {waited}");
    }
}

/// Lateness depends on the machine; that no packet is early does not.
fn no_packet_arrives_before_its_delay() {
    let link = start(&profile("delay_ms = 30", "delay_ms = 15"), &Options::default());
    let (near, far) = (udp(link.near(), NEAR_IPV4), udp(link.far(), FAR_IPV4));
    let mut buffer = [0; 8];
    for _ in 0..5 {
        let sent = Instant::now();
        near.send_to(b"there", far.local_addr().unwrap()).unwrap();
        let (_, from) = far.recv_from(&mut buffer).unwrap();
        let there = Instant::now();
        far.send_to(b"back", from).unwrap();
        near.recv(&mut buffer).unwrap();
        assert!(there - sent >= Duration::from_millis(30), "{:?}", there - sent);
        assert!(there.elapsed() >= Duration::from_millis(15), "{:?}", there.elapsed());
    }
}

fn tcp_transfer_survives_loss_in_wire_packets() {
    const BYTES: usize = 2_000_000;
    let lossy = "rate_mbit_per_second = 100\nqueue_ms = 50\ndelay_ms = 1\nloss_percent = 1";
    let link = start(
        &profile(lossy, lossy),
        &Options { seed: 3, tcp_congestion: Some("cubic".into()), ..Options::default() },
    );
    let listener = link.far().run(|| TcpListener::bind((FAR_IPV4, 443))).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    let content: Vec<u8> = (0..BYTES).map(|at| (at * 31 % 251) as u8).collect();
    let received = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&content).unwrap();
        });
        let mut stream =
            link.near().run(|| TcpStream::connect_timeout(&address, PATIENCE)).unwrap().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        received
    });
    assert!(received == content, "the received content differs from the sent content");
    let report = link.stop().unwrap();
    assert_adds_up(&report.up);
    assert_adds_up(&report.down);
    assert!(report.down.counters.packets_lost > 0, "{:?}", report.down);
    // Segments of wire size, not the kernel's 64 KB ones.
    assert!(report.down.counters.packets_in as usize > BYTES / 1460, "{:?}", report.down);
    assert_eq!(report.down.counters.packets_oversized, 0);
    let flow =
        report.flows.iter().find(|flow| flow.far_port == Some(443)).expect("the connection's flow");
    assert_eq!(flow.protocol, "tcp");
    assert!(flow.counters.down.bytes as usize > BYTES);
    assert_eq!(flow.counters.down.packets_lost, report.down.counters.packets_lost);
}

fn configured_congestion_control_is_used() {
    for name in ["cubic", "reno"] {
        let options = Options { seed: 1, tcp_congestion: Some(name.into()), ..Options::default() };
        let link = start(&profile("delay_ms = 1", "delay_ms = 1"), &options);
        for address in [IpAddr::from(FAR_IPV4), IpAddr::from(FAR_IPV6)] {
            let listener = link.far().run(|| TcpListener::bind((address, 0))).unwrap().unwrap();
            let to = listener.local_addr().unwrap();
            let near =
                link.near().run(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap().unwrap();
            let (far, _) = listener.accept().unwrap();
            for socket in [&near, &far] {
                assert_eq!(
                    rustix::net::sockopt::tcp_congestion(socket).unwrap(),
                    name,
                    "{address}"
                );
            }
        }
        let congestion = link.stop().unwrap().tcp_congestion;
        assert_eq!(
            (congestion.asked.as_deref(), congestion.near, congestion.far),
            (Some(name), name.into(), name.into())
        );
    }
}

fn default_congestion_control_is_reported() {
    let link = start(&profile("delay_ms = 1", "delay_ms = 1"), &Options::default());
    let congestion = link.stop().unwrap().tcp_congestion;
    assert_eq!(congestion.asked, None);
    assert!(!congestion.default.is_empty());
    assert_eq!((&congestion.near, &congestion.far), (&congestion.default, &congestion.default));
}

fn unknown_congestion_control_is_refused() {
    let options = Options { seed: 1, tcp_congestion: Some("quibic".into()), ..Options::default() };
    let error = Link::start(&profile("delay_ms = 1", "delay_ms = 1"), &options)
        .expect_err("has to be refused");
    assert_eq!(error.exit_code(), 2);
    let message = error.to_string();
    assert!(message.contains("`quibic`") && message.contains("reno"), "{message}");
}

fn slow_start_after_idle_is_applied_and_reported() {
    let kernel = || {
        std::fs::read_to_string("/proc/sys/net/ipv4/tcp_slow_start_after_idle")
            .unwrap()
            .trim()
            .to_owned()
    };
    for (asked, expected) in [(None, "1"), (Some(true), "1"), (Some(false), "0")] {
        let options = Options { tcp_slow_start_after_idle: asked, ..Options::default() };
        let link = start(&profile("delay_ms = 1", "delay_ms = 1"), &options);
        let in_force = [link.near().run(kernel).unwrap(), link.far().run(kernel).unwrap()];
        assert_eq!(in_force, [expected, expected]);
        let settings = link.stop().unwrap().tcp_settings;
        for end in [&settings.near, &settings.far] {
            assert_eq!(end["tcp_slow_start_after_idle"], expected);
            // Three numbers each: minimum, default, maximum.
            let numbers = |name: &str| {
                end[name].split(' ').filter(|number| number.parse::<u64>().is_ok()).count()
            };
            assert_eq!(
                (numbers("tcp_rmem"), numbers("tcp_wmem"), numbers("tcp_ecn")),
                (3, 3, 1),
                "{end:?}"
            );
        }
    }
}

/// Neither the link's own setup nor the kernel's housekeeping appears in a report.
fn idle_link_carries_nothing() {
    let link = start(&profile("delay_ms = 1", "delay_ms = 1"), &Options::default());
    // The kernel's own messages (router solicitations, multicast reports) would be sent within the
    // first seconds; the wait gives them a chance to appear.
    std::thread::sleep(Duration::from_secs(2));
    let report = link.stop().unwrap();
    assert_eq!(
        (report.up.counters.packets_in, report.down.counters.packets_in),
        (0, 0),
        "{:?}",
        report.flows
    );
    assert!(report.clean);
}

fn namespaces_reach_nothing_but_each_other() {
    let link = start(&profile("delay_ms = 1", "delay_ms = 1"), &Options::default());
    for namespace in [link.near(), link.far()] {
        let devices = namespace
            .run(|| std::fs::read_to_string("/proc/thread-self/net/dev"))
            .unwrap()
            .unwrap();
        let mut names: Vec<&str> = devices
            .lines()
            .skip(2)
            .filter_map(|line| line.split(':').next())
            .map(str::trim)
            .collect();
        names.sort_unstable();
        // Some kernels add their fallback tunnel devices to every namespace; they are down and not
        // connected.
        names.retain(|name| {
            ![
                "gre0", "gretap0", "erspan0", "ip6tnl0", "ip6gre0", "sit0", "tunl0", "ip_vti0",
                "ip6_vti0",
            ]
            .contains(name)
        });
        assert_eq!(names, ["link0", "lo"]);
    }
}

/// A child that is not waited for must not keep the link from ending.
fn link_ends_while_its_programs_run() {
    let link = start(&profile("delay_ms = 1", "delay_ms = 1"), &Options::default());
    let children = [0, 1].map(|_| {
        let mut sleep = std::process::Command::new("sleep");
        sleep.arg("86400");
        link.spawn_near(sleep).unwrap()
    });
    let mut done = std::process::Command::new("true");
    done.stdin(std::process::Stdio::null());
    assert!(link.spawn_far(done).unwrap().wait().unwrap().success());
    link.stop().unwrap();
    for child in children {
        assert!(!std::path::Path::new(&format!("/proc/{}", child.id())).exists());
    }
}
