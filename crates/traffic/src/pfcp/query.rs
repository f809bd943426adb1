//! Queries of session volumes.

use super::{ControlPlane, PfcpError, too_long};
use vireo_wire::pfcp::*;

/// Volume of a session since the last query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionVolume {
    /// Octets from the UE.
    pub uplink: u64,
    /// Octets to the UE.
    pub downlink: u64,
}

impl ControlPlane {
    /// Queries the current usage of measured sessions. `seids` are the SEIDs of the UPF. The result
    /// is `None` for a session that the UPF refuses.
    ///
    /// # Errors
    ///
    /// Returns an error if the UPF does not answer.
    pub fn query(&mut self, seids: &[u64]) -> Result<Vec<Option<SessionVolume>>, PfcpError> {
        let mut all = Vec::with_capacity(seids.len());
        for seid in seids {
            let mut request = SessionModificationRequest::default();
            request.query_urrs.push(QueryUrr { urr_id: UrrId(1) });
            let (sequence, mut octets) = (self.next(), vec![]);
            request.emit(&mut octets, *seid, sequence).map_err(too_long)?;
            let response: SessionModificationResponse = self.exchange(&octets, sequence)?;
            let volume = response.usage_reports.first().and_then(|report| report.0.volume.as_ref());
            let octets = |octets: Option<u64>| octets.unwrap_or(0);
            all.push(
                response
                    .cause
                    .is_accepted()
                    .then_some(volume)
                    .flatten()
                    .map(|volume| SessionVolume { uplink: octets(volume.uplink), downlink: octets(volume.downlink) }),
            );
        }
        Ok(all)
    }

    /// Returns the Recovery Time Stamp that this control plane sent to the UPF.
    pub fn recovery(&self) -> RecoveryTimeStamp {
        self.started
    }
}
