//! Field sections of a browsing session shrink as shown by `examples/browsing_session`, and arrive
//! unchanged.

#[path = "../examples/browsing_session/session.rs"]
mod session;

use session::{Allowed, Cost, replay};

/// Returns the total as a percentage of the total without a dynamic table.
fn percent(cost: &Cost, static_only: &Cost) -> usize {
    cost.total() * 100 / static_only.total()
}

#[test]
fn dynamic_table_saves_at_least_half_of_the_bytes() {
    let static_only = replay(Allowed { table_capacity: 0, blocked_streams: 0 });
    for cost in &static_only {
        assert_eq!((cost.insertions, cost.acknowledgments, cost.table), (0, 0, 0));
        assert!(cost.heads == 111 && cost.sections < cost.text);
    }
    let [requests, responses] = replay(Allowed { table_capacity: 4096, blocked_streams: 16 });
    assert!(percent(&requests, &static_only[0]) <= 30, "{requests}");
    assert!(percent(&responses, &static_only[1]) <= 45, "{responses}");
    // Without blocked streams the saving is smaller.
    let [requests, responses] = replay(Allowed { table_capacity: 4096, blocked_streams: 0 });
    assert!(percent(&requests, &static_only[0]) <= 35, "{requests}");
    assert!(percent(&responses, &static_only[1]) <= 50, "{responses}");
}

/// A table so small that entries are evicted before they are of use costs next to nothing.
#[test]
fn small_tables_cost_at_most_one_percent_more_than_none() {
    let static_only = replay(Allowed { table_capacity: 0, blocked_streams: 0 });
    for table_capacity in [40, 64, 100, 200, 400, 700] {
        for blocked_streams in [0, 1, 16] {
            let costs = replay(Allowed { table_capacity, blocked_streams });
            for (cost, reference) in costs.iter().zip(&static_only) {
                assert!(cost.table <= table_capacity);
                assert!(
                    cost.total() <= reference.total() * 101 / 100,
                    "{table_capacity} {blocked_streams}: {cost}, not {reference}"
                );
            }
        }
    }
}
