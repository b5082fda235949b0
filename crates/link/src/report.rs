//! The report of a link, as data and as the JSON that `docs/link.md` describes.

mod file;

use std::net::IpAddr;

use serde::Serialize;

use crate::address::near_addresses_after;
use crate::addressing::{FAR_IPV4, FAR_IPV6, NEAR_IPV4, NEAR_IPV6};
use crate::cpu::CpuTime;
use crate::emulator::{Counts, DirectionCounters, DirectionCounts};
use crate::flow::{self, Pair};
use crate::hystart::Hystart;
use crate::lateness::{self, LatenessCounters};
use crate::machine::Machine;
use crate::profile::{ChangeSpec, DirectionSpec, Profile, RuleSpec};
use crate::tcp_info::Sampled;
use crate::tcp_settings::TcpSettings;

pub use crate::emulator::Scheduling;
pub use file::ReportFile;

/// Version of the JSON layout. Breaking changes get a new number.
pub const SCHEMA: &str = "pronghorn-link-report/3";

/// The whole report.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The requested profile.
    pub profile: ProfileReport,
    /// Seed of the random draws.
    pub seed: u64,
    /// Time from going live to the stop.
    pub duration_seconds: f64,
    /// Time zero of jitter, outages, traces and changes, since going live: the first packet of the
    /// client's first new flow since the last start; `null` if there was none.
    pub time_zero_seconds: Option<f64>,
    /// The same on the monotonic clock; the time of going live if there is no time zero.
    #[serde(skip)]
    pub(crate) time_zero_ns: u64,
    /// Whether deadlines were kept and no packet was dropped other than as the profile requests.
    pub clean: bool,
    /// Whether at most 1 % of all packets were late, or one packet.
    pub kept_deadlines: bool,
    /// Lateness of both directions together.
    pub lateness_us: Lateness,
    /// Packets later than this are late: [`lateness::bound_ns`].
    pub lateness_bound_us: f64,
    /// Scheduling of the emulator's thread.
    pub scheduling: Scheduling,
    /// TCP congestion control.
    pub tcp_congestion: Congestion,
    /// Other kernel parameters of TCP, as they were inside the link's namespaces.
    pub tcp_settings: TcpSettings,
    /// Addresses of the two ends.
    pub addresses: Addresses,
    /// Client to server.
    pub up: DirectionReport,
    /// Server to client.
    pub down: DirectionReport,
    /// The profile's rules, with their defaults filled in.
    pub rules: Vec<RuleSpec>,
    /// The profile's changes, and when they were made.
    pub changes: Vec<ChangeReport>,
    /// Each flow, in a stable order.
    pub flows: Vec<FlowReport>,
    /// Packets of flows that did not fit in the flow table.
    pub flows_beyond_table: PairReport,
    /// Packets that were not well-formed IP.
    pub unparsed: PairReport,
    /// Packets that did not fit in the packet log.
    pub packets_unlogged: u64,
    /// Samples of TCP connections; `null` if not requested.
    pub tcp_info: Option<Sampled>,
    /// Processor time of the link itself.
    pub cpu_seconds: LinkCpu,
    /// Load of the machine while COMMAND ran, or in the part that COMMAND marked; `null` when the
    /// link was used as a library.
    pub machine: Option<Machine>,
    /// How TCP at the server's end left slow start in that time; `null` if the kernel does not
    /// count it, or the link was used as a library.
    pub hystart: Option<Hystart>,
    /// How the commands ended; `null` when the link was used as a library.
    pub commands: Option<Commands>,
    /// Warnings.
    pub warnings: Vec<String>,
}

/// The requested profile.
#[derive(Debug, Clone, Serialize)]
pub struct ProfileReport {
    /// The profile's name.
    pub name: String,
    /// Hash of the profile's behavior, see [`Profile::hash`].
    pub hash: String,
    /// The profile's description.
    pub description: String,
}

/// TCP congestion control, as reported by sockets of a real connection over the link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Congestion {
    /// The requested algorithm; `null` for the default.
    pub asked: Option<String>,
    /// The kernel's default.
    pub default: String,
    /// Algorithm of the connecting socket.
    pub near: String,
    /// Algorithm of the accepted socket.
    pub far: String,
}

/// Addresses of the two ends.
#[derive(Debug, Clone, Serialize)]
pub struct Addresses {
    /// Addresses of the client.
    pub near: Vec<IpAddr>,
    /// Addresses of the server.
    pub far: Vec<IpAddr>,
}

/// A change of the link.
#[derive(Debug, Clone, Serialize)]
pub struct ChangeReport {
    /// The requested change.
    #[serde(flatten)]
    pub asked: ChangeSpec,
    /// Time of the change since going live; `null` if the link ended before.
    pub made_seconds: Option<f64>,
    /// The client's addresses after the change, if it gets new ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub near_addresses: Vec<IpAddr>,
}

/// Counters of one direction. `packets_in` is the sum of the other packet counts except
/// `tun_drops`.
#[derive(Debug, Clone, Serialize)]
pub struct DirectionReport {
    /// The profile's values.
    pub asked: DirectionSpec,
    /// Packets and bytes that the emulator has counted.
    #[serde(flatten)]
    pub counters: DirectionCounters,
    /// Packets dropped by the kernel at the TUN devices: never read by the emulator, or not
    /// accepted from it.
    pub tun_drops: u64,
    /// Maximum bytes that waited for the rate.
    pub queue_max_bytes: u64,
    /// Maximum time that a packet waited for the rate.
    pub queue_max_ms: f64,
    /// Lateness of packets, relative to their deadlines.
    pub lateness_us: Lateness,
}

/// Lateness percentiles in microseconds, zero without packets. Counted until COMMAND reports the
/// end of its load.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Lateness {
    /// Number of packets.
    pub packets: u64,
    /// Number of packets later than the bound.
    pub late: u64,
    /// Median.
    pub p50: f64,
    /// 99th percentile; with fewer than 100 packets, the maximum.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

/// A flow.
#[derive(Debug, Clone, Serialize)]
pub struct FlowReport {
    /// `tcp`, `udp`, `icmp`, `icmpv6`, or `ip-N`.
    pub protocol: String,
    /// The client's address.
    pub near_address: IpAddr,
    /// The client's port; `null` for protocols and fragments without ports.
    pub near_port: Option<u16>,
    /// The server's address.
    pub far_address: IpAddr,
    /// The server's port.
    pub far_port: Option<u16>,
    /// Counters of both directions.
    #[serde(flatten)]
    pub counters: PairReport,
}

/// Counters of both directions.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct PairReport {
    /// Client to server.
    pub up: CountersReport,
    /// Server to client.
    pub down: CountersReport,
}

/// Counters of one direction of a flow.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CountersReport {
    /// Packets that reached the link.
    pub packets: u64,
    /// Their bytes, IP headers included.
    pub bytes: u64,
    /// Of these, lost on the link.
    pub packets_lost: u64,
    /// Of these, dropped because the queue was full.
    pub packets_queue_dropped: u64,
    /// Of these, dropped by a blocking rule.
    pub packets_blocked: u64,
    /// Of these, dropped by a policing rule.
    pub packets_policed: u64,
}

/// Processor time of the link itself, in seconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct LinkCpu {
    /// The emulator's thread, from going live to the stop.
    pub emulator: CpuTime,
    /// All threads of this process, from its start to the report, including the emulator.
    pub process: CpuTime,
}

/// How the commands ended.
#[derive(Debug, Clone, Serialize)]
pub struct Commands {
    /// COMMAND.
    pub near: CommandReport,
    /// The far command, if given.
    pub far: Option<CommandReport>,
    /// Warm-ups at the far end before COMMAND, in order.
    pub warm_ups: Vec<CommandReport>,
}

/// How one command ended.
#[derive(Debug, Clone, Serialize)]
pub struct CommandReport {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Exit code, if it exited.
    pub exit_code: Option<i32>,
    /// Signal, if a signal ended it.
    pub signal: Option<i32>,
    /// Whether the link ended it with SIGKILL: it ignored SIGTERM, or its time as a warm-up had
    /// expired.
    pub killed: bool,
    /// Processor time of all processes at this end of the link.
    pub cpu_seconds: CpuTime,
}

pub(crate) struct Parts<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) seed: u64,
    pub(crate) counts: &'a Counts,
    pub(crate) tun_drops_up: u64,
    pub(crate) tun_drops_down: u64,
    pub(crate) scheduling: Scheduling,
    pub(crate) congestion: Congestion,
    pub(crate) tcp_settings: TcpSettings,
    pub(crate) ipv6: bool,
    pub(crate) tcp_info: Option<Sampled>,
    pub(crate) warnings: Vec<String>,
}

impl Report {
    pub(crate) fn new(parts: Parts<'_>) -> Self {
        let (profile, counts) = (parts.profile, parts.counts);
        let up = DirectionReport::new(profile.up.asked(), &counts.up, parts.tun_drops_up);
        let down = DirectionReport::new(profile.down.asked(), &counts.down, parts.tun_drops_down);
        let lateness_us = Lateness::new(&counts.up.lateness.with(&counts.down.lateness));
        let kept_deadlines = lateness_us.is_kept();
        let changes = profile.changes.iter().enumerate().map(|(at, change)| ChangeReport {
            asked: change.asked(),
            made_seconds: counts.changes_made_ns.get(at).map(|ns| *ns as f64 / 1e9),
            near_addresses: if change.new_client_address {
                near_addresses_after(at + 1, parts.ipv6)
            } else {
                Vec::new()
            },
        });
        let ends = |ipv4: IpAddr, ipv6: IpAddr| {
            [ipv4].into_iter().chain(parts.ipv6.then_some(ipv6)).collect()
        };
        Self {
            schema: SCHEMA,
            profile: ProfileReport::of(profile),
            seed: parts.seed,
            duration_seconds: counts.duration_ns as f64 / 1e9,
            time_zero_seconds: counts.time_zero_ns.map(|ns| ns as f64 / 1e9),
            time_zero_ns: counts.live_since_ns + counts.time_zero_ns.unwrap_or(0),
            clean: kept_deadlines
                && [&up, &down].into_iter().all(DirectionReport::dropped_as_asked),
            kept_deadlines,
            lateness_us,
            lateness_bound_us: lateness::bound_ns(profile) as f64 / 1e3,
            scheduling: parts.scheduling,
            tcp_congestion: parts.congestion,
            tcp_settings: parts.tcp_settings,
            addresses: Addresses {
                near: ends(NEAR_IPV4.into(), NEAR_IPV6.into()),
                far: ends(FAR_IPV4.into(), FAR_IPV6.into()),
            },
            up,
            down,
            rules: profile.rules.iter().map(|rule| rule.asked().clone()).collect(),
            changes: changes.collect(),
            flows: counts
                .flows
                .sorted()
                .into_iter()
                .map(|(key, pair)| FlowReport::new(key, pair))
                .collect(),
            flows_beyond_table: counts.flows.beyond().into(),
            unparsed: counts.flows.unparsed().into(),
            packets_unlogged: counts.packets_unlogged,
            tcp_info: parts.tcp_info,
            cpu_seconds: LinkCpu { emulator: counts.cpu, process: CpuTime::of_this_process() },
            machine: None,
            hystart: None,
            commands: None,
            warnings: parts.warnings,
        }
    }
}

impl ProfileReport {
    pub(crate) fn of(profile: &Profile) -> Self {
        Self {
            name: profile.name.clone(),
            hash: profile.hash(),
            description: profile.description.clone(),
        }
    }
}

impl DirectionReport {
    fn new(asked: DirectionSpec, counts: &DirectionCounts, tun_drops: u64) -> Self {
        Self {
            asked,
            counters: counts.counters,
            tun_drops,
            queue_max_bytes: counts.queue_max_bytes,
            queue_max_ms: counts.queue_max_ns as f64 / 1e6,
            lateness_us: Lateness::new(&counts.lateness),
        }
    }

    fn dropped_as_asked(&self) -> bool {
        self.tun_drops
            + self.counters.packets_overflowed
            + self.counters.packets_oversized
            + self.counters.packets_write_failed
            == 0
    }
}

impl Lateness {
    fn new(counters: &LatenessCounters) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        Self {
            packets: counters.packets(),
            late: counters.late(),
            p50: us(counters.at_quantile_ns(0.5)),
            p99: us(counters.at_quantile_ns(0.99)),
            max: us(counters.max_ns()),
        }
    }

    /// Returns whether no more packets were late than permitted.
    pub fn is_kept(&self) -> bool {
        self.late <= lateness::most_late(self.packets)
    }
}

impl FlowReport {
    fn new(key: flow::Key, pair: Pair) -> Self {
        Self {
            protocol: key.protocol.to_string(),
            near_address: key.near,
            near_port: key.near_port,
            far_address: key.far,
            far_port: key.far_port,
            counters: pair.into(),
        }
    }
}

impl From<Pair> for PairReport {
    fn from(pair: Pair) -> Self {
        Self { up: pair.up.into(), down: pair.down.into() }
    }
}

impl From<flow::Counters> for CountersReport {
    fn from(counters: flow::Counters) -> Self {
        let flow::Counters {
            packets,
            bytes,
            packets_lost,
            packets_queue_dropped,
            packets_blocked,
            packets_policed,
        } = counters;
        Self {
            packets,
            bytes,
            packets_lost,
            packets_queue_dropped,
            packets_blocked,
            packets_policed,
        }
    }
}
