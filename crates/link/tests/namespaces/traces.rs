//! The files that a link writes in addition to its report.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

use pronghorn_link::emulator::DirectionCounters;
use pronghorn_link::{FAR_IPV4, FAR_IPV6, Link, NEAR_IPV4, Options, Profile, TcpInfo};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("each_packet_has_its_row_with_monotonic_times", each_packet_has_its_row),
    ("fates_in_the_log_add_up_to_the_report", fates_add_up_to_the_report),
    ("connections_begin_with_the_configured_window", connections_begin_with_the_configured_window),
    ("samples_of_a_transfer_show_both_ends", samples_of_a_transfer_show_both_ends),
    (
        "packet_in_flight_at_the_end_is_logged_as_held",
        packet_in_flight_at_the_end_is_logged_as_held,
    ),
];

/// Timeout of a failing test; passing tests never reach it.
const PATIENCE: Duration = Duration::from_secs(20);

fn profile(up: &str, down: &str) -> Profile {
    Profile::from_toml(&format!("name = \"t\"\n[up]\n{up}\n[down]\n{down}\n")).unwrap()
}

fn start(profile: &Profile, options: &Options) -> Link {
    Link::start(profile, options).unwrap_or_else(|error| panic!("{error}"))
}

fn clock_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

type Row = HashMap<String, String>;

fn rows(path: &Path) -> Vec<Row> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    lines
        .map(|line| {
            let values: Vec<&str> = line.split(',').collect();
            assert_eq!(values.len(), names.len(), "{line}");
            names
                .iter()
                .zip(values)
                .map(|(name, value)| ((*name).to_owned(), value.to_owned()))
                .collect()
        })
        .collect()
}

fn number(row: &Row, column: &str) -> u64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column} of {row:?} is not a number"))
}

/// The log agrees with the test's own clock for each packet, and its two times differ by at least
/// the delay.
fn each_packet_has_its_row() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packets.csv");
    let options = Options { packets: Some(path.clone()), ..Options::default() };
    let link = start(&profile("delay_ms = 3", "delay_ms = 1"), &options);
    let socket = |namespace: &pronghorn_link::Namespace, address: &str| {
        let socket = namespace.run(|| UdpSocket::bind(address)).unwrap().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    };
    let (near, far) = (socket(link.near(), "[::]:0"), socket(link.far(), "[::]:443"));
    let near_port = u64::from(near.local_addr().unwrap().port());
    let mut sent = Vec::new();
    for payload in [100, 1200, 0] {
        let before_ns = clock_ns();
        near.send_to(&vec![0x40; payload], (FAR_IPV6, 443)).unwrap();
        let (length, from) = far.recv_from(&mut [0; 2000]).unwrap();
        sent.push((before_ns, clock_ns()));
        far.send_to(&vec![0x40; length], from).unwrap();
        near.recv(&mut [0; 2000]).unwrap();
    }
    assert!(!path.exists(), "the file appears when it is complete");
    link.stop().unwrap();
    let rows = rows(&path);
    assert_eq!(rows.len(), 6);
    assert!(rows.is_sorted_by_key(|row| number(row, "arrived_ns")));
    for (row, ((before_ns, after_ns), payload)) in
        rows.iter().step_by(2).zip(sent.into_iter().zip([100, 1200, 0]))
    {
        let (arrived_ns, left_ns) = (number(row, "arrived_ns"), number(row, "left_ns"));
        assert!(
            before_ns <= arrived_ns && arrived_ns + 3_000_000 <= left_ns && left_ns <= after_ns,
            "{row:?}"
        );
        assert_eq!(
            (row["way"].as_str(), row["protocol"].as_str(), row["fate"].as_str()),
            ("up", "udp", "delivered")
        );
        assert_eq!((number(row, "near_port"), number(row, "far_port")), (near_port, 443));
        assert_eq!((number(row, "payload"), number(row, "bytes")), (payload, payload + 48));
    }
    for row in rows.iter().skip(1).step_by(2) {
        assert_eq!(
            (row["way"].as_str(), number(row, "near_port"), number(row, "far_port")),
            ("down", near_port, 443)
        );
    }
}

fn fates_add_up_to_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packets.csv");
    let options = Options { seed: 3, packets: Some(path.clone()), ..Options::default() };
    // A queue that a TCP flight overflows, and random loss.
    let lossy = "rate_mbit_per_second = 50\nqueue_bytes = 20000\ndelay_ms = 2\nloss_percent = 1";
    let link = start(&profile(lossy, lossy), &options);
    transfer(&link, 1_000_000);
    let report = link.stop().unwrap();
    assert_eq!(report.packets_unlogged, 0);
    let rows = rows(&path);
    let count = |way: &str, fate: &str| {
        rows.iter().filter(|row| row["way"] == way && row["fate"] == fate).count() as u64
    };
    for (way, direction) in [("up", &report.up), ("down", &report.down)] {
        let DirectionCounters {
            packets_in,
            packets_out,
            packets_lost,
            packets_queue_dropped,
            packets_held_at_end,
            ..
        } = direction.counters;
        assert_eq!(rows.iter().filter(|row| row["way"] == way).count() as u64, packets_in);
        let counted = ["delivered", "lost", "queue_full", "held"].map(|fate| count(way, fate));
        assert_eq!(
            counted,
            [packets_out, packets_lost, packets_queue_dropped, packets_held_at_end]
        );
        let bytes: u64 =
            rows.iter().filter(|row| row["way"] == way).map(|row| number(row, "bytes")).sum();
        assert_eq!(bytes, direction.counters.bytes_in);
        let fullest = rows.iter().filter(|row| row["way"] == way && row["fate"] != "queue_full");
        // The queued bytes, and the packet itself.
        let fullest = fullest.map(|row| number(row, "queue_bytes") + number(row, "bytes")).max();
        assert_eq!(fullest, Some(direction.queue_max_bytes));
    }
    assert!(count("down", "lost") > 0 && count("down", "queue_full") > 0, "{:?}", report.down);
    // The connection's SYN and SYN-ACK.
    assert_eq!((rows[0]["kind"].as_str(), rows[0]["way"].as_str()), ("S", "up"));
    let syn_ack = rows.iter().find(|row| row["kind"] == "SA").unwrap();
    let next = (number(&rows[0], "sequence") as u32).wrapping_add(1);
    assert_eq!(number(syn_ack, "acknowledgement"), u64::from(next));
}

/// Transfers `bytes` from the far end to the near end.
fn transfer(link: &Link, bytes: usize) {
    let listener = link.far().run(|| TcpListener::bind((FAR_IPV4, 443))).unwrap().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| listener.accept().unwrap().0.write_all(&vec![7; bytes]).unwrap());
        let address = (FAR_IPV4, 443).into();
        let mut stream =
            link.near().run(|| TcpStream::connect_timeout(&address, PATIENCE)).unwrap().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        assert_eq!(received.len(), bytes);
    });
}

fn packet_in_flight_at_the_end_is_logged_as_held() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packets.csv");
    let options = Options { packets: Some(path.clone()), ..Options::default() };
    let link = start(&profile("delay_ms = 60000", "delay_ms = 1"), &options);
    let near = link.near().run(|| UdpSocket::bind((NEAR_IPV4, 0))).unwrap().unwrap();
    let far = link.far().run(|| UdpSocket::bind((FAR_IPV4, 443))).unwrap().unwrap();
    near.set_read_timeout(Some(PATIENCE)).unwrap();
    near.send_to(&[0x40; 10], (FAR_IPV4, 443)).unwrap();
    // When this packet arrives, the emulator has read the earlier one.
    far.send_to(b"later", near.local_addr().unwrap()).unwrap();
    near.recv(&mut [0; 10]).unwrap();
    assert_eq!(link.stop().unwrap().up.counters.packets_held_at_end, 1);
    let rows = rows(&path);
    let fates: Vec<[&str; 3]> =
        rows.iter().map(|row| ["way", "fate", "left_ns"].map(|name| row[name].as_str())).collect();
    assert_eq!(
        (fates[0], fates[1][0], fates[1][1], fates.len()),
        (["up", "held", ""], "down", "delivered", 2)
    );
}

fn connections_begin_with_the_configured_window() {
    let folder = tempfile::tempdir().unwrap();
    for asked in [None, Some(3), Some(32)] {
        let path = folder.path().join(format!("{asked:?}.csv"));
        let options = Options {
            tcp_initial_window: asked,
            tcp_info: Some(TcpInfo { path: path.clone(), interval: Duration::from_millis(1) }),
            ..Options::default()
        };
        let link = start(&profile("delay_ms = 20", "delay_ms = 20"), &options);
        transfer(&link, 200_000);
        link.stop().unwrap();
        // Before the first acknowledgement.
        let rows = rows(&path);
        for (end, sent) in [("far", "bytes_acked"), ("near", "bytes_sent")] {
            // The sender writes everything at once and closes.
            let begins = |row: &&Row| {
                row["end"] == end && !row["state"].starts_with("syn") && number(row, sent) <= 1
            };
            let first = rows
                .iter()
                .find(begins)
                .unwrap_or_else(|| panic!("no sample before the first acknowledgment, {end}"));
            assert_eq!(number(first, "cwnd_packets"), u64::from(asked.unwrap_or(10)), "{end}");
        }
    }
}

fn samples_of_a_transfer_show_both_ends() {
    const BYTES: usize = 2_000_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tcp-info.csv");
    let options = Options {
        tcp_congestion: Some("reno".into()),
        tcp_info: Some(TcpInfo { path: path.clone(), interval: Duration::from_millis(5) }),
        ..Options::default()
    };
    let before_ns = clock_ns();
    // Sending takes half a second.
    let link = start(
        &profile("delay_ms = 5", "delay_ms = 5\nrate_mbit_per_second = 32\nqueue_ms = 100"),
        &options,
    );
    transfer(&link, BYTES);
    let report = link.stop().unwrap();
    let after_ns = clock_ns();
    let rows = rows(&path);
    assert!(rows.is_sorted_by_key(|row| number(row, "time_ns")));
    assert!(rows.iter().all(|row| (before_ns..after_ns).contains(&number(row, "time_ns"))));
    assert!(
        rows.iter().all(|row| row["far_port"] == "443" && row["congestion"] == "reno"),
        "the listener is not a connection"
    );
    let [sender, receiver] = ["far", "near"]
        .map(|end| rows.iter().filter(|row| row["end"] == end).collect::<Vec<&Row>>());
    assert!(sender.iter().all(|row| {
        ["established", "fin-wait-1", "fin-wait-2", "closing"].contains(&row["state"].as_str())
    }));
    assert!(
        sender.len() > 10 && receiver.len() > 10,
        "{} and {} samples",
        sender.len(),
        receiver.len()
    );
    let cwnd = |row: &Row| number(row, "cwnd_packets");
    assert!(cwnd(sender[0]) < sender.iter().map(|row| cwnd(row)).max().unwrap(), "slow start");
    for (rows, column) in
        [(&sender, "bytes_acked"), (&sender, "busy_us"), (&receiver, "bytes_received")]
    {
        assert!(
            rows.is_sorted_by_key(|row| number(row, column))
                && number(rows.last().unwrap(), column) > 250_000,
            "{column}"
        );
    }
    // Each round trip takes at least 5 ms in each direction.
    assert!(sender.iter().all(|row| number(row, "rtt_us") >= 10_000));
    let sampled = report.tcp_info.unwrap();
    assert!(sampled.every_ms > 4.9 && sampled.samples >= sender.len() as u64, "{sampled:?}");
}
