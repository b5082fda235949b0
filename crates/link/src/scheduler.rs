//! The packet scheduler of one direction, in virtual time: no clock, no socket, no thread.
//!
//! ```text
//! packet ──► queue (drop-tail, bounded) ──► rate ──► loss ──► delay ± jitter ──► deadline
//! ```
//!
//! Loss comes after the rate: a lost packet has used the wire, as on a radio link.

use rand::RngCore as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

use crate::profile::{Direction, Loss};

/// How often the jitter takes a new value. It moves in a straight line in between, so that packets of one burst
/// have much the same delay, as they have on real paths.
pub const JITTER_STEP_NS: u64 = 10_000_000;

/// Which way a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// Client to server, near to far.
    Up,
    /// Server to client, far to near.
    Down,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It arrives at this time.
    Deliver {
        /// Nanoseconds, on the clock of `now_ns`. Never before the deadline of an earlier packet.
        deadline_ns: u64,
    },
    /// It used the rate and got lost on the way.
    Lost,
    /// The queue had no room for it.
    QueueFull,
}

/// Decides for each packet of one direction whether and when it arrives.
///
/// One call a packet, [`Scheduler::handle_packet`], with a time that never goes back. The same profile, seed, sizes and
/// times give the same verdicts; which packets are lost depends on the seed and on their order only.
#[derive(Debug)]
pub struct Scheduler {
    direction: Direction,
    loss: LossProcess,
    jitter: Jitter,
    /// When the wire has sent all that was accepted, rounded down.
    busy_until_ns: u64,
    /// What rounding left over, in 1/rate ns: keeps the rate exact over any number of packets.
    busy_remainder: u64,
    last_deadline_ns: u64,
    queue_max_bytes: u64,
    queue_max_ns: u64,
}

impl Scheduler {
    /// `seed` is the link's; the two directions draw from streams of their own.
    pub fn new(direction: &Direction, seed: u64, way: Way) -> Self {
        Self {
            loss: LossProcess::new(direction.loss, generator(seed, first_stream(way))),
            jitter: Jitter::of(direction, seed, way),
            direction: direction.clone(),
            busy_until_ns: 0,
            busy_remainder: 0,
            last_deadline_ns: 0,
            queue_max_bytes: 0,
            queue_max_ns: 0,
        }
    }

    /// Takes a packet of `bytes` that reaches the link at `now_ns`.
    pub fn handle_packet(&mut self, bytes: usize, now_ns: u64) -> Verdict {
        let Some(sent_ns) = self.send(bytes as u64, now_ns) else {
            return Verdict::QueueFull;
        };
        if self.loss.next_is_lost() {
            return Verdict::Lost;
        }
        let arrival_ns = (sent_ns + self.direction.delay_ns).saturating_add_signed(self.jitter.at(sent_ns));
        self.last_deadline_ns = self.last_deadline_ns.max(arrival_ns);
        Verdict::Deliver { deadline_ns: self.last_deadline_ns }
    }

    /// What waits for the rate, to the byte: of the packet on the wire only its rest.
    pub fn queued_bytes(&self, now_ns: u64) -> u64 {
        let backlog_ns = self.busy_until_ns.saturating_sub(now_ns);
        let rate = self.direction.rate_bits_per_second.unwrap_or(0);
        (u128::from(backlog_ns) * u128::from(rate) / 8_000_000_000) as u64
    }

    /// The most that ever waited, the packet just accepted included.
    pub fn queue_max_bytes(&self) -> u64 {
        self.queue_max_bytes
    }

    /// The longest time from a packet's acceptance to its last bit on the wire.
    pub fn queue_max_ns(&self) -> u64 {
        self.queue_max_ns
    }

    /// When the last bit of the packet is on the wire, or `None` if the queue is full.
    fn send(&mut self, bytes: u64, now_ns: u64) -> Option<u64> {
        let Some(rate) = self.direction.rate_bits_per_second else {
            return Some(now_ns);
        };
        let queued_bytes = self.queued_bytes(now_ns) + bytes;
        if self.direction.queue_bytes.is_some_and(|bound| queued_bytes > bound) {
            return None;
        }
        if self.busy_until_ns <= now_ns {
            self.busy_until_ns = now_ns;
            self.busy_remainder = 0;
        }
        let work = bytes * 8_000_000_000 + self.busy_remainder;
        self.busy_until_ns += work / rate;
        self.busy_remainder = work % rate;
        self.queue_max_bytes = self.queue_max_bytes.max(queued_bytes);
        self.queue_max_ns = self.queue_max_ns.max(self.busy_until_ns - now_ns);
        Some(self.busy_until_ns)
    }
}

fn generator(seed: u64, stream: u64) -> ChaCha8Rng {
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    generator.set_stream(stream);
    generator
}

/// The loss model with its random state: one draw for each packet that the wire sent.
#[derive(Debug)]
enum LossProcess {
    Never,
    Always,
    /// Lost when a uniform 64-bit draw is below the threshold.
    Independent {
        threshold: u64,
        generator: Box<ChaCha8Rng>,
    },
    /// The same with a threshold that depends on what became of the packet before.
    Bursts {
        after_arrival: u64,
        after_loss: u64,
        was_lost: bool,
        generator: Box<ChaCha8Rng>,
    },
}

impl LossProcess {
    fn new(loss: Loss, generator: ChaCha8Rng) -> Self {
        let percent = loss.percent();
        if percent <= 0.0 {
            return Self::Never;
        }
        if percent >= 100.0 {
            return Self::Always;
        }
        let threshold = |chance: f64| (chance * 2f64.powi(64)) as u64;
        let mut generator = Box::new(generator);
        match loss {
            Loss::Independent { .. } => Self::Independent { threshold: threshold(percent / 100.0), generator },
            Loss::Bursts { .. } => {
                let (after_arrival, after_loss) = loss.chances();
                // As if there had been packets for ever.
                let was_lost = generator.next_u64() < threshold(percent / 100.0);
                Self::Bursts { after_arrival: threshold(after_arrival), after_loss: threshold(after_loss), was_lost, generator }
            }
        }
    }

    fn next_is_lost(&mut self) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::Independent { threshold, generator } => generator.next_u64() < *threshold,
            Self::Bursts { after_arrival, after_loss, was_lost, generator } => {
                *was_lost = generator.next_u64() < if *was_lost { *after_loss } else { *after_arrival };
                *was_lost
            }
        }
    }
}

/// Each direction draws its losses from one stream and its jitter from the next.
fn first_stream(way: Way) -> u64 {
    match way {
        Way::Up => 0,
        Way::Down => 2,
    }
}

/// Extra delay as a function of time: uniform within ± `amplitude_ns` at each step, a straight line between steps.
#[derive(Debug)]
pub(crate) struct Jitter {
    amplitude_ns: u64,
    generator: ChaCha8Rng,
    step: u64,
    from_ns: i64,
    to_ns: i64,
}

impl Jitter {
    /// That of one direction of a link, from its going live on.
    pub(crate) fn of(direction: &Direction, seed: u64, way: Way) -> Self {
        Self::new(direction.jitter_ns, generator(seed, first_stream(way) + 1))
    }

    fn new(amplitude_ns: u64, generator: ChaCha8Rng) -> Self {
        let mut jitter = Self { amplitude_ns, generator, step: 0, from_ns: 0, to_ns: 0 };
        if amplitude_ns > 0 {
            jitter.move_to(0);
        }
        jitter
    }

    pub(crate) fn at(&mut self, now_ns: u64) -> i64 {
        if self.amplitude_ns == 0 {
            return 0;
        }
        let step = now_ns / JITTER_STEP_NS;
        if step != self.step {
            self.move_to(step);
        }
        let share = (now_ns % JITTER_STEP_NS) as f64 / JITTER_STEP_NS as f64;
        self.from_ns + ((self.to_ns - self.from_ns) as f64 * share) as i64
    }

    /// The value at a step depends on seed and step alone, however many packets came before.
    fn move_to(&mut self, step: u64) {
        self.step = step;
        // Two 32-bit words a draw.
        self.generator.set_word_pos(u128::from(step) * 2);
        self.from_ns = self.draw();
        self.to_ns = self.draw();
    }

    fn draw(&mut self) -> i64 {
        let span = u128::from(self.amplitude_ns) * 2 + 1;
        let uniform = (u128::from(self.generator.next_u64()) * span) >> 64;
        uniform as i64 - self.amplitude_ns as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binomial;

    const MS: u64 = 1_000_000;

    fn direction() -> Direction {
        Direction { rate_bits_per_second: None, delay_ns: 0, jitter_ns: 0, loss: Loss::Independent { percent: 0.0 }, queue_bytes: None }
    }

    fn limited(rate_bits_per_second: u64, queue_bytes: u64) -> Direction {
        Direction { rate_bits_per_second: Some(rate_bits_per_second), queue_bytes: Some(queue_bytes), ..direction() }
    }

    fn deadline(verdict: Verdict) -> u64 {
        match verdict {
            Verdict::Deliver { deadline_ns } => deadline_ns,
            other => panic!("not delivered: {other:?}"),
        }
    }

    #[test]
    fn rate_that_does_not_divide_stays_exact_over_many_packets() {
        // 7 Mbit/s: 1500 bytes take 1,714,285.71 ns.
        let mut scheduler = Scheduler::new(&limited(7_000_000, 1 << 30), 1, Way::Up);
        let mut last = 0;
        for _ in 0..70_000 {
            last = deadline(scheduler.handle_packet(1500, 0));
        }
        assert_eq!(last, 120_000_000_000);
    }

    #[test]
    fn idle_time_gives_no_credit() {
        let mut scheduler = Scheduler::new(&limited(12_000_000, 3000), 1, Way::Up);
        assert_eq!(deadline(scheduler.handle_packet(1500, 0)), MS);
        assert_eq!(deadline(scheduler.handle_packet(1500, 50 * MS)), 51 * MS);
        assert_eq!(deadline(scheduler.handle_packet(1500, 50 * MS)), 52 * MS);
    }

    #[test]
    fn packet_past_queue_bound_is_dropped_and_room_comes_back_with_time() {
        let mut scheduler = Scheduler::new(&limited(12_000_000, 4500), 1, Way::Up);
        for number in 1..=3 {
            assert_eq!(deadline(scheduler.handle_packet(1500, 0)), number * MS);
        }
        assert_eq!(scheduler.handle_packet(1500, 0), Verdict::QueueFull);
        assert_eq!(scheduler.handle_packet(1, 0), Verdict::QueueFull);
        assert_eq!(scheduler.queue_max_bytes(), 4500);
        assert_eq!(scheduler.queue_max_ns(), 3 * MS);
        // Half a millisecond has sent 750 bytes of the first packet.
        assert_eq!(scheduler.queued_bytes(MS / 2), 3750);
        assert_eq!(scheduler.handle_packet(751, MS / 2), Verdict::QueueFull);
        assert_eq!(deadline(scheduler.handle_packet(750, MS / 2)), 3 * MS + MS / 2);
    }

    #[test]
    fn queue_in_milliseconds_bounds_the_wait() {
        let text = "name='q'\n[up]\ndelay_ms=0\nrate_mbit_per_second=8\nqueue_ms=20\n[down]\ndelay_ms=0";
        let up = crate::Profile::from_toml(text).unwrap().up;
        let mut scheduler = Scheduler::new(&up, 1, Way::Up);
        let accepted = (0..100).filter(|_| scheduler.handle_packet(1000, 0) != Verdict::QueueFull).count();
        assert_eq!(accepted, 20);
        assert_eq!(scheduler.queue_max_ns(), 20 * MS);
    }

    #[test]
    fn dropped_packet_uses_no_rate_and_no_loss_draw() {
        let lossy = Direction { loss: Loss::Independent { percent: 50.0 }, ..limited(12_000_000, 1500) };
        let mut flooded = Scheduler::new(&lossy, 3, Way::Up);
        let mut calm = Scheduler::new(&lossy, 3, Way::Up);
        for number in 0..500 {
            let now = number * MS;
            assert_eq!(flooded.handle_packet(1500, now), calm.handle_packet(1500, now));
            assert_eq!(flooded.handle_packet(1500, now), Verdict::QueueFull);
        }
    }

    #[test]
    fn lost_packet_has_used_the_rate() {
        let mut scheduler =
            Scheduler::new(&Direction { loss: Loss::Independent { percent: 100.0 }, ..limited(12_000_000, 3000) }, 1, Way::Up);
        assert_eq!(scheduler.handle_packet(1500, 0), Verdict::Lost);
        assert_eq!(scheduler.handle_packet(1500, 0), Verdict::Lost);
        assert_eq!(scheduler.handle_packet(1500, 0), Verdict::QueueFull);
    }

    #[test]
    fn delay_is_added_after_the_rate() {
        let mut scheduler = Scheduler::new(&Direction { delay_ns: 35 * MS, ..limited(12_000_000, 9000) }, 1, Way::Down);
        assert_eq!(deadline(scheduler.handle_packet(1500, 0)), 36 * MS);
        assert_eq!(deadline(scheduler.handle_packet(750, 0)), 36 * MS + MS / 2);
    }

    #[test]
    fn jitter_stays_in_its_bounds_moves_and_keeps_order() {
        let jittery = Direction { delay_ns: 20 * MS, jitter_ns: 8 * MS, ..direction() };
        let mut scheduler = Scheduler::new(&jittery, 7, Way::Up);
        let mut last = 0;
        let mut extremes = (u64::MAX, 0);
        for number in 0..100_000 {
            let now = number * MS / 10;
            let at = deadline(scheduler.handle_packet(100, now));
            assert!(at >= last, "packet {number} overtook");
            assert!(at >= now + 12 * MS, "packet {number} came early");
            assert!(at <= now + 28 * MS, "packet {number} came late");
            extremes = (extremes.0.min(at - now), extremes.1.max(at - now));
            last = at;
        }
        assert!(extremes.0 < 13 * MS && extremes.1 > 27 * MS, "{extremes:?}");
    }

    #[test]
    fn jitter_is_centred_on_the_delay() {
        let mut scheduler = Scheduler::new(&Direction { delay_ns: 20 * MS, jitter_ns: 8 * MS, ..direction() }, 9, Way::Up);
        let mut delays: Vec<u64> = (0..20_001)
            .map(|number| {
                let now = number * 3 * JITTER_STEP_NS + number % JITTER_STEP_NS;
                deadline(scheduler.handle_packet(100, now)) - now
            })
            .collect();
        delays.sort_unstable();
        // Five standard errors of the median of 20,001 uniform draws over 16 ms.
        assert!(delays[10_000].abs_diff(20 * MS) < 300_000, "{}", delays[10_000]);
    }

    #[test]
    fn jitter_depends_on_time_not_on_traffic() {
        let jittery = Direction { delay_ns: 20 * MS, jitter_ns: 8 * MS, ..direction() };
        let mut busy = Scheduler::new(&jittery, 7, Way::Up);
        let mut quiet = Scheduler::new(&jittery, 7, Way::Up);
        for number in 0..50 {
            busy.handle_packet(100, number * MS);
        }
        assert_eq!(busy.handle_packet(100, 500 * MS), quiet.handle_packet(100, 500 * MS));
    }

    fn losses(seed: u64, way: Way, percent: f64, packets: usize) -> Vec<bool> {
        losses_of(Loss::Independent { percent }, seed, way, packets)
    }

    fn losses_of(loss: Loss, seed: u64, way: Way, packets: usize) -> Vec<bool> {
        let mut scheduler = Scheduler::new(&Direction { loss, ..direction() }, seed, way);
        (0..packets).map(|number| scheduler.handle_packet(1200, number as u64) == Verdict::Lost).collect()
    }

    #[test]
    fn bursts_have_the_share_and_the_length_asked_for() {
        for (percent, packets, seed) in [(0.1, 3.0, 1), (15.0, 2.0, 2), (15.0, 4.0, 3), (50.0, 10.0, 4)] {
            let lost = losses_of(Loss::Bursts { percent, packets }, seed, Way::Down, 2_000_000);
            let count = lost.iter().filter(|lost| **lost).count() as f64;
            let runs = lost.windows(2).filter(|pair| pair[1] && !pair[0]).count() as f64;
            // Four standard errors: a run's length is geometric, and so is the time between two runs.
            let error = 4.0 / runs.sqrt();
            let share = count / 2e4;
            assert!((share / percent - 1.0).abs() < error * 2f64.sqrt(), "{percent} %: {share} %");
            assert!((count / runs / packets - 1.0).abs() < error, "{packets} packets: {}", count / runs);
        }
    }

    #[test]
    fn same_seed_loses_same_packets_and_other_seed_or_way_others() {
        let first = losses(42, Way::Up, 15.0, 4000);
        assert_eq!(first, losses(42, Way::Up, 15.0, 4000));
        for other in [losses(43, Way::Up, 15.0, 4000), losses(42, Way::Down, 15.0, 4000)] {
            let both = first.iter().zip(&other).filter(|(a, b)| **a && **b).count();
            // Independent processes coincide in 2.25 % of packets: inside the binomial 99.99 % interval.
            let (low, high) = binomial::interval(4000, 0.0225, 0.9999);
            assert!((low..=high).contains(&(both as u64)), "{both} losses in common");
        }
    }

    #[test]
    fn losses_are_fixed_for_all_versions() {
        // A seed in a published result has to mean the same packets tomorrow.
        let lost = losses(1, Way::Up, 15.0, 100);
        let numbers: Vec<usize> = (0..100).filter(|number| lost[*number]).collect();
        assert_eq!(numbers, [1, 12, 19, 23, 24, 28, 29, 32, 38, 64, 83, 87, 91, 92, 93, 99]);
        let lost = losses_of(Loss::Bursts { percent: 15.0, packets: 4.0 }, 1, Way::Up, 100);
        let numbers: Vec<usize> = (0..100).filter(|number| lost[*number]).collect();
        assert_eq!(numbers, [22, 23, 24, 25, 26, 27, 28, 91, 92, 93, 94]);
    }

    #[test]
    fn loss_share_is_inside_the_binomial_interval() {
        for (percent, seed) in [(0.1, 1), (1.0, 2), (15.0, 3), (50.0, 4)] {
            let count = losses(seed, Way::Down, percent, 200_000).into_iter().filter(|lost| *lost).count() as u64;
            let (low, high) = binomial::interval(200_000, percent / 100.0, 0.99);
            assert!((low..=high).contains(&count), "{percent} %: {count} not in {low}..={high}");
        }
    }

    #[test]
    fn zero_and_full_loss_are_exact() {
        assert!(losses(1, Way::Up, 0.0, 10_000).into_iter().all(|lost| !lost));
        assert!(losses(1, Way::Up, 100.0, 10_000).into_iter().all(|lost| lost));
    }
}
