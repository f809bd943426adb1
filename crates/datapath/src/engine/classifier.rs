//! Source of verdicts: the locked tables, or the fast path.

use crate::engine::arrays::Arrays;
use crate::engine::event::Event;
use crate::engine::read_section::ReadSection;
use crate::engine::tables::Tables;
use crate::engine::verdict::{DownlinkVerdict, UplinkVerdict};
use std::net::IpAddr;
use vireo_types::Instant;

/// Source of verdicts: the locked tables, or the fast path, which has less information.
pub(crate) trait Classifier {
    fn arrays(&self) -> &Arrays;
    /// Returns the tables if they are locked. The tables classify every packet.
    fn tables(&self) -> Option<&Tables>;
    /// Classifies a datagram from N3 and counts it to its session. `None` = punt to the tables.
    /// `notify` receives notifications about the count.
    fn uplink<'a>(
        &self,
        from: IpAddr,
        datagram: &'a [u8],
        now: Instant,
        notify: &mut impl FnMut(Event),
    ) -> Option<UplinkVerdict<'a>>;
    /// Classifies a packet from N6; see [`Classifier::uplink`].
    fn downlink(&self, packet: &[u8], now: Instant, notify: &mut impl FnMut(Event)) -> Option<DownlinkVerdict>;
    /// Returns true if the tables must classify the rest of the batch.
    fn ends(&self) -> bool;
}

impl Classifier for Tables {
    #[inline]
    fn arrays(&self) -> &Arrays {
        self.arrays()
    }

    #[inline]
    fn tables(&self) -> Option<&Tables> {
        Some(self)
    }

    #[inline]
    fn uplink<'a>(
        &self,
        from: IpAddr,
        datagram: &'a [u8],
        now: Instant,
        notify: &mut impl FnMut(Event),
    ) -> Option<UplinkVerdict<'a>> {
        Some(self.classify_uplink(from, datagram, now, notify))
    }

    #[inline]
    fn downlink(&self, packet: &[u8], now: Instant, notify: &mut impl FnMut(Event)) -> Option<DownlinkVerdict> {
        Some(self.classify_downlink(packet, now, notify))
    }

    #[inline]
    fn ends(&self) -> bool {
        false
    }
}

impl Classifier for ReadSection<'_> {
    #[inline]
    fn arrays(&self) -> &Arrays {
        self.arrays
    }

    #[inline]
    fn tables(&self) -> Option<&Tables> {
        None
    }

    #[inline]
    fn uplink<'a>(
        &self,
        from: IpAddr,
        datagram: &'a [u8],
        now: Instant,
        _: &mut impl FnMut(Event),
    ) -> Option<UplinkVerdict<'a>> {
        self.arrays.classify_uplink(from, datagram, now, &self.pending)
    }

    #[inline]
    fn downlink(&self, packet: &[u8], now: Instant, _: &mut impl FnMut(Event)) -> Option<DownlinkVerdict> {
        self.arrays.classify_downlink(packet, now, &self.pending)
    }

    #[inline]
    fn ends(&self) -> bool {
        self.pending.get().is_some()
    }
}
