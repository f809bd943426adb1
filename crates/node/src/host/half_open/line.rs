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
const WAITING: usize = 65_536;
const WAITING_PER_NODE: usize = 16_384;

/// Waiting new UEs. `T` is the data of one.
#[derive(Debug)]
pub(super) struct Line<T> {
    /// Each queue is not empty, and has the address whose turn serves it.
    queues: FxHashMap<AssocId, (Option<IpAddr>, VecDeque<T>)>,
    /// RAN nodes of each address in the order of their turns, never empty.
    addresses: FxHashMap<Option<IpAddr>, VecDeque<AssocId>>,
    /// Addresses in the order of their turns.
    turns: VecDeque<Option<IpAddr>>,
    len: usize,
}

impl<T> Line<T> {
    pub(super) fn new() -> Self {
        Line { queues: FxHashMap::default(), addresses: FxHashMap::default(), turns: VecDeque::new(), len: 0 }
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
        if self.len >= WAITING || self.queues.get(&node).is_some_and(|(_, queue)| queue.len() >= WAITING_PER_NODE) {
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
            self.turns.push_back(address);
        }
        nodes.push_back(node);
        Ok(())
    }

    /// Removes and returns the next UE.
    pub(super) fn pop(&mut self) -> Option<T> {
        let address = self.turns.pop_front()?;
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
            self.turns.push_back(address);
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
                self.turns.retain(|other| *other != address);
            }
        }
        queue
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn of(node: u32, address: u8) -> Origin {
        Origin { node: AssocId(node), address: Some(Ipv4Addr::new(10, 0, 0, address).into()) }
    }

    fn all(line: &mut Line<u32>) -> Vec<u32> {
        std::iter::from_fn(|| line.pop()).collect()
    }

    #[test]
    fn new_ue_of_a_quiet_node_is_next() {
        let mut line = Line::new();
        (0..1000).for_each(|n| line.push(of(1, 1), n).expect("room"));
        assert_eq!((line.pop(), line.pop()), (Some(0), Some(1)));
        line.push(of(2, 2), 5000).expect("room");
        let next = [line.pop(), line.pop()];
        assert!(next.contains(&Some(5000)), "{next:?}");
        assert_eq!(all(&mut line), (3..1000).collect::<Vec<_>>(), "in the order in which they came");
        assert!(line.is_empty() && line.queues.is_empty() && line.addresses.is_empty());
    }

    #[test]
    fn nodes_of_one_address_share_its_turn() {
        let mut line = Line::new();
        for node in 0..10 {
            (0..2).for_each(|n| line.push(of(node, 1), node * 10 + n).expect("room"));
        }
        (0..3).for_each(|n| line.push(of(20, 2), 200 + n).expect("room"));
        assert_eq!(all(&mut line)[..7], [0, 200, 10, 201, 20, 202, 30]);
    }

    #[test]
    fn one_node_does_not_fill_the_line() {
        let mut line = Line::new();
        let mut taken = 0;
        while line.push(of(1, 1), taken).is_ok() {
            taken += 1;
        }
        assert_eq!(taken as usize, WAITING_PER_NODE);
        assert_eq!(line.push(of(2, 1), 7), Ok(()));
        (3..100).for_each(|node| while line.push(of(node, 1), 0).is_ok() {});
        assert_eq!(line.len, WAITING);
        let removed = line.remove(AssocId(1));
        assert_eq!((removed.len(), line.len), (WAITING_PER_NODE, WAITING - WAITING_PER_NODE));
        assert_eq!(line.pop(), Some(7));
        (2..100).for_each(|node| drop(line.remove(AssocId(node))));
        assert!(line.is_empty() && line.turns.is_empty() && line.addresses.is_empty() && line.pop().is_none());
    }
}
