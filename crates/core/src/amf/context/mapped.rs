//! Mapped NAS security contexts of a UE that moves between 4G and 5G (TS 33.501 8.2, 8.5, 8.6).

use super::{NasSecurity, SecurityFault};
use vireo_types::Dialect;
use vireo_wire::security::nas_5gs::{KAmf, derive_mapped_kamf_idle, derive_mapped_kasme_idle};
use vireo_wire::security::nas_eps::KAsme;
use vireo_wire::security::{CipheringAlgorithm, IntegrityAlgorithm, NasCount};

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
        NasSecurity { uplink: self.uplink, downlink: self.downlink, ..mapped }
    }

    /// Returns the context of 5G that is mapped from this one of EPS, after the message that was
    /// accepted last (TS 33.501 8.6.2, A.15.1). The COUNTs start at 0.
    pub fn mapped_to_5g(&self, integrity: IntegrityAlgorithm, ciphering: CipheringAlgorithm) -> Self {
        let kamf = derive_mapped_kamf_idle(&KAsme::new(&self.kamf), self.last_count());
        NasSecurity::agreed(self.key_set.mapped(), *kamf.as_octets(), integrity, ciphering)
    }

    fn last_count(&self) -> NasCount {
        NasCount::new(self.last_uplink()).unwrap_or(NasCount::ZERO)
    }
}
