//! Drops packets according to a profile's rules, in virtual time.

use crate::flow::Key;
use crate::profile::{Action, Rule};
use crate::way::Way;

/// Reason why a rule dropped a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// A blocking rule.
    Blocked,
    /// The packet exceeded the rate of a policing rule.
    Policed,
}

/// Rules for one direction, in order. The first one that drops a packet decides.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Vec<(Rule, Option<Bucket>)>,
}

impl Rules {
    /// Returns the rules of the profile that apply to this direction.
    pub fn new(rules: &[Rule], way: Way) -> Self {
        let bucket = |rule: &Rule| match rule.action() {
            Action::Block => None,
            Action::Police { bits_per_second, burst_bytes } => {
                Some(Bucket::full(bits_per_second, burst_bytes))
            }
        };
        Self {
            rules: rules
                .iter()
                .filter(|rule| rule.is_for(way))
                .map(|rule| (rule.clone(), bucket(rule)))
                .collect(),
        }
    }

    /// Fills all buckets, as at the start.
    pub fn refill(&mut self) {
        for bucket in self.rules.iter_mut().filter_map(|(_, bucket)| bucket.as_mut()) {
            bucket.content = bucket.capacity;
        }
    }

    /// Decides about a packet of `bytes` that reaches the link at `now_ns`, of a flow whose first
    /// packet arrived at `since_ns`.
    pub fn handle_packet(
        &mut self,
        flow: &Key,
        since_ns: u64,
        bytes: usize,
        now_ns: u64,
    ) -> Option<Dropped> {
        let age_ns = now_ns.saturating_sub(since_ns);
        self.rules.iter_mut().filter(|(rule, _)| rule.matches(flow, age_ns)).find_map(
            |(_, bucket)| match bucket {
                None => Some(Dropped::Blocked),
                Some(bucket) => (!bucket.take(bytes as u64, now_ns)).then_some(Dropped::Policed),
            },
        )
    }
}

/// A token bucket, exact to the bit and nanosecond.
#[derive(Debug)]
struct Bucket {
    bits_per_second: u64,
    /// In 10^-9 bits: what one nanosecond adds at 1 bit/s.
    content: u128,
    capacity: u128,
    filled_ns: u64,
}

impl Bucket {
    fn full(bits_per_second: u64, burst_bytes: u64) -> Self {
        let capacity = Self::units(burst_bytes);
        Self { bits_per_second, content: capacity, capacity, filled_ns: 0 }
    }

    fn units(bytes: u64) -> u128 {
        u128::from(bytes) * 8_000_000_000
    }

    fn take(&mut self, bytes: u64, now_ns: u64) -> bool {
        let added =
            u128::from(now_ns.saturating_sub(self.filled_ns)) * u128::from(self.bits_per_second);
        self.content = self.capacity.min(self.content + added);
        self.filled_ns = now_ns;
        let needed = Self::units(bytes);
        let enough = self.content >= needed;
        if enough {
            self.content -= needed;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::Profile;
    use crate::flow::Protocol;

    const MS: u64 = 1_000_000;

    fn rules(toml: &str, way: Way) -> Rules {
        let text = format!("name='t'\n[up]\ndelay_ms=1\n[down]\ndelay_ms=1\n{toml}");
        Rules::new(&Profile::from_toml(&text).unwrap().rules, way)
    }

    fn flow(protocol: Protocol, far_port: u16) -> Key {
        let address = IpAddr::from(Ipv4Addr::LOCALHOST);
        Key {
            protocol,
            near: address,
            near_port: Some(50_000),
            far: address,
            far_port: Some(far_port),
        }
    }

    #[test]
    fn policer_passes_its_rate_after_its_burst() {
        let mut rules = rules(
            "[[rules]]\nprotocol='udp'\npolice_mbit_per_second=5\npolice_burst_bytes=15000",
            Way::Up,
        );
        let flow = flow(Protocol::UDP, 443);
        // 12 Mbit/s for ten seconds.
        let passed = (0..10_000)
            .filter(|number| rules.handle_packet(&flow, 0, 1500, number * MS).is_none())
            .count();
        // The burst plus 5 Mbit/s until the last packet, in whole packets.
        assert_eq!(passed, (15_000 + (9_999 * 5_000 / 8)) / 1500);
        assert_eq!(rules.handle_packet(&flow, 0, 15_000, 20_000 * MS), None);
        assert_eq!(rules.handle_packet(&flow, 0, 100, 20_000 * MS), Some(Dropped::Policed));
    }

    #[test]
    fn rule_matches_by_protocol_port_and_direction() {
        let toml = "[[rules]]\nprotocol='udp'\nport=443\ndirection='down'\nblock=true";
        let mut down = rules(toml, Way::Down);
        assert_eq!(
            down.handle_packet(&flow(Protocol::UDP, 443), 0, 100, 0),
            Some(Dropped::Blocked)
        );
        for other in [
            flow(Protocol::TCP, 443),
            flow(Protocol::UDP, 53),
            Key { far_port: None, ..flow(Protocol::UDP, 443) },
        ] {
            assert_eq!(down.handle_packet(&other, 0, 100, 0), None);
        }
        assert_eq!(rules(toml, Way::Up).handle_packet(&flow(Protocol::UDP, 443), 0, 100, 0), None);
        let mut any = rules("[[rules]]\nblock=true", Way::Up);
        assert_eq!(any.handle_packet(&flow(Protocol::ICMP, 0), 0, 100, 0), Some(Dropped::Blocked));
    }

    #[test]
    fn times_count_from_the_first_packet_of_the_flow() {
        let mut rules =
            rules("[[rules]]\nprotocol='udp'\nblock=true\nafter_ms=10000\nuntil_ms=20000", Way::Up);
        let flow = flow(Protocol::UDP, 443);
        let mut blocked = |since_ms: u64, now_ms: u64| {
            rules.handle_packet(&flow, since_ms * MS, 100, now_ms * MS).is_some()
        };
        assert_eq!(
            [blocked(0, 9_999), blocked(0, 10_000), blocked(0, 19_999), blocked(0, 20_000)],
            [false, true, true, false]
        );
        assert_eq!([blocked(15_000, 24_999), blocked(15_000, 25_000)], [false, true]);
    }

    #[test]
    fn refilled_policer_passes_its_burst_again() {
        let mut rules = rules(
            "[[rules]]\nprotocol='udp'\npolice_mbit_per_second=1\npolice_burst_bytes=3000",
            Way::Up,
        );
        let flow = flow(Protocol::UDP, 443);
        let passed = |rules: &mut Rules| {
            (0..5).filter(|_| rules.handle_packet(&flow, 0, 1500, MS).is_none()).count()
        };
        assert_eq!([passed(&mut rules), passed(&mut rules)], [2, 0]);
        rules.refill();
        assert_eq!(passed(&mut rules), 2);
    }

    #[test]
    fn first_rule_that_drops_decides() {
        let policed =
            "[[rules]]\nprotocol='udp'\npolice_mbit_per_second=1\npolice_burst_bytes=1500\n";
        let blocked = "[[rules]]\nblock=true\nafter_ms=1000\n";
        let mut rules = rules(&format!("{policed}{blocked}"), Way::Up);
        let flow = flow(Protocol::UDP, 443);
        assert_eq!(rules.handle_packet(&flow, 0, 1500, 0), None);
        assert_eq!(rules.handle_packet(&flow, 0, 1500, 0), Some(Dropped::Policed));
        assert_eq!(rules.handle_packet(&flow, 0, 1500, 1000 * MS), Some(Dropped::Blocked));
        assert_eq!(rules.handle_packet(&flow, 0, 1500, 1000 * MS), Some(Dropped::Policed));
    }
}
