//! Links that reorder, police, block and change during the traffic, between real namespaces.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use pronghorn_link::{FAR_IPV4, FAR_IPV6, Link, NEAR_IPV4, NEAR_IPV6, Options, Profile};

use crate::traffic::{PATIENCE, assert_adds_up, profile, start, udp};

pub(crate) const TESTS: &[(&str, fn())] = &[
    (
        "reordering_link_delivers_all_packets_in_another_order",
        reordering_link_delivers_all_packets_in_another_order,
    ),
    ("policer_drops_packets_beyond_its_bucket", policer_drops_packets_beyond_its_bucket),
    (
        "blocked_port_receives_nothing_and_others_continue",
        blocked_port_receives_nothing_and_others_continue,
    ),
    (
        "block_rule_counts_from_the_start_of_each_flow",
        block_rule_counts_from_the_start_of_each_flow,
    ),
    ("new_address_stops_tcp_and_unbound_udp_continues_over_ipv4", || {
        new_address(FAR_IPV4.into(), NEAR_IPV4.into());
    }),
    ("new_address_stops_tcp_and_unbound_udp_continues_over_ipv6", || {
        new_address(FAR_IPV6.into(), NEAR_IPV6.into());
    }),
    ("change_not_yet_due_is_not_made", change_not_yet_due_is_not_made),
];

fn with_tables(tables: &str) -> Profile {
    Profile::from_toml(&format!("name = 't'\n[up]\ndelay_ms = 1\n[down]\ndelay_ms = 1\n{tables}"))
        .unwrap()
}

fn number(buffer: &[u8]) -> u32 {
    u32::from_be_bytes(buffer[..4].try_into().unwrap())
}

fn reordering_link_delivers_all_packets_in_another_order() {
    const COUNT: u32 = 500;
    /// Fits into any socket's buffer: on a busy machine, all may be queued before the first is
    /// read.
    const AT_ONCE: usize = 100;
    let link = start(
        &profile("delay_ms = 20\njitter_ms = 20\nreorder = true", "delay_ms = 0"),
        &Options::default(),
    );
    let (near, far) = (udp(link.near(), NEAR_IPV4), udp(link.far(), FAR_IPV4));
    let (mut buffer, mut arrived) = ([0; 4], Vec::new());
    for some in (0..COUNT).collect::<Vec<_>>().chunks(AT_ONCE) {
        for number in some {
            near.send_to(&number.to_be_bytes(), far.local_addr().unwrap()).unwrap();
        }
        for _ in some {
            far.recv(&mut buffer).unwrap();
            arrived.push(number(&buffer));
        }
    }
    assert!(!arrived.is_sorted());
    arrived.sort_unstable();
    assert!(arrived.into_iter().eq(0..COUNT));
    let report = link.stop().unwrap();
    assert_adds_up(&report.up);
    assert_eq!(report.up.counters.packets_out, u64::from(COUNT));
}

/// A bucket that refills so slowly that only its burst matters, so the speed of the machine does
/// not matter.
fn policer_drops_packets_beyond_its_bucket() {
    const WIRE_BYTES: usize = 1028;
    let rule = "[[rules]]\nprotocol='udp'\ndirection='up'\npolice_mbit_per_second=0.001\npolice_burst_bytes=10280";
    let link = start(&with_tables(rule), &Options::default());
    let (near, far) = (udp(link.near(), NEAR_IPV4), udp(link.far(), FAR_IPV4));
    for _ in 0..50 {
        near.send_to(&[0; WIRE_BYTES - 28], far.local_addr().unwrap()).unwrap();
    }
    let mut buffer = [0; WIRE_BYTES];
    for _ in 0..10 {
        far.recv(&mut buffer).unwrap();
    }
    // The other direction is not policed. Its packet shows that all fifty have passed.
    far.send_to(b"back", near.local_addr().unwrap()).unwrap();
    near.recv(&mut buffer).unwrap();
    let report = link.stop().unwrap();
    assert_adds_up(&report.up);
    // At this rate, an eleventh packet would take eight seconds.
    assert_eq!(
        (
            report.up.counters.packets_in,
            report.up.counters.packets_out,
            report.up.counters.packets_policed
        ),
        (50, 10, 40)
    );
    assert_eq!(report.up.counters.bytes_policed, 40 * WIRE_BYTES as u64);
    assert_eq!(
        (report.down.counters.packets_policed, report.flows[0].counters.up.packets_policed),
        (0, 40)
    );
    assert_eq!((report.rules.len(), report.clean), (1, report.kept_deadlines));
}

fn blocked_port_receives_nothing_and_others_continue() {
    let link =
        start(&with_tables("[[rules]]\nprotocol='udp'\nport=443\nblock=true"), &Options::default());
    let bind = |port: u16| link.far().run(|| UdpSocket::bind((FAR_IPV4, port))).unwrap().unwrap();
    let (blocked, open) = (bind(443), bind(444));
    open.set_read_timeout(Some(PATIENCE)).unwrap();
    blocked.set_nonblocking(true).unwrap();
    let near = udp(link.near(), NEAR_IPV4);
    for _ in 0..5 {
        near.send_to(b"to the blocked", blocked.local_addr().unwrap()).unwrap();
    }
    near.send_to(b"open", open.local_addr().unwrap()).unwrap();
    let mut buffer = [0; 100];
    // The link keeps order: earlier packets would have arrived before.
    open.recv(&mut buffer).unwrap();
    assert_eq!(blocked.recv(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
    // The rule applies to the far end's port in both directions.
    blocked.send_to(b"from the blocked", near.local_addr().unwrap()).unwrap();
    // The same port over TCP is not blocked.
    let listener = link.far().run(|| TcpListener::bind((FAR_IPV4, 443))).unwrap().unwrap();
    let to = listener.local_addr().unwrap();
    link.near().run(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap().unwrap();
    let report = link.stop().unwrap();
    assert_adds_up(&report.up);
    assert_eq!((report.up.counters.packets_blocked, report.down.counters.packets_blocked), (5, 1));
    let flow = report
        .flows
        .iter()
        .find(|flow| (flow.protocol.as_str(), flow.far_port) == ("udp", Some(443)))
        .unwrap();
    assert_eq!((flow.counters.up.packets_blocked, flow.counters.up.packets), (5, 5));
}

fn block_rule_counts_from_the_start_of_each_flow() {
    let link = start(
        &with_tables("[[rules]]\nprotocol='udp'\nblock=true\nafter_ms=600\ndirection='up'"),
        &Options::default(),
    );
    let far = udp(link.far(), FAR_IPV4);
    let mut buffer = [0; 100];
    let echo_until_blocked = || {
        let near = udp(link.near(), NEAR_IPV4);
        let mut buffer = [0; 100];
        let mut arrived = 0;
        near.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        // The rule ends the loop: 600 ms after the first packet, nothing arrives any more.
        loop {
            near.send_to(b"x", far.local_addr().unwrap()).unwrap();
            far.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            match far.recv(&mut buffer) {
                Ok(_) => arrived += 1,
                Err(_) => return arrived,
            }
            let _ = near.recv(&mut buffer);
        }
    };
    // Each flow has its own age, although the link is older.
    assert!(echo_until_blocked() > 0);
    assert!(echo_until_blocked() > 0);
    far.set_nonblocking(true).unwrap();
    assert!(far.recv(&mut buffer).is_err());
    let report = link.stop().unwrap();
    assert_eq!(report.flows.len(), 2);
    for flow in &report.flows {
        assert!(
            flow.counters.up.packets_blocked >= 1
                && flow.counters.up.packets > flow.counters.up.packets_blocked
        );
    }
}

/// A TCP transfer and an echo over an unbound UDP socket while the client's address changes.
fn new_address(far_address: IpAddr, near_before: IpAddr) {
    let change = "[[changes]]\nafter_ms=500\nnew_client_address=true\nup={delay_ms=2}";
    let link = start(&with_tables(change), &Options::default());
    let near_after = match near_before {
        IpAddr::V4(_) => IpAddr::from([10, 77, 0, 5]),
        IpAddr::V6(_) => IpAddr::from([0xfd77, 0, 0, 0, 0, 0, 0, 5]),
    };
    let any: IpAddr = if far_address.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let (near, far) = (udp(link.near(), any), udp(link.far(), far_address));
    let mut transfer = Transfer::start(&link, far_address);
    assert!(transfer.step());
    let mut buffer = [0; 100];
    let mut sources = vec![near_before];
    let mut sent = 0u32;
    // Echoes until the new address was seen, and some more after that.
    let mut after = 0;
    while after < 20 {
        sent += 1;
        // The kernel may refuse briefly: the old address is gone and the new route is not set yet.
        if near.send_to(&sent.to_be_bytes(), far.local_addr().unwrap()).is_err() {
            continue;
        }
        let (length, from) = far.recv_from(&mut buffer).unwrap();
        assert_eq!(number(&buffer[..length]), sent);
        if sources.last() != Some(&from.ip()) {
            sources.push(from.ip());
        }
        after += u32::from(from.ip() == near_after);
        far.send_to(&buffer[..4], from).unwrap();
        // Packets to the removed address are lost.
        near.set_read_timeout(Some(if after > 1 { PATIENCE } else { Duration::from_millis(20) }))
            .unwrap();
        if let Ok((length, _)) = near.recv_from(&mut buffer) {
            assert!(number(&buffer[..length]) <= sent);
        }
        if after == 0 {
            assert!(
                transfer.step() || sources.len() > 1 || !transfer.client_is_local(),
                "the transfer stopped too early"
            );
        }
    }
    assert_eq!(sources, [near_before, near_after]);
    assert!(!transfer.step(), "the transfer continues without an address");
    let report = link.stop().unwrap();
    assert_adds_up(&report.up);
    assert_eq!(report.changes.len(), 1);
    assert!(report.changes[0].made_seconds.unwrap() >= 0.5);
    assert!(report.changes[0].near_addresses.contains(&near_after), "{:?}", report.changes);
    let addresses: Vec<IpAddr> = report
        .flows
        .iter()
        .filter(|flow| flow.protocol == "udp")
        .map(|flow| flow.near_address)
        .collect();
    assert_eq!(addresses, [near_before, near_after]);
}

/// A TCP connection that echoes one byte at a time.
struct Transfer<'a> {
    link: &'a Link,
    near: TcpStream,
    far: TcpStream,
}

impl<'a> Transfer<'a> {
    fn start(link: &'a Link, far_address: IpAddr) -> Self {
        let listener = link.far().run(|| TcpListener::bind((far_address, 0))).unwrap().unwrap();
        let to = listener.local_addr().unwrap();
        let near = link.near().run(|| TcpStream::connect_timeout(&to, PATIENCE)).unwrap().unwrap();
        let (far, _) = listener.accept().unwrap();
        for end in [&near, &far] {
            end.set_nodelay(true).unwrap();
            end.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        }
        Self { link, near, far }
    }

    /// Returns whether a byte was echoed. IPv6 continues to send from a removed address, but no
    /// response can reach it.
    fn step(&mut self) -> bool {
        let mut byte = [0];
        self.near.write_all(b"x").is_ok()
            && self.far.read_exact(&mut byte).is_ok()
            && self.far.write_all(&byte).is_ok()
            && self.near.read_exact(&mut byte).is_ok()
    }

    /// Returns whether the client's address of the connection still exists.
    fn client_is_local(&self) -> bool {
        let address = SocketAddr::new(self.near.local_addr().unwrap().ip(), 0);
        self.link.near().run(|| UdpSocket::bind(address)).unwrap().is_ok()
    }
}

fn change_not_yet_due_is_not_made() {
    let link = start(
        &with_tables("[[changes]]\nafter_ms=3600000\nnew_client_address=true"),
        &Options::default(),
    );
    let report = link.stop().unwrap();
    assert_eq!(report.changes[0].made_seconds, None);
}
