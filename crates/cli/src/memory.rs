//! The program's own memory, and the log of memory pressure.

use pronghorn_engine::{MemoryBudget, MemoryHold, MemoryPressure, PressureChange};
use tokio::sync::mpsc;

/// Changes that may wait to be logged.
const WAITING: usize = 64;

/// Counts what the program uses before it has served anyone, for as long as the result lives.
/// Warns if that leaves too little of the budget.
pub(crate) fn count_program(budget: &MemoryBudget) -> MemoryHold {
    let mut hold = budget.hold();
    let resident = resident_bytes().unwrap_or(0);
    hold.grow(resident);
    if budget.pressure() > MemoryPressure::None {
        eprint_line!(
            "warning: the program itself uses {} MiB of the {} MiB of the limit `memory`: {}; raise \
                the limit",
            resident >> 20,
            budget.bytes() >> 20,
            budget.pressure().effect()
        );
    }
    hold
}

/// Returns the process's resident memory.
fn resident_bytes() -> Option<u64> {
    resident_in(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn resident_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Logs each change of the pressure. Workers do not wait for the log.
pub(crate) async fn log_pressure(budget: &MemoryBudget) {
    let (send, mut changes) = mpsc::channel::<PressureChange>(WAITING);
    budget.on_change(move |change| {
        let _ = send.try_send(change);
    });
    while let Some(change) = changes.recv().await {
        if change.to > change.from {
            log_line!("warning: {change}");
        } else {
            log_line!("{change}");
        }
    }
    // The budget keeps the sender for as long as it exists.
    std::future::pending::<()>().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_from_status() {
        let status = "Name:\tpronghorn\nVmHWM:\t  9000 kB\nVmRSS:\t   8192 kB\nThreads:\t3\n";
        assert_eq!(resident_in(status), Some(8 << 20));
        assert_eq!(resident_in("Name:\tpronghorn\n"), None);
        assert!(resident_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn program_counts_as_long_as_it_serves() {
        let budget = MemoryBudget::new(1 << 40);
        let hold = count_program(&budget);
        assert!(budget.held() > 0);
        drop(hold);
        assert_eq!(budget.held(), 0);
    }
}
