//! The addresses of a host name, which may change while connections to them are open.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use pronghorn_engine::Remote;

/// Maximum number of addresses used from one lookup.
const MAX_ADDRESSES: usize = 256;

/// Known addresses of a host name.
pub(crate) struct Addresses {
    /// Addresses from the latest lookup that returned any.
    latest: RefCell<Vec<SocketAddr>>,
    /// When each address last appeared in a lookup.
    seen: RefCell<Vec<(IpAddr, Instant)>>,
    /// Index of the next address. It starts at random, so that pools that connect only once do not
    /// all use the first address.
    turn: Cell<usize>,
    pub(crate) is_being_looked_up: Cell<bool>,
}

impl Addresses {
    pub(crate) fn new() -> Self {
        let turn = usize::from(RandomState::new().hash_one(0).to_be_bytes()[0]);
        Self {
            latest: RefCell::default(),
            seen: RefCell::default(),
            turn: Cell::new(turn),
            is_being_looked_up: Cell::default(),
        }
    }

    /// Records the result of a lookup. Addresses that no lookup has returned for `lifetime` are
    /// forgotten. The delay is needed because some name servers return only a few of many
    /// addresses.
    pub(crate) fn learn(&self, mut answer: Vec<SocketAddr>, now: Instant, lifetime: Duration) {
        answer.truncate(MAX_ADDRESSES);
        let mut seen = self.seen.borrow_mut();
        seen.retain(|(ip, at)| {
            now.saturating_duration_since(*at) < lifetime
                && !answer.iter().any(|address| address.ip() == *ip)
        });
        seen.truncate(MAX_ADDRESSES - answer.len());
        seen.extend(answer.iter().map(|address| (address.ip(), now)));
        *self.latest.borrow_mut() = answer;
    }

    /// Returns whether connections to `remote` may still be used. If no addresses are known, all
    /// may.
    pub(crate) fn has(&self, remote: &Remote) -> bool {
        let Remote::Address(address) = remote else { return true };
        let seen = self.seen.borrow();
        seen.is_empty() || seen.iter().any(|(ip, _)| *ip == address.ip())
    }

    /// Returns the latest addresses for a new connection. Those of the preferred address family are
    /// rotated by one with each call. Empty if no addresses are known.
    pub(crate) fn in_turn(&self) -> Vec<SocketAddr> {
        let mut addresses = self.latest.borrow().clone();
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        let is_ipv4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
        let alike = addresses.iter().take_while(|address| address.is_ipv4() == is_ipv4).count();
        if alike > 0 {
            addresses[..alike].rotate_left(turn % alike);
        }
        addresses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(30);

    fn answer(ips: &[&str]) -> Vec<SocketAddr> {
        ips.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 80)).collect()
    }

    #[test]
    fn address_is_forgotten_when_no_answer_had_it_for_its_time() {
        let (addresses, began) = (Addresses::new(), Instant::now());
        let [first, second] = [answer(&["10.0.0.1"]), answer(&["10.0.0.2"])];
        assert!(addresses.has(&first[0].into()), "nothing is known");
        addresses.learn(first.clone(), began, LIFETIME);
        assert!(addresses.has(&first[0].into()) && !addresses.has(&second[0].into()));
        addresses.learn(second.clone(), began + LIFETIME / 2, LIFETIME);
        assert!(addresses.has(&first[0].into()) && addresses.has(&second[0].into()));
        assert_eq!(addresses.in_turn(), second, "new connections go by the latest answer");
        addresses.learn(second.clone(), began + LIFETIME, LIFETIME);
        assert!(!addresses.has(&first[0].into()) && addresses.has(&second[0].into()));
    }

    #[test]
    fn each_address_of_the_preferred_kind_comes_first_in_its_turn() {
        let addresses = Addresses::new();
        addresses.learn(answer(&["::1", "::2", "::3", "10.0.0.1"]), Instant::now(), LIFETIME);
        let mut firsts: Vec<_> = (0..3)
            .map(|_| {
                let found = addresses.in_turn();
                assert_eq!((found.len(), found[3]), (4, answer(&["10.0.0.1"])[0]));
                found[0]
            })
            .collect();
        firsts.sort_unstable();
        assert_eq!(firsts, answer(&["::1", "::2", "::3"]));
    }

    #[test]
    fn answers_without_end_are_cut() {
        let addresses = Addresses::new();
        for round in 0..3_u8 {
            let many = (0..=u16::MAX)
                .map(|n| {
                    SocketAddr::from(([10, round, n.to_be_bytes()[0], n.to_be_bytes()[1]], 80))
                })
                .collect();
            addresses.learn(many, Instant::now(), LIFETIME);
        }
        assert_eq!(
            (addresses.in_turn().len(), addresses.seen.borrow().len()),
            (MAX_ADDRESSES, MAX_ADDRESSES)
        );
    }
}
