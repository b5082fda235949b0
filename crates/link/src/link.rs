//! A running link: two namespaces, two devices, the emulator between them.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::mpsc;
use std::time::Duration;

use rustix::io::Errno;

use crate::address::{AddressChanger, Device};
use crate::addressing::{
    FAR_IPV4, FAR_IPV6, IPV4_PREFIX_LENGTH, IPV6_PREFIX_LENGTH, NEAR_IPV4, NEAR_IPV6,
};
use crate::cpu::CpuTime;
use crate::emulator::{ClockStart, Devices, Emulator, StartRefused};
use crate::netlink::{self, DeviceDrops, TcpMetrics};
use crate::process_tree::ProcessTree;
use crate::profile::MTU;
use crate::profile::in_flight::MAX_HELD_BYTES;
use crate::report::{self, Congestion, Report};
use crate::tcp_info::{Sampler, TcpInfo};
use crate::tcp_settings::{self, Settings, TcpSettings, read_parameter};
use crate::trace_file::TraceFile;
use crate::way::Way;
use crate::{Error, Namespace, Profile, Scheduling, packets, resolver, tun};

/// Maximum packets that wait for the emulator to read them; the kernel's default of 500 is 6 ms at
/// 1 Gbit/s.
const TRANSMIT_QUEUE_PACKETS: u32 = 10_000;
/// Timeout of the probe, which crosses a link without delay on this machine.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Options of a link in addition to its profile.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Seed: the same profile and seed lose the same packets, counted in each direction.
    pub seed: u64,
    /// TCP congestion control of all connections over the link, in both roles. `None`: the kernel's
    /// default.
    pub tcp_congestion: Option<String>,
    /// Initial congestion window in segments of TCP connections over the link, in both roles.
    /// `None`: the kernel's default, 10.
    pub tcp_initial_window: Option<u32>,
    /// Whether a TCP connection over the link returns to its initial window after a retransmission
    /// timeout without sending (RFC 5681, section 4.1), in both roles. `None`: the kernel's
    /// default, yes.
    pub tcp_slow_start_after_idle: Option<bool>,
    /// Path of the packet log with one row per packet, see docs/link.md.
    pub packets: Option<PathBuf>,
    /// Sampling of the TCP connections at both ends.
    pub tcp_info: Option<TcpInfo>,
    /// Resolver for programs on the link, instead of the machine's.
    pub resolver: Option<IpAddr>,
}

/// A running link. Everything that belongs to it ends when it is stopped or dropped, or when the
/// process ends.
#[derive(Debug)]
pub struct Link {
    // Dropped in this order: programs on the link end before the link does.
    near_processes: ProcessTree,
    far_processes: ProcessTree,
    emulator: Emulator,
    packets: Option<packets::Writer>,
    sampler: Option<Sampler>,
    address_changer: Option<AddressChanger>,
    near: End,
    far: End,
    profile: Profile,
    options: Options,
    congestion: Congestion,
    warnings: Vec<String>,
}

#[derive(Debug)]
struct End {
    namespace: Namespace,
    device_index: u32,
    ipv6: bool,
    tcp_settings: Settings,
    /// Drops before the link was live, or before the last start; not counted.
    drops_at_start: Cell<DeviceDrops>,
}

impl Link {
    /// Creates the namespaces and applies the profile.
    pub fn start(profile: &Profile, options: &Options) -> Result<Self, Error> {
        options.resolver.map_or(Ok(()), resolver::check)?;
        let packets = options
            .packets
            .as_deref()
            .map(|path| TraceFile::create("the packets", path))
            .transpose()?;
        let samples = options
            .tcp_info
            .as_ref()
            .map(|asked| TraceFile::create("the TCP samples", &asked.path))
            .transpose()?;
        let mut warnings = Vec::new();
        let (near, near_device) = End::new((NEAR_IPV4, NEAR_IPV6), options, &mut warnings)?;
        let (far, far_device) = End::new((FAR_IPV4, FAR_IPV6), options, &mut warnings)?;
        let (near_processes, far_processes) =
            (ProcessTree::new(options.resolver)?, ProcessTree::new(options.resolver)?);
        let (recorder, packets) = packets.map(packets::Writer::start).transpose()?.unzip();
        let (address_changer, address_changes) =
            start_address_changer(&near, profile, tcp_metrics(options))?.unzip();
        let devices = Devices { near: near_device, far: far_device, address_changes };
        let emulator = Emulator::start(devices, profile, options.seed, recorder)?;
        if emulator.scheduling() == Scheduling::Other {
            warnings.push(
                "real-time scheduling is not permitted: on a busy machine packets will be late \
                 (run as root, or allow it with `ulimit -r 50`)"
                    .into(),
            );
        }
        if [Way::Up, Way::Down].iter().any(|way| profile.held_bytes(*way) >= MAX_HELD_BYTES) {
            warnings.push(format!(
                "the profile may have more than {} MiB of packets on their way in one direction: \
                    what is above is dropped, and the report not clean",
                MAX_HELD_BYTES >> 20
            ));
        }
        let congestion = probe_congestion(&near, &far, options.tcp_congestion.as_deref())?;
        let sampler = match (&options.tcp_info, samples) {
            (Some(asked), Some(file)) => {
                Some(Sampler::start(&near.namespace, &far.namespace, asked.interval, file)?)
            }
            _ => None,
        };
        let link = Self {
            near_processes,
            far_processes,
            emulator,
            packets,
            sampler,
            address_changer,
            near,
            far,
            profile: profile.clone(),
            options: options.clone(),
            congestion,
            warnings,
        };
        link.forget_drops()?;
        link.emulator.go_live()?;
        Ok(link)
    }

    /// Returns the client's namespace.
    pub fn near(&self) -> &Namespace {
        &self.near.namespace
    }

    /// Returns the server's namespace.
    pub fn far(&self) -> &Namespace {
        &self.far.namespace
    }

    /// Returns problems that do not stop the link, such as a missing right.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Restarts the profile as on a fresh link: changes are undone, packets are counted from 1,
    /// queues are empty, rule buckets are full, and time zero is set according to `start`. Packets
    /// in flight arrive. The report counts from now on.
    pub(crate) fn start_clock(&self, start: ClockStart) -> Result<Result<(), StartRefused>, Error> {
        let started = self.emulator.start_clock(start)?;
        if started.is_ok() {
            self.forget_drops()?;
        }
        Ok(started)
    }

    /// Excludes the lateness of packets delivered from now on, until the profile restarts.
    pub(crate) fn freeze_lateness(&self) -> Result<(), Error> {
        self.emulator.freeze_lateness()
    }

    fn forget_drops(&self) -> Result<(), Error> {
        self.near.drops_at_start.set(self.near.device_drops()?);
        self.far.drops_at_start.set(self.far.device_drops()?);
        Ok(())
    }

    /// Starts a program in the client's namespace. It ends with the link at the latest; wait for it
    /// before that to get its exit status.
    pub fn spawn_near(&self, command: Command) -> io::Result<Child> {
        self.near_processes.spawn(command, &self.near.namespace)
    }

    /// Starts a program in the server's namespace. It ends with the link at the latest; wait for it
    /// before that to get its exit status.
    pub fn spawn_far(&self, command: Command) -> io::Result<Child> {
        self.far_processes.spawn(command, &self.far.namespace)
    }

    /// Thread ID of the emulator in the kernel.
    pub(crate) fn emulator_thread(&self) -> u32 {
        self.emulator.thread_id()
    }

    /// Root processes of the client's end.
    pub(crate) fn near_roots(&self) -> Vec<u32> {
        self.near_processes.roots()
    }

    /// Root processes of the server's end.
    pub(crate) fn far_roots(&self) -> Vec<u32> {
        self.far_processes.roots()
    }

    /// Ends all programs on the link, then the link, and returns the report.
    pub fn stop(self) -> Result<Report, Error> {
        let ended = self.end()?;
        ended.traces.map(|()| ended.report)
    }

    /// Ends the link like [`Link::stop`]; a trace that could not be written does not lose the
    /// report.
    pub(crate) fn end(self) -> Result<Ended, Error> {
        let (near_cpu, far_cpu) = (self.near_processes.end(), self.far_processes.end());
        let scheduling = self.emulator.scheduling();
        let counts = self.emulator.stop()?;
        self.address_changer.map_or(Ok(()), AddressChanger::finish)?;
        let packets = self.packets.map_or(Ok(()), packets::Writer::finish);
        let (tcp_info, samples) = self.sampler.map(Sampler::finish).unzip();
        let mut warnings = self.warnings;
        if counts.packets_unlogged > 0 {
            warnings.push(format!(
                "{} packets are missing in the log of packets: more than {} rows waited for the \
                    disk or for their packets to arrive",
                counts.packets_unlogged,
                packets::MAX_ROWS_IN_MEMORY
            ));
        }
        let near = self.near.device_drops()?.since(self.near.drops_at_start.get());
        let far = self.far.device_drops()?.since(self.far.drops_at_start.get());
        let report = Report::new(report::Parts {
            profile: &self.profile,
            seed: self.options.seed,
            counts: &counts,
            tun_drops_up: near.transmit + far.receive,
            tun_drops_down: far.transmit + near.receive,
            scheduling,
            congestion: self.congestion,
            ipv6: self.near.ipv6 && self.far.ipv6,
            tcp_settings: TcpSettings { near: self.near.tcp_settings, far: self.far.tcp_settings },
            tcp_info,
            warnings,
        });
        let traces = packets.and(samples.unwrap_or(Ok(())));
        Ok(Ended { report, traces, near_cpu, far_cpu })
    }
}

/// Results of an ended link.
pub(crate) struct Ended {
    pub(crate) report: Report,
    pub(crate) traces: Result<(), Error>,
    /// Processor time of processes that no caller waited for.
    pub(crate) near_cpu: CpuTime,
    pub(crate) far_cpu: CpuTime,
}

impl End {
    fn new(
        (ipv4, ipv6): (Ipv4Addr, Ipv6Addr),
        options: &Options,
        warnings: &mut Vec<String>,
    ) -> Result<(Self, OwnedFd), Error> {
        let tcp = tcp_metrics(options);
        let namespace = Namespace::new(options.tcp_info.is_some())?;
        let configured = namespace
            .run(|| configure(ipv4, ipv6, &tcp, options.tcp_slow_start_after_idle))
            .map_err(|source| Error::NamespaceNotPermitted {
                what: "enter a network namespace",
                source,
            })??;
        for warning in configured.warnings {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        let Configured { device_index, ipv6, tcp_settings, .. } = configured;
        let end =
            Self { namespace, device_index, ipv6, tcp_settings, drops_at_start: Cell::default() };
        Ok((end, configured.device))
    }

    fn device_drops(&self) -> Result<DeviceDrops, Error> {
        let (what, device_index) = ("read the TUN device's drops", self.device_index);
        self.namespace
            .run(move || netlink::Socket::open()?.device_drops(device_index))
            .map_err(Error::system(what))?
            .map_err(Error::system(what))
    }
}

fn start_address_changer(
    near: &End,
    profile: &Profile,
    tcp: TcpMetrics,
) -> Result<Option<(AddressChanger, mpsc::Sender<usize>)>, Error> {
    if !profile.changes.iter().any(|change| change.new_client_address) {
        return Ok(None);
    }
    let namespace = near
        .namespace
        .as_fd()
        .try_clone_to_owned()
        .map_err(Error::system("duplicate a namespace's descriptor"))?;
    AddressChanger::start(Device { namespace, index: near.device_index, ipv6: near.ipv6, tcp })
        .map(Some)
}

fn tcp_metrics(options: &Options) -> TcpMetrics {
    TcpMetrics {
        congestion: options.tcp_congestion.clone(),
        initial_window: options.tcp_initial_window,
    }
}

struct Configured {
    device: OwnedFd,
    device_index: u32,
    ipv6: bool,
    tcp_settings: Settings,
    warnings: Vec<String>,
}

/// Configures the namespace. Runs inside it.
fn configure(
    ipv4: Ipv4Addr,
    ipv6: Ipv6Addr,
    tcp: &TcpMetrics,
    slow_start_after_idle: Option<bool>,
) -> Result<Configured, Error> {
    let warnings = tcp_settings::set_parameters(slow_start_after_idle);
    let device = tun::open()?;
    let denied = |what: &'static str| move |errno: Errno| Error::namespace(what, errno);
    let mut netlink = netlink::Socket::open().map_err(denied("open a netlink socket"))?;
    let loopback =
        netlink::Socket::device_index("lo").map_err(denied("find the loopback device"))?;
    netlink.set_up(loopback, None).map_err(denied("bring the loopback device up"))?;
    let index =
        netlink::Socket::device_index(tun::DEVICE).map_err(denied("find the TUN device"))?;
    netlink
        .set_up(index, Some((MTU as u32, TRANSMIT_QUEUE_PACKETS)))
        .map_err(denied("bring the TUN device up"))?;
    add_address(&mut netlink, index, ipv4.into(), IPV4_PREFIX_LENGTH, tcp)?;
    let tcp_settings = tcp_settings::of_this_namespace();
    let mut configured =
        Configured { device, device_index: index, ipv6: true, tcp_settings, warnings };
    match add_address(&mut netlink, index, ipv6.into(), IPV6_PREFIX_LENGTH, tcp) {
        Ok(()) => Ok(configured),
        Err(Error::System { source, .. }) if no_ipv6(&source) => {
            configured.ipv6 = false;
            configured
                .warnings
                .push(format!("this machine has no IPv6 ({source}): the link carries IPv4 only"));
            Ok(configured)
        }
        Err(error) => Err(error),
    }
}

fn no_ipv6(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::AFNOSUPPORT | Errno::OPNOTSUPP | Errno::ADDRNOTAVAIL)
    )
}

fn add_address(
    netlink: &mut netlink::Socket,
    index: u32,
    address: IpAddr,
    prefix_length: u8,
    tcp: &TcpMetrics,
) -> Result<(), Error> {
    netlink
        .add_address(index, address, prefix_length)
        .map_err(|errno| Error::namespace("add an address to the TUN device", errno))?;
    netlink.add_default_route(index, address, tcp).map_err(|errno| match (errno, &tcp.congestion) {
        (Errno::INVAL | Errno::NOENT, Some(name)) => Error::CongestionUnknown {
            name: name.clone(),
            available: read_parameter("ipv4/tcp_available_congestion_control")
                .unwrap_or_else(|_| "unknown".into()),
        },
        _ => Error::namespace("add a route over the TUN device", errno),
    })
}

/// Opens real connections over the link, one per address family, and returns their congestion
/// control.
fn probe_congestion(near: &End, far: &End, asked: Option<&str>) -> Result<Congestion, Error> {
    let what = "probe a connection over the link";
    let default = near
        .namespace
        .run(|| read_parameter("ipv4/tcp_congestion_control"))
        .and_then(|read| read)
        .map_err(Error::system("read the default congestion control"))?;
    let mut probed = probe(near, far, FAR_IPV4.into()).map_err(Error::system(what))?;
    if near.ipv6 && far.ipv6 {
        let other = probe(near, far, FAR_IPV6.into()).map_err(Error::system(what))?;
        // The second connection is only worth showing if the families differ.
        if asked.is_some_and(|asked| other.0 != asked || other.1 != asked) {
            probed = other;
        }
    }
    let (near, far) = probed;
    match asked {
        Some(asked) if near != asked || far != asked => {
            Err(Error::CongestionIneffective { asked: asked.to_owned(), near, far })
        }
        _ => Ok(Congestion { asked: asked.map(str::to_owned), default, near, far }),
    }
}

fn probe(near: &End, far: &End, address: IpAddr) -> io::Result<(String, String)> {
    let listener = far.namespace.run(|| TcpListener::bind(SocketAddr::new(address, 0)))??;
    let to = listener.local_addr()?;
    let near = near.namespace.run(|| TcpStream::connect_timeout(&to, PROBE_TIMEOUT))??;
    let (far, _) = listener.accept()?;
    let congestion = |stream: &TcpStream| rustix::net::sockopt::tcp_congestion(stream);
    let found = (congestion(&near)?, congestion(&far)?);
    // Close with a reset, which needs no answer: nothing of the probe is left when the link goes
    // live.
    rustix::net::sockopt::set_socket_linger(&far, Some(Duration::ZERO))?;
    rustix::net::sockopt::set_socket_linger(&near, Some(Duration::ZERO))?;
    Ok(found)
}
