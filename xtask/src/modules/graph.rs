//! Strongly connected components of a directed graph, and the edges that a cycle should lose.

use std::collections::{BTreeMap, BTreeSet};

/// Weighted edges between nodes numbered from 0.
pub(super) type Weights = BTreeMap<(usize, usize), usize>;

/// Returns the strongly connected components of the graph with `count` nodes, largest first.
pub(super) fn components(count: usize, edges: impl Iterator<Item = (usize, usize)>) -> Vec<Vec<usize>> {
    let mut next = vec![Vec::new(); count];
    edges.for_each(|(from, to)| next[from].push(to));
    let mut search = Search { next, index: vec![None; count], low: vec![0; count], ..Search::default() };
    for node in 0..count {
        if search.index[node].is_none() {
            search.visit(node);
        }
    }
    search.found.sort_by_key(|component| (std::cmp::Reverse(component.len()), component.clone()));
    search.found
}

/// State of Tarjan's algorithm.
#[derive(Default)]
struct Search {
    next: Vec<Vec<usize>>,
    index: Vec<Option<usize>>,
    low: Vec<usize>,
    stack: Vec<usize>,
    counter: usize,
    found: Vec<Vec<usize>>,
}

impl Search {
    fn visit(&mut self, node: usize) {
        self.index[node] = Some(self.counter);
        self.low[node] = self.counter;
        self.counter += 1;
        self.stack.push(node);
        for to in self.next[node].clone() {
            match self.index[to] {
                None => {
                    self.visit(to);
                    self.low[node] = self.low[node].min(self.low[to]);
                }
                Some(index) if self.stack.contains(&to) => self.low[node] = self.low[node].min(index),
                Some(_) => {}
            }
        }
        if self.index[node] == Some(self.low[node]) {
            let at = self.stack.iter().rposition(|other| *other == node).unwrap_or_default();
            let mut component = self.stack.split_off(at);
            component.sort_unstable();
            self.found.push(component);
        }
    }
}

/// Returns edges without which no component has more than `limit` nodes. Cheap edges are preferred;
/// no edge of the result could stay. Finding the cheapest set is NP-hard, so this is a good set and
/// not always the best.
pub(super) fn cuts(count: usize, weights: &Weights, limit: usize) -> Vec<(usize, usize)> {
    let candidates = [true, false].map(|weighted| {
        let weight = |edge: &(usize, usize)| if weighted { weights[edge] } else { 1 };
        let order = order(count, weights, weight);
        let mut place = vec![0; count];
        order.iter().enumerate().for_each(|(at, node)| place[*node] = at);
        let back: Vec<_> = weights.keys().copied().filter(|(from, to)| place[*from] > place[*to]).collect();
        reduce(count, weights, back, limit)
    });
    let cost = |edges: &Vec<(usize, usize)>| edges.iter().map(|edge| weights[edge]).sum::<usize>();
    candidates.into_iter().min_by_key(cost).unwrap_or_default()
}

/// Takes edges out of `cut` while no component exceeds `limit` without them, the heaviest first.
fn reduce(count: usize, weights: &Weights, mut cut: Vec<(usize, usize)>, limit: usize) -> Vec<(usize, usize)> {
    cut.sort_by_key(|edge| (std::cmp::Reverse(weights[edge]), *edge));
    let mut left: BTreeSet<_> = cut.iter().copied().collect();
    for edge in &cut {
        left.remove(edge);
        let edges = weights.keys().copied().filter(|edge| !left.contains(edge));
        if components(count, edges).first().is_some_and(|largest| largest.len() > limit) {
            left.insert(*edge);
        }
    }
    cut.retain(|edge| left.contains(edge));
    cut
}

/// Orders nodes so that few edges point backwards, by the greedy heuristic of Eades, Lin and Smyth.
fn order(count: usize, weights: &Weights, weight: impl Fn(&(usize, usize)) -> usize) -> Vec<usize> {
    let mut remaining: BTreeSet<usize> = (0..count).collect();
    let (mut front, mut back) = (Vec::new(), Vec::new());
    while !remaining.is_empty() {
        let inner = |edge: &&(usize, usize)| remaining.contains(&edge.0) && remaining.contains(&edge.1);
        let (mut out, mut into) = (vec![0; count], vec![0; count]);
        for edge in weights.keys().filter(inner) {
            out[edge.0] += weight(edge);
            into[edge.1] += weight(edge);
        }
        let sink = remaining.iter().copied().find(|node| out[*node] == 0);
        let difference = |node: usize| out[node].cast_signed() - into[node].cast_signed();
        let best = remaining.iter().copied().max_by_key(|node| (into[*node] == 0, difference(*node)));
        match (sink, best) {
            (Some(node), _) => {
                remaining.remove(&node);
                back.push(node);
            }
            (None, Some(node)) => {
                remaining.remove(&node);
                front.push(node);
            }
            (None, None) => break,
        }
    }
    back.reverse();
    front.extend(back);
    front
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_follow_cycles() {
        let edges = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 3), (5, 0)];
        assert_eq!(components(6, edges.into_iter()), [vec![0, 1, 2], vec![3, 4], vec![5]]);
    }

    #[test]
    fn components_without_cycle_are_single() {
        let edges = [(0, 1), (0, 2), (1, 2)];
        assert_eq!(components(3, edges.into_iter()).len(), 3);
    }

    #[test]
    fn cuts_prefer_cheap_edges() {
        let weights: Weights = [((0, 1), 9), ((1, 2), 9), ((2, 3), 9), ((3, 0), 1)].into();
        assert_eq!(cuts(4, &weights, 3), [(3, 0)]);
        assert_eq!(cuts(4, &weights, 4), [], "a cycle within the limit may stay");
    }

    #[test]
    fn cuts_end_all_large_cycles() {
        // Every node leads to every other one.
        let all = (0..6).flat_map(|from| (0..6).map(move |to| (from, to)));
        let weights: Weights = all.filter(|(from, to)| from != to).map(|edge| (edge, edge.0 + 1)).collect();
        let cut = cuts(6, &weights, 3);
        let edges = weights.keys().copied().filter(|edge| !cut.contains(edge));
        assert!(components(6, edges)[0].len() <= 3);
        assert!(cut.len() < 15, "{cut:?}");
    }
}
