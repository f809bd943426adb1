//! Service request, deregistration and configuration update of the UE.
//!
//! TS 24.501 5.6.1, 5.5.2 and 5.4.4 specify them.

use super::nas::{self, kind};
use super::registration::ngksi;
use super::security::header;
use super::{CommandError, Event, MmState, Profile, Ue, UeOutput, Violation};
use vireo_wire::nas::{
    DeregistrationAccessType, NasConfigurationUpdateCommand, NasDeRegistrationType,
    NasDeregistrationRequestUeOriginating, NasDeregistrationRequestUeTerminated, NasFGsMobileIdentity,
    NasServiceAccept, NasServiceReject, NasServiceRequest, NasServiceType, NasUplinkDataStatus, ServiceType,
};

/// Reason of a service request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Uplink signalling.
    Signalling,
    /// Uplink data for the active sessions.
    Data,
    Paged,
}

impl Ue {
    /// Starts a service request from idle.
    pub fn service_request(&mut self, service: Service, out: &mut UeOutput) -> Result<(), CommandError> {
        if self.mm != MmState::Registered || self.secured {
            return Err(CommandError::State(self.mm));
        }
        let guti = self.guti.ok_or(CommandError::NoContext)?;
        let ksi = self.key_set();
        let kind = match service {
            Service::Signalling => ServiceType::Signalling,
            Service::Data => ServiceType::Data,
            Service::Paged => ServiceType::MobileTerminatedServices,
        };
        let identity = NasFGsMobileIdentity::new(&nas::s_tmsi_octets(guti)[..]);
        let clear = NasServiceRequest::new(ngksi(ksi)?, NasServiceType::from_service_type(kind), identity);
        let octets = nas::encode(clear.clone())?;
        let mut whole = clear.with_pdu_session_status(self.session_status()?);
        if service != Service::Signalling {
            let active: Vec<u8> = self.active_sessions().collect();
            let status = NasUplinkDataStatus::from_sessions(&active);
            whole.set_uplink_data_status(status.map_err(|e| CommandError::Encoding(e.to_string()))?);
        }
        let whole = nas::encode(whole)?;
        self.begin_access();
        let security = self.security.as_mut().ok_or(CommandError::NoContext)?;
        security.protect_initial(&octets, &whole, &mut out.octets).map_err(|_| CommandError::NoContext)?;
        out.ends.push(out.octets.len());
        self.mm = MmState::ServiceRequested;
        Ok(())
    }

    pub(super) fn service_accept(&mut self, accept: &NasServiceAccept, out: &mut UeOutput) -> Result<(), Violation> {
        if self.mm != MmState::ServiceRequested {
            return Err(Violation::Unexpected(kind::SERVICE_ACCEPT));
        }
        self.mm = MmState::Registered;
        if let Some(status) = &accept.pdu_session_status {
            self.drop_sessions(|psi| status.is_active(psi), out);
        }
        out.events.push(Event::ServiceAccepted);
        Ok(())
    }

    pub(super) fn service_reject(&mut self, reject: &NasServiceReject, out: &mut UeOutput) -> Result<(), Violation> {
        if self.mm != MmState::ServiceRequested {
            return Err(Violation::Unexpected(kind::SERVICE_REJECT));
        }
        let cause = reject.fgmm_cause.value;
        let retry_after_s = reject.t3346_value.as_ref().and_then(|t| t.to_seconds()).map(|s| s as u32);
        // TS 24.501 5.6.1.5: #9, #10 and more severe causes end the registration; #15, #22 and #28
        // do not.
        if matches!(cause, 15 | 22 | 28) {
            self.mm = MmState::Registered;
        } else {
            self.forget();
        }
        out.events.push(Event::ServiceRejected { cause, retry_after_s });
        Ok(())
    }

    /// Starts a deregistration. With `switch_off` the UE awaits no answer (TS 24.501 5.5.2.2.1).
    pub fn deregister(&mut self, _p: &Profile, switch_off: bool, out: &mut UeOutput) -> Result<(), CommandError> {
        if self.mm != MmState::Registered {
            return Err(CommandError::State(self.mm));
        }
        let guti = self.guti.ok_or(CommandError::NoContext)?;
        let ksi = self.key_set();
        let kind = NasDeRegistrationType::new(0)
            .with_deregistration_access_type(DeregistrationAccessType::ThreeGppAccess)
            .with_switch_off(switch_off);
        let identity = NasFGsMobileIdentity::new(&nas::guti_octets(guti)[..]);
        let request = nas::encode(NasDeregistrationRequestUeOriginating::new(kind, ngksi(ksi)?, identity))?;
        // From idle it is an initial message with cleartext IEs only, so it is not ciphered (TS
        // 24.501 4.4.6).
        let protection = if self.secured { header::CIPHERED } else { header::INTEGRITY };
        self.send(protection, &request, out)?;
        self.sessions.clear();
        if switch_off {
            self.mm = MmState::Deregistered;
            out.events.push(Event::Deregistered);
        } else {
            self.mm = MmState::Deregistering;
        }
        Ok(())
    }

    pub(super) fn deregistration_accept(&mut self, out: &mut UeOutput) -> Result<(), Violation> {
        if self.mm != MmState::Deregistering {
            return Err(Violation::Unexpected(kind::DEREGISTRATION_ACCEPT));
        }
        self.mm = MmState::Deregistered;
        out.events.push(Event::Deregistered);
        Ok(())
    }

    pub(super) fn deregistered_by_network(
        &mut self,
        request: &NasDeregistrationRequestUeTerminated,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        let cause = request.fgmm_cause.as_ref().map(|cause| cause.value);
        let reregister = request.de_registration_type.re_registration_required();
        // DEREGISTRATION ACCEPT (UE terminated).
        self.send(header::CIPHERED, &[0x7e, 0, 0x48], out).map_err(|_| Violation::NoContext)?;
        self.mm = MmState::Deregistered;
        self.sessions.clear();
        out.events.push(Event::DeregisteredByNetwork { cause, reregister });
        Ok(())
    }

    pub(super) fn configuration_update(
        &mut self,
        command: &NasConfigurationUpdateCommand,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        if let Some(guti) = command.fg_guti.as_ref().and_then(|identity| nas::guti(&identity.value)) {
            self.guti = Some(guti);
        }
        let acknowledge = command.configuration_update_indication.as_ref().is_some_and(|indication| indication.ack());
        if acknowledge {
            // CONFIGURATION UPDATE COMPLETE
            self.send(header::CIPHERED, &[0x7e, 0, 0x55], out).map_err(|_| Violation::NoContext)?;
        }
        out.events.push(Event::ConfigurationUpdated);
        Ok(())
    }
}
