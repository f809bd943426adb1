use crate::answer;
use crate::buffer::{BufferLimits, Buffers};
use crate::counters::Volume;
use crate::index::AddressIndex;
use crate::ndp::Link;
use crate::rate::{Policer, Rate};
use crate::record::{Action, DATA, DownlinkRule, Record, Slab, TUNNEL_ERROR, Tunnel, UplinkRule};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use vireo_types::{Instant, SessionAddress, Teid};
use vireo_wire::gtpu;

/// The addresses of one data network's UEs, and what its routers tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// IPv4 network and prefix length.
    pub ipv4: Option<(Ipv4Addr, u8)>,
    /// IPv6 network and prefix length, 64 at the most; each UE has a /64 of it.
    pub ipv6: Option<(Ipv6Addr, u8)>,
    /// Link MTU in octets.
    pub mtu: u16,
    /// DNS servers; the IPv6 ones are told in router advertisements.
    pub dns: Vec<IpAddr>,
}

impl Pool {
    /// Whether an address lies in the pool.
    #[inline]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (address, self.ipv4, self.ipv6) {
            (IpAddr::V4(address), Some((base, length)), _) => {
                (address.to_bits() ^ base.to_bits()).leading_zeros() >= u32::from(length)
            }
            (IpAddr::V6(address), _, Some((base, length))) => {
                (address.to_bits() ^ base.to_bits()).leading_zeros() >= u32::from(length)
            }
            _ => false,
        }
    }
}

/// The bounds of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tunnels, and UEs with an address, each. Default 65,536; 2^24 at the most.
    pub records: usize,
    /// Downlink buffering.
    pub buffer: BufferLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { records: 65_536, buffer: BufferLimits::default() }
    }
}

/// Why a rule was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// [`Limits::records`] is reached.
    #[error("the tables are full")]
    Full,
    /// Another session has this TEID.
    #[error("the TEID is in use")]
    TeidInUse,
    /// Another session has one of these addresses, or there is none.
    #[error("the UE's address is in use or missing")]
    AddressInUse,
}

/// A downlink record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DownlinkId(pub(crate) u32);

/// What a change of the tables lets go.
#[derive(Debug, Default)]
pub struct Released {
    /// Datagrams for N3: they must leave before the next packet is decided on.
    pub datagrams: Vec<(SocketAddr, Vec<u8>)>,
    /// Packets that were buffered and are dropped.
    pub dropped: u64,
}

#[derive(Debug)]
pub(crate) struct Uplink {
    pub(crate) teid: Teid,
    pub(crate) record: Record<UplinkRule>,
}

#[derive(Debug)]
pub(crate) struct Downlink {
    pub(crate) ue: SessionAddress,
    pub(crate) record: Record<DownlinkRule>,
}

/// All rules of a user plane and the state of their packets. One owner changes them; the functions that decide on
/// packets ([`Tables::uplink`], [`Tables::downlink`]) only need `&self`.
///
/// It knows sessions as numbers and has no sockets, no clock and no idea of PFCP.
#[derive(Debug)]
pub struct Tables {
    pub(crate) uplinks: Slab<Uplink>,
    /// TEIDs that were not ours to choose.
    foreign: HashMap<Teid, u32>,
    pub(crate) downlinks: Slab<Downlink>,
    ipv4: AddressIndex,
    ipv6: AddressIndex,
    /// Whose packets go into a tunnel, for the Error Indications about it.
    tunnels: HashMap<Tunnel, u32>,
    buffers: Mutex<Buffers>,
    pools: Vec<Pool>,
    links: Vec<Link>,
    /// Where [`Tables::advertise_again`] goes on, and how much of the next record's turn has passed.
    next_advertised: u32,
    advertising_credit: u64,
    /// Answers to what nobody asked for are limited: 1,000 a second and kind.
    pub(crate) errors: Policer,
    pub(crate) echoes: Policer,
    pub(crate) solicitations: Policer,
}

/// In how many calls of [`Tables::advertise_again`] every UE has its turn: with one a second, 6 hours.
const ADVERTISING_ROUND: u64 = 6 * 3600;

/// An answer counts as one octet: one a millisecond.
pub(crate) const ANSWERS: Rate = Rate::from_kbps(8);

impl Tables {
    /// Empty tables for these pools.
    pub fn new(pools: Vec<Pool>, limits: Limits) -> Self {
        let records = limits.records.min(1 << 24);
        Tables {
            uplinks: Slab::new(records),
            foreign: HashMap::new(),
            downlinks: Slab::new(records),
            ipv4: AddressIndex::ipv4(&pools),
            ipv6: AddressIndex::ipv6(&pools),
            tunnels: HashMap::new(),
            buffers: Mutex::new(Buffers::new(limits.buffer)),
            links: pools.iter().map(|pool| Link::new(pool.mtu, &pool.dns)).collect(),
            pools,
            next_advertised: 0,
            advertising_credit: 0,
            errors: Policer::default(),
            echoes: Policer::default(),
            solicitations: Policer::default(),
        }
    }

    /// Makes an uplink record under a TEID of our choice, or under the one given.
    pub fn add_uplink(&mut self, given: Option<Teid>, rule: UplinkRule) -> Result<Teid, TableError> {
        if let Some(teid) = given
            && (teid == gtpu::NO_TEID || self.uplink_index(teid).is_some())
        {
            return Err(TableError::TeidInUse);
        }
        let uplink = Uplink { teid: given.unwrap_or_default(), record: Record::new(rule) };
        let (index, generation) = self.uplinks.insert(uplink).ok_or(TableError::Full)?;
        if let Some(teid) = given {
            self.foreign.insert(teid, index);
            return Ok(teid);
        }
        let own = Teid::from_index(index, generation);
        if self.foreign.contains_key(&own) {
            // somebody else chose this very number: the index gets its next generation
            self.uplinks.remove(index);
            return self.add_uplink(None, rule);
        }
        if let Some(uplink) = self.uplinks.get_mut(index) {
            uplink.teid = own;
        }
        Ok(own)
    }

    /// Replaces the rule of a TEID.
    pub fn set_uplink(&mut self, teid: Teid, rule: UplinkRule) {
        if let Some(uplink) = self.uplink_index(teid).and_then(|index| self.uplinks.get_mut(index)) {
            uplink.record.rule = rule;
        }
    }

    /// Removes a TEID; tells what it carried.
    pub fn remove_uplink(&mut self, teid: Teid) -> Volume {
        let uplink = self.uplink_index(teid).and_then(|index| self.uplinks.remove(index));
        self.foreign.remove(&teid);
        uplink.map(|uplink| uplink.record.volume()).unwrap_or_default()
    }

    /// What a TEID has carried.
    pub fn uplink_volume(&self, teid: Teid) -> Volume {
        self.find_uplink(teid).map(|uplink| uplink.record.volume()).unwrap_or_default()
    }

    /// Makes a downlink record for the UE of these addresses, which no other may have. It drops everything until
    /// [`Tables::set_downlink`].
    pub fn add_downlink(&mut self, ue: SessionAddress, session: u64) -> Result<DownlinkId, TableError> {
        let v4 = ue.ipv4.map(|v4| u64::from(v4.to_bits()));
        let v6 = ue.ipv6_prefix.map(prefix_key);
        let used = v4.is_some_and(|key| self.ipv4.get(key).is_some());
        if used || v6.is_some_and(|key| self.ipv6.get(key).is_some()) || (v4.is_none() && v6.is_none()) {
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
        let (index, _) = self.downlinks.insert(Downlink { ue, record: Record::new(rule) }).ok_or(TableError::Full)?;
        if let Some(key) = v4 {
            self.ipv4.set(key, index);
        }
        if let Some(key) = v6 {
            self.ipv6.set(key, index);
        }
        Ok(DownlinkId(index))
    }

    /// Replaces the rule of a downlink record. What was buffered is let go if the rule forwards and dropped if it
    /// drops; a tunnel that comes up tells an IPv6 UE its prefix; with `end_marker` the old tunnel is ended when there
    /// is a new one. A rule that buffers reports its first packet anew, be it the same rule or another.
    pub fn set_downlink(&mut self, id: DownlinkId, rule: DownlinkRule, end_marker: bool, released: &mut Released) {
        let Some(downlink) = self.downlinks.get_mut(id.0) else {
            return;
        };
        let old = std::mem::replace(&mut downlink.record.rule, rule);
        downlink.record.report_again(DATA);
        if old.tunnel != rule.tunnel {
            downlink.record.report_again(TUNNEL_ERROR);
            if let Some(tunnel) = old.tunnel.filter(|tunnel| self.tunnels.get(tunnel) == Some(&id.0)) {
                self.tunnels.remove(&tunnel);
            }
            if let Some(tunnel) = rule.tunnel {
                self.tunnels.insert(tunnel, id.0);
            }
            if let (Some(tunnel), true, true) = (old.tunnel, end_marker, rule.tunnel.is_some()) {
                released.datagrams.extend(answer::end_marker(tunnel));
            }
        }
        let was_up = old.action == Action::Forward && old.tunnel == rule.tunnel;
        match (rule.action, rule.tunnel) {
            (Action::Forward, Some(tunnel)) => {
                if !was_up {
                    released.datagrams.extend(self.advertisement(id));
                }
                let packets = self.buffers().take(id.0);
                let marked = answer::container(&rule);
                let datagrams = packets.iter().filter_map(|packet| answer::g_pdu(tunnel, marked, packet));
                released.datagrams.extend(datagrams);
            }
            (Action::Buffer { .. }, _) => {}
            (Action::Drop | Action::Forward, _) => self.drop_buffered(id, released),
        }
    }

    /// The rule of a downlink record.
    pub fn downlink_rule(&self, id: DownlinkId) -> Option<DownlinkRule> {
        self.downlinks.get(id.0).map(|downlink| downlink.record.rule)
    }

    /// Drops what is buffered for a downlink record.
    pub fn drop_buffered(&self, id: DownlinkId, released: &mut Released) {
        released.dropped += self.buffers().take(id.0).len() as u64;
    }

    /// Removes a downlink record, and drops what is buffered for it; tells what it carried.
    pub fn remove_downlink(&mut self, id: DownlinkId, released: &mut Released) -> Volume {
        let Some(downlink) = self.downlinks.remove(id.0) else {
            return Volume::default();
        };
        if let Some(v4) = downlink.ue.ipv4 {
            self.ipv4.remove(u64::from(v4.to_bits()));
        }
        if let Some(v6) = downlink.ue.ipv6_prefix {
            self.ipv6.remove(prefix_key(v6));
        }
        if let Some(tunnel) = downlink.record.rule.tunnel.filter(|t| self.tunnels.get(t) == Some(&id.0)) {
            self.tunnels.remove(&tunnel);
        }
        self.drop_buffered(id, released);
        downlink.record.volume()
    }

    /// What a downlink record has carried.
    pub fn downlink_volume(&self, id: DownlinkId) -> Volume {
        self.downlinks.get(id.0).map(|downlink| downlink.record.volume()).unwrap_or_default()
    }

    /// Drops what has waited too long and tells how many packets that were; the next one for such a UE is reported
    /// anew. To be called about once a second.
    pub fn expire_buffers(&self, now: Instant) -> u64 {
        let mut packets = 0;
        self.buffers().expire(now, |record, lost| {
            packets += lost as u64;
            if let Some(downlink) = self.downlinks.get(record) {
                downlink.record.report_again(DATA);
            }
        });
        packets
    }

    /// Tells some of the IPv6 UEs their prefix again, so that each hears it well before its router's lifetime of 18
    /// hours ends (RFC 4861 6.2.1). Idle UEs are told when they are back. To be called about once a second.
    pub fn advertise_again(&mut self, released: &mut Released) {
        let records = self.downlinks.indexes();
        self.advertising_credit += u64::from(records);
        while self.advertising_credit >= ADVERTISING_ROUND {
            self.advertising_credit -= ADVERTISING_ROUND;
            let id = DownlinkId(self.next_advertised);
            self.next_advertised = if id.0 + 1 < records { id.0 + 1 } else { 0 };
            let active = self.downlinks.get(id.0).is_some_and(|d| d.record.rule.action == Action::Forward);
            if active {
                released.datagrams.extend(self.advertisement(id));
            }
        }
    }

    /// The report of the first buffered packet was lost: the next packet is reported.
    pub(crate) fn report_data_again(&self, id: DownlinkId) {
        if let Some(downlink) = self.downlinks.get(id.0) {
            downlink.record.report_again(DATA);
        }
    }

    /// Octets that wait in buffers.
    pub fn buffered_octets(&self) -> usize {
        self.buffers().octets()
    }

    /// How many TEIDs and how many UE records there are.
    pub fn len(&self) -> (usize, usize) {
        (self.uplinks.len(), self.downlinks.len())
    }

    /// Whether there is no record at all.
    pub fn is_empty(&self) -> bool {
        self.len() == (0, 0)
    }

    /// A router advertisement for the UE of a record, as the datagram that goes into its tunnel.
    fn advertisement(&self, id: DownlinkId) -> Option<(SocketAddr, Vec<u8>)> {
        let mut buffer = [0; answer::LONGEST];
        let (to, octets) = answer::router_advertisement(self, id, None, &mut buffer)?;
        Some((to, octets.to_vec()))
    }

    fn uplink_index(&self, teid: Teid) -> Option<u32> {
        let own = self.uplinks.get(teid.index()).filter(|uplink| uplink.teid == teid);
        own.map(|_| teid.index()).or_else(|| self.foreign.get(&teid).copied())
    }

    #[inline]
    pub(crate) fn find_uplink(&self, teid: Teid) -> Option<&Uplink> {
        match self.uplinks.get(teid.index()) {
            Some(uplink) if uplink.teid == teid => Some(uplink),
            _ if self.foreign.is_empty() => None,
            _ => self.uplinks.get(*self.foreign.get(&teid)?),
        }
    }

    #[inline]
    pub(crate) fn find_ipv4(&self, address: u32) -> Option<(DownlinkId, &Downlink)> {
        let index = self.ipv4.get(u64::from(address))?;
        Some((DownlinkId(index), self.downlinks.get(index)?))
    }

    #[inline]
    pub(crate) fn find_ipv6(&self, address: u128) -> Option<(DownlinkId, &Downlink)> {
        let index = self.ipv6.get((address >> 64) as u64)?;
        Some((DownlinkId(index), self.downlinks.get(index)?))
    }

    pub(crate) fn find_tunnel(&self, tunnel: Tunnel) -> Option<&Downlink> {
        self.downlinks.get(*self.tunnels.get(&tunnel)?)
    }

    /// What is told of the link that a prefix is on.
    pub(crate) fn link(&self, prefix: Ipv6Addr) -> Option<&Link> {
        let position = self.pools.iter().position(|pool| pool.contains(prefix.into()))?;
        self.links.get(position)
    }

    /// Whether an address belongs to a UE, or to nobody but a pool: what it sends to N3 or N4 came through a tunnel,
    /// and no UE is a RAN node or a control plane.
    pub fn is_of_a_ue(&self, address: IpAddr) -> bool {
        self.pools.iter().any(|pool| pool.contains(address))
    }

    pub(crate) fn buffers(&self) -> MutexGuard<'_, Buffers> {
        // the buffers are consistent between their calls: a worker that panicked elsewhere spoils nothing
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn prefix_key(prefix: Ipv6Addr) -> u64 {
    (prefix.to_bits() >> 64) as u64
}
