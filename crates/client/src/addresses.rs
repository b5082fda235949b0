//! The addresses of a name, which may change while there are connections to them.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use pronghorn_engine::Remote;

/// Of an answer no more addresses are used.
const MAX_ADDRESSES: usize = 256;

/// What is known of the addresses of a name.
pub(crate) struct Addresses {
    /// The latest answer that had any.
    latest: RefCell<Vec<SocketAddr>>,
    /// When an address was last in an answer.
    seen: RefCell<Vec<(IpAddr, Instant)>>,
    /// Which of them is next. Begins at random, so that pools that connect once do not all connect to the first.
    turn: Cell<usize>,
    pub(crate) is_being_looked_up: Cell<bool>,
}

impl Addresses {
    pub(crate) fn new() -> Self {
        let turn = usize::from(RandomState::new().hash_one(0).to_be_bytes()[0]);
        Self { latest: RefCell::default(), seen: RefCell::default(), turn: Cell::new(turn), is_being_looked_up: Cell::default() }
    }

    /// Takes an answer in. An address is forgotten that was in none for `lifetime`: some name servers answer with a few of many.
    pub(crate) fn learn(&self, mut answer: Vec<SocketAddr>, now: Instant, lifetime: Duration) {
        answer.truncate(MAX_ADDRESSES);
        let mut seen = self.seen.borrow_mut();
        seen.retain(|(ip, at)| now.saturating_duration_since(*at) < lifetime && !answer.iter().any(|address| address.ip() == *ip));
        seen.truncate(MAX_ADDRESSES - answer.len());
        seen.extend(answer.iter().map(|address| (address.ip(), now)));
        *self.latest.borrow_mut() = answer;
    }

    /// Whether connections there are used on. Where nothing is known they are.
    pub(crate) fn has(&self, remote: &Remote) -> bool {
        let Remote::Address(address) = remote else { return true };
        let seen = self.seen.borrow();
        seen.is_empty() || seen.iter().any(|(ip, _)| *ip == address.ip())
    }

    /// The latest addresses for a new connection; of those of the preferred kind each comes first in its turn. None where nothing is known.
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
            let many = (0..=u16::MAX).map(|n| SocketAddr::from(([10, round, n.to_be_bytes()[0], n.to_be_bytes()[1]], 80))).collect();
            addresses.learn(many, Instant::now(), LIFETIME);
        }
        assert_eq!((addresses.in_turn().len(), addresses.seen.borrow().len()), (MAX_ADDRESSES, MAX_ADDRESSES));
    }
}
