//! Attach, tracking area update and identification (TS 24.301 5.5.1, 5.5.3, 5.4.4).

use super::ciot::DUMMY;
use super::nas::{self, kind};
use super::security::{EpsSecurity, SecurityContext, header};
use super::{CommandError, Event, Fault, LteUe, MmState, Pending, Profile, UeOutput, Violation};
use crate::ue::Registration;
use crate::ue::moves::{NrOrigin, additional_capability, network_capability};
use vireo_types::{Guami, Guti, PduSessionType, Plmn, Tmsi};
use vireo_wire::nas_eps::{
    AttachType, IdentityType, KeySetIdentifier, NasAttachAccept, NasAttachComplete, NasAttachRequest, NasEpsAttachType,
    NasEpsBearerContextStatus, NasEpsMobileIdentity, NasEpsUpdateType, NasEsmMessageContainer, NasGutiType,
    NasIdentityRequest, NasIdentityResponse, NasKeySetIdentifier, NasMobileIdentity, NasTrackingAreaUpdateAccept,
    NasTrackingAreaUpdateComplete, NasTrackingAreaUpdateRequest, NasUeAdditionalSecurityCapability,
    NasUeNetworkCapability, NasUeStatus, UpdateType,
};

/// EMM cause #22, congestion (TS 24.301 9.9.3.9).
const CONGESTION: u8 = 22;

pub(super) fn encoding(error: impl std::fmt::Display) -> CommandError {
    CommandError::Encoding(error.to_string())
}

/// Returns the NAS key set identifier of a native context, or of none.
pub(super) fn key_set(ksi: Option<u8>) -> Result<NasKeySetIdentifier, CommandError> {
    let ksi = ksi.map_or(KeySetIdentifier::NoKey, KeySetIdentifier::Native);
    NasKeySetIdentifier::from_key_set_identifier(ksi).map_err(encoding)
}

/// Returns the UE network capability: EEA and EIA have the bits of 5G-EA and 5G-IA.
pub(super) fn capability(profile: &Profile) -> NasUeNetworkCapability {
    NasUeNetworkCapability::new(network_capability(profile))
}

/// Returns the 5G algorithms of a UE that supports NR.
pub(super) fn additional(profile: &Profile) -> NasUeAdditionalSecurityCapability {
    NasUeAdditionalSecurityCapability::new(additional_capability(profile))
}

/// Returns a GUTI that no MME of the network has assigned.
fn foreign_guti(plmn: Plmn, supi: u64) -> Guti {
    Guti { guami: Guami { plmn, region: 0xfe, set: 1023, pointer: 63 }, tmsi: Tmsi(supi as u32) }
}

impl LteUe {
    /// Starts an attach or a tracking area update.
    pub fn register(
        &mut self,
        p: &Profile,
        registration: Registration,
        kind: PduSessionType,
        out: &mut UeOutput,
    ) -> Result<(), CommandError> {
        let initial = !registration.is_update();
        let fits = if initial { MmState::Deregistered } else { MmState::Registered };
        if self.mm != fits {
            return Err(CommandError::State(self.mm));
        }
        match registration {
            Registration::Fresh
            | Registration::WithoutPdn
            | Registration::OverNas
            | Registration::Emergency
            | Registration::StaticAddress => {
                (self.guti, self.security) = (None, None);
            }
            Registration::UnknownGuti => {
                self.guti = Some(foreign_guti(p.plmn, self.usim.supi().as_u64()));
                self.is_foreign = true;
                self.security = None;
            }
            _ => {}
        }
        if initial {
            self.own.without_pdn = registration == Registration::WithoutPdn;
            self.own.over_nas = registration == Registration::OverNas;
            self.own.is_emergency = registration == Registration::Emergency;
            self.own.has_static_address = registration == Registration::StaticAddress;
        }
        let request = if initial { self.attach_request(p, kind)? } else { self.update_request(p, registration)? };
        // An update on a connection leaves the key of the RAN node unchanged.
        if initial || !self.secured {
            self.begin_access();
        }
        let from_nr = self.own.from_nr.take();
        let is_sent = from_nr.is_some_and(|from| self.send_from_nr(*from, &request, out));
        match (&self.security, self.guti.is_some()) {
            _ if is_sent => {}
            // Neither request is ever ciphered (TS 24.301 4.4.5).
            (Some(_), true) => {
                let start = out.octets.len();
                self.send(header::INTEGRITY, &request, out)?;
                if self.fault.take_if(|fault| *fault == Fault::WrongMac).is_some() {
                    out.octets[start + 1] ^= 0xff;
                }
            }
            _ => out.plain(&request),
        }
        self.pending = Some(Box::new(Pending { request, ..Pending::default() }));
        self.mm = MmState::Registering;
        self.updating = !initial;
        Ok(())
    }

    /// Sends the request of a UE that comes from 5G under its keys of 5G, and takes the mapped
    /// ones. Returns true if it was sent.
    fn send_from_nr(&mut self, from: NrOrigin, request: &[u8], out: &mut UeOutput) -> bool {
        let NrOrigin { mut security, algorithms } = from;
        self.access_count = security.uplink_count();
        let keys = security.protect_for_eps(request, &mut out.octets);
        out.ends.push(out.octets.len());
        self.security = keys.ok().and_then(|keys| EpsSecurity::mapped(keys, algorithms));
        self.security.is_some()
    }

    fn ksi(&self) -> Option<u8> {
        if let Some(from) = &self.own.from_nr {
            return Some(from.security.ksi());
        }
        self.guti.and(self.security.as_ref()).map(|security| security.ksi())
    }

    fn attach_request(&mut self, p: &Profile, kind: PduSessionType) -> Result<Vec<u8>, CommandError> {
        let identity = match self.guti {
            Some(guti) => NasEpsMobileIdentity::new(&nas::guti_octets(guti)[..]),
            None => NasEpsMobileIdentity::from_imsi(&self.usim.supi().reveal()).map_err(encoding)?,
        };
        self.own.requested = kind;
        let container = match self.own.without_pdn {
            true => NasEsmMessageContainer::new(&DUMMY[..]),
            false => NasEsmMessageContainer::new(super::bearer::connectivity_request(p, kind, self.own.is_emergency)?),
        };
        let kind = NasEpsAttachType::from_attach_type(match self.own.is_emergency {
            true => AttachType::EpsEmergencyAttach,
            false => AttachType::EpsAttach,
        });
        let mut request = NasAttachRequest::new(kind, key_set(self.ksi())?, identity, capability(p), container);
        if p.interworks {
            request.set_ue_additional_security_capability(additional(p));
        }
        self.request_ciot(&mut request);
        let saving = self.requested_saving()?;
        (request.t3324_value, request.t3412_extended_value) = (saving.t3324, saving.t3412);
        request.extended_drx_parameters = saving.extended_drx;
        if self.guti.is_some() {
            // TS 24.301 8.2.4.19: with a GUTI in any case.
            request.set_old_guti_type(NasGutiType::from_mapped(false));
        }
        nas::encode(request)
    }

    pub(super) fn update_request(&self, p: &Profile, registration: Registration) -> Result<Vec<u8>, CommandError> {
        let guti = self.guti.ok_or(CommandError::NoContext)?;
        let kind = match registration {
            Registration::Periodic => NasEpsUpdateType::from_update_type(UpdateType::PeriodicUpdating),
            // Pending data caused the update of an idle UE: it requests the user plane.
            _ => NasEpsUpdateType::from_update_type(UpdateType::TaUpdating).with_active(!self.secured),
        };
        let identity = NasEpsMobileIdentity::new(&nas::guti_octets(guti)[..]);
        let active: Vec<u8> = self.active_sessions().collect();
        let status = NasEpsBearerContextStatus::from_bearers(&active).map_err(encoding)?;
        let mut request = NasTrackingAreaUpdateRequest::new(kind, key_set(self.ksi())?, identity);
        request.set_eps_bearer_context_status(status);
        request.set_old_guti_type(NasGutiType::from_mapped(false));
        if registration == Registration::Mobility {
            request.set_ue_network_capability(capability(p));
            if p.interworks {
                request.set_ue_additional_security_capability(additional(p));
            }
        }
        let saving = self.requested_saving()?;
        (request.t3324_value, request.t3412_extended_value) = (saving.t3324, saving.t3412);
        request.extended_drx_parameters = saving.extended_drx;
        if p.interworks {
            // 5GMM-REGISTERED or EMM-REGISTERED (TS 24.301 9.9.3.54).
            let is_from_nr = self.own.from_nr.is_some() || self.secured && self.is_foreign;
            request.set_ue_status(NasUeStatus::from_status(!is_from_nr, is_from_nr));
        }
        nas::encode(request)
    }

    pub(super) fn identity_request(
        &mut self,
        request: &NasIdentityRequest,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        let incomplete = Violation::Incomplete(kind::IDENTITY_REQUEST);
        let identity = match request.identity_type.identity_type() {
            IdentityType::Imsi => NasMobileIdentity::from_imsi(&self.usim.supi().reveal()).map_err(|_| incomplete)?,
            IdentityType::Imeisv if self.secured => self.imeisv().ok_or(incomplete)?,
            // TS 24.301 4.4.4.2: without protection only the IMSI.
            _ if !self.secured => return Err(Violation::Unprotected(kind::IDENTITY_REQUEST)),
            _ => NasMobileIdentity::from_no_identity(),
        };
        let response = nas::encode(NasIdentityResponse::new(identity)).map_err(|_| incomplete)?;
        self.answer(&response, out)
    }

    pub(super) fn imeisv(&self) -> Option<NasMobileIdentity> {
        let digits = self.usim.imeisv();
        NasMobileIdentity::from_imeisv(std::str::from_utf8(&digits).ok()?).ok()
    }

    pub(super) fn attach_accept(
        &mut self,
        p: &Profile,
        accept: &NasAttachAccept,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        let incomplete = Violation::Incomplete(kind::ATTACH_ACCEPT);
        // A retransmission by T3450: the COMPLETE was lost (TS 24.301 5.5.1.2.7).
        let repeated = self.mm == MmState::Registered && accept.guti.is_some();
        if self.crosses_detach(accept.guti.is_some()) {
            return Ok(());
        }
        if (self.mm != MmState::Registering || self.updating) && !repeated {
            return Err(Violation::Unexpected(kind::ATTACH_ACCEPT));
        }
        if let Some(identity) = &accept.guti {
            self.assign(nas::guti(&identity.value).ok_or(incomplete)?);
        }
        self.check_ciot(accept)?;
        let is_dummy = self.own.without_pdn && accept.esm_message_container.value[..] == DUMMY;
        let session = match is_dummy {
            true => None,
            false => Some(self.default_bearer(p, &accept.esm_message_container).ok_or(incomplete)?),
        };
        let complete = session.map_or(DUMMY, |session| super::bearer::activation_accept(session.psi));
        let complete = NasAttachComplete::new(NasEsmMessageContainer::new(&complete[..]));
        let complete = nas::encode(complete).map_err(|_| incomplete)?;
        self.send(header::CIPHERED, &complete, out).map_err(|_| Violation::NoContext)?;
        if repeated {
            return Ok(());
        }
        let timers = (accept.t3324_value.as_ref(), accept.t3412_extended_value.as_ref());
        self.take_saving(timers, accept.extended_drx_parameters.as_ref(), out);
        self.mm = MmState::Registered;
        self.pending = None;
        self.sessions.clear();
        out.events.push(Event::Registered { guti: accept.guti.is_some() });
        if let Some(session) = session {
            if self.own.has_static_address {
                self.own.static_address = session.address.ipv4;
            }
            self.sessions.push(session);
            out.events.push(Event::SessionUp { psi: session.psi, address: session.address });
        }
        Ok(())
    }

    /// Returns true if an accept is a retransmission by T3450 that crosses the detach: COMPLETE and
    /// DETACH REQUEST were lost or are on their way.
    fn crosses_detach(&self, has_guti: bool) -> bool {
        self.mm == MmState::Deregistering && has_guti
    }

    pub(super) fn update_accept(
        &mut self,
        accept: &NasTrackingAreaUpdateAccept,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        let incomplete = Violation::Incomplete(kind::UPDATE_ACCEPT);
        let repeated = self.mm == MmState::Registered && accept.guti.is_some();
        if self.crosses_detach(accept.guti.is_some()) {
            return Ok(());
        }
        if (self.mm != MmState::Registering || !self.updating) && !repeated {
            return Err(Violation::Unexpected(kind::UPDATE_ACCEPT));
        }
        if let Some(identity) = &accept.guti {
            self.assign(nas::guti(&identity.value).ok_or(incomplete)?);
            let complete = nas::encode(NasTrackingAreaUpdateComplete::new()).map_err(|_| incomplete)?;
            self.send(header::CIPHERED, &complete, out).map_err(|_| Violation::NoContext)?;
        }
        if repeated {
            return Ok(());
        }
        let timers = (accept.t3324_value.as_ref(), accept.t3412_extended_value.as_ref());
        self.take_saving(timers, accept.extended_drx_parameters.as_ref(), out);
        if let Some(status) = &accept.eps_bearer_context_status {
            self.drop_sessions(|ebi| status.is_active(ebi), out);
        }
        self.mm = MmState::Registered;
        self.pending = None;
        out.events.push(Event::Registered { guti: accept.guti.is_some() });
        Ok(())
    }

    /// Handles the rejection of an attach or of a tracking area update.
    pub(super) fn rejected(
        &mut self,
        kind: u8,
        cause: u8,
        retry_after_s: Option<u64>,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        if self.mm != MmState::Registering {
            return Err(Violation::Unexpected(kind));
        }
        if cause == CONGESTION {
            // Identity and keys stay valid (TS 24.301 5.5.1.2.5, 5.5.3.2.5).
            self.mm = if self.updating { MmState::Registered } else { MmState::Deregistered };
            self.pending = None;
        } else {
            self.forget();
        }
        out.events.push(Event::RegistrationRejected { cause, retry_after_s: retry_after_s.map(|s| s as u32) });
        Ok(())
    }
}
