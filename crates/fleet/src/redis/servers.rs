//! Which servers there are, and which of them is the primary now.

use std::time::Duration;

use tokio::task::spawn_local;
use tokio::time::timeout;

use super::address::Address;
use super::client_tls::RedisTls;
use super::connection::{Connection, Down, Login};
use super::reply::Reply;

/// Time for one Sentinel or one node of a cluster to answer a question.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of hash slots of a cluster.
pub(crate) const SLOTS: u16 = 16384;

/// The Redis servers that store sessions.
///
/// Sentinels and cluster nodes name servers by IP address, unless they are configured to announce
/// hostnames. With TLS, the servers' certificates need what they announce.
#[derive(Debug, Clone)]
pub enum RedisServers {
    /// One primary. With several addresses, the first that is a primary is used.
    Single(Vec<Address>),
    /// A primary that Sentinel appoints.
    Sentinel {
        /// Addresses of the Sentinels. The primary is reached by TLS if they are. A database in
        /// them is that of the primary; a user and a password are those of the Sentinels.
        sentinels: Vec<Address>,
        /// Name of the primary in Sentinel's configuration.
        primary: String,
    },
    /// A cluster; one reachable node is enough to find the others, which are reached by TLS if the
    /// given nodes are.
    Cluster(Vec<Address>),
}

impl RedisServers {
    pub(crate) fn addresses(&self) -> &[Address] {
        match self {
            Self::Single(addresses)
            | Self::Cluster(addresses)
            | Self::Sentinel { sentinels: addresses, .. } => addresses,
        }
    }
}

/// What may be the primary.
#[derive(Debug, Clone)]
pub(crate) enum Candidates {
    /// The first of these that is one.
    Fixed(Vec<Address>),
    /// The server that Sentinel names.
    Sentinel { sentinels: Vec<Address>, primary: String },
}

/// Opens connections with the configured login and TLS.
#[derive(Clone)]
pub(crate) struct Dialer {
    pub(crate) login: Login,
    pub(crate) tls: Option<RedisTls>,
}

impl Dialer {
    pub(crate) async fn open(&self, address: &Address) -> Result<Connection, Down> {
        Connection::open(address, &self.login, self.tls.as_ref()).await
    }

    /// Returns the addresses to try for a primary, best first. Runs in a `LocalSet`.
    pub(crate) async fn resolve(&self, candidates: &Candidates) -> Result<Vec<Address>, Down> {
        match candidates {
            Candidates::Fixed(addresses) => Ok(addresses.clone()),
            Candidates::Sentinel { sentinels, primary } => self.elected(sentinels, primary).await,
        }
    }

    /// Asks all Sentinels at once, because one that was cut off names an old primary. The primary
    /// that most of them name is the first.
    async fn elected(&self, sentinels: &[Address], primary: &str) -> Result<Vec<Address>, Down> {
        let ask = |sentinel: &Address| {
            let (dialer, sentinel) = (self.clone(), sentinel.clone());
            let primary = primary.to_owned();
            spawn_local(async move {
                let late = |_| Down::new(format_args!("no answer within {QUESTION_TIMEOUT:?}"));
                let question = timeout(QUESTION_TIMEOUT, dialer.appointed(&sentinel, &primary));
                let appointed = question.await.map_err(late).flatten();
                appointed.map_err(|down| Down::new(format_args!("Sentinel at {sentinel}: {down}")))
            })
        };
        let answers: Vec<_> = sentinels.iter().map(ask).collect();
        let mut reason = Down::new("no Sentinel is configured");
        let mut votes: Vec<(Address, usize)> = Vec::new();
        for answer in answers {
            match answer.await.map_err(Down::new).flatten() {
                Ok(address) => match votes.iter_mut().find(|(named, _)| *named == address) {
                    Some((_, count)) => *count += 1,
                    None => votes.push((address, 1)),
                },
                Err(down) => reason = down,
            }
        }
        if votes.is_empty() {
            return Err(reason);
        }
        // Stable: of equals, the one that the first Sentinel names.
        votes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        Ok(votes.into_iter().map(|(address, _)| address).collect())
    }

    /// Returns the primary that a Sentinel names.
    async fn appointed(&self, sentinel: &Address, primary: &str) -> Result<Address, Down> {
        // The login of the servers is not that of the Sentinels, which have no databases.
        let asked = Address { database: 0, ..sentinel.clone() };
        let connection = Connection::open(&asked, &Login::default(), self.tls.as_ref()).await?;
        let question: [&[u8]; 3] = [b"SENTINEL", b"get-master-addr-by-name", primary.as_bytes()];
        match connection.command(&question).await? {
            Reply::Array(parts) => {
                let host = parts.first().and_then(Reply::as_str);
                let port = parts.get(1).and_then(Reply::as_str).and_then(|port| port.parse().ok());
                let (Some(host), Some(port)) = (host, port) else {
                    return Err(Down::new("the answer is no address"));
                };
                let address = Address { user: None, password: None, ..sentinel.clone() };
                Ok(address.sibling(host, port))
            }
            Reply::Nil => Err(Down::new(format_args!("no primary has the name `{primary}`"))),
            Reply::Error(error) => Err(Down::new(error)),
            _ => Err(Down::new("the answer is no address")),
        }
    }

    /// Returns the primary of each slot of a cluster; slots without one are `None`. Asks `nodes`
    /// in their order until one answers.
    pub(crate) async fn slots(&self, nodes: &[Address]) -> Result<Vec<Option<Address>>, Down> {
        let mut reason = Down::new("no node is known");
        for node in nodes {
            match self.slots_by(node).await {
                Ok(slots) => return Ok(slots),
                Err(down) => reason = Down::new(format_args!("{node}: {down}")),
            }
        }
        Err(reason)
    }

    async fn slots_by(&self, node: &Address) -> Result<Vec<Option<Address>>, Down> {
        let connection = self.open(node).await?;
        let late = |_| Down::new(format_args!("no answer within {QUESTION_TIMEOUT:?}"));
        let question = timeout(QUESTION_TIMEOUT, connection.command(&[b"CLUSTER", b"SLOTS"]));
        match question.await.map_err(late)?? {
            Reply::Array(ranges) if !ranges.is_empty() => {
                let mut slots = vec![None; usize::from(SLOTS)];
                for range in &ranges {
                    let invalid = || Down::new("the answer is no list of slots");
                    let (first, last, primary) = range_of(range, node).ok_or_else(invalid)?;
                    slots.get_mut(first..=last).ok_or_else(invalid)?.fill(Some(primary));
                }
                Ok(slots)
            }
            Reply::Array(_) => Err(Down::new("the node knows no slots")),
            Reply::Error(error) => Err(Down::new(error)),
            _ => Err(Down::new("the answer is no list of slots")),
        }
    }
}

/// Reads `[first, last, [host, port, …], …]`.
fn range_of(range: &Reply, node: &Address) -> Option<(usize, usize, Address)> {
    let Reply::Array(parts) = range else { return None };
    let [Reply::Integer(first), Reply::Integer(last), Reply::Array(primary), ..] = &parts[..]
    else {
        return None;
    };
    let [host, Reply::Integer(port), ..] = &primary[..] else { return None };
    let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
    if first > last {
        return None;
    }
    // A node that does not know its own name is the one that was asked.
    let address = match host.as_str() {
        None | Some("" | "?") => node.clone(),
        Some(host) => node.sibling(host, u16::try_from(*port).ok()?),
    };
    Some((first, last, address))
}

/// Returns a key's slot. Keys of this crate have no hash tags.
pub(crate) fn slot(key: &[u8]) -> u16 {
    let mut crc = 0_u16;
    for byte in key {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
        }
    }
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_of_the_reference_key_is_that_of_the_specification() {
        // CRC-16/XMODEM; the specification of Redis Cluster gives this value.
        assert_eq!(slot(b"123456789"), 0x31c3 % SLOTS);
        assert_eq!(slot(b"foo"), 12182);
    }

    #[test]
    fn range_without_host_belongs_to_the_answering_node() {
        let node: Address = "rediss://a:1".parse().unwrap();
        let range = |first, last, host: Reply| {
            let primary = Reply::Array(vec![host, Reply::Integer(7)]);
            Reply::Array(vec![Reply::Integer(first), Reply::Integer(last), primary])
        };
        let of = |reply| range_of(&reply, &node);
        assert_eq!(of(range(0, 5, Reply::Nil)), Some((0, 5, node.clone())));
        let other = "rediss://b:7".parse().unwrap();
        assert_eq!(of(range(1, 1, Reply::Bulk("b".into()))), Some((1, 1, other)));
        assert_eq!(of(range(5, 0, Reply::Nil)), None);
        assert_eq!(of(range(-1, 0, Reply::Nil)), None);
    }
}
