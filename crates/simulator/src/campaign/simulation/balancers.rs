//! Balancers of a simulation with two of them, their associations and their faults.

use super::{CONNECT_INTERVAL, Event, MS, Network, Process, RESTART, Simulation};
use crate::campaign::balancer::Balancer;
use crate::campaign::ran::{OpenBalancer, RanEvent};
use rand::Rng;
use vireo_core::placement::message::PeerEvent;

/// Probability of a fault of a balancer instead of another one.
const BALANCER_FAILS: f64 = 0.4;
/// Probability that a balancer dies before it executes its next effect, instead of at once.
const DIES_AT_EFFECT: f64 = 0.6;
/// Time within which gNBs learn that the process of their balancer has ended.
const NOTICED: u64 = 20 * MS;

impl Simulation {
    /// Runs an action on a balancer, which may end by it, or end its associations.
    pub(super) fn balancer(&mut self, of: Process, act: impl FnOnce(&mut Balancer, &mut Network)) {
        self.forget_gone_balancers();
        let Some(balancer) = self.balancers.get_mut(&of) else { return };
        act(balancer, &mut self.network);
        if balancer.ended {
            self.kill_balancer(of);
        } else if self.balancers.get(&of).is_some_and(Balancer::is_isolated) {
            self.end_associations(of);
        }
    }

    /// Lets the oracle expect that other balancers repeat what those have not sent that have ended.
    fn forget_gone_balancers(&mut self) {
        for gone in std::mem::take(&mut self.controller.gone_balancers) {
            let (ran, network) = (&self.ran, &self.network);
            let has_other = |assoc| ran.has_other_association(network, assoc);
            let has_other: Vec<_> = ran.all_associations().into_iter().filter(|assoc| has_other(*assoc)).collect();
            self.network.oracle.on_balancer_gone(gone, self.network.clock.now(), |assoc| has_other.contains(&assoc));
        }
    }

    /// Ends the process of a balancer. Another one replaces it at its address.
    pub(super) fn kill_balancer(&mut self, of: Process) {
        let Some(balancer) = self.balancers.remove(&of) else { return };
        self.network.kill(of);
        self.controller.gone_balancers.extend(balancer.id());
        for assoc in self.ran.associations_with(of) {
            let after = self.network.random.random_range(0..NOTICED);
            self.network.clock.after(after, Event::Ran(RanEvent::Down(assoc)));
        }
        let after = self.network.random.random_range(RESTART..2 * RESTART);
        self.network.clock.after(after, Event::BalancerStarts(balancer.address));
    }

    /// Ends the associations of a balancer that is isolated.
    fn end_associations(&mut self, of: Process) {
        for assoc in self.ran.associations_with(of) {
            self.network.clock.after(0, Event::Ran(RanEvent::Down(assoc)));
            if let Some(balancer) = self.balancers.get_mut(&of) {
                balancer.on_event(&mut self.network, PeerEvent::Down { assoc, restarted: false });
            }
        }
    }

    /// Lets gNBs open the associations that they lack.
    pub(super) fn connect_gnbs(&mut self) {
        self.network.clock.after(CONNECT_INTERVAL, Event::Connect);
        let network = &self.network;
        let accepts = |of: &&Balancer| network.stopped_until(of.process).is_none() && !of.is_isolated();
        let open = self.balancers.values().filter(accepts).filter_map(|balancer| {
            Some(OpenBalancer { process: balancer.process, id: balancer.id()?, by: balancer.address })
        });
        let open: Vec<OpenBalancer> = open.collect();
        for (to, event) in self.ran.connect(&mut self.network, &open) {
            self.balancer(to, |balancer, network| balancer.on_event(network, event));
        }
    }

    /// Returns the balancer that communicates with the UPF.
    pub(super) fn holder(&self) -> Option<Process> {
        let holder = self.balancers.values().find(|balancer| balancer.holds_n4())?.process;
        self.network.stopped_until(holder).is_none().then_some(holder)
    }

    /// Returns true if both balancers are in the map and run without a fault.
    pub(super) fn are_balancers_healthy(&self) -> bool {
        let map = self.controller.balancers();
        let is_healthy = |of: &Process| map.contains(of) && self.network.is_running(*of);
        self.balancers.len() == 2 && map.len() == 2 && self.balancers.keys().all(is_healthy)
    }

    /// Draws whether the next fault is one of a balancer, and injects it.
    pub(super) fn fails_balancer(&mut self, host: Process, until: u64, survives_host: bool) -> bool {
        if !self.network.has_several_balancers || !self.network.random.random_bool(BALANCER_FAILS) {
            return false;
        }
        if let Some(what) = self.inject_balancer_fault(host, until, survives_host) {
            self.network.trace(what);
            self.campaign.faults += 1;
        }
        true
    }

    /// Replaces the process of a balancer by another one that inherits its connections.
    pub(super) fn restart_balancer(&mut self, which: usize) {
        let (count, network) = (self.balancers.len(), &mut self.network);
        self.balancers.values_mut().nth(which % count).into_iter().for_each(|balancer| balancer.restart(network));
    }

    /// Injects a fault of a balancer, which may concern a host. `survives_host`: the cluster
    /// survives the loss of a host. Returns the fault.
    fn inject_balancer_fault(&mut self, host: Process, until: u64, survives_host: bool) -> Option<String> {
        let which = self.network.random.random_range(0..self.balancers.len());
        let balancer = self.balancers.values_mut().nth(which)?;
        let (of, id) = (balancer.process, balancer.id()?);
        let role = if balancer.holds_n4() { ", which holds N4," } else { "" };
        let name = format!("{id:?} ({of:?}){role}");
        let end = format!("until {:.3} s", until as f64 / 1e6);
        let network = &mut self.network;
        Some(match network.random.random_range(0..100) {
            0..45 if network.random.random_bool(DIES_AT_EFFECT) => {
                balancer.ends_at_effect = true;
                format!("{name} dies at its next effect")
            }
            0..45 => {
                self.kill_balancer(of);
                format!("{name} dies")
            }
            45..60 => {
                network.stop(of, until);
                format!("{name} is stopped {end}")
            }
            60..72 => {
                network.isolate(of, until);
                format!("{name} is cut off {end}")
            }
            72..84 => {
                network.partition(Process(0), of, until);
                format!("{name} and the controller do not reach each other {end}")
            }
            84..90 if survives_host => {
                network.partition(host, of, until);
                format!("{name} and {host:?} do not reach each other {end}")
            }
            90.. => {
                network.delay_messages_of(of, until);
                format!("{name} is slow {end}")
            }
            _ => return None,
        })
    }
}
