//! Events of the N4 endpoint, as inputs of hosts.

use super::{Hosts, offer, traces};
use std::collections::VecDeque;
use vireo_cluster::Input;
use vireo_core::placement::message::PeerEvent;
use vireo_n4 as n4;
use vireo_ops::clock::clock;
use vireo_types::Seid;

/// Passes an event to the host that must handle it.
pub(super) fn n4_event(hosts: &mut Hosts, deferred: &mut VecDeque<Input>, event: n4::Event<'_>) {
    let event = match event {
        n4::Event::Deliver { upf, seid, request, message } => {
            if !request {
                traces::record_answered(seid, message);
            }
            PeerEvent::Pfcp { upf, seid, request, message: message.to_vec() }
        }
        // A packet is lost if there is no room: it must not delay signalling.
        n4::Event::UserData { from, seid, message } => {
            if deferred.is_empty() && !hosts.is_congested() {
                let event = PeerEvent::Pfcp { upf: from, seid, request: true, message: message.to_vec() };
                drop(hosts.send(clock(), event));
            }
            return;
        }
        n4::Event::Timeout { seid, .. } if seid == Seid::default() => return,
        n4::Event::Timeout { seid, .. } => PeerEvent::PfcpTimeout { seid },
        n4::Event::UpfUp { upf, .. } => {
            tracing::info!(%upf, "UPF associated");
            PeerEvent::Upf { upf, up: true }
        }
        n4::Event::SetupFailed { upf, cause, retry_in } => {
            let retry_ms = retry_in.as_micros() / 1000;
            tracing::warn!(%upf, ?cause, retry_ms, "no association with a UPF; check its upf.control-planes");
            return;
        }
        n4::Event::UpfDown { upf, sessions_kept } => {
            tracing::warn!(%upf, sessions_kept, "UPF down");
            offer(hosts, deferred, PeerEvent::Upf { upf, up: false });
            if sessions_kept {
                return;
            }
            PeerEvent::UpfLost { upf }
        }
        n4::Event::UpfRestarted { upf } => {
            tracing::warn!(%upf, "UPF restarted; establishing its sessions again");
            PeerEvent::UpfLost { upf }
        }
        n4::Event::UpfReleasing { upf, within } => {
            tracing::warn!(%upf, seconds = within.as_secs(), "UPF announces its release");
            return;
        }
        n4::Event::GtpuPath { upf, peer, works } => {
            tracing::warn!(%upf, %peer, is_working = works, "GTP-U path between UPF and RAN node changed");
            return;
        }
    };
    offer(hosts, deferred, event);
}
