//! Mapped NAS security contexts of a UE that moves between 4G and 5G (TS 33.501 8.2 to 8.6).

use super::security::nia;
use super::{NasSecurity, NextHop, NextHopChain, SecurityFault};
use vireo_types::Dialect;
use vireo_wire::security::nas_5gs::{
    KAmf, KNasInt, derive_mapped_kamf_handover, derive_mapped_kamf_idle, derive_mapped_kasme_handover,
    derive_mapped_kasme_idle, nas_container_mac,
};
use vireo_wire::security::nas_eps::{KAsme, Nh};
use vireo_wire::security::{AccessKeyCount, CipheringAlgorithm, IntegrityAlgorithm, NasCount};

/// Octets of the value of an S1 mode to N1 mode NAS transparent container (TS 24.501 9.11.2.9).
pub const S1_TO_N1_OCTETS: usize = 8;

/// Security context for the target of a handover between 5GS and EPS.
#[derive(Debug)]
pub struct HandoverKeys {
    /// Mapped context, which is in use once the UE is at the target.
    pub mapped: NasSecurity,
    /// {NH, NCC} for the target.
    pub next_hop: NextHop,
    /// Value of the S1 mode to N1 mode NAS transparent container, for a target of 5GS.
    pub container: Option<[u8; S1_TO_N1_OCTETS]>,
}

/// Start of the NH chain after a handover between 5GS and EPS (TS 33.501 8.3.2, 8.4.2).
const AT_HANDOVER: NextHopChain = NextHopChain::KGnb(AccessKeyCount::Handover.get());

impl NasSecurity {
    /// Verifies an EMM message that a UE from 5G has protected under its 5G context, as if it were
    /// a message of 5G (TS 33.501 8.5.2). Returns its COUNT, which is not used up.
    ///
    /// # Errors
    ///
    /// As [`NasSecurity::verify`].
    pub fn verify_emm(&self, message: &[u8]) -> Result<u32, SecurityFault> {
        self.verify_framed(Dialect::Eps, message)
    }

    /// Returns the context of EPS that is mapped from this one of 5G, after the message that was
    /// accepted last (TS 33.501 8.6.1, A.14.1). The COUNTs go on.
    pub fn mapped_to_eps(&self, integrity: IntegrityAlgorithm, ciphering: CipheringAlgorithm) -> Self {
        let kasme = derive_mapped_kasme_idle(&KAmf::new(&self.kamf), self.last_count());
        let mapped = NasSecurity::agreed(self.key_set.mapped(), *kasme.as_octets(), integrity, ciphering);
        NasSecurity { uplink: self.uplink, downlink: self.downlink, agreed_at: self.agreed_at, ..mapped }
    }

    /// Returns the context of 5G that is mapped from this one of EPS, after the message that was
    /// accepted last (TS 33.501 8.6.2, A.15.1). The COUNTs start at 0.
    pub fn mapped_to_5g(&self, integrity: IntegrityAlgorithm, ciphering: CipheringAlgorithm) -> Self {
        let kamf = derive_mapped_kamf_idle(&KAsme::new(&self.kamf), self.last_count());
        NasSecurity::agreed(self.key_set.mapped(), *kamf.as_octets(), integrity, ciphering)
    }

    /// Returns the context of EPS for a handover, mapped under the next downlink COUNT, which is
    /// then used up (TS 33.501 8.3.2, A.14.2). The COUNTs go on. The NCC is 2: the UE derives NH
    /// twice.
    ///
    /// Returns `None` if all downlink COUNTs are used.
    pub fn handed_to_eps(
        &mut self,
        integrity: IntegrityAlgorithm,
        ciphering: CipheringAlgorithm,
    ) -> Option<HandoverKeys> {
        let count = NasCount::new(self.downlink).ok()?;
        let kasme = derive_mapped_kasme_handover(&KAmf::new(&self.kamf), count);
        self.downlink += 1;
        let mut mapped = NasSecurity::agreed(self.key_set.mapped(), *kasme.as_octets(), integrity, ciphering);
        (mapped.uplink, mapped.downlink) = (self.uplink, self.downlink);
        mapped.next_hop = Some(AT_HANDOVER);
        let next_hop = mapped.advance()?;
        Some(HandoverKeys { mapped, next_hop, container: None })
    }

    /// Returns the context of 5G for a handover, mapped under the next {NH, NCC} of EPS, which is
    /// then used up (TS 33.501 8.4.2, A.15.2). The target gets the KgNB as NH with NCC 0. The
    /// COUNTs start at 0; the container counts as the first downlink message.
    ///
    /// Returns `None` before an initial context set-up.
    pub fn handed_to_5g(
        &mut self,
        integrity: IntegrityAlgorithm,
        ciphering: CipheringAlgorithm,
    ) -> Option<HandoverKeys> {
        let NextHop { nh, ncc } = self.advance()?;
        let kamf = derive_mapped_kamf_handover(&KAsme::new(&self.kamf), &Nh::new(&nh));
        let mut mapped = NasSecurity::agreed(self.key_set.mapped(), *kamf.as_octets(), integrity, ciphering);
        mapped.downlink = 1;
        mapped.next_hop = Some(AT_HANDOVER);
        let next_hop = NextHop { nh: mapped.initial_kgnb(), ncc: 0 };
        // Two spare octets follow (TS 24.501 9.11.2.9).
        let protected = [mapped.ciphering << 4 | mapped.integrity, ncc << 4 | mapped.key_set.ie(), 0, 0];
        let mac = nas_container_mac(&KNasInt::new(&mapped.knas_int), &protected, nia(mapped.integrity));
        let mut container = [0; S1_TO_N1_OCTETS];
        container[..4].copy_from_slice(&mac.to_be_bytes());
        container[4..].copy_from_slice(&protected);
        Some(HandoverKeys { mapped, next_hop, container: Some(container) })
    }

    /// Returns the value of the N1 mode to S1 mode NAS transparent container: the sequence number
    /// of the downlink COUNT under which this context was mapped (TS 24.501 9.11.2.7).
    pub fn n1_to_s1_container(&self) -> u8 {
        (self.downlink.wrapping_sub(1) & 0xff) as u8
    }

    fn last_count(&self) -> NasCount {
        NasCount::new(self.last_uplink()).unwrap_or(NasCount::ZERO)
    }
}
