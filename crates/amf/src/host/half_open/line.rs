//! Queues of new UEs, served by peer address and RAN node in turn.
//!
//! Each RAN node has one queue. A RAN node with many new UEs only makes its own queue long. The
//! next UE of another RAN node is served next. One address has one turn, whatever the number of its
//! RAN nodes. The queues are plain data.

use super::table::Origin;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::net::IpAddr;
use vireo_types::AssocId;

/// Maximum number of waiting new UEs in all, and of one RAN node.
const MAX_WAITING_UES: usize = 65_536;
const MAX_WAITING_PER_NODE: usize = 16_384;

/// Waiting new UEs. `T` is the data of one.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    /// Each queue is not empty, and has the address whose turn serves it.
    queues: FxHashMap<AssocId, (Option<IpAddr>, VecDeque<T>)>,
    /// RAN nodes of each address in the order of their turns, never empty.
    addresses: FxHashMap<Option<IpAddr>, VecDeque<AssocId>>,
    /// Addresses in the order of their turns.
    rotation: VecDeque<Option<IpAddr>>,
    len: usize,
}

impl<T> FairQueue<T> {
    pub(super) fn new() -> Self {
        FairQueue { queues: FxHashMap::default(), addresses: FxHashMap::default(), rotation: VecDeque::new(), len: 0 }
    }

    /// Returns true if no UE waits.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the RAN nodes with waiting UEs, each with its oldest UE.
    pub(super) fn oldest(&self) -> impl Iterator<Item = (AssocId, &T)> {
        self.queues.iter().filter_map(|(node, (_, queue))| Some((*node, queue.front()?)))
    }

    /// Appends a UE to the queue of its RAN node.
    ///
    /// # Errors
    ///
    /// Returns the UE if too many wait.
    pub(super) fn push(&mut self, Origin { node, address }: Origin, item: T) -> Result<(), T> {
        if self.len >= MAX_WAITING_UES
            || self.queues.get(&node).is_some_and(|(_, queue)| queue.len() >= MAX_WAITING_PER_NODE)
        {
            return Err(item);
        }
        self.len += 1;
        if let Some((_, queue)) = self.queues.get_mut(&node) {
            queue.push_back(item);
            return Ok(());
        }
        self.queues.insert(node, (address, VecDeque::from([item])));
        let nodes = self.addresses.entry(address).or_default();
        if nodes.is_empty() {
            self.rotation.push_back(address);
        }
        nodes.push_back(node);
        Ok(())
    }

    /// Removes and returns the next UE.
    pub(super) fn pop(&mut self) -> Option<T> {
        let address = self.rotation.pop_front()?;
        let nodes = self.addresses.get_mut(&address)?;
        let node = nodes.pop_front()?;
        let (_, queue) = self.queues.get_mut(&node)?;
        let item = queue.pop_front()?;
        self.len -= 1;
        if queue.is_empty() {
            self.queues.remove(&node);
        } else {
            nodes.push_back(node);
        }
        if nodes.is_empty() {
            self.addresses.remove(&address);
        } else {
            self.rotation.push_back(address);
        }
        Some(item)
    }

    /// Removes and returns all UEs of a RAN node.
    pub(super) fn remove(&mut self, node: AssocId) -> VecDeque<T> {
        let Some((address, queue)) = self.queues.remove(&node) else { return VecDeque::new() };
        self.len -= queue.len();
        if let Some(nodes) = self.addresses.get_mut(&address) {
            nodes.retain(|other| *other != node);
            if nodes.is_empty() {
                self.addresses.remove(&address);
                self.rotation.retain(|other| *other != address);
            }
        }
        queue
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn origin(node: u32, address: u8) -> Origin {
        Origin { node: AssocId(node), address: Some(Ipv4Addr::new(10, 0, 0, address).into()) }
    }

    fn all(queue: &mut FairQueue<u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn new_ue_of_a_quiet_node_is_next() {
        let mut queue = FairQueue::new();
        (0..1000).for_each(|n| queue.push(origin(1, 1), n).expect("room"));
        assert_eq!((queue.pop(), queue.pop()), (Some(0), Some(1)));
        queue.push(origin(2, 2), 5000).expect("room");
        let next = [queue.pop(), queue.pop()];
        assert!(next.contains(&Some(5000)), "{next:?}");
        assert_eq!(all(&mut queue), (3..1000).collect::<Vec<_>>(), "in the order in which they came");
        assert!(queue.is_empty() && queue.queues.is_empty() && queue.addresses.is_empty());
    }

    #[test]
    fn nodes_of_one_address_share_its_turn() {
        let mut queue = FairQueue::new();
        for node in 0..10 {
            (0..2).for_each(|n| queue.push(origin(node, 1), node * 10 + n).expect("room"));
        }
        (0..3).for_each(|n| queue.push(origin(20, 2), 200 + n).expect("room"));
        assert_eq!(all(&mut queue)[..7], [0, 200, 10, 201, 20, 202, 30]);
    }

    #[test]
    fn one_node_does_not_fill_the_queue() {
        let mut queue = FairQueue::new();
        let mut accepted = 0;
        while queue.push(origin(1, 1), accepted).is_ok() {
            accepted += 1;
        }
        assert_eq!(accepted as usize, MAX_WAITING_PER_NODE);
        assert_eq!(queue.push(origin(2, 1), 7), Ok(()));
        (3..100).for_each(|node| while queue.push(origin(node, 1), 0).is_ok() {});
        assert_eq!(queue.len, MAX_WAITING_UES);
        let removed = queue.remove(AssocId(1));
        assert_eq!((removed.len(), queue.len), (MAX_WAITING_PER_NODE, MAX_WAITING_UES - MAX_WAITING_PER_NODE));
        assert_eq!(queue.pop(), Some(7));
        (2..100).for_each(|node| drop(queue.remove(AssocId(node))));
        assert!(queue.is_empty() && queue.rotation.is_empty() && queue.addresses.is_empty() && queue.pop().is_none());
    }
}
