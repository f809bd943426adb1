//! Service request, detach and GUTI reallocation of the UE (TS 24.301 5.6.1, 5.5.2, 5.4.1).

use super::attach::key_set;
use super::nas::{self, kind};
use super::security::{SecurityContext, header};
use super::{CommandError, Event, LteUe, MmState, Service, UeOutput, Violation};
use vireo_wire::nas_eps::{
    NasDetachAccept, NasDetachRequestUeOriginating, NasDetachRequestUeTerminated, NasDetachType, NasEpsMobileIdentity,
    NasGutiReallocationCommand, NasGutiReallocationComplete, NasServiceReject, NetworkDetachKind, UeDetachKind,
};

/// EMM cause #22, congestion (TS 24.301 9.9.3.9).
const CONGESTION: u8 = 22;

impl LteUe {
    /// Starts a service request from idle. The message is the same for every reason (TS 24.301
    /// 8.2.25); the eNB's establishment cause differs.
    pub fn service_request(&mut self, service: Service, out: &mut UeOutput) -> Result<(), CommandError> {
        if self.own.over_nas {
            return self.control_plane_service(None, service == Service::Paged, out);
        }
        if self.mm != MmState::Registered || self.secured {
            return Err(CommandError::State(self.mm));
        }
        self.begin_access();
        let security = self.security.as_mut().ok_or(CommandError::NoContext)?;
        security.service_request(&mut out.octets).map_err(|_| CommandError::NoContext)?;
        out.ends.push(out.octets.len());
        self.mm = MmState::ServiceRequested;
        Ok(())
    }

    pub(super) fn service_reject(&mut self, reject: &NasServiceReject, out: &mut UeOutput) -> Result<(), Violation> {
        if self.mm != MmState::ServiceRequested {
            return Err(Violation::Unexpected(kind::SERVICE_REJECT));
        }
        let cause = reject.emm_cause.value;
        let retry_after_s = reject.t3346_value.as_ref().and_then(|t| t.to_seconds()).map(|s| s as u32);
        // TS 24.301 5.6.1.5: #9, #10 and more severe causes end the registration, #22 does not.
        if cause == CONGESTION {
            self.mm = MmState::Registered;
        } else {
            self.forget();
        }
        out.events.push(Event::ServiceRejected { cause, retry_after_s });
        Ok(())
    }

    /// Starts a detach. With `switch_off` the UE awaits no answer (TS 24.301 5.5.2.2.1).
    pub fn deregister(&mut self, switch_off: bool, out: &mut UeOutput) -> Result<(), CommandError> {
        if self.mm != MmState::Registered {
            return Err(CommandError::State(self.mm));
        }
        let guti = self.guti.ok_or(CommandError::NoContext)?;
        let ksi = self.security.as_ref().map(|security| security.ksi());
        let identity = NasEpsMobileIdentity::new(&nas::guti_octets(guti)[..]);
        let kind = NasDetachType::from_ue_detach_kind(UeDetachKind::EpsDetach, switch_off);
        let request = nas::encode(NasDetachRequestUeOriginating::new(kind, key_set(ksi)?, identity))?;
        // An initial NAS message is not ciphered (TS 24.301 4.4.5).
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

    pub(super) fn detach_accept(&mut self, out: &mut UeOutput) -> Result<(), Violation> {
        if self.mm != MmState::Deregistering {
            return Err(Violation::Unexpected(kind::DETACH_ACCEPT));
        }
        self.mm = MmState::Deregistered;
        out.events.push(Event::Deregistered);
        Ok(())
    }

    pub(super) fn detached_by_network(
        &mut self,
        request: &NasDetachRequestUeTerminated,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        let accept = nas::encode(NasDetachAccept::new()).map_err(|_| Violation::Undecodable)?;
        self.answer(&accept, out)?;
        let kind = request.detach_type.network_detach_kind();
        // An IMSI detach concerns only services that this UE does not use (TS 24.301 5.5.2.3.2).
        if kind == NetworkDetachKind::ImsiDetach {
            return Ok(());
        }
        let cause = request.emm_cause.as_ref().map(|cause| cause.value);
        self.mm = MmState::Deregistered;
        self.sessions.clear();
        // Causes of TS 24.301 5.5.2.3.2 delete identity and keys.
        if cause.is_some() {
            (self.guti, self.security) = (None, None);
        }
        let reregister = kind == NetworkDetachKind::ReattachRequired;
        out.events.push(Event::DeregisteredByNetwork { cause, reregister });
        Ok(())
    }

    pub(super) fn guti_reallocation(
        &mut self,
        command: &NasGutiReallocationCommand,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        let incomplete = Violation::Incomplete(kind::GUTI_REALLOCATION);
        self.assign(nas::guti(&command.guti.value).ok_or(incomplete)?);
        let complete = nas::encode(NasGutiReallocationComplete::new()).map_err(|_| incomplete)?;
        self.answer(&complete, out)?;
        out.events.push(Event::ConfigurationUpdated);
        Ok(())
    }
}
