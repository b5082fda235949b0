//! Load of the machine: kernel statistics that show a lack of processors which the link's own
//! lateness does not show.
//!
//! The emulator has priority over everything else, so its deadlines say nothing about a server or a
//! browser that waits for a processor.

use std::collections::HashMap;
use std::time::Instant;

use serde::Serialize;

/// Ticks a second in `/proc/stat`, the same on every machine that Linux gives to programs
/// (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// Statistics over a part of the link's time. `null` if the kernel does not provide the value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Machine {
    /// Length of the part.
    pub seconds: f64,
    /// Whether COMMAND marked the end itself, while its processes still existed. Otherwise the part
    /// ends with COMMAND.
    pub end_marked: bool,
    /// Number of processors for which the kernel counts time.
    pub processors: Option<u64>,
    /// Idle time of all processors, exact to a hundredth of a second.
    pub idle_seconds: Option<f64>,
    /// Time that the host took from this virtual machine, over all processors, exact to a hundredth
    /// of a second.
    pub steal_seconds: Option<f64>,
    /// Time in which at least one thread of the machine waited for a processor (`some` in
    /// `/proc/pressure/cpu`).
    pub cpu_pressure_seconds: Option<f64>,
    /// Time that runnable threads waited for a processor.
    pub run_delay_seconds: RunDelays,
}

/// Sums over threads: several waiting threads count separately. Threads that ended in between are
/// missing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RunDelays {
    /// The thread that moves the packets.
    pub emulator: Option<f64>,
    /// All threads of `pronghorn link`, the emulator included.
    pub link: Option<f64>,
    /// COMMAND and all its descendants; `null` if it did not mark the end, because its processes no
    /// longer exist then.
    pub near: Option<f64>,
    /// The far command and all its descendants; `null` without one.
    pub far: Option<f64>,
}

/// Kernel statistics at one time.
#[derive(Debug)]
pub(crate) struct Snapshot {
    at: Instant,
    ticks: Option<Ticks>,
    pressure_us: Option<u64>,
    emulator: Option<Delays>,
    link: Option<Delays>,
    near: Option<Delays>,
    far: Option<Delays>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Ticks {
    processors: u64,
    idle: u64,
    steal: u64,
}

/// Nanoseconds by thread.
type Delays = HashMap<u32, u64>;

impl Snapshot {
    /// `emulator`: its thread. `near`, `far`: the root processes of the two ends.
    pub(crate) fn of(emulator: u32, near: &[u32], far: &[u32]) -> Self {
        let myself = std::process::id();
        let parents = parents();
        let tree = |roots: &[u32]| {
            let members = parents.keys().filter(|process| descends(**process, roots, &parents));
            // An end without processes has no delay value, which differs from a delay of zero.
            delays_of(members.copied()).filter(|delays| !delays.is_empty())
        };
        Self {
            at: Instant::now(),
            ticks: read("/proc/stat").and_then(|text| Ticks::parse(&text)),
            pressure_us: read("/proc/pressure/cpu").and_then(|text| pressure_us(&text)),
            emulator: delay(myself, emulator).map(|ns| HashMap::from([(emulator, ns)])),
            link: delays_of([myself]),
            near: tree(near),
            far: tree(far),
        }
    }
}

impl Machine {
    pub(crate) fn between(start: &Snapshot, end: &Snapshot, end_marked: bool) -> Self {
        let ticks = start.ticks.zip(end.ticks);
        let seconds_of = |of: fn(&Ticks) -> u64| {
            ticks.map(|(start, end)| of(&end).saturating_sub(of(&start)) as f64 / TICKS_PER_SECOND)
        };
        Self {
            seconds: end.at.duration_since(start.at).as_secs_f64(),
            end_marked,
            processors: end.ticks.map(|ticks| ticks.processors),
            idle_seconds: seconds_of(|ticks| ticks.idle),
            steal_seconds: seconds_of(|ticks| ticks.steal),
            cpu_pressure_seconds: start
                .pressure_us
                .zip(end.pressure_us)
                .map(|(start, end)| end.saturating_sub(start) as f64 / 1e6),
            run_delay_seconds: RunDelays {
                emulator: waited(start.emulator.as_ref(), end.emulator.as_ref()),
                link: waited(start.link.as_ref(), end.link.as_ref()),
                near: if end_marked {
                    waited(start.near.as_ref(), end.near.as_ref())
                } else {
                    None
                },
                far: waited(start.far.as_ref(), end.far.as_ref()),
            },
        }
    }
}

/// A thread that did not exist at the start has waited since its own start.
fn waited(start: Option<&Delays>, end: Option<&Delays>) -> Option<f64> {
    let before = |thread: &u32| start.and_then(|start| start.get(thread)).copied().unwrap_or(0);
    let ns: u64 = end?.iter().map(|(thread, ns)| ns.saturating_sub(before(thread))).sum();
    Some(ns as f64 / 1e9)
}

impl Ticks {
    /// Sums over all processors: the fourth value is idle and the fifth is waiting for a disk, in
    /// which a processor is also free; the eighth is time taken by the host.
    fn parse(text: &str) -> Option<Self> {
        let figures: Vec<u64> = text
            .lines()
            .next()?
            .strip_prefix("cpu ")?
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        let processors =
            text.lines().skip(1).take_while(|line| line.starts_with("cpu")).count() as u64;
        Some(Self { processors, idle: figures.get(3)? + figures.get(4)?, steal: *figures.get(7)? })
    }
}

fn pressure_us(text: &str) -> Option<u64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.split_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

/// Returns the parent of each process of the machine.
fn parents() -> HashMap<u32, u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    processes
        .filter_map(|process| Some((process, parent(&read(&format!("/proc/{process}/stat"))?)?)))
        .collect()
}

/// Parses the parent. The name before it is in parentheses and may itself contain parentheses and
/// blanks.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn descends(mut process: u32, roots: &[u32], parents: &HashMap<u32, u32>) -> bool {
    // Processes start and end while they are listed: a reused PID could form a cycle.
    for _ in 0..parents.len() {
        if roots.contains(&process) {
            return true;
        }
        match parents.get(&process) {
            Some(parent) => process = *parent,
            None => return false,
        }
    }
    false
}

/// Returns `None` if the kernel does not count delays.
fn delays_of(processes: impl IntoIterator<Item = u32>) -> Option<Delays> {
    std::fs::exists("/proc/self/schedstat").ok().filter(|exists| *exists)?;
    let threads = processes.into_iter().flat_map(|process| {
        let entries =
            std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        entries.filter_map(move |entry| {
            Some((process, entry.file_name().to_str()?.parse::<u32>().ok()?))
        })
    });
    Some(threads.filter_map(|(process, thread)| Some((thread, delay(process, thread)?))).collect())
}

fn delay(process: u32, thread: u32) -> Option<u64> {
    run_delay_ns(&read(&format!("/proc/{process}/task/{thread}/schedstat"))?)
}

/// Parses the second value: time runnable but not running.
fn run_delay_ns(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn kernel_figures_are_parsed() {
        let stat = "cpu  10 1 20 300 5 0 6 7 0 0\ncpu0 5 1 10 150 2 0 3 3 0 0\ncpu1 5 0 10 150 3 \
            0 3 4 0 0\nintr 5\n";
        assert_eq!(Ticks::parse(stat), Some(Ticks { processors: 2, idle: 305, steal: 7 }));
        assert_eq!(Ticks::parse("cpu  10 1\n"), None);
        let pressure = "some avg10=1.00 avg60=0.50 avg300=0.10 total=7510882\nfull avg10=0.00 \
            avg60=0.00 avg300=0.00 total=3\n";
        assert_eq!(pressure_us(pressure), Some(7_510_882));
        assert_eq!(run_delay_ns("817915 4587643 2\n"), Some(4_587_643));
        assert_eq!(parent("42 (a (strange) name) S 7 42 42 0\n"), Some(7));
    }

    #[test]
    fn process_belongs_to_the_end_of_its_nearest_root() {
        let parents =
            HashMap::from([(10, 1), (11, 10), (12, 11), (20, 1), (21, 20), (30, 31), (31, 30)]);
        let of = |roots: &[u32]| {
            let mut members: Vec<u32> = parents
                .keys()
                .copied()
                .filter(|process| descends(*process, roots, &parents))
                .collect();
            members.sort_unstable();
            members
        };
        assert_eq!(of(&[10]), [10, 11, 12]);
        assert_eq!(of(&[20]), [20, 21]);
        assert_eq!(of(&[99]), Vec::<u32>::new());
    }

    fn snapshot(at: Instant, near: &[(u32, u64)]) -> Snapshot {
        let near = Some(near.iter().copied().collect());
        Snapshot {
            at,
            ticks: None,
            pressure_us: Some(5),
            emulator: None,
            link: None,
            near,
            far: None,
        }
    }

    #[test]
    fn threads_count_from_the_start_or_their_creation() {
        let at = Instant::now();
        let start = snapshot(at, &[(1, 1_000_000_000), (2, 500_000_000)]);
        let end = snapshot(at + Duration::from_secs(2), &[(1, 1_250_000_000), (3, 750_000_000)]);
        let machine = Machine::between(&start, &end, true);
        assert_eq!((machine.seconds, machine.run_delay_seconds.near), (2.0, Some(1.0)));
        assert_eq!(
            (machine.idle_seconds, machine.cpu_pressure_seconds, machine.run_delay_seconds.far),
            (None, Some(0.0), None)
        );
        assert_eq!(Machine::between(&start, &end, false).run_delay_seconds.near, None);
    }

    #[test]
    fn run_delay_of_a_thread_never_decreases() {
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let Some(first) = delay(std::process::id(), thread) else { return };
        std::thread::yield_now();
        assert!(delay(std::process::id(), thread).is_some_and(|later| later >= first));
        let all = delays_of([std::process::id()]).unwrap();
        assert!(all.contains_key(&thread));
    }
}
