//! Outages, in which a wire carries nothing, and the time in which it works.

use std::collections::VecDeque;

use rand::RngCore as _;
use rand_chacha::ChaCha8Rng;

use crate::profile::Outages;

/// Converts time to working time and back. Times passed to it never go back.
#[derive(Debug)]
pub(crate) struct OutageProcess {
    asked: Outages,
    generator: Box<ChaCha8Rng>,
    next_start_ns: u64,
    /// Start and end of drawn outages that are not over yet.
    drawn: VecDeque<(u64, u64)>,
    /// Total length of past outages.
    over_ns: u64,
}

impl OutageProcess {
    pub(crate) fn new(asked: Outages, mut generator: ChaCha8Rng) -> Self {
        // The link starts at a random point between two outages.
        let interval_ns = uniform(&mut generator, asked.every_ns);
        let next_start_ns = uniform(&mut generator, [0, interval_ns]);
        Self {
            asked,
            generator: Box::new(generator),
            next_start_ns,
            drawn: VecDeque::new(),
            over_ns: 0,
        }
    }

    /// Returns how long the wire has worked until `now_ns`.
    pub(crate) fn worked_ns(&mut self, now_ns: u64) -> u64 {
        loop {
            let (start_ns, end_ns) = self.outage(0);
            if now_ns < end_ns {
                return now_ns.min(start_ns) - self.over_ns;
            }
            self.over_ns += end_ns - start_ns;
            self.drawn.pop_front();
        }
    }

    /// Returns when the wire will have worked for `worked_ns`, which is not before the last
    /// `now_ns`.
    pub(crate) fn when_ns(&mut self, worked_ns: u64) -> u64 {
        let mut when_ns = worked_ns + self.over_ns;
        for number in 0.. {
            let (start_ns, end_ns) = self.outage(number);
            if when_ns <= start_ns {
                break;
            }
            when_ns += end_ns - start_ns;
        }
        when_ns
    }

    fn outage(&mut self, number: usize) -> (u64, u64) {
        while self.drawn.len() <= number {
            let length_ns = uniform(&mut self.generator, self.asked.length_ns);
            self.drawn.push_back((self.next_start_ns, self.next_start_ns + length_ns));
            self.next_start_ns += uniform(&mut self.generator, self.asked.every_ns);
        }
        self.drawn[number]
    }
}

fn uniform(generator: &mut ChaCha8Rng, [low, high]: [u64; 2]) -> u64 {
    low + ((u128::from(generator.next_u64()) * (u128::from(high - low) + 1)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng as _;

    use super::*;

    const MS: u64 = 1_000_000;

    fn process(seed: u64) -> OutageProcess {
        let asked = Outages { length_ns: [500 * MS, 1500 * MS], every_ns: [2000 * MS, 6000 * MS] };
        OutageProcess::new(asked, ChaCha8Rng::seed_from_u64(seed))
    }

    #[test]
    fn outages_have_the_configured_lengths_and_intervals() {
        let mut process = process(3);
        process.outage(1000);
        let lengths: Vec<u64> = process.drawn.iter().map(|(start, end)| end - start).collect();
        let intervals: Vec<u64> = process
            .drawn
            .iter()
            .zip(process.drawn.iter().skip(1))
            .map(|(a, b)| b.0 - a.0)
            .collect();
        let around = |values: &[u64], low: u64, high: u64| {
            assert!(values.iter().all(|value| (low * MS..=high * MS).contains(value)));
            // Six standard errors of the mean of 1000 uniform draws.
            let mean = values.iter().sum::<u64>() / values.len() as u64;
            assert!(
                mean.abs_diff(u64::midpoint(low, high) * MS) < (high - low) * MS / 18,
                "{mean}"
            );
        };
        around(&lengths, 500, 1500);
        around(&intervals, 2000, 6000);
        assert!(process.drawn[0].0 <= 6000 * MS);
    }

    #[test]
    fn worked_ns_and_when_ns_are_inverse() {
        let (mut there, mut back) = (process(4), process(4));
        let mut last = 0;
        for step in 0..20_000 {
            let now_ns = step * 7 * MS;
            let worked_ns = there.worked_ns(now_ns);
            assert!(worked_ns >= last && worked_ns - last <= 7 * MS);
            last = worked_ns;
            let when_ns = back.when_ns(worked_ns);
            // In an outage, the worked time is that of the outage's start.
            assert!(when_ns <= now_ns && now_ns - when_ns <= 1500 * MS, "{when_ns} {now_ns}");
            assert_eq!(there.when_ns(worked_ns), when_ns);
            back.worked_ns(now_ns);
        }
        // Outages take about 25 % of the time.
        let share = last as f64 / (19_999.0 * 7.0 * MS as f64);
        assert!((0.7..0.8).contains(&share), "{share}");
    }
}
