//! Queues of UEs, served by peer address and RAN node in turn.
//!
//! Each RAN node has one queue. A RAN node with many UEs only makes its own queue long. The next UE
//! of another RAN node is served next. One address has one turn, whatever the number of its RAN
//! nodes. New UEs and SUCIs wait in such queues. The queues are plain data.

use super::origin::Origin;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::net::IpAddr;
use vireo_types::AssocId;

/// Maximum number of waiting UEs in all, and of one RAN node.
const MAX_WAITING_UES: usize = 65_536;
const MAX_WAITING_PER_NODE: usize = 16_384;

/// Waiting UEs. `T` is the data of one.
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

    /// Returns the number of waiting UEs.
    pub(super) fn len(&self) -> usize {
        self.len
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
        if self.len >= MAX_WAITING_UES || self.is_node_full(node) {
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

    /// Appends a UE. If too many wait in all, it displaces the newest of the address with the most.
    /// Returns the UE that has no place.
    pub(super) fn push_fairly(&mut self, origin: Origin, item: T) -> Option<T> {
        let Err(item) = self.push(origin, item) else { return None };
        if self.len < MAX_WAITING_UES || self.is_node_full(origin.node) {
            return Some(item);
        }
        let largest = self.addresses.keys().copied().max_by_key(|address| (self.address_len(*address), *address));
        let largest = largest.filter(|largest| self.address_len(*largest) > self.address_len(origin.address));
        let Some(displaced) = largest.and_then(|largest| self.take_newest(largest)) else { return Some(item) };
        // There is room for it now.
        Some(self.push(origin, item).err().unwrap_or(displaced))
    }

    fn is_node_full(&self, node: AssocId) -> bool {
        self.queues.get(&node).is_some_and(|(_, queue)| queue.len() >= MAX_WAITING_PER_NODE)
    }

    /// Returns the number of waiting UEs of an address.
    fn address_len(&self, address: Option<IpAddr>) -> usize {
        let nodes = self.addresses.get(&address).into_iter().flatten();
        nodes.filter_map(|node| self.queues.get(node)).map(|(_, queue)| queue.len()).sum()
    }

    /// Removes and returns the newest UE of the RAN node with the most of an address.
    fn take_newest(&mut self, address: Option<IpAddr>) -> Option<T> {
        let len = |node: &AssocId| self.queues.get(node).map_or(0, |(_, queue)| queue.len());
        let node = *self.addresses.get(&address)?.iter().max_by_key(|node| (len(node), **node))?;
        let (_, queue) = self.queues.get_mut(&node)?;
        let newest = queue.pop_back()?;
        self.len -= 1;
        if queue.is_empty() {
            self.remove(node);
        }
        Some(newest)
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
    fn full_queue_displaces_of_largest_address() {
        let mut queue = FairQueue::new();
        for node in 0..6 {
            while queue.push(origin(node, 1), node).is_ok() {}
        }
        let displaced = [10, 11].map(|node| queue.push_fairly(origin(node, 2), node));
        assert_eq!(displaced, [Some(3), Some(2)], "of the RAN nodes with the most");
        assert_eq!(queue.len, MAX_WAITING_UES);
        assert_eq!(queue.push_fairly(origin(6, 1), 6), Some(6), "the largest address displaces no other");
        let next: Vec<u32> = (0..4).filter_map(|_| queue.pop()).collect();
        assert_eq!(next, [0, 10, 1, 11]);
        (0..4).for_each(|_| assert_eq!(queue.push_fairly(origin(6, 1), 6), None, "there is room again"));
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
