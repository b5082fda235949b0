//! The heads of a browsing session shrink by what `examples/browsing_session` shows, and arrive as they were sent.

#[path = "../examples/browsing_session/session.rs"]
mod session;

use session::{Allowed, Cost, replay};

/// The total in per cent of what it is without a dynamic table.
fn percent(cost: &Cost, static_only: &Cost) -> usize {
    cost.total() * 100 / static_only.total()
}

#[test]
fn dynamic_table_saves_half_of_all_bytes_and_more() {
    let static_only = replay(Allowed { table_capacity: 0, blocked_streams: 0 });
    for cost in &static_only {
        assert_eq!((cost.insertions, cost.acknowledgments, cost.table), (0, 0, 0));
        assert!(cost.heads == 111 && cost.sections < cost.text);
    }
    let [requests, responses] = replay(Allowed { table_capacity: 4096, blocked_streams: 16 });
    assert!(percent(&requests, &static_only[0]) <= 30, "{requests}");
    assert!(percent(&responses, &static_only[1]) <= 45, "{responses}");
    // A peer that allows no blocked streams pays for it, but gains too.
    let [requests, responses] = replay(Allowed { table_capacity: 4096, blocked_streams: 0 });
    assert!(percent(&requests, &static_only[0]) <= 35, "{requests}");
    assert!(percent(&responses, &static_only[1]) <= 50, "{responses}");
}

/// Far too small a table, whose entries are evicted before they are of use, costs next to nothing.
#[test]
fn small_tables_cost_at_most_a_hundredth_more_than_none() {
    let static_only = replay(Allowed { table_capacity: 0, blocked_streams: 0 });
    for table_capacity in [40, 64, 100, 200, 400, 700] {
        for blocked_streams in [0, 1, 16] {
            let costs = replay(Allowed { table_capacity, blocked_streams });
            for (cost, reference) in costs.iter().zip(&static_only) {
                assert!(cost.table <= table_capacity);
                assert!(cost.total() <= reference.total() * 101 / 100, "{table_capacity} {blocked_streams}: {cost}, not {reference}");
            }
        }
    }
}
