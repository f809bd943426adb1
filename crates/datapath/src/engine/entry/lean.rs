//! Lean entries: sessions with one application in one QoS flow, without counts and rates.
//!
//! A slice selects them with `profile = "iot"`. Where the gates are open, the only check left is
//! the address of the packet. Packets write nothing, so the cache line of the entry stays clean in
//! every cache.

use super::*;
use crate::engine::rule::ALL_FLOWS;

/// Marks an entry as lean, or removes the mark. The sequence word does not protect it: it is one
/// word, and valid with the rule before and after a change.
fn set(flags: &AtomicU32, bit: u32, lean: bool) {
    let others = flags.load(Relaxed) & !bit;
    flags.store(if lean { others | bit } else { others }, Relaxed);
}

impl UplinkEntry {
    /// Returns the source address that packets must have, if no other check is left.
    #[inline]
    pub(crate) fn lean(&self) -> Option<u32> {
        const OPEN: u32 = UP_LEAN | UP_FORWARD | UP_GATE | UP_IPV4;
        let flags = self.flags.load(Relaxed) & (OPEN | UP_OVERFLOW);
        let all = flags == OPEN && self.flows.load(Relaxed) == ALL_FLOWS && self.cost.load(Relaxed) == 0;
        all.then(|| u32::from_be_bytes(self.ipv4.load(Relaxed).to_ne_bytes()))
    }

    /// Returns true if the entry is lean or has a rule list. One test covers both; most entries
    /// have neither.
    #[inline]
    pub(crate) fn is_special(&self) -> bool {
        self.flags.load(Relaxed) & (UP_LEAN | UP_OVERFLOW) != 0
    }

    /// Returns true if packets of the entry are not counted.
    #[inline]
    pub(crate) fn is_uncounted(&self) -> bool {
        self.flags.load(Relaxed) & UP_LEAN != 0
    }

    /// Sets or removes the lean mark; see [`crate::Tables::set_lean`].
    pub(crate) fn set_lean(&self, lean: bool) {
        set(&self.flags, UP_LEAN, lean);
    }
}

impl DownlinkEntry {
    /// Returns the tunnel of all packets, if no check is left.
    #[inline]
    pub(crate) fn lean(&self) -> Option<TunnelTarget> {
        const OPEN: u32 = DOWN_LEAN | ACTION_FORWARD | DOWN_GATE | DOWN_IPV4;
        let flags = self.flags.load(Relaxed);
        if flags & (OPEN | ACTION | DOWN_IPV6 | DOWN_OVERFLOW) != OPEN || self.cost.load(Relaxed) != 0 {
            return None;
        }
        self.tunnel_target()
    }

    /// Returns true if the entry is lean or has a rule list. One test covers both; most entries
    /// have neither.
    #[inline]
    pub(crate) fn is_special(&self) -> bool {
        self.flags.load(Relaxed) & (DOWN_LEAN | DOWN_OVERFLOW) != 0
    }

    /// Returns true if packets of the entry are not counted.
    #[inline]
    pub(crate) fn is_uncounted(&self) -> bool {
        self.flags.load(Relaxed) & DOWN_LEAN != 0
    }

    /// Sets or removes the lean mark; see [`crate::Tables::set_lean`].
    pub(crate) fn set_lean(&self, lean: bool) {
        set(&self.flags, DOWN_LEAN, lean);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_wire::gtpu::PduSession;

    #[test]
    fn lean_entry_needs_open_rule_without_checks() {
        let ue = SessionAddress { ipv4: Some(Ipv4Addr::new(10, 45, 0, 9)), ipv6_prefix: None };
        let open = UplinkRule { ue, flows: ALL_FLOWS, gate_open: true, forward: true, mbr: Rate::UNLIMITED };
        let record = UplinkEntry::default();
        record.begin(Teid(1), &open);
        assert_eq!((record.lean(), record.is_uncounted()), (None, false), "it has to be said");
        record.set_lean(true);
        record.set(&open);
        assert_eq!((record.lean(), record.is_uncounted()), (Some(0x0a2d_0009), true), "a change leaves it");
        let v6 = SessionAddress { ipv6_prefix: Some(Ipv6Addr::from_bits(0x2001_0db8 << 96)), ipv4: None };
        for other in [
            UplinkRule { flows: 1, ..open },
            UplinkRule { gate_open: false, ..open },
            UplinkRule { forward: false, ..open },
            UplinkRule { mbr: Rate::from_kbps(1), ..open },
            UplinkRule { ue: v6, ..open },
        ] {
            record.set(&other);
            assert_eq!((record.lean(), record.rule()), (None, other));
        }
        record.begin(Teid(2), &open);
        assert!(!record.is_uncounted(), "the next one is another's");
        let tunnel = Tunnel { teid: Teid(8), address: IpAddr::from([192, 0, 2, 1]) };
        let open = DownlinkRule {
            session: 0,
            pdr: 0,
            qfi: Some(5),
            rqi: true,
            gate_open: true,
            action: Action::Forward,
            tunnel: Some(tunnel),
            mbr: Rate::UNLIMITED,
        };
        let record = DownlinkEntry::default();
        record.begin(3, &open);
        record.set_lean(true);
        let marked = Some(PduSession::Downlink { qfi: 5, rqi: true });
        assert_eq!((record.lean(), record.generation()), (Some(TunnelTarget::new(tunnel, marked)), 3));
        for other in [
            DownlinkRule { gate_open: false, ..open },
            DownlinkRule { action: Action::Buffer { notify: true }, ..open },
            DownlinkRule { action: Action::Drop, ..open },
            DownlinkRule { tunnel: None, ..open },
            DownlinkRule { mbr: Rate::from_kbps(1), ..open },
        ] {
            record.set(&other);
            assert_eq!((record.lean(), record.rule(0, 0)), (None, other));
        }
        record.set(&DownlinkRule { qfi: None, rqi: false, ..open });
        assert_eq!(record.lean(), Some(TunnelTarget::new(tunnel, None)));
        record.set_rule_list(7);
        assert_eq!(record.lean(), None, "rules beside the record");
    }
}
