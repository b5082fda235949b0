//! Exits from TCP slow start before a loss: Linux's counters of HyStart, which CUBIC uses.

use serde::Serialize;

use crate::Namespace;

/// HyStart counters of the connections of one end, over the load.
///
/// Slow start ends because acknowledgments arrive in a train as long as half a round trip, which
/// means that the link is full, or because they arrive later, which means that a queue has begun to
/// grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Hystart {
    /// Number of exits due to the length of a train: `TCPHystartTrainDetect`.
    pub train_detected: u64,
    /// Sum of the congestion windows at these exits: `TCPHystartTrainCwnd`.
    pub train_cwnd_packets: u64,
    /// Number of exits due to a delay: `TCPHystartDelayDetect`.
    pub delay_detected: u64,
    /// Sum of the congestion windows at these exits: `TCPHystartDelayCwnd`.
    pub delay_cwnd_packets: u64,
}

impl Hystart {
    /// Reads the current counters; `None` if the kernel does not count.
    pub(crate) fn of(namespace: &Namespace) -> Option<Self> {
        Self::parse(
            &namespace
                .run(|| std::fs::read_to_string("/proc/thread-self/net/netstat"))
                .ok()?
                .ok()?,
        )
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            train_detected: self.train_detected - before.train_detected,
            train_cwnd_packets: self.train_cwnd_packets - before.train_cwnd_packets,
            delay_detected: self.delay_detected - before.delay_detected,
            delay_cwnd_packets: self.delay_cwnd_packets - before.delay_cwnd_packets,
        }
    }

    /// Parses a line of names and a line of values, each after the group's name.
    fn parse(netstat: &str) -> Option<Self> {
        let mut lines = netstat.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
        let (names, values) = (lines.next()?, lines.next()?);
        let find = |wanted: &str| {
            let (_, value) = names
                .split_whitespace()
                .zip(values.split_whitespace())
                .find(|(name, _)| *name == wanted)?;
            value.parse().ok()
        };
        Some(Self {
            train_detected: find("TCPHystartTrainDetect")?,
            train_cwnd_packets: find("TCPHystartTrainCwnd")?,
            delay_detected: find("TCPHystartDelayDetect")?,
            delay_cwnd_packets: find("TCPHystartDelayCwnd")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name() {
        let netstat = "TcpExt: SyncookiesSent TCPHystartTrainDetect TCPHystartTrainCwnd \
            TCPHystartDelayDetect TCPHystartDelayCwnd New\n\
            TcpExt: 9 1 70 2 91 5\nIpExt: InNoRoutes\nIpExt: 3\n";
        let found = Hystart::parse(netstat).unwrap();
        assert_eq!(
            found,
            Hystart {
                train_detected: 1,
                train_cwnd_packets: 70,
                delay_detected: 2,
                delay_cwnd_packets: 91
            }
        );
        assert_eq!(
            found
                .since(Hystart { delay_detected: 1, delay_cwnd_packets: 50, ..Hystart::default() })
                .delay_cwnd_packets,
            41
        );
        assert_eq!(Hystart::parse("TcpExt: SyncookiesSent\nTcpExt: 9\n"), None);
        assert_eq!(Hystart::parse(""), None);
    }
}
