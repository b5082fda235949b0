//! Both directions over sockets instead of devices, in virtual time.

use std::cell::Cell;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixDatagram;

use super::*;
use crate::flow;

const MS: u64 = 1_000_000;

struct Bench {
    up: DirectionEmulator,
    down: DirectionEmulator,
    records: Records,
    /// Socket that an emulator reads from; tests write to `sender`.
    device: OwnedFd,
    sender: UnixDatagram,
    /// Client port of the sending flow.
    port: u16,
    now_ns: Cell<u64>,
}

impl Bench {
    fn new(profile: &Profile, seed: u64) -> Self {
        let (sender, device) = UnixDatagram::pair().unwrap();
        device.set_nonblocking(true).unwrap();
        let clock = Clock::waiting(0);
        let (mut up, mut down) = (
            DirectionEmulator::new(Way::Up, profile).unwrap(),
            DirectionEmulator::new(Way::Down, profile).unwrap(),
        );
        up.start(profile, seed, &clock);
        down.start(profile, seed, &clock);
        let records = Records { clock, flows: flow::Table::default(), packets: None };
        Self { up, down, records, device: device.into(), sender, port: 1, now_ns: Cell::new(0) }
    }

    fn arrive(&mut self, way: Way, bytes: usize, now_ns: u64) {
        self.now_ns.set(now_ns);
        self.sender.send(&self.packet(way, bytes)).unwrap();
        let emulator = match way {
            Way::Up => &mut self.up,
            Way::Down => &mut self.down,
        };
        emulator.read(&self.device, &self.device, &mut self.records, || self.now_ns.get()).unwrap();
    }

    /// UDP over IPv4.
    fn packet(&self, way: Way, bytes: usize) -> Vec<u8> {
        let mut packet = vec![0; bytes];
        (packet[0], packet[9]) = (0x45, flow::Protocol::UDP.0);
        let ends = [([10, 77, 0, 1], self.port), ([10, 77, 0, 2], 443)];
        let [source, destination] = if way == Way::Up { ends } else { [ends[1], ends[0]] };
        for (at, (address, port)) in [source, destination].into_iter().enumerate() {
            packet[12 + 4 * at..16 + 4 * at].copy_from_slice(&address);
            packet[20 + 2 * at..22 + 2 * at].copy_from_slice(&port.to_be_bytes());
        }
        packet
    }

    /// Starts a load, as COMMAND does; the client then opens another flow.
    fn start(&mut self, profile: &Profile, seed: u64, now_ns: u64) {
        self.port += 1;
        self.records.flows.start();
        self.records.clock.restart(now_ns);
        self.up.start(profile, seed, &self.records.clock);
        self.down.start(profile, seed, &self.records.clock);
    }

    /// Sends packets in both directions from this time on. Returns the deadlines relative to the
    /// start, and the number of lost or dropped packets.
    fn load(&mut self, start_ns: u64) -> Schedule {
        self.load_beside(start_ns, |_, _| ())
    }

    /// Like `load`, with other packets before each pair of packets.
    fn load_beside(&mut self, start_ns: u64, mut others: impl FnMut(&mut Self, u64)) -> Schedule {
        let dropped = |emulator: &DirectionEmulator| {
            emulator.counters.packets_lost
                + emulator.counters.packets_queue_dropped
                + emulator.counters.packets_policed
        };
        let before = [&self.up, &self.down].map(dropped);
        for emulator in [&mut self.up, &mut self.down] {
            while let Some(packet) = emulator.in_flight.pop_front() {
                emulator.packets.free(packet.packet);
            }
        }
        for number in 0..1500 {
            let now_ns = start_ns + number * 2 * MS;
            if number > 0 {
                others(self, now_ns - 1);
            }
            self.arrive(Way::Up, 900, now_ns);
            self.arrive(Way::Down, 1400, now_ns + MS / 4);
        }
        let port = self.port.to_be_bytes();
        let is_own = |packet: &[u8]| packet[20..22] == port || packet[22..24] == port;
        let deadlines = |emulator: &DirectionEmulator| {
            let own = emulator
                .in_flight
                .iter()
                .filter(|packet| is_own(emulator.packets.packet(packet.packet)));
            own.map(|packet| packet.deadline_ns - start_ns).collect()
        };
        let after = [&self.up, &self.down].map(dropped);
        Schedule {
            deadlines_ns: [deadlines(&self.up), deadlines(&self.down)],
            dropped: [after[0] - before[0], after[1] - before[1]],
        }
    }
}

#[derive(Debug, PartialEq)]
struct Schedule {
    deadlines_ns: [Vec<u64>; 2],
    dropped: [u64; 2],
}

fn profile(keys: &str) -> Profile {
    Profile::from_toml(&format!(
        "name='t'\n[up]\ndelay_ms=35\n{keys}\n[down]\ndelay_ms=35\n{keys}\n"
    ))
    .unwrap()
}

fn traced() -> Profile {
    Profile::load(std::path::Path::new("../../profiles/lte-driving.toml")).unwrap()
}

/// Profiles with everything that depends on time zero, so that a wrong time zero changes the
/// schedule.
fn profiles() -> Vec<Profile> {
    let rate = "rate_mbit_per_second=6\nqueue_ms=300";
    let mut profiles: Vec<Profile> = [
        "jitter_ms=8",
        "outage_ms=[100,300]\noutage_every_ms=[500,900]",
        "jitter_ms=8\nloss_percent=5\nlose_packets=[3]",
    ]
    .iter()
    .map(|keys| profile(&format!("{rate}\n{keys}")))
    .collect();
    profiles.push(traced());
    let policed = "[[rules]]\npolice_mbit_per_second=2\npolice_burst_bytes=400000";
    profiles.push(
        Profile::from_toml(&format!(
            "name='policed'\n[up]\ndelay_ms=35\n{rate}\njitter_ms=8\n[down]\ndelay_ms=35\n{policed}"
        ))
        .unwrap(),
    );
    profiles
}

#[test]
fn later_client_start_gives_the_same_schedule() {
    for profile in profiles() {
        let at = |start_ms: u64| Bench::new(&profile, 7).load(start_ms * MS);
        let first = at(0);
        assert_eq!(at(300), first, "{}", profile.name);
        assert_eq!(at(1000), first, "{}", profile.name);
        // Another seed gives another schedule; otherwise the test would prove nothing.
        assert_ne!(Bench::new(&profile, 8).load(0), first, "{}", profile.name);
    }
}

#[test]
fn earlier_server_packets_do_not_move_time_zero() {
    for profile in profiles() {
        let first = Bench::new(&profile, 7).load(0);
        let mut bench = Bench::new(&profile, 7);
        for number in 0..100 {
            bench.arrive(Way::Down, 500, number * 3 * MS);
        }
        assert_eq!(bench.load(900 * MS), first, "{}", profile.name);
    }
}

#[test]
fn load_after_a_start_has_the_schedule_of_a_new_link() {
    for profile in profiles() {
        let first = Bench::new(&profile, 7).load(0);
        let mut bench = Bench::new(&profile, 7);
        bench.load(50 * MS);
        bench.start(&profile, 7, 3060 * MS);
        // Server packets before time zero use nothing of the load's schedule.
        (0..50).for_each(|number| bench.arrive(Way::Down, 1400, 3060 * MS + number * MS / 10));
        assert_eq!(bench.load(3070 * MS), first, "{}", profile.name);
        bench.start(&profile, 7, 7000 * MS);
        assert_eq!(bench.load(7300 * MS), first, "{}", profile.name);
        // Without a start, the schedule continues.
        assert_ne!(bench.load(12_000 * MS), first, "{}", profile.name);
    }
}

#[test]
fn late_packets_of_an_earlier_flow_do_not_affect_the_load() {
    // Without a rate: late packets would use their share of it.
    for keys in ["", "jitter_ms=8\nreorder=true"] {
        late_packets_change_nothing(&profile(&format!(
            "loss_percent=5\nlose_packets=[1,3]\n{keys}"
        )));
    }
}

fn late_packets_change_nothing(profile: &Profile) {
    let first = Bench::new(profile, 7).load(0);
    let mut bench = Bench::new(profile, 7);
    bench.load(0);
    bench.start(profile, 7, 7000 * MS);
    let late = |bench: &mut Bench, now_ns| {
        bench.port -= 1;
        bench.arrive(Way::Up, 60, now_ns);
        bench.arrive(Way::Down, 60, now_ns);
        bench.port += 1;
    };
    late(&mut bench, 7010 * MS);
    assert_eq!(bench.records.clock.begun_ns(), None);
    let beside = bench.load_beside(7200 * MS, late);
    assert_eq!(bench.records.clock.begun_ns(), Some(7200 * MS));
    assert_eq!(beside.deadlines_ns, first.deadlines_ns);
    // Late packets are still subject to loss.
    assert!(
        bench.up.counters.packets_lost + bench.down.counters.packets_lost
            > first.dropped[0] + first.dropped[1]
    );
}

#[test]
fn counters_begin_with_the_start() {
    let profile = profile("rate_mbit_per_second=6\nqueue_bytes=3000");
    let mut bench = Bench::new(&profile, 7);
    // Two packets are in flight at the start, and late.
    (0..5).for_each(|_| bench.arrive(Way::Up, 1500, 0));
    bench.start(&profile, 7, MS);
    let (nowhere, kept) = UnixDatagram::pair().unwrap();
    bench.up.deliver(nowhere.as_fd(), &mut bench.records, || 900 * MS);
    bench.arrive(Way::Up, 750, 1000 * MS);
    bench.up.deliver(nowhere.as_fd(), &mut bench.records, || 1037 * MS);
    bench.arrive(Way::Up, 1500, 1040 * MS);
    drop(kept);
    assert_eq!(bench.records.flows.sorted().len(), 1);
    let counts = bench.up.finish();
    let counters = counts.counters;
    assert_eq!(
        (
            counters.packets_in,
            counters.packets_out,
            counters.bytes_out,
            counters.packets_queue_dropped
        ),
        (2, 1, 750, 0)
    );
    assert_eq!(
        (counters.packets_held_at_end, counters.held_max_packets, counts.queue_max_bytes),
        (1, 1, 1500)
    );
    assert_eq!(
        (counts.lateness.packets(), counts.lateness.late(), counts.lateness.max_ns() / MS),
        (1, 0, 1)
    );
}

#[test]
fn lateness_is_frozen_at_the_end_of_a_load_and_restarts_with_the_next() {
    let profile = profile("");
    let mut bench = Bench::new(&profile, 7);
    let (to, _kept) = UnixDatagram::pair().unwrap();
    // The bound is 2 ms.
    let hand_over = |bench: &mut Bench, now_ns: u64, late_ms: u64| {
        bench.arrive(Way::Up, 100, now_ns);
        bench.up.deliver(to.as_fd(), &mut bench.records, || now_ns + (35 + late_ms) * MS);
    };
    let found = |bench: &Bench| {
        let (counters, lateness) = (&bench.up.counters, &bench.up.lateness);
        (counters.packets_out, lateness.packets(), lateness.late(), lateness.max_ns() / MS)
    };
    hand_over(&mut bench, 0, 3);
    hand_over(&mut bench, 100 * MS, 1);
    assert_eq!(found(&bench), (2, 2, 1, 3));
    // One packet is in flight at the end.
    bench.arrive(Way::Up, 100, 200 * MS);
    bench.up.freeze_lateness();
    hand_over(&mut bench, 210 * MS, 50);
    assert_eq!(found(&bench), (4, 2, 1, 3));
    bench.start(&profile, 7, 300 * MS);
    hand_over(&mut bench, 310 * MS, 4);
    assert_eq!(found(&bench), (1, 1, 1, 4));
}

#[test]
fn change_is_undone_by_a_start() {
    let profile = profile("rate_mbit_per_second=6\nqueue_ms=300");
    let mut bench = Bench::new(&profile, 7);
    assert_eq!(bench.records.clock.begun_ns(), None);
    bench.arrive(Way::Up, 100, 40 * MS);
    assert_eq!(bench.records.clock.begun_ns(), Some(40 * MS));
    bench.up.change(&Direction { delay_ns: 5 * MS, ..profile.up.clone() }, &bench.records.clock);
    bench.start(&profile, 7, 60 * MS);
    bench.arrive(Way::Up, 750, 70 * MS);
    assert_eq!((bench.records.clock.begun_ns(), bench.up.in_flight.len()), (Some(70 * MS), 2));
    assert!(bench.up.in_flight.iter().any(|packet| packet.deadline_ns == 106 * MS));
}
