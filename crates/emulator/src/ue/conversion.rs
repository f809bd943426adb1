//! Conversion of a connected UE of one system to that of the other, by handover.

use super::eps::LteUe;
use super::{Event, Ue, UeOutput, Violation};

impl Ue {
    /// Hands the connected UE over to EPS, with the value of the NAS transparent container in its
    /// command. `None` if it cannot move.
    pub fn into_eps(self, container: &[u8]) -> Option<LteUe> {
        self.handed_over(container).map(|(moving, keys)| LteUe::arrive_connected(moving, keys))
    }

    /// Compares the key that the target gNB of a handover from EPS received with the UE's own:
    /// {NCC = 0, K_gNB} (TS 33.501 8.4.2).
    pub fn check_mapped_key(&mut self, key: &[u8], chaining: u8, out: &mut UeOutput) {
        match chaining {
            0 => self.check_access_key(key, out),
            _ => out.events.push(Event::Violation(Violation::AccessKey)),
        }
    }
}

impl LteUe {
    /// Hands the connected UE over to 5G, with the value of the NAS transparent container in its
    /// command. `None` if it cannot move.
    pub fn into_nr(self, container: &[u8]) -> Option<Ue> {
        self.handed_over(container).map(|(moving, keys)| Ue::arrive_connected(moving, keys))
    }

    /// Compares the key that the target eNB of a handover from 5G received with the UE's own.
    pub fn check_mapped_key(&mut self, key: &[u8], chaining: u8, out: &mut UeOutput) {
        self.check_next_hop(key, chaining, out);
    }
}
