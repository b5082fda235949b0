//! Memory pressure on the server, in virtual time.

use std::time::Duration;

use super::network::NetworkConditions;
use super::plan::{Plan, Reading, ResponsePlan, Stream};
use super::{Outcome, Simulation};
use crate::memory::MemoryPressure;

/// A budget that connections do not notice: the tests fill it themselves.
const BUDGET: u64 = 1 << 50;
/// Percentage of the budget at which windows shrink.
const SHRINK: u64 = 72;

impl Simulation {
    /// Fills the server's memory: to these percentages, one after the other, each for this time.
    fn press(&self, steps: Vec<(Duration, u64)>) {
        let budget = self.server.context.connection_counts.memory().clone();
        budget.set_bytes(BUDGET);
        let handle = self.server.handle().clone();
        self.server.handle().spawn(async move {
            let mut hold = budget.hold();
            for (lasts, percent) in steps {
                hold.shrink(hold.bytes());
                hold.grow(BUDGET / 100 * percent);
                handle.sleep(lasts).await;
            }
        });
    }

    fn finish(mut self) -> Outcome {
        self.run();
        let memory = self.server.context.connection_counts.memory().clone();
        let held = self.server.context.memory.held();
        let outcome = self.check();
        assert_eq!((held, memory.held()), (0, 0), "something still counts at the end");
        outcome
    }
}

fn plan(uploads: u64, reading: Reading) -> Plan {
    let conditions = NetworkConditions {
        rate: Some(5_000_000),
        queue: 200_000,
        ..NetworkConditions::calm(Duration::from_millis(20))
    };
    let mut plan = Plan::downloads(uploads, 1_000, conditions);
    for request in &mut plan.connections[0].requests {
        let content = Stream {
            size: 1_500_000,
            whole: false,
            chunk: 10_000,
            pause: Duration::ZERO,
            fails_at: None,
            trailers: false,
        };
        let ResponsePlan::Now { content: response, .. } = request.answer.clone() else {
            unreachable!("downloads are answered at once")
        };
        request.upload = Some(content);
        request.answer = ResponsePlan::AfterUpload { reading, content: response };
    }
    plan.server.limits =
        plan.server.limits.clone().with_body_timeout(Duration::from_secs(600)).unwrap();
    plan
}

/// A handler that reads nothing for a while.
fn stalled() -> Reading {
    Reading {
        waits: Duration::from_secs(10),
        rest_every: u64::MAX,
        rest: Duration::ZERO,
        leaves_at: None,
    }
}

const LONG: Duration = Duration::from_secs(100);

#[test]
fn window_grows_on_unread_data_only_without_pressure() {
    let grown = |percent| {
        let simulation = Simulation::new(plan(4, stalled()), 1, false);
        // The connection gets its first window before the pressure begins.
        simulation.press(vec![(Duration::from_millis(60), 0), (LONG, percent)]);
        let counts = simulation.finish().counts;
        assert_eq!(counts["complete"], 4);
        counts["windows_grown"]
    };
    // The path is too slow for the window to grow more than once because of its rate.
    let (with, without) = (grown(57), grown(0));
    assert!(with <= 1 && without >= 3, "{with} times under pressure, {without} times without");
}

#[test]
fn stalled_window_shrinks_under_pressure_and_grows_again_after_it() {
    let simulation = Simulation::new(plan(4, stalled()), 2, false);
    simulation.press(vec![
        (Duration::from_secs(5), 0),
        // The uploads are full, then handlers read under pressure, and go on without it.
        (Duration::from_millis(5_200), SHRINK),
    ]);
    let Outcome { counts, .. } = simulation.finish();
    assert_eq!(counts["complete"], 4);
    assert!(counts["windows_shrunk"] > 0, "{counts:?}");
    assert!(counts["windows_grown"] > 0, "{counts:?}");
    assert_eq!(counts["connection_window_overruns"], 0, "the client keeps to its promise");
}

#[test]
fn uploads_make_progress_in_the_smallest_windows() {
    for reading in [stalled(), Reading { waits: Duration::ZERO, ..stalled() }] {
        let simulation = Simulation::new(plan(8, reading), 3, false);
        simulation.press(vec![(LONG, SHRINK)]);
        let Outcome { counts, .. } = simulation.finish();
        assert_eq!((counts["complete"], counts["windows_grown"]), (8, 0));
    }
}

#[test]
fn no_exchange_of_a_seed_is_stuck_under_lasting_pressure() {
    for seed in 0..40 {
        let simulation = Simulation::new(Plan::draw(seed), seed, false);
        simulation.press(vec![(LONG, SHRINK)]);
        simulation.finish();
    }
}

#[test]
fn no_exchange_of_a_seed_is_stuck_while_pressure_comes_and_goes() {
    for seed in 40..80 {
        let simulation = Simulation::new(Plan::draw(seed), seed, false);
        let step = |number: u64| {
            (Duration::from_millis(20 + seed * 7 % 90), [0, 42, SHRINK, 57][number as usize % 4])
        };
        simulation.press((0..200).map(step).collect());
        simulation.finish();
    }
}

#[test]
fn pressure_steps_begin_where_the_tests_say() {
    let mut pressure = MemoryPressure::None;
    for (percent, expected) in [
        (42, MemoryPressure::SmallWindows),
        (57, MemoryPressure::NoGrowth),
        (SHRINK, MemoryPressure::Shrink),
    ] {
        pressure = pressure.next(percent, 100);
        assert_eq!(pressure, expected);
    }
}
