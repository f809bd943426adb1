//! Lookup of downlink entries by UE address, in the hot and the cold table.

use crate::engine::arrays::Arrays;
use crate::engine::entry::DownlinkEntry;
use crate::engine::hot::table::{HotTable, tag};
use crate::engine::index::{AddressKey, DownlinkId};
use std::sync::atomic::Ordering::Relaxed;
use vireo_types::Teid;

/// Result of looking up the user of a packet from N6.
pub(crate) struct DownlinkLookup<'a> {
    pub(crate) record: &'a DownlinkEntry,
    /// Expected generation of the entry. `None` if no other user can be in the slot.
    generation: Option<u8>,
    /// Cold index, or the slot if the entry was found by its tag.
    pub(crate) number: u32,
    by_tag: bool,
    /// Hot table that the user should be promoted to.
    pub(crate) cold: Option<&'a HotTable>,
}

impl DownlinkLookup<'_> {
    /// Returns true if an entry of this generation still belongs to the user.
    #[inline]
    pub(crate) fn matches(&self, generation: u8) -> bool {
        self.generation.is_none_or(|own| own == generation)
    }

    /// Returns the ID of the entry.
    #[cold]
    pub(crate) fn id(&self, arrays: &Arrays) -> DownlinkId {
        let home =
            arrays.hot.as_ref().filter(|_| self.by_tag).and_then(|hot| hot.cold_indexes.get(self.number as usize));
        DownlinkId(home.map_or(self.number, |home| home.load(Relaxed)))
    }
}

impl Arrays {
    /// Looks up an address in the cold table. The entry may have been promoted.
    #[inline]
    pub(crate) fn look_up_home(&self, key: AddressKey) -> Option<DownlinkLookup<'_>> {
        let entry = Teid(self.addresses.get(key)?);
        let (number, generation) = (entry.index(), Some(entry.generation()));
        let record = self.downlinks.get(number as usize)?;
        Some(DownlinkLookup { record, generation, number, by_tag: false, cold: None })
    }

    /// Looks up an address in both tables. Must be called within a batch, because slots are reused
    /// after it.
    #[inline]
    pub(crate) fn look_up(&self, key: AddressKey) -> Option<DownlinkLookup<'_>> {
        if let Some(hot) = &self.hot
            && let Some(slot) = tag(key).and_then(|tag| hot.find(tag))
        {
            let record = hot.records.get(slot)?;
            return Some(DownlinkLookup { record, generation: None, number: slot as u32, by_tag: true, cold: None });
        }
        let found = self.look_up_home(key)?;
        let hot = self.hot.as_ref();
        Some(match hot.and_then(|hot| hot.at(found.record.hot_index()?)) {
            None => DownlinkLookup { cold: hot, ..found },
            // It is tagged by its other address, or was promoted a moment ago.
            Some(record) => DownlinkLookup { record, ..found },
        })
    }
}
