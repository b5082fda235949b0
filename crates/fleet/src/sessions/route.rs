//! Which server stores which session.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{sleep, timeout};

use super::context::Context;
use super::node::Node;
use crate::redis::{Address, Candidates, RedisServers, slot};

/// Time between two questions for the slots of a cluster that seems to be at rest.
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);
/// Least time between two such questions.
const LEAST_INTERVAL: Duration = Duration::from_millis(200);
/// Time until a question that had no answer is repeated.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Largest number of primaries of a cluster. The specification recommends no more.
const PRIMARIES: usize = 1000;

/// Finds the server of a key.
pub(super) struct Route {
    context: Rc<Context>,
    nodes: RefCell<Vec<Entry>>,
    /// Index of each slot's node; empty if there is one node for all.
    slots: RefCell<Vec<Option<u16>>>,
}

struct Entry {
    /// The node's address, in a cluster.
    address: Option<Address>,
    node: Rc<Node>,
    task: AbortHandle,
}

impl Route {
    /// Starts the tasks that connect to the servers, in the current `LocalSet`.
    pub(super) fn start(context: &Rc<Context>, servers: RedisServers) -> Rc<Self> {
        let route = Rc::new(Self {
            context: context.clone(),
            nodes: RefCell::default(),
            slots: RefCell::default(),
        });
        match servers {
            RedisServers::Single(addresses) => route.add(None, Candidates::Fixed(addresses)),
            RedisServers::Sentinel { sentinels, primary } => {
                route.add(None, Candidates::Sentinel { sentinels, primary });
            }
            RedisServers::Cluster(seeds) => {
                // Until the slots are known, no key has a server.
                route.slots.replace(vec![None; 1]);
                spawn_local(route.clone().follow(seeds));
            }
        }
        route
    }

    /// Returns the server of a key, if it is known.
    pub(super) fn node(&self, key: &[u8]) -> Option<Rc<Node>> {
        let slots = self.slots.borrow();
        let index = match slots.len() {
            0 => Some(0),
            _ => slots.get(usize::from(slot(key))).copied().flatten(),
        };
        self.nodes.borrow().get(usize::from(index?)).map(|entry| entry.node.clone())
    }

    fn add(&self, address: Option<Address>, candidates: Candidates) {
        let node = Rc::new(Node::new(self.context.clone(), candidates));
        let task = spawn_local(node.clone().supervise()).abort_handle();
        self.nodes.borrow_mut().push(Entry { address, node, task });
        self.context.counters.servers.set(self.nodes.borrow().len());
    }

    /// Follows a cluster's slots for as long as the store lives.
    async fn follow(self: Rc<Self>, seeds: Vec<Address>) {
        let mut is_known = true;
        loop {
            let slots = self.context.dialer.slots(&self.informants(&seeds)).await;
            let pause = match slots {
                Ok(slots) => {
                    self.apply(slots);
                    if !is_known {
                        (self.context.log)("the slots of the Redis cluster are known again");
                    }
                    is_known = true;
                    REFRESH_INTERVAL
                }
                Err(reason) => {
                    if is_known {
                        (self.context.log)(&format!(
                            "warning: the slots of the Redis cluster are not known: {reason}"
                        ));
                    }
                    is_known = false;
                    RETRY_INTERVAL
                }
            };
            sleep(LEAST_INTERVAL).await;
            let _ = timeout(pause, self.context.moved.notified()).await;
        }
    }

    /// Returns the nodes to ask: first those that answer, last those that do not.
    fn informants(&self, seeds: &[Address]) -> Vec<Address> {
        let nodes = self.nodes.borrow();
        let of = |is_live: bool| {
            let these = nodes.iter().filter(move |entry| entry.node.live().is_some() == is_live);
            these.filter_map(|entry| entry.address.clone())
        };
        of(true).chain(seeds.iter().cloned()).chain(of(false)).collect()
    }

    fn apply(&self, slots: Vec<Option<Address>>) {
        let is_gone =
            |entry: &Entry| !slots.iter().flatten().any(|a| Some(a) == entry.address.as_ref());
        self.nodes.borrow_mut().retain(|entry| {
            let is_gone = is_gone(entry);
            if is_gone {
                entry.task.abort();
                entry.node.retire();
            }
            !is_gone
        });
        let mut indices = Vec::with_capacity(slots.len());
        for address in slots {
            indices.push(address.as_ref().and_then(|address| self.index(address)));
        }
        self.slots.replace(indices);
        self.context.counters.servers.set(self.nodes.borrow().len());
    }

    /// Returns the index of a cluster's node, which is added if it is new and not one too many.
    fn index(&self, address: &Address) -> Option<u16> {
        let known = |entry: &Entry| entry.address.as_ref() == Some(address);
        let index = self.nodes.borrow().iter().position(known);
        if index.is_none() {
            if self.nodes.borrow().len() == PRIMARIES {
                return None;
            }
            self.add(Some(address.clone()), Candidates::Fixed(vec![address.clone()]));
        }
        let last = self.nodes.borrow().len() - 1;
        u16::try_from(index.unwrap_or(last)).ok()
    }
}
