//! Look-up of UEs for the API, by the indexes of the state region.

use super::ran_table::Node;
use super::state::Host;
use std::net::{IpAddr, Ipv6Addr};
use vireo_core::amf::context;
use vireo_ops::api::{UE_PAGE, UePage, UeQuery, UeSelector, UeStatus};
use vireo_store::region::{Key, Slot, Snapshot};

/// Slots that one page of a filter without an index examines, which takes a few milliseconds.
const MAX_EXAMINED_SLOTS: usize = 4096;

impl Host {
    /// Returns a page of UEs.
    pub(super) fn ues(&mut self, query: &UeQuery) -> UePage {
        let (region, limit) = (&self.ues.region, query.limit.min(UE_PAGE));
        let single = |slot: Option<Slot>| {
            let ues: Vec<_> = slot.and_then(|slot| self.ue_at(slot, query.reveal_supi)).into_iter().collect();
            UePage { total: Some(ues.len()), ues, ..UePage::default() }
        };
        match &query.select {
            UeSelector::Supi(supi) => single(region.lookup(Key::Supi, *supi)),
            UeSelector::Tmsi(tmsi) => single(region.lookup(Key::Tmsi, u64::from(*tmsi))),
            UeSelector::Address(address) => single(self.slot_of_address(*address)),
            UeSelector::RanNode(id) => self.ues_of_node(id, query, limit),
            UeSelector::All => {
                let mut page = self.scan(query, (limit, limit), |_| true);
                page.total = Some(self.statistics.totals.contexts);
                page
            }
            UeSelector::Changed => self.changed_ues(query.reveal_supi, limit),
            UeSelector::State(state) => self.scan(query, (limit, MAX_EXAMINED_SLOTS), |ue| state.fits(ue)),
        }
    }

    /// Returns the UEs with changes since the last call. A UE in the middle of a change follows
    /// later.
    fn changed_ues(&mut self, reveal_supi: bool, limit: usize) -> UePage {
        let (entries, further) = self.statistics.ue_changes.take(self.current.arrived);
        let (mut page, mut total) = (UePage::default(), entries.len() + further);
        for (slot, change) in entries.into_iter().take(limit) {
            match self.ue_at(slot, reveal_supi) {
                Some(ue) if is_changing(&ue) => {
                    self.statistics.ue_changes.defer(slot, change);
                    total -= 1;
                }
                Some(ue) => {
                    page.ues.push(ue);
                    page.changes.push(change);
                }
                // The context is removed; the total counts it.
                None => {}
            }
        }
        UePage { total: Some(total), ..page }
    }

    /// Examines slots in their order until the page is full, or so many slots are examined.
    fn scan(&self, query: &UeQuery, (limit, examined): (usize, usize), fits: impl Fn(&UeStatus) -> bool) -> UePage {
        let mut page = UePage::default();
        if limit == 0 {
            return page;
        }
        let from = query.after.map_or(0, |after| u32::try_from(after).unwrap_or(u32::MAX).saturating_add(1));
        let slots = self.ues.region.slots_from(from, self.ues.slots.saturating_sub(from)).map(|(slot, _)| slot);
        for (n, slot) in slots.enumerate() {
            page.ues.extend(self.ue_at(slot, query.reveal_supi).filter(&fits));
            if page.ues.len() >= limit || n + 1 >= examined {
                page.next = Some(slot.number().into());
                break;
            }
        }
        page
    }

    fn ues_of_node(&self, id: &str, query: &UeQuery, limit: usize) -> UePage {
        let Some((_, node)) = self.nodes.iter().find(|(_, node)| node_id(node) == id) else {
            return UePage { total: Some(0), ..UePage::default() };
        };
        let is_after = |slot: &Slot| query.after.is_none_or(|after| u64::from(slot.number()) > after);
        let mut slots: Vec<Slot> = node.ues.iter().copied().filter(is_after).collect();
        // Only the page is sorted: a node may have very many UEs.
        let more = slots.len() > limit;
        if more {
            slots.select_nth_unstable(limit);
            slots.truncate(limit);
        }
        slots.sort_unstable();
        let next = slots.last().filter(|_| more).map(|slot| slot.number().into());
        let ues = slots.into_iter().filter_map(|slot| self.ue_at(slot, query.reveal_supi)).collect();
        UePage { ues, next, total: Some(node.ues.len()), ..UePage::default() }
    }

    fn ue_at(&self, slot: Slot, reveal: bool) -> Option<UeStatus> {
        let mut record = Snapshot::default();
        self.ues.region.read(slot, &mut record);
        context::decode(&record.context).ok().map(|ue| self.ue(&ue, reveal))
    }

    /// Returns the UE that has the address from a pool.
    fn slot_of_address(&self, address: IpAddr) -> Option<Slot> {
        let mut tables = self.config.dnns.iter().zip((0u8..).step_by(2));
        tables.find_map(|(dnn, table)| {
            let [v4, v6] = dnn.address_ranges();
            let (table, number) = match address {
                IpAddr::V4(address) => (table, v4?.index_of_ipv4(address)?),
                IpAddr::V6(address) => (table + 1, v6?.index_of_ipv6(prefix(address))?),
            };
            let owner = self.ues.region.numbers(table)?.owner(number)?;
            // A lent address has an owner that is no slot.
            self.ues.region.slot_at(owner.number())
        })
    }
}

/// Returns true while a UE registers, or a session is established or released.
fn is_changing(ue: &UeStatus) -> bool {
    let is_between = |state: &str| matches!(state, "ESTABLISHING" | "RELEASING");
    ue.rm == "REGISTERING" || ue.sessions.iter().any(|session| is_between(&session.state))
}

/// Returns the /64 prefix of an address.
fn prefix(address: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)
}

/// Returns the ID of a RAN node as the status shows it.
pub(super) fn node_id(node: &Node) -> String {
    format!("{}-{}", node.record.id.plmn(), node.record.id.value())
}
