//! What a link did, as data and as the JSON that `docs/link.md` describes.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::address::near_addresses_after;
use crate::cpu::CpuTime;
use crate::emulator::{Counts, LaneCounters};
use crate::flow::{self, Pair};
use crate::hystart::Hystart;
use crate::lateness::{self, LatenessCounters};
use crate::link::{FAR_IPV4, FAR_IPV6, NEAR_IPV4, NEAR_IPV6};
use crate::machine::Machine;
use crate::profile::{Asked, ChangeAsked, Profile, RuleAsked};
use crate::tcp_info::Sampled;
use crate::tcp_settings::TcpSettings;
use crate::trace_file::{Place, hidden_name, open_special};

/// Names the layout of the JSON. A change that breaks readers gets a new number.
pub const SCHEMA: &str = "pronghorn-link-report/3";

/// The whole report.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// What the link was asked to do.
    pub profile: ProfileReport,
    /// The seed of its random draws.
    pub seed: u64,
    /// From going live to the stop.
    pub duration_seconds: f64,
    /// Time zero of jitter, outages, traces and changes, after going live: the first packet of the client's first flow that is new since
    /// the last start; `null` if there was none.
    pub time_zero_seconds: Option<f64>,
    /// The same on the monotonic clock; going live without one.
    #[serde(skip)]
    pub(crate) time_zero_ns: u64,
    /// Deadlines kept and not one packet dropped other than as the profile says.
    pub clean: bool,
    /// Whether at most 1 % of all packets were late, or one.
    pub kept_deadlines: bool,
    /// Of both directions together.
    pub lateness_us: Lateness,
    /// What is later is late: [`lateness::bound_ns`].
    pub lateness_bound_us: f64,
    /// Of the emulator's thread.
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
    pub rules: Vec<RuleAsked>,
    /// The profile's changes, and when they were made.
    pub changes: Vec<ChangeReport>,
    /// Each flow, in a stable order.
    pub flows: Vec<FlowReport>,
    /// Packets of flows that found the table of flows full.
    pub flows_beyond_table: PairReport,
    /// Packets that were not well-formed IP.
    pub unparsed: PairReport,
    /// Packets that found no room in the log of packets.
    pub packets_unlogged: u64,
    /// Of the samples of TCP connections; `null` if nobody asked for them.
    pub tcp_info: Option<Sampled>,
    /// What the link itself cost.
    pub cpu_seconds: LinkCpu,
    /// What the machine had left while COMMAND ran, or for the part of it that COMMAND marked; `null` when the link was used as a library.
    pub machine: Option<Machine>,
    /// How TCP at the server's end left slow start in that time; `null` where the kernel does not count it, or the link was used as a library.
    pub hystart: Option<Hystart>,
    /// How the commands ended; `null` when the link was used as a library.
    pub commands: Option<Commands>,
    /// What should be known beside the numbers.
    pub warnings: Vec<String>,
}

/// What was asked for.
#[derive(Debug, Clone, Serialize)]
pub struct ProfileReport {
    /// The profile's name.
    pub name: String,
    /// Over what the profile does, see [`Profile::hash`].
    pub hash: String,
    /// The profile's description.
    pub description: String,
}

/// How the system schedules the emulator's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "policy", rename_all = "lowercase")]
pub enum Scheduling {
    /// Real time.
    Fifo {
        /// 1 to 99.
        priority: i32,
    },
    /// Like any other thread.
    Other,
}

/// TCP congestion control, as sockets of a real connection over the link said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Congestion {
    /// What was asked for; `null` for the default.
    pub asked: Option<String>,
    /// The kernel's default.
    pub default: String,
    /// What the connecting socket had.
    pub near: String,
    /// What the accepted socket had.
    pub far: String,
}

/// Addresses of the two ends.
#[derive(Debug, Clone, Serialize)]
pub struct Addresses {
    /// The client's.
    pub near: Vec<IpAddr>,
    /// The server's.
    pub far: Vec<IpAddr>,
}

/// One change of the link.
#[derive(Debug, Clone, Serialize)]
pub struct ChangeReport {
    /// What was asked for.
    #[serde(flatten)]
    pub asked: ChangeAsked,
    /// When it was made, after the link's going live; `null` if the link ended before.
    pub made_seconds: Option<f64>,
    /// The client's addresses from then on, where it gets new ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub near_addresses: Vec<IpAddr>,
}

/// One direction. `packets_in` is the sum of the other packet counts, `tun_drops` apart.
#[derive(Debug, Clone, Serialize)]
pub struct DirectionReport {
    /// The profile's values.
    pub asked: Asked,
    /// Packets that reached the link.
    pub packets_in: u64,
    /// Their bytes, IP headers included.
    pub bytes_in: u64,
    /// Packets handed to the receiving side.
    pub packets_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Lost on the way, as the profile says.
    pub packets_lost: u64,
    /// Their bytes.
    pub bytes_lost: u64,
    /// Dropped because the queue was full, as the profile says.
    pub packets_queue_dropped: u64,
    /// Their bytes.
    pub bytes_queue_dropped: u64,
    /// Dropped by a rule that blocks, as the profile says.
    pub packets_blocked: u64,
    /// Their bytes.
    pub bytes_blocked: u64,
    /// Dropped by a rule that polices, as the profile says.
    pub packets_policed: u64,
    /// Their bytes.
    pub bytes_policed: u64,
    /// Still on their way at the end.
    pub packets_held_at_end: u64,
    /// The most that were on their way at once, those that waited for the rate included.
    pub held_max_packets: u64,
    /// Dropped at the emulator's memory bound; not what the profile says.
    pub packets_overflowed: u64,
    /// Dropped because they were longer than the link's MTU.
    pub packets_oversized: u64,
    /// Refused by the receiving device; not what the profile says.
    pub packets_write_failed: u64,
    /// Dropped by the kernel at the TUN devices, never seen by the emulator or never taken from it.
    pub tun_drops: u64,
    /// The most that waited for the rate.
    pub queue_max_bytes: u64,
    /// The longest wait for the rate.
    pub queue_max_ms: f64,
    /// How long after its deadline a packet was handed over.
    pub lateness_us: Lateness,
}

/// Percentiles in microseconds, zero without packets; until COMMAND said that its load had ended.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Lateness {
    /// Of so many.
    pub packets: u64,
    /// How many of them were later than the bound.
    pub late: u64,
    /// Half of the packets were no later than this.
    pub p50: f64,
    /// 99 of 100; of fewer than 100 packets, all.
    pub p99: f64,
    /// All.
    pub max: f64,
}

/// One flow.
#[derive(Debug, Clone, Serialize)]
pub struct FlowReport {
    /// `tcp`, `udp`, `icmp`, `icmpv6`, or `ip-N`.
    pub protocol: String,
    /// The client's address.
    pub near_address: IpAddr,
    /// The client's port; `null` for protocols and fragments without.
    pub near_port: Option<u16>,
    /// The server's address.
    pub far_address: IpAddr,
    /// The server's port.
    pub far_port: Option<u16>,
    /// Its two directions.
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
    /// Of these, lost on the way.
    pub packets_lost: u64,
    /// Of these, dropped because the queue was full.
    pub packets_queue_dropped: u64,
    /// Of these, dropped by a rule that blocks.
    pub packets_blocked: u64,
    /// Of these, dropped by a rule that polices.
    pub packets_policed: u64,
}

/// Processor time of the link itself, in seconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct LinkCpu {
    /// The thread that moves the packets, from going live to the stop.
    pub emulator: CpuTime,
    /// All of this process, from its start to the report, the emulator included.
    pub process: CpuTime,
}

/// How the commands ended.
#[derive(Debug, Clone, Serialize)]
pub struct Commands {
    /// COMMAND.
    pub near: CommandReport,
    /// `--far`, if given.
    pub far: Option<CommandReport>,
    /// What ran at the far end before COMMAND, in its order.
    pub warm_ups: Vec<CommandReport>,
}

/// How one command ended.
#[derive(Debug, Clone, Serialize)]
pub struct CommandReport {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// If it exited.
    pub exit_code: Option<i32>,
    /// If a signal ended it.
    pub signal: Option<i32>,
    /// The link had to end it by SIGKILL: it ignored SIGTERM, or its time as a warm-up was over.
    pub killed: bool,
    /// Of all processes at this end of the link, whether they were waited for or not.
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
            near_addresses: if change.new_client_address { near_addresses_after(at + 1, parts.ipv6) } else { Vec::new() },
        });
        let ends = |ipv4: IpAddr, ipv6: IpAddr| [ipv4].into_iter().chain(parts.ipv6.then_some(ipv6)).collect();
        Self {
            schema: SCHEMA,
            profile: ProfileReport::of(profile),
            seed: parts.seed,
            duration_seconds: counts.duration_ns as f64 / 1e9,
            time_zero_seconds: counts.time_zero_ns.map(|ns| ns as f64 / 1e9),
            time_zero_ns: counts.live_since_ns + counts.time_zero_ns.unwrap_or(0),
            clean: kept_deadlines && [&up, &down].into_iter().all(DirectionReport::dropped_as_asked),
            kept_deadlines,
            lateness_us,
            lateness_bound_us: lateness::bound_ns(profile) as f64 / 1e3,
            scheduling: parts.scheduling,
            tcp_congestion: parts.congestion,
            tcp_settings: parts.tcp_settings,
            addresses: Addresses { near: ends(NEAR_IPV4.into(), NEAR_IPV6.into()), far: ends(FAR_IPV4.into(), FAR_IPV6.into()) },
            up,
            down,
            rules: profile.rules.iter().map(|rule| rule.asked().clone()).collect(),
            changes: changes.collect(),
            flows: counts.flows.sorted().into_iter().map(|(key, pair)| FlowReport::new(key, pair)).collect(),
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
        Self { name: profile.name.clone(), hash: profile.hash(), description: profile.description.clone() }
    }
}

impl DirectionReport {
    fn new(asked: Asked, counters: &LaneCounters, tun_drops: u64) -> Self {
        Self {
            asked,
            packets_in: counters.packets_in,
            bytes_in: counters.bytes_in,
            packets_out: counters.packets_out,
            bytes_out: counters.bytes_out,
            packets_lost: counters.packets_lost,
            bytes_lost: counters.bytes_lost,
            packets_queue_dropped: counters.packets_queue_dropped,
            bytes_queue_dropped: counters.bytes_queue_dropped,
            packets_blocked: counters.packets_blocked,
            bytes_blocked: counters.bytes_blocked,
            packets_policed: counters.packets_policed,
            bytes_policed: counters.bytes_policed,
            packets_held_at_end: counters.packets_held_at_end,
            held_max_packets: counters.held_max_packets,
            packets_overflowed: counters.packets_overflowed,
            packets_oversized: counters.packets_oversized,
            packets_write_failed: counters.packets_write_failed,
            tun_drops,
            queue_max_bytes: counters.queue_max_bytes,
            queue_max_ms: counters.queue_max_ns as f64 / 1e6,
            lateness_us: Lateness::new(&counters.lateness),
        }
    }

    fn dropped_as_asked(&self) -> bool {
        self.tun_drops + self.packets_overflowed + self.packets_oversized + self.packets_write_failed == 0
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

    /// Whether no more packets were late than may be.
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
        let flow::Counters { packets, bytes, packets_lost, packets_queue_dropped, packets_blocked, packets_policed } = counters;
        Self { packets, bytes, packets_lost, packets_queue_dropped, packets_blocked, packets_policed }
    }
}

/// A report file that appears whole or not at all.
#[derive(Debug)]
pub struct ReportFile {
    path: PathBuf,
    /// `None` for a device, a pipe or a descriptor, which no file may take the place of.
    temporary: Option<PathBuf>,
}

impl ReportFile {
    /// Finds out at the start whether a report can be written to `path` at the end; leaves nothing there yet.
    pub fn prepare(path: &Path) -> Result<Self, crate::Error> {
        let failed = |source| crate::Error::Report { path: path.to_owned(), source };
        let path = match Place::of(path).map_err(failed)? {
            Place::Special => return Ok(Self { path: path.to_owned(), temporary: None }),
            Place::File(path) => path,
        };
        let temporary = hidden_name(&path).map_err(failed)?;
        File::create(&temporary).and_then(|_| std::fs::remove_file(&temporary)).map_err(failed)?;
        Ok(Self { path, temporary: Some(temporary) })
    }

    /// Writes `content` as JSON, over an older report if there is one.
    pub fn write(&self, content: &impl Serialize) -> Result<(), crate::Error> {
        let written = match &self.temporary {
            None => open_special(&self.path).and_then(|mut special| special.write_all(&json(content)?)),
            Some(temporary) => write_whole(temporary, content).and_then(|()| std::fs::rename(temporary, &self.path)).inspect_err(|_| {
                // Nothing half-written stays; if even this fails, the error before is the one to tell.
                let _ = std::fs::remove_file(temporary);
            }),
        };
        written.map_err(|source| crate::Error::Report { path: self.path.clone(), source })
    }
}

fn write_whole(path: &Path, content: &impl Serialize) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&json(content)?)?;
    file.sync_data()
}

fn json(content: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(content)?;
    text.push(b'\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_replaces_older_one_and_leaves_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.json");
        std::fs::write(&path, "older").unwrap();
        let file = ReportFile::prepare(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "older");
        file.write(&[1, 2]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "[\n  1,\n  2\n]\n");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn device_stays_what_it_is() {
        use std::os::unix::fs::FileTypeExt;

        // Through a link, so that a mistake costs the link alone.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("null");
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        ReportFile::prepare(&path).unwrap().write(&1).unwrap();
        assert!(path.is_symlink() && path.metadata().unwrap().file_type().is_char_device());
    }

    #[test]
    fn place_that_cannot_be_written_is_refused_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().join("missing/r.json"), folder.path().to_owned()] {
            let error = ReportFile::prepare(&path).unwrap_err();
            assert_eq!(error.exit_code(), 73);
            assert!(error.to_string().starts_with("cannot write the report "), "{error}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
