//! Downlink entries of the tables.

use super::{Downlink, Released, TableError, Tables, UnsettledEntry};
use crate::engine::access::Use;
use crate::engine::answer;
use crate::engine::counters::Volume;
use crate::engine::entry::{DATA, DownlinkEntry, TUNNEL_ERROR};
use crate::engine::index::{DownlinkId, address_keys};
use crate::engine::ndp::Link;
use crate::engine::rate::Rate;
use crate::engine::rule::{Action, DownlinkRule, Tunnel};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use vireo_types::{Instant, SessionAddress, Teid};

impl Tables {
    /// Creates a downlink entry for the UE with these addresses. It drops all packets until
    /// [`Tables::set_downlink`].
    pub fn add_downlink(&mut self, ue: SessionAddress, session: u64) -> Result<DownlinkId, TableError> {
        let keys = address_keys(ue);
        if keys.clone().any(|key| self.hashed_addresses.get(&self.arrays.addresses, key).is_some())
            || keys.clone().next().is_none()
        {
            return Err(TableError::AddressInUse);
        }
        let rule = DownlinkRule {
            session,
            pdr: 0,
            qfi: None,
            rqi: false,
            gate_open: true,
            action: Action::Drop,
            tunnel: None,
            mbr: Rate::UNLIMITED,
        };
        let downlink = Downlink { ue, session, pdr: 0 };
        let (index, generation) = self.downlinks.insert(downlink).ok_or(TableError::Full)?;
        self.change_downlink(index).begin(generation, &rule);
        // The generation shows lock-free readers that the entry belongs to another UE.
        let entry = Teid::from_index(index, generation).0;
        keys.for_each(|key| self.hashed_addresses.set(&self.arrays.addresses, key, entry));
        Ok(DownlinkId(index))
    }

    /// Replaces the rule of a downlink entry. Buffered packets are released if the rule forwards,
    /// dropped if it drops. A new tunnel triggers a router advertisement to an IPv6 UE. With
    /// `end_marker`, a replaced tunnel gets an End Marker. Every call re-enables the report of the
    /// first packet, even with an equal rule.
    pub fn set_downlink(&mut self, id: DownlinkId, rule: DownlinkRule, end_marker: bool, released: &mut Released) {
        let (Some(old), Some(downlink)) = (self.downlink_rule(id), self.downlinks.get_mut(id.0)) else {
            return;
        };
        (downlink.session, downlink.pdr) = (rule.session, rule.pdr);
        let record = self.change_downlink(id.0);
        record.set(&rule);
        record.report_again(DATA);
        let overflows = record.overflows();
        if overflows {
            self.rates.insert(UnsettledEntry::Downlink(id.0), rule.mbr);
        }
        if old.tunnel != rule.tunnel {
            self.downlink(id).report_again(TUNNEL_ERROR);
            if let Some(tunnel) = rule.tunnel {
                self.begin_use(tunnel.address, Use::Tunnel);
            }
            if let Some(tunnel) = old.tunnel {
                self.tunnels.remove(tunnel, id.0);
                self.end_use(tunnel.address, Use::Tunnel);
            }
            if let Some(tunnel) = rule.tunnel {
                let arrays = &self.arrays;
                self.tunnels.insert(tunnel, id.0, |record| arrays.downlink(record)?.tunnel());
            }
            if let (Some(tunnel), true, true) = (old.tunnel, end_marker, rule.tunnel.is_some()) {
                Tables::end_marker(tunnel, released);
            }
        }
        let was_up = old.action == Action::Forward && old.tunnel == rule.tunnel;
        match (rule.action, rule.tunnel) {
            (Action::Forward, Some(tunnel)) => {
                if !was_up {
                    released.datagrams.extend(self.advertisement(id));
                }
                if overflows {
                    return;
                }
                let packets = self.buffers().take(id.0);
                let marked = answer::container(&rule);
                let datagrams = packets.iter().filter_map(|packet| answer::g_pdu(tunnel, marked, packet));
                released.datagrams.extend(datagrams);
            }
            (Action::Buffer { .. }, _) => {}
            // The flow rules release the buffered packets.
            _ if overflows => {}
            (Action::Drop | Action::Forward, _) => self.drop_buffered(id, released),
        }
    }

    /// Returns the rule of a downlink entry.
    pub fn downlink_rule(&self, id: DownlinkId) -> Option<DownlinkRule> {
        let Downlink { session, pdr, .. } = self.downlinks.get(id.0)?;
        let record = self.downlink(id);
        let mut rule = record.rule(*session, *pdr);
        if record.overflows() {
            rule.mbr = self.rates.get(&UnsettledEntry::Downlink(id.0)).copied().unwrap_or(Rate::UNLIMITED);
        }
        Some(rule)
    }

    /// Limits the buffered packets of an entry, within [`BufferLimits::packets_per_session`].
    /// `None` = that limit.
    pub fn limit_buffer(&self, id: DownlinkId, packets: Option<usize>) {
        self.buffers().limit(id.0, packets);
    }

    /// Returns true if no UE has any of these addresses.
    pub fn is_free(&self, ue: SessionAddress) -> bool {
        address_keys(ue).all(|key| self.hashed_addresses.get(&self.arrays.addresses, key).is_none())
    }

    /// Drops the buffered packets of a downlink entry.
    pub fn drop_buffered(&self, id: DownlinkId, released: &mut Released) {
        released.dropped += self.buffers().take(id.0).len() as u64;
    }

    /// Removes a downlink entry and drops its buffered packets. Returns its volume.
    pub fn remove_downlink(&mut self, id: DownlinkId, released: &mut Released) -> Volume {
        let Some(rule) = self.downlink_rule(id) else {
            return Volume::default();
        };
        self.hold_packets(&[], [id]);
        if let Some(downlink) = self.downlinks.remove(id.0) {
            address_keys(downlink.ue).for_each(|key| self.hashed_addresses.remove(&self.arrays.addresses, key));
        }
        self.demote_entry(id);
        let record = self.change_downlink(id.0);
        record.end();
        let volume = record.state.volume();
        self.rates.remove(&UnsettledEntry::Downlink(id.0));
        if let Some(tunnel) = rule.tunnel {
            self.tunnels.remove(tunnel, id.0);
            self.end_use(tunnel.address, Use::Tunnel);
        }
        self.drop_buffered(id, released);
        self.limit_buffer(id, None);
        volume
    }

    /// Returns the volume of a downlink entry.
    pub fn downlink_volume(&self, id: DownlinkId) -> Volume {
        self.downlinks.get(id.0).map(|_| self.downlink(id).state.volume()).unwrap_or_default()
    }

    /// Drops the packets that were buffered too long and returns their number. The next packet of
    /// such a UE is reported again. Must be called about once a second.
    pub fn expire_buffers(&self, now: Instant) -> u64 {
        let mut packets = 0;
        self.buffers().expire(now, |record, lost| {
            packets += lost as u64;
            self.report_data_again(DownlinkId(record));
        });
        packets
    }

    /// Sends router advertisements to some IPv6 UEs, well before the router lifetime of 18 hours
    /// ends (RFC 4861 6.2.1). An idle UE gets one with its next tunnel. Must be called about once a
    /// second.
    pub fn advertise_again(&mut self, released: &mut Released) {
        let entries = self.downlinks.indexes();
        self.advertiser.begin_call(entries);
        while let Some(index) = self.advertiser.next_due(entries) {
            let id = DownlinkId(index);
            let active = self.downlink_rule(id).is_some_and(|rule| rule.action == Action::Forward);
            if active {
                released.datagrams.extend(self.advertisement(id));
            }
        }
    }

    /// Returns true if a packet of the entry was reported, and its rule has not been set since.
    pub fn has_reported_data(&self, id: DownlinkId) -> bool {
        self.downlinks.get(id.0).is_some() && self.downlink(id).is_reported(DATA)
    }

    /// Re-enables the report after the report of the first buffered packet was lost.
    pub(crate) fn report_data_again(&self, id: DownlinkId) {
        self.downlink(id).report_again(DATA);
    }

    /// Returns the total size of buffered packets in octets.
    pub fn buffered_octets(&self) -> usize {
        self.buffers().octets()
    }

    /// Returns a router advertisement to the UE of an entry, as a datagram for its tunnel.
    fn advertisement(&self, id: DownlinkId) -> Option<(SocketAddr, Vec<u8>)> {
        let mut buffer = [0; answer::MAX_ANSWER_OCTETS];
        let (to, octets) = self.router_advertisement(id, None, &mut buffer)?;
        Some((to, octets.to_vec()))
    }

    /// Points a downlink entry to a rule list; see [`Tables::point_uplink`].
    pub(crate) fn point_downlink(&mut self, id: DownlinkId, list: Option<u32>) {
        let Some(rule) = self.downlink_rule(id) else { return };
        let of = UnsettledEntry::Downlink(id.0);
        match (self.downlink(id).list(), list) {
            (before, after) if before == after => {}
            (_, Some(list)) => {
                self.rates.insert(of, rule.mbr);
                self.change_downlink(id.0).set_rule_list(list);
            }
            (_, None) => {
                self.rates.remove(&of);
                self.change_downlink(id.0).clear_rule_list(rule.mbr);
            }
        }
    }

    /// Returns the MTU for a UE.
    pub(super) fn mtu_of(&self, id: DownlinkId) -> u16 {
        let ue = self.downlink_ue(id).unwrap_or_default();
        let of = |address: IpAddr| self.arrays.pools.iter().find(|pool| pool.contains(address)).map(|pool| pool.mtu);
        let mtus = [ue.ipv4.and_then(|v4| of(v4.into())), ue.ipv6_prefix.and_then(|v6| of(v6.into()))];
        mtus.into_iter().flatten().min().unwrap_or(0)
    }

    /// Returns the session and the entry of a tunnel.
    pub(crate) fn find_tunnel(&self, tunnel: Tunnel) -> Option<(u64, &DownlinkEntry)> {
        let id = DownlinkId(self.tunnels.find(tunnel, |record| self.downlink(DownlinkId(record)).tunnel())?);
        Some((self.downlinks.get(id.0)?.session, self.downlink(id)))
    }

    /// Returns the link parameters of a prefix.
    pub(crate) fn link(&self, prefix: Ipv6Addr) -> Option<&Link> {
        let position = self.arrays.pools.iter().position(|pool| pool.contains(prefix.into()))?;
        self.advertiser.link(position)
    }
}
