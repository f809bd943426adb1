//! Cordoned hosts: they keep what they have, and get no other bucket and no new UE.

use super::Controller;
use crate::placement::balance::HostId;
use std::collections::BTreeSet;
use vireo_types::{Duration, Instant};

/// Time for which a controller without stored state adopts the hosts that balancers report.
const LEARNING_TIME: Duration = Duration::from_secs(10);

/// Cordoned hosts, and what is known of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Cordon {
    pub(super) hosts: BTreeSet<HostId>,
    /// True until the next map, with which a change is stored.
    pub(super) is_changed: bool,
    /// True if balancers may know other hosts than these: they must receive the list.
    is_sent: bool,
    learn_until: Instant,
}

impl Cordon {
    /// Creates the state of a controller that knows no cluster.
    pub(super) fn new(now: Instant) -> Self {
        Cordon { learn_until: now + LEARNING_TIME, ..Cordon::default() }
    }
}

impl Controller {
    /// Cordons a host, or ends its cordon. Returns false if the host is unknown.
    pub fn cordon(&mut self, host: HostId, is_cordoned: bool) -> bool {
        if !self.hosts.contains_key(&host) {
            return false;
        }
        let changes = match is_cordoned {
            true => self.cordon.hosts.insert(host),
            false => self.cordon.hosts.remove(&host),
        };
        if changes {
            (self.cordon.is_changed, self.cordon.is_sent, self.settled) = (true, true, false);
        }
        true
    }

    /// Returns the cordoned hosts.
    pub fn cordoned(&self) -> impl Iterator<Item = HostId> + '_ {
        self.cordon.hosts.iter().copied()
    }

    /// Returns the list for the balancers, unless no host was ever cordoned as far as is known.
    pub fn cordoned_for_balancers(&self) -> Option<Vec<HostId>> {
        self.cordon.is_sent.then(|| self.cordoned().collect())
    }

    /// Adopts the stored list of the previous controller. Balancers may have an older one.
    pub(super) fn adopt_cordons(&mut self, hosts: Vec<HostId>) {
        self.cordon = Cordon { hosts: hosts.into_iter().collect(), is_sent: true, ..Cordon::default() };
    }

    /// Handles the list of a balancer, which it has of an earlier controller.
    pub fn report_cordoned(&mut self, hosts: &[HostId], now: Instant) {
        if now < self.cordon.learn_until {
            for host in hosts {
                self.cordon(*host, true);
            }
        }
        self.cordon.is_sent = true;
    }
}
