//! Limits on open connections, over all workers and for each client.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::Limits;
use crate::memory::{MemoryBudget, MemoryPressure};
use crate::stats::Stats;

/// Number of client tables. Several, so that workers hardly ever wait for each other's lock. The
/// lock is taken only where a connection begins or ends.
const SHARDS: usize = 64;

/// Counts the open connections of a group, TCP and QUIC together.
pub(crate) struct ConnectionCounts {
    open: AtomicU64,
    /// Keyed, so that a client cannot choose addresses that fall into one shard.
    hasher: RandomState,
    /// Open connections of each client that has any.
    shards: [Mutex<HashMap<Client, u64>>; SHARDS],
    /// The memory that these connections and their requests share.
    memory: MemoryBudget,
}

/// The unit that connections are counted for: an IPv4 address, or the /64 of an IPv6 address, which
/// is what one subscriber has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Client {
    V4([u8; 4]),
    V6([u8; 8]),
}

impl Client {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self::V4(v4.octets()),
            IpAddr::V6(v6) => Self::V6(
                *v6.octets().first_chunk().expect("invariant: an IPv6 address has 16 bytes"),
            ),
        }
    }
}

/// The limit that refuses a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The limit on all open connections.
    Total,
    /// The limit on one client's open connections.
    PerClient,
    /// The memory budget.
    Memory,
}

impl Refusal {
    pub(crate) fn count(self, stats: &Stats) {
        match self {
            Self::Total => stats.connections_refused.add(1),
            Self::PerClient => stats.connections_refused_per_client.add(1),
            Self::Memory => stats.connections_refused_for_memory.add(1),
        }
    }
}

/// Keeps a connection counted until dropped.
pub(crate) struct ConnectionPermit {
    connection_counts: Arc<ConnectionCounts>,
    client: Client,
}

impl ConnectionCounts {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            open: AtomicU64::default(),
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
            memory: MemoryBudget::default(),
        })
    }

    pub(crate) fn memory(&self) -> &MemoryBudget {
        &self.memory
    }

    /// Counts a connection from `address`, unless a limit refuses it.
    pub(crate) fn admit(
        self: &Arc<Self>,
        address: IpAddr,
        limits: &Limits,
    ) -> Result<ConnectionPermit, Refusal> {
        self.admit_one_of(limits.connections_per_client(), address, limits)
    }

    /// Counts a connection from a balancer, which carries the connections of many clients.
    pub(crate) fn admit_balancer(
        self: &Arc<Self>,
        address: IpAddr,
        limits: &Limits,
    ) -> Result<ConnectionPermit, Refusal> {
        self.admit_one_of(u64::MAX, address, limits)
    }

    fn admit_one_of(
        self: &Arc<Self>,
        max: u64,
        address: IpAddr,
        limits: &Limits,
    ) -> Result<ConnectionPermit, Refusal> {
        if self.memory.pressure() >= MemoryPressure::RefuseConnections {
            return Err(Refusal::Memory);
        }
        let client = Client::of(address);
        let mut shard = self.shard(client);
        let of_client = shard.entry(client).or_default();
        let refusal = if *of_client >= max {
            Some(Refusal::PerClient)
        } else if self.open.fetch_add(1, Ordering::Relaxed) >= limits.connections() {
            self.open.fetch_sub(1, Ordering::Relaxed);
            Some(Refusal::Total)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            if *of_client == 0 {
                shard.remove(&client);
            }
            return Err(refusal);
        }
        *of_client += 1;
        drop(shard);
        Ok(ConnectionPermit { connection_counts: self.clone(), client })
    }

    /// Whether so many connections are open that a client should validate its address before it
    /// gets another one. The remaining slots are for clients that can.
    pub(crate) fn is_pressed(&self, address: IpAddr, limits: &Limits) -> bool {
        let client = Client::of(address);
        let of_client = self.shard(client).get(&client).copied().unwrap_or(0);
        of_client >= limits.connections_per_client().div_ceil(2)
            || self.open.load(Ordering::Relaxed) >= limits.connections() - limits.connections() / 4
    }

    fn shard(&self, client: Client) -> MutexGuard<'_, HashMap<Client, u64>> {
        let index = self.hasher.hash_one(client) as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.connection_counts.open.fetch_sub(1, Ordering::Relaxed);
        let mut shard = self.connection_counts.shard(self.client);
        if let Entry::Occupied(mut entry) = shard.entry(self.client) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(connections: u64, per_client: u64) -> Limits {
        Limits::default()
            .with_connections(connections)
            .unwrap()
            .with_connections_per_client(per_client)
            .unwrap()
    }

    fn known_clients(connection_counts: &ConnectionCounts) -> usize {
        connection_counts.shards.iter().map(|shard| shard.lock().unwrap().len()).sum()
    }

    #[test]
    fn client_gets_no_more_than_its_share_and_others_get_theirs() {
        let (connection_counts, limits) = (ConnectionCounts::new(), limits(10, 2));
        let one: IpAddr = [192, 0, 2, 1].into();
        let permits: Vec<_> =
            (0..2).map(|_| connection_counts.admit(one, &limits).ok().unwrap()).collect();
        assert_eq!(connection_counts.admit(one, &limits).err(), Some(Refusal::PerClient));
        assert!(connection_counts.admit([192, 0, 2, 2].into(), &limits).is_ok());
        drop(permits);
        assert!(connection_counts.admit(one, &limits).is_ok());
    }

    #[test]
    fn addresses_of_one_ipv6_subscriber_count_together() {
        let (connection_counts, limits) = (ConnectionCounts::new(), limits(10, 1));
        let _permit =
            connection_counts.admit("2001:db8:1:2::1".parse().unwrap(), &limits).ok().unwrap();
        assert!(connection_counts.admit("2001:db8:1:2:ffff::9".parse().unwrap(), &limits).is_err());
        assert!(connection_counts.admit("2001:db8:1:3::1".parse().unwrap(), &limits).is_ok());
    }

    #[test]
    fn ipv4_address_counts_as_itself_in_its_mapped_form() {
        let (connection_counts, limits) = (ConnectionCounts::new(), limits(10, 1));
        let _permit = connection_counts.admit("192.0.2.1".parse().unwrap(), &limits).ok().unwrap();
        assert!(connection_counts.admit("::ffff:192.0.2.1".parse().unwrap(), &limits).is_err());
    }

    #[test]
    fn total_is_for_all_clients_together() {
        let (connection_counts, limits) = (ConnectionCounts::new(), limits(3, 3));
        let permits: Vec<_> = (0..3)
            .map(|last| connection_counts.admit([192, 0, 2, last].into(), &limits).ok().unwrap())
            .collect();
        assert_eq!(
            connection_counts.admit([192, 0, 2, 9].into(), &limits).err(),
            Some(Refusal::Total)
        );
        drop(permits);
        assert!(connection_counts.admit([192, 0, 2, 9].into(), &limits).is_ok());
    }

    #[test]
    fn clients_without_a_connection_take_no_memory() {
        let (connection_counts, limits) = (ConnectionCounts::new(), limits(1, 1));
        let permit = connection_counts.admit([192, 0, 2, 1].into(), &limits);
        for last in 2..100 {
            assert!(connection_counts.admit([192, 0, 2, last].into(), &limits).is_err());
        }
        assert_eq!(known_clients(&connection_counts), 1);
        drop(permit);
        assert_eq!(known_clients(&connection_counts), 0);
    }

    #[test]
    fn half_a_clients_share_asks_for_proof() {
        let (connection_counts, limits) = (ConnectionCounts::new(), limits(100, 4));
        let one: IpAddr = [192, 0, 2, 1].into();
        let _first = connection_counts.admit(one, &limits).ok().unwrap();
        assert!(!connection_counts.is_pressed(one, &limits));
        let _second = connection_counts.admit(one, &limits).ok().unwrap();
        assert!(connection_counts.is_pressed(one, &limits));
        assert!(!connection_counts.is_pressed([192, 0, 2, 2].into(), &limits));
    }
}
