//! CIoT EPS optimisations of the UE (TS 24.301 5.3.15, 5.6.1.2.2, 6.6.4).

use super::attach::encoding;
use super::nas::kind;
use super::security::{PD_ESM, header};
use super::{CommandError, Event, LteUe, MmState, UeOutput, Violation};
use vireo_wire::nas_eps::{
    DownlinkDataExpected, NasAdditionalUpdateType, NasAttachAccept, NasAttachRequest, NasEpsMessage,
    NasEsmDataTransport, NasReleaseAssistanceIndication, NasUserDataContainer,
};

/// ESM DUMMY MESSAGE (TS 24.301 8.3.12A).
pub(super) const DUMMY: [u8; 3] = [PD_ESM, 0, 0xdc];
/// Additional update type IE with the preference of control plane CIoT EPS optimisation (TS 24.301
/// 9.9.3.0B).
const PREFERS_CONTROL_PLANE: u8 = 0x4;

impl LteUe {
    /// Returns true if the UE has a connection with secure exchange of NAS messages.
    pub fn is_secured(&self) -> bool {
        self.secured
    }

    /// Returns true if the packets of the UE are sent over NAS.
    pub fn is_over_nas(&self) -> bool {
        self.own.over_nas
    }

    /// Adds to an attach what the UE supports and prefers.
    pub(super) fn request_ciot(&self, request: &mut NasAttachRequest) {
        if self.own.without_pdn {
            request.ue_network_capability.set_erw_opdn(true);
        }
        if self.own.over_nas {
            request.ue_network_capability.set_cp_ciot(true);
            request.set_additional_update_type(NasAdditionalUpdateType::new(PREFERS_CONTROL_PLANE));
        }
    }

    /// Checks that the network supports what the UE uses.
    pub(super) fn check_ciot(&self, accept: &NasAttachAccept) -> Result<(), Violation> {
        let support = accept.eps_network_feature_support.as_ref();
        let bits = support.and_then(|support| support.value.first()).copied().unwrap_or_default();
        let needed = u8::from(self.own.without_pdn) << 6 | u8::from(self.own.over_nas) << 7;
        (bits & needed == needed).then_some(()).ok_or(Violation::Incomplete(kind::ATTACH_ACCEPT))
    }

    /// Sends a packet of the connected UE.
    pub fn send_data(&mut self, ebi: u8, packet: &[u8], out: &mut UeOutput) -> Result<(), CommandError> {
        let message = data_transport(ebi, packet, None)?;
        self.send(header::CIPHERED, &message, out)
    }

    /// Starts a control plane service request from idle: with the packet after which the UE expects
    /// nothing more, or without one.
    pub fn control_plane_service(
        &mut self,
        packet: Option<(u8, &[u8])>,
        is_paged: bool,
        out: &mut UeOutput,
    ) -> Result<(), CommandError> {
        if self.mm != MmState::Registered || self.secured {
            return Err(CommandError::State(self.mm));
        }
        let last = Some(DownlinkDataExpected::NoFurtherData);
        let esm = packet.map(|(ebi, packet)| data_transport(ebi, packet, last)).transpose()?;
        self.begin_access();
        let security = self.security.as_mut().ok_or(CommandError::NoContext)?;
        let sent = security.control_plane_service(is_paged, esm.as_deref(), &mut out.octets);
        sent.map_err(|_| CommandError::NoContext)?;
        out.ends.push(out.octets.len());
        self.mm = MmState::ServiceRequested;
        Ok(())
    }

    /// Handles SERVICE ACCEPT, which only UEs without user plane at the eNB get.
    pub(super) fn service_accept(&mut self, out: &mut UeOutput) -> Result<(), Violation> {
        if self.mm != MmState::ServiceRequested || !self.own.without_pdn && !self.own.over_nas {
            return Err(Violation::Unexpected(kind::SERVICE_ACCEPT));
        }
        self.mm = MmState::Registered;
        out.events.push(Event::ServiceAccepted);
        Ok(())
    }
}

/// Returns an ESM DATA TRANSPORT (TS 24.301 8.3.25).
fn data_transport(ebi: u8, packet: &[u8], assistance: Option<DownlinkDataExpected>) -> Result<Vec<u8>, CommandError> {
    let mut message = NasEsmDataTransport::new(NasUserDataContainer::new(packet.to_vec()));
    message.release_assistance_indication = assistance.map(NasReleaseAssistanceIndication::from_ddx);
    NasEpsMessage::new_esm(message, ebi, 0).encode().map_err(encoding)
}
