use super::*;
use crate::binomial;
use crate::profile::{GilbertElliott, Loss};

const MS: u64 = 1_000_000;

fn direction() -> Direction {
    crate::Profile::from_toml("name='t'\n[up]\ndelay_ms=0\n[down]\ndelay_ms=0").unwrap().up
}

fn limited(rate_bits_per_second: u64, queue_bytes: u64) -> Direction {
    Direction {
        rate_bits_per_second: Some(rate_bits_per_second),
        queue_bytes: Some(queue_bytes),
        ..direction()
    }
}

fn deadline(verdict: Verdict) -> u64 {
    match verdict {
        Verdict::Deliver { deadline_ns } => deadline_ns,
        other => panic!("not delivered: {other:?}"),
    }
}

#[test]
fn fractional_packet_times_stay_exact_over_many_packets() {
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
fn packet_past_queue_bound_is_dropped_until_the_queue_drains() {
    let mut scheduler = Scheduler::new(&limited(12_000_000, 4500), 1, Way::Up);
    for number in 1..=3 {
        assert_eq!(deadline(scheduler.handle_packet(1500, 0)), number * MS);
    }
    assert_eq!(scheduler.handle_packet(1500, 0), Verdict::QueueFull);
    assert_eq!(scheduler.handle_packet(1, 0), Verdict::QueueFull);
    assert_eq!(scheduler.queue_max_bytes(), 4500);
    assert_eq!(scheduler.queue_max_ns(), 3 * MS);
    // In half a millisecond, 750 bytes of the first packet were sent.
    assert_eq!(scheduler.handle_packet(751, MS / 2), Verdict::QueueFull);
    assert_eq!(deadline(scheduler.handle_packet(750, MS / 2)), 3 * MS + MS / 2);
}

#[test]
fn queue_in_milliseconds_bounds_the_wait() {
    let text =
        "name='q'\n[up]\ndelay_ms=0\nrate_mbit_per_second=8\nqueue_ms=20\n[down]\ndelay_ms=0";
    let up = crate::Profile::from_toml(text).unwrap().up;
    let mut scheduler = Scheduler::new(&up, 1, Way::Up);
    let accepted =
        (0..100).filter(|_| scheduler.handle_packet(1000, 0) != Verdict::QueueFull).count();
    assert_eq!(accepted, 20);
    assert_eq!(scheduler.queue_max_ns(), 20 * MS);
}

#[test]
fn dropped_packet_uses_no_rate_and_no_loss_draw() {
    let lossy =
        Direction { loss: Loss::Independent { percent: 50.0 }, ..limited(12_000_000, 1500) };
    let mut flooded = Scheduler::new(&lossy, 3, Way::Up);
    let mut calm = Scheduler::new(&lossy, 3, Way::Up);
    for number in 0..500 {
        let now = number * MS;
        assert_eq!(flooded.handle_packet(1500, now), calm.handle_packet(1500, now));
        assert_eq!(flooded.handle_packet(1500, now), Verdict::QueueFull);
    }
}

#[test]
fn lost_packet_uses_the_rate() {
    let mut scheduler = Scheduler::new(
        &Direction { loss: Loss::Independent { percent: 100.0 }, ..limited(12_000_000, 3000) },
        1,
        Way::Up,
    );
    assert_eq!(scheduler.handle_packet(1500, 0), Verdict::Lost);
    assert_eq!(scheduler.handle_packet(1500, 0), Verdict::Lost);
    assert_eq!(scheduler.handle_packet(1500, 0), Verdict::QueueFull);
}

#[test]
fn delay_is_added_after_the_rate() {
    let mut scheduler =
        Scheduler::new(&Direction { delay_ns: 35 * MS, ..limited(12_000_000, 9000) }, 1, Way::Down);
    assert_eq!(deadline(scheduler.handle_packet(1500, 0)), 36 * MS);
    assert_eq!(deadline(scheduler.handle_packet(750, 0)), 36 * MS + MS / 2);
}

#[test]
fn pauses_delay_packets_by_at_most_the_jitter_and_keep_order() {
    let jittery = Direction { delay_ns: 20 * MS, jitter_ns: 8 * MS, ..direction() };
    let mut scheduler = Scheduler::new(&jittery, 7, Way::Up);
    let mut last = 0;
    let (mut in_time, mut longest) = (0, 0);
    for number in 0..100_000 {
        let now = number * MS / 10;
        let at = deadline(scheduler.handle_packet(100, now));
        assert!(at >= last, "packet {number} overtook");
        assert!(
            (now + 20 * MS..=now + 28 * MS).contains(&at),
            "packet {number} came after {}",
            at - now
        );
        in_time += u32::from(at == now + 20 * MS);
        longest = longest.max(at - now);
        last = at;
    }
    assert!(longest > 27 * MS, "{longest}");
    // Pauses take a third of the time; the standard error is below one percent over 833 pauses.
    assert!((63_000..=70_000).contains(&in_time), "{in_time}");
}

#[test]
fn pauses_depend_on_time_not_on_traffic() {
    let jittery =
        Direction { delay_ns: 20 * MS, jitter_ns: 8 * MS, ..limited(12_000_000, 450_000) };
    // After a thousand idle hours too; earlier pauses need not be drawn.
    for hour in [0, 1000] {
        let begin = hour * 3_600_000 * MS;
        let mut busy = Scheduler::new(&jittery, 7, Way::Up);
        for number in 0..50 {
            busy.handle_packet(100, number * MS);
        }
        let mut quiet = Scheduler::new(&jittery, 7, Way::Up);
        for number in 100..200 {
            let now = begin + number * MS;
            assert_eq!(busy.handle_packet(100, now), quiet.handle_packet(100, now));
        }
    }
}

#[test]
fn pauses_are_stable_across_versions() {
    let jittery = Direction { delay_ns: 8 * MS, jitter_ns: 8 * MS, ..direction() };
    let mut scheduler = Scheduler::new(&jittery, 1, Way::Up);
    let late: Vec<u64> = (0..40)
        .map(|number| deadline(scheduler.handle_packet(100, number * MS)) / MS - 8 - number)
        .collect();
    assert_eq!(
        late[..34],
        [
            0, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 6, 5,
            4, 3, 2, 1, 0
        ]
    );
}

#[test]
fn saturated_link_keeps_its_rate_under_pauses() {
    let mut scheduler =
        Scheduler::new(&Direction { jitter_ns: 8 * MS, ..limited(7_000_000, 1 << 30) }, 3, Way::Up);
    let mut last = 0;
    for _ in 0..70_000 {
        last = deadline(scheduler.handle_packet(1500, 0));
    }
    assert!((120_000_000_000..=120_000_000_000 + 8 * MS).contains(&last), "{last}");
}

/// With any traffic, pauses and outages, the bytes between two arrivals take at least as long as
/// the rate requires.
#[test]
fn no_interval_delivers_more_than_the_rate_and_one_packet() {
    let keys = "rate_mbit_per_second=12\nqueue_ms=300\ndelay_ms=35\njitter_ms=8";
    for outages in ["", "outage_ms=[20,60]\noutage_every_ms=[100,200]"] {
        let text = format!("name='t'\n[up]\n{keys}\n{outages}\n[down]\ndelay_ms=0");
        let up = crate::Profile::from_toml(&text).unwrap().up;
        for seed in 0..20 {
            let mut scheduler = Scheduler::new(&up, seed, Way::Up);
            let mut arrivals: Vec<(u64, u64)> = Vec::new();
            // Bursts as in slow start, then at the link's rate, then below it.
            let mut draw = generator(seed, Way::Down, Draw::Loss, 0);
            let mut now = 0;
            for number in 0..3000_u64 {
                let random = rand::RngCore::next_u64(&mut draw);
                now += match number / 1000 {
                    0 => {
                        if number % 40 == 0 {
                            70 * MS
                        } else {
                            0
                        }
                    }
                    1 => MS,
                    _ => random % (4 * MS),
                };
                let bytes = 40 + random % 1461;
                if let Verdict::Deliver { deadline_ns } =
                    scheduler.handle_packet(bytes as usize, now)
                {
                    arrivals.push((deadline_ns, bytes));
                }
            }
            assert!(arrivals.len() > 2500);
            for (first, (from_ns, _)) in arrivals.iter().enumerate() {
                let mut sum = 0;
                for (number, (at_ns, bytes)) in arrivals[first + 1..].iter().take(300).enumerate() {
                    sum += bytes;
                    // One nanosecond of rounding per packet.
                    let least_ns = (sum * 8000 / 12).saturating_sub(number as u64 + 1);
                    assert!(
                        at_ns - from_ns >= least_ns,
                        "seed {seed}: {sum} bytes in {} ns",
                        at_ns - from_ns
                    );
                }
            }
        }
    }
}

fn losses(seed: u64, way: Way, percent: f64, packets: usize) -> Vec<bool> {
    losses_of(Loss::Independent { percent }, seed, way, packets)
}

fn losses_of(loss: Loss, seed: u64, way: Way, packets: usize) -> Vec<bool> {
    let mut scheduler = Scheduler::new(&Direction { loss, ..direction() }, seed, way);
    (0..packets)
        .map(|number| scheduler.handle_packet(1200, number as u64) == Verdict::Lost)
        .collect()
}

#[test]
fn bursts_have_the_configured_share_and_length() {
    for (percent, packets, seed) in [(0.1, 3.0, 1), (15.0, 2.0, 2), (15.0, 4.0, 3), (50.0, 10.0, 4)]
    {
        let lost = losses_of(Loss::Bursts { percent, packets }, seed, Way::Down, 2_000_000);
        let count = lost.iter().filter(|lost| **lost).count() as f64;
        let runs = lost.windows(2).filter(|pair| pair[1] && !pair[0]).count() as f64;
        // Four standard errors: a run's length is geometric, and so is the time between two runs.
        let error = 4.0 / runs.sqrt();
        let share = count / 2e4;
        assert!((share / percent - 1.0).abs() < error * 2f64.sqrt(), "{percent} %: {share} %");
        assert!(
            (count / runs / packets - 1.0).abs() < error,
            "{packets} packets: {}",
            count / runs
        );
    }
}

#[test]
fn losses_depend_on_seed_and_direction() {
    let first = losses(42, Way::Up, 15.0, 4000);
    assert_eq!(first, losses(42, Way::Up, 15.0, 4000));
    for other in [losses(43, Way::Up, 15.0, 4000), losses(42, Way::Down, 15.0, 4000)] {
        let both = first.iter().zip(&other).filter(|(a, b)| **a && **b).count();
        // Independent processes coincide in 2.25 % of packets: inside the binomial 99.99 %
        // interval.
        let (low, high) = binomial::interval(4000, 0.0225, 0.9999);
        assert!((low..=high).contains(&(both as u64)), "{both} losses in common");
    }
}

#[test]
fn losses_are_stable_across_versions() {
    // A seed in a published result has to give the same packets later.
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
        let count =
            losses(seed, Way::Down, percent, 200_000).into_iter().filter(|lost| *lost).count()
                as u64;
        let (low, high) = binomial::interval(200_000, percent / 100.0, 0.99);
        assert!((low..=high).contains(&count), "{percent} %: {count} not in {low}..={high}");
    }
}

#[test]
fn zero_and_full_loss_are_exact() {
    assert!(losses(1, Way::Up, 0.0, 10_000).into_iter().all(|lost| !lost));
    assert!(losses(1, Way::Up, 100.0, 10_000).into_iter().all(|lost| lost));
}

#[test]
fn gilbert_elliott_has_the_configured_share_and_memory() {
    for (good_to_bad, bad_to_good, in_bad, in_good) in
        [(1.0, 30.0, 100.0, 0.0), (4.0, 20.0, 90.0, 2.0), (100.0, 50.0, 30.0, 0.0)]
    {
        let model = GilbertElliott {
            good_to_bad_percent: good_to_bad,
            bad_to_good_percent: bad_to_good,
            loss_in_bad_percent: in_bad,
            loss_in_good_percent: in_good,
        };
        let loss = Loss::GilbertElliott(model);
        let count = 400_000.0;
        let lost = losses_of(loss, 6, Way::Up, 400_000);
        let share = lost.iter().filter(|lost| **lost).count() as f64 / count;
        let asked = loss.percent() / 100.0;
        // Four standard errors, corrected for losses in bursts.
        let error = 4.0 * (asked * (1.0 - asked) / (count * loss.independent_worth())).sqrt();
        assert!((share - asked).abs() < error, "{share} {asked}");
        // The probability that two consecutive packets are lost, computed from the model.
        let bad = good_to_bad / (good_to_bad + bad_to_good);
        let (stay_bad, turn_bad) = (1.0 - bad_to_good / 100.0, good_to_bad / 100.0);
        let next = |bad_next: f64| (bad_next * in_bad + (1.0 - bad_next) * in_good) / 100.0;
        let both =
            bad * in_bad / 100.0 * next(stay_bad) + (1.0 - bad) * in_good / 100.0 * next(turn_bad);
        let found = lost.windows(2).filter(|pair| pair[0] && pair[1]).count() as f64 / count;
        assert!((found / both - 1.0).abs() < 0.03, "{found} {both}");
    }
}

#[test]
fn short_and_full_form_of_bursts_have_equal_loss() {
    let short = Loss::Bursts { percent: 15.0, packets: 4.0 };
    let full = Loss::GilbertElliott(GilbertElliott {
        good_to_bad_percent: 15.0 / 85.0 / 4.0 * 100.0,
        bad_to_good_percent: 25.0,
        loss_in_bad_percent: 100.0,
        loss_in_good_percent: 0.0,
    });
    assert!((short.percent() - full.percent()).abs() < 1e-9);
    assert!((short.independent_worth() - full.independent_worth()).abs() < 1e-9);
}

#[test]
fn gilbert_elliott_and_outages_are_stable_across_versions() {
    let model = GilbertElliott {
        good_to_bad_percent: 5.0,
        bad_to_good_percent: 30.0,
        loss_in_bad_percent: 80.0,
        loss_in_good_percent: 1.0,
    };
    let lost = losses_of(Loss::GilbertElliott(model), 1, Way::Up, 100);
    let numbers: Vec<usize> = (0..100).filter(|number| lost[*number]).collect();
    assert_eq!(numbers, [12, 13, 46, 47, 49, 50, 51, 52, 53, 63, 90, 92, 93]);
    let outages = Direction {
        outages: Some(crate::profile::Outages {
            length_ns: [500 * MS, 1500 * MS],
            every_ns: [20_000 * MS, 60_000 * MS],
        }),
        ..limited(12_000_000, 30_000_000)
    };
    for way in [Way::Up, Way::Down] {
        let mut scheduler = Scheduler::new(&outages, 1, way);
        let late: Vec<u64> = (0..100_000)
            .map(|number| (number, deadline(scheduler.handle_packet(150, number * MS))))
            .filter(|(number, at)| at - number * MS > 400 * MS)
            .map(|(number, _)| number)
            .collect();
        assert_eq!((late[0], late.len()), (16_646, 1_778));
    }
}

#[test]
fn packets_lost_by_number_do_not_affect_other_losses() {
    let lossy = Direction { loss: Loss::Independent { percent: 15.0 }, ..direction() };
    let planted = Direction { lose_packets: vec![1, 7, 13], ..lossy.clone() };
    let run = |direction: &Direction| -> Vec<bool> {
        let mut scheduler = Scheduler::new(direction, 1, Way::Up);
        (0..100).map(|number| scheduler.handle_packet(100, number) == Verdict::Lost).collect()
    };
    let (without, with) = (run(&lossy), run(&planted));
    let differ: Vec<usize> = (0..100)
        .filter(|number| without[*number] != with[*number])
        .map(|number| number + 1)
        .collect();
    // The thirteenth is lost at random anyway.
    assert_eq!(differ, [1, 7]);
    let mut scheduler = Scheduler::new(&planted, 99, Way::Down);
    scheduler.skip_packet();
    assert_ne!(scheduler.handle_packet(100, 0), Verdict::QueueFull);
    assert_eq!(
        (1..=100).filter(|number| planted.lose_packets.binary_search(number).is_ok()).count(),
        3
    );
}

#[test]
fn packets_dropped_before_the_queue_are_counted() {
    let planted = Direction { lose_packets: vec![3], ..direction() };
    let mut scheduler = Scheduler::new(&planted, 1, Way::Up);
    scheduler.skip_packet();
    scheduler.handle_packet(100, 0);
    assert_eq!(scheduler.handle_packet(100, 0), Verdict::Lost);
    assert_ne!(scheduler.handle_packet(100, 0), Verdict::Lost);
}

#[test]
fn reordering_lets_packets_overtake_within_the_jitter() {
    let reordering =
        Direction { delay_ns: 20 * MS, jitter_ns: 8 * MS, reorder: true, ..direction() };
    let run = |seed| -> Vec<u64> {
        let mut scheduler = Scheduler::new(&reordering, seed, Way::Up);
        (0..20_000)
            .map(|number| deadline(scheduler.handle_packet(100, number * MS)) - number * MS)
            .collect()
    };
    let delays = run(5);
    assert!(delays.iter().all(|delay| (12 * MS..=28 * MS).contains(delay)));
    assert_eq!(delays, run(5));
    assert_ne!(delays, run(6));
    let mean = delays.iter().sum::<u64>() / 20_000;
    // Four standard errors of the mean of 20,000 uniform draws over 16 ms.
    assert!(mean.abs_diff(20 * MS) < 131_000, "{mean}");
    let arrivals: Vec<u64> =
        delays.iter().zip(0..).map(|(delay, number)| delay + number * MS).collect();
    // Of two packets 1 ms apart, the second arrives earlier if its draw is more than 1 ms lower:
    // (15/16)^2 / 2 of all pairs.
    let overtaken = arrivals.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!((8_500..=9_080).contains(&overtaken), "{overtaken}");
}

#[test]
fn earlier_packets_do_not_affect_draws_of_numbered_packets() {
    let lossy = Direction {
        delay_ns: 20 * MS,
        jitter_ns: 8 * MS,
        reorder: true,
        loss: Loss::Independent { percent: 5.0 },
        ..direction()
    };
    let run = |earlier: u64| -> (Vec<Verdict>, Vec<Verdict>) {
        let mut scheduler = Scheduler::new(&lossy, 5, Way::Up);
        let mut of_earlier = Vec::new();
        let numbered = (0..1000).map(|number| {
            of_earlier
                .extend((0..earlier).map(|_| scheduler.handle_earlier_packet(100, number * MS)));
            scheduler.handle_packet(100, number * MS)
        });
        (numbered.collect(), of_earlier)
    };
    let (alone, _) = run(0);
    let (beside, earlier) = run(1);
    assert_eq!(alone, beside);
    assert_eq!(alone, run(3).0);
    // Earlier packets are delayed and lost like others, with their own draws.
    assert!(earlier.contains(&Verdict::Lost));
    let delays_ns = earlier.iter().zip(0..).filter_map(|(verdict, number)| match verdict {
        Verdict::Deliver { deadline_ns } => Some(deadline_ns - number * MS),
        _ => None,
    });
    let delays_ns: Vec<u64> = delays_ns.collect();
    assert!(delays_ns.iter().all(|delay_ns| (12 * MS..=28 * MS).contains(delay_ns)));
    assert!(delays_ns.iter().min() < Some(&(13 * MS)) && delays_ns.iter().max() > Some(&(27 * MS)));
    assert_ne!(alone, earlier);
}

#[test]
fn change_applies_new_values_with_an_empty_queue() {
    let slow = Direction { delay_ns: 50 * MS, ..limited(1_200_000, 15_000) };
    let mut scheduler = Scheduler::new(&slow, 1, Way::Up);
    for number in 1..=10 {
        assert_eq!(deadline(scheduler.handle_packet(1500, 0)), 50 * MS + number * 10 * MS);
    }
    assert_eq!(scheduler.handle_packet(1500, 0), Verdict::QueueFull);
    scheduler.change(&Direction {
        delay_ns: 5 * MS,
        lose_packets: vec![13],
        ..limited(12_000_000, 3000)
    });
    // Earlier than packets still queued before the change.
    assert_eq!(deadline(scheduler.handle_packet(1500, 2 * MS)), 8 * MS);
    assert_eq!(scheduler.queued_bytes(2 * MS), 1500);
    // The thirteenth packet over the link, not since the change.
    assert_eq!(scheduler.handle_packet(1500, 2 * MS), Verdict::Lost);
    assert_eq!(scheduler.queue_max_bytes(), 15_000);
    assert_eq!(scheduler.queue_max_ns(), 100 * MS);
}
