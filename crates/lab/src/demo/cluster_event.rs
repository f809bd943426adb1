//! Events of a cluster run.

use crate::members::HostFault;
use clap::ValueEnum;
use std::fmt;

/// Event of a cluster run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Event {
    /// Kill the host with the most UEs
    Kill,
    /// Kill a shard at work, with --churn and --shards
    #[value(skip)]
    KillShard,
    /// Stop the host with the most UEs, and resume it after the takeover
    Stop,
    /// Isolate the host with the most UEs, and reconnect it after the takeover
    Cut,
    /// Partition two hosts from each other only
    Link,
    /// Add a host
    Add,
    /// Drain the host with the most UEs
    Drain,
    /// Kill a balancer without PFCP associations, and restart it
    Balancer,
    /// Kill the balancer with the PFCP associations, and restart it
    Holder,
    /// Kill the controller, and restart it
    Controller,
}

impl Event {
    /// Returns the fault that the event injects into the host with the most UEs, if any.
    pub(super) fn fate(self) -> Option<HostFault> {
        match self {
            Event::Kill => Some(HostFault::Kill),
            Event::Stop => Some(HostFault::Stop),
            Event::Cut => Some(HostFault::Cut),
            _ => None,
        }
    }

    /// Returns true if a host leaves the cluster map and ends in this event.
    pub(super) fn costs_a_host(self) -> bool {
        self.fate().is_some() || matches!(self, Event::Link | Event::Drain)
    }

    /// Returns true if the event kills a process and restarts it.
    pub(super) fn is_absence(self) -> bool {
        matches!(self, Event::Balancer | Event::Holder | Event::Controller)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Event::Kill => "a host is killed",
            Event::KillShard => "a shard is killed",
            Event::Stop => "a host is stopped, and wakes",
            Event::Cut => "a host is cut off, and joined again",
            Event::Link => "the link between two hosts is cut",
            Event::Add => "a host is added",
            Event::Drain => "a host is drained",
            Event::Balancer => "a balancer is killed, and back",
            Event::Holder => "the one with N4 is killed, and back",
            Event::Controller => "the controller is killed, and back",
        })
    }
}
