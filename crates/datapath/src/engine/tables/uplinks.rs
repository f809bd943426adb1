//! Uplink entries of the tables.

use super::{TableError, Tables, UnsettledEntry};
use crate::engine::counters::Volume;
use crate::engine::rate::Rate;
use crate::engine::rule::UplinkRule;
use vireo_types::Teid;
use vireo_wire::gtpu;

impl Tables {
    /// Creates an uplink entry with the TEID `given`, or with an assigned one.
    pub fn add_uplink(&mut self, given: Option<Teid>, rule: UplinkRule) -> Result<Teid, TableError> {
        self.add_uplink_in(0, given, rule)
    }

    /// Creates an uplink entry. An assigned TEID is in the range of the module.
    pub fn add_uplink_in(&mut self, module: usize, given: Option<Teid>, rule: UplinkRule) -> Result<Teid, TableError> {
        if let Some(teid) = given
            && (teid == gtpu::NO_TEID || self.uplink_index(teid).is_some())
        {
            return Err(TableError::TeidInUse);
        }
        let (index, generation) = self.uplinks.insert(module, ()).ok_or(TableError::Full)?;
        if let Some(teid) = given {
            self.change_uplink(index).begin(teid, &rule);
            self.set_foreign(teid, Some(index));
            return Ok(teid);
        }
        let own = Teid::from_index(index, generation);
        if self.foreign.contains_key(&own) {
            // A peer chose this number as a foreign TEID, so the index gets its next generation.
            self.uplinks.remove(index);
            return self.add_uplink_in(module, None, rule);
        }
        self.change_uplink(index).begin(own, &rule);
        Ok(own)
    }

    /// Creates an uplink entry with a TEID that an earlier run assigned. TEIDs restored in
    /// ascending order of their indexes keep them. Others are stored as foreign TEIDs.
    pub fn restore_uplink(&mut self, teid: Teid, rule: UplinkRule) -> Result<Teid, TableError> {
        if teid == gtpu::NO_TEID || self.uplink_index(teid).is_some() {
            return Err(TableError::TeidInUse);
        }
        if !self.uplinks.insert_at(teid.index(), teid.generation(), ()) {
            return self.add_uplink(Some(teid), rule);
        }
        self.change_uplink(teid.index()).begin(teid, &rule);
        Ok(teid)
    }

    /// Sets the number of this run, counted where tunnels are stored. Successive runs assign
    /// different TEIDs. Must be called before the first tunnel exists.
    pub fn begin_life(&mut self, life: u32) {
        self.uplinks.begin_life(life);
    }

    /// Ends the restoration of tunnels of an earlier run.
    pub fn end_restoration(&mut self) {
        self.restoring = false;
    }

    /// Replaces the rule of a TEID.
    pub fn set_uplink(&mut self, teid: Teid, rule: UplinkRule) {
        if let Some(index) = self.uplink_index(teid) {
            let record = self.change_uplink(index);
            record.set(&rule);
            if record.overflows() {
                self.rates.insert(UnsettledEntry::Uplink(index), rule.mbr);
            }
        }
    }

    /// Points an uplink entry to a rule list for the kernel program, or removes it. Cell 0 = punt
    /// to user space.
    pub(crate) fn point_uplink(&mut self, teid: Teid, list: Option<u32>) {
        let Some(index) = self.uplink_index(teid) else { return };
        let of = UnsettledEntry::Uplink(index);
        let record = &self.arrays.uplinks[index as usize];
        match (record.list(), list) {
            (before, after) if before == after => {}
            (before, Some(list)) => {
                if before.is_none() {
                    self.rates.insert(of, record.rule().mbr);
                }
                self.change_uplink(index).set_rule_list(list);
            }
            (_, None) => {
                let mbr = self.rates.remove(&of).unwrap_or(Rate::UNLIMITED);
                self.change_uplink(index).clear_rule_list(mbr);
            }
        }
    }

    /// Removes a TEID. Returns its volume.
    pub fn remove_uplink(&mut self, teid: Teid) -> Volume {
        self.hold_packets(&[teid], []);
        let Some(index) = self.uplink_index(teid) else {
            return Volume::default();
        };
        let record = self.change_uplink(index);
        record.end();
        let volume = record.state.volume();
        self.rates.remove(&UnsettledEntry::Uplink(index));
        self.access.bound.remove(&teid);
        self.set_foreign(teid, None);
        self.uplinks.remove(index);
        volume
    }

    /// Returns the volume of a TEID.
    pub fn uplink_volume(&self, teid: Teid) -> Volume {
        self.find_uplink(teid).map(|uplink| uplink.state.volume()).unwrap_or_default()
    }

    fn set_foreign(&mut self, teid: Teid, index: Option<u32>) {
        match index {
            Some(index) => drop(self.foreign.insert(teid, index)),
            None if self.foreign.remove(&teid).is_none() => return,
            None => {}
        }
        if let Some(mirror) = &mut self.mirror {
            mirror.foreign(teid, index);
        }
    }
}
