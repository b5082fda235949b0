//! Measures the bytes of a browsing session's field sections: with the static table only, and with
//! dynamic tables of several sizes. All sections are decoded and compared.
//!
//! `cargo run --release -p pronghorn-qpack --example browsing_session`

mod session;

use session::{Allowed, Cost, replay};

fn main() {
    println!("requests and responses of session.txt, in bytes; cookies are never indexed\n");
    println!(
        "{:34}{:>5} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "", "heads", "text", "sections", "inserted", "acked", "total", "table"
    );
    let static_only = replay(Allowed { table_capacity: 0, blocked_streams: 0 });
    print("static table only", &static_only, &static_only);
    for table_capacity in [1024, 2048, 4096, 8192, 16384] {
        for blocked_streams in [0, 16] {
            let costs = replay(Allowed { table_capacity, blocked_streams });
            print(
                &format!("table {table_capacity}, {blocked_streams} blocked"),
                &costs,
                &static_only,
            );
        }
    }
}

fn print(name: &str, costs: &[Cost; 2], static_only: &[Cost; 2]) {
    for (direction, (cost, reference)) in
        ["requests", "responses"].into_iter().zip(costs.iter().zip(static_only))
    {
        let percent = cost.total() as f64 * 100.0 / reference.total() as f64;
        println!("{name:24}{direction:10}{cost} {percent:>6.1} %");
    }
}
