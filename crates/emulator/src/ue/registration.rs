//! Registration and identification of the UE (TS 24.501 5.5.1, 5.4.3).

use super::moves::network_capability;
use super::nas::{self, kind};
use super::security::{SecurityContext, header};
use super::{CommandError, Event, MmState, Pending, PowerSaving, Profile, Registration, Ue, UeOutput, Violation};
use vireo_types::{Guami, Guti, Tmsi};
use vireo_wire::nas::{
    KeySetIdentifier, NasEpsNasMessageContainer, NasExtendedDrxParameters, NasFGmmCapability, NasFGsMobileIdentity,
    NasFGsRegistrationType, NasGprsTimer3, NasIdentityRequest, NasIdentityResponse, NasKeySetIdentifier,
    NasMicoIndication, NasNssai, NasPduSessionStatus, NasRegistrationAccept, NasRegistrationReject,
    NasRegistrationRequest, NasS1UeNetworkCapability, NasSNssai, NasUeSecurityCapability, NasUeStatus,
    NasUplinkDataStatus, RegistrationType,
};

/// The shortest cycle of extended DRX in NR with a paging time window, 20.48 s, and a window of
/// 2.56 s (TS 24.008 10.5.5.32).
const EXTENDED_DRX: [u8; 1] = [0x13];
/// REGISTRATION COMPLETE without an optional IE.
const COMPLETE: [u8; 3] = [0x7e, 0, 0x43];

pub(super) fn ngksi(ksi: Option<KeySetIdentifier>) -> Result<NasKeySetIdentifier, CommandError> {
    let ksi = ksi.unwrap_or(KeySetIdentifier::NoKey);
    NasKeySetIdentifier::from_key_set_identifier(ksi).map_err(|e| CommandError::Encoding(e.to_string()))
}

/// Returns the UE security capability: a UE of both systems has the algorithms of EPS, too.
pub(super) fn capability(profile: &Profile) -> NasUeSecurityCapability {
    let own = [profile.ciphering, profile.integrity];
    if profile.interworks {
        return NasUeSecurityCapability::new([own, own].concat());
    }
    NasUeSecurityCapability::from_capabilities(profile.ciphering, profile.integrity)
}

pub(crate) fn sd_octets(sd: u32) -> [u8; 3] {
    let [_, a, b, c] = sd.to_be_bytes();
    [a, b, c]
}

fn identity_octets(octets: &[u8]) -> NasFGsMobileIdentity {
    NasFGsMobileIdentity::new(octets)
}

impl Ue {
    /// Starts a registration.
    pub fn register(
        &mut self,
        p: &Profile,
        registration: Registration,
        out: &mut UeOutput,
    ) -> Result<(), CommandError> {
        let initial = !registration.is_update();
        let fits = if initial { MmState::Deregistered } else { MmState::Registered };
        if self.mm != fits {
            return Err(CommandError::State(self.mm));
        }
        match registration {
            Registration::Fresh | Registration::WithoutPdn | Registration::OverNas | Registration::Emergency => {
                (self.guti, self.security, self.is_foreign) = (None, None, false)
            }
            Registration::UnknownGuti => {
                let guami = Guami { plmn: p.plmn, region: 254, set: 1023, pointer: 63 };
                self.guti = Some(Guti { guami, tmsi: Tmsi(self.usim.supi().as_u64() as u32) });
                self.security = None;
            }
            _ => {}
        }
        if initial {
            self.own.is_emergency = registration == Registration::Emergency;
        }
        let identity = match self.guti {
            Some(guti) => nas::guti_octets(guti).to_vec(),
            None => self.usim.suci(p.plmn, &p.concealment)?,
        };
        let (clear, complete) = self.registration_request(p, registration, &identity)?;
        // An update on a connection leaves the key of the RAN node unchanged.
        if initial || !self.secured {
            self.begin_access();
        }
        match (&mut self.security, self.guti.is_some()) {
            // Not an initial NAS message: it is ciphered as a whole (TS 24.501 4.4.5).
            (Some(_), true) if self.secured => self.send(header::CIPHERED, &complete, out)?,
            (Some(security), true) => {
                security.protect_initial(&clear, &complete, &mut out.octets).map_err(|_| CommandError::NoContext)?;
                out.ends.push(out.octets.len());
            }
            _ => out.plain(&clear),
        }
        let k_amf = self.own.from_eps.take().map(|from| from.k_amf);
        let is_mapped = k_amf.is_some();
        self.pending = Some(Box::new(Pending { request: complete, key: k_amf, is_mapped, ..Pending::default() }));
        self.mm = MmState::Registering;
        self.updating = !initial;
        Ok(())
    }

    /// Returns the request twice: with the cleartext IEs alone, and whole (TS 24.501 4.4.6).
    fn registration_request(
        &self,
        p: &Profile,
        registration: Registration,
        identity: &[u8],
    ) -> Result<(Vec<u8>, Vec<u8>), CommandError> {
        let encoding = |e: &dyn std::fmt::Display| CommandError::Encoding(e.to_string());
        let kind = match registration {
            Registration::Mobility => RegistrationType::MobilityRegistrationUpdating,
            Registration::Periodic | Registration::PeriodicFollowOn => RegistrationType::PeriodicRegistrationUpdating,
            Registration::Emergency => RegistrationType::EmergencyRegistration,
            _ => RegistrationType::InitialRegistration,
        };
        let kind = NasFGsRegistrationType::from_registration_type(kind)
            .with_follow_on_request(registration != Registration::Periodic);
        let clear = NasRegistrationRequest::new(kind, ngksi(self.guti.and(self.key_set()))?, identity_octets(identity))
            .with_ue_security_capability(capability(p));
        let clear = match &self.own.from_eps {
            Some(from) => clear
                .with_ue_status(NasUeStatus::from_status(true, false))
                .with_eps_nas_message_container(NasEpsNasMessageContainer::new(from.request.as_slice())),
            // By a handover from EPS (TS 24.501 5.5.1.3.2).
            None if self.secured && self.is_foreign => clear.with_ue_status(NasUeStatus::from_status(true, false)),
            None => clear,
        };
        let octets = nas::encode(clear.clone())?;
        let snssai = NasSNssai::from_sst_sd(p.snssai.sst, p.snssai.sd.map(sd_octets));
        let nssai = NasNssai::from_snssais(&[snssai]).map_err(|e| encoding(&e))?;
        // S1 mode (TS 24.501 9.11.3.1).
        let capability = NasFGmmCapability::from_octets(vec![u8::from(p.interworks)]).map_err(|e| encoding(&e))?;
        let mut whole = clear.with_fgmm_capability(capability).with_requested_nssai(nssai);
        match self.saving {
            Some(PowerSaving::Mode) => {
                whole.set_mico_indication(NasMicoIndication::from_flags(false, false));
                whole.set_t3324_value(NasGprsTimer3::from_seconds(PowerSaving::ACTIVE_S).map_err(|e| encoding(&e))?);
            }
            Some(PowerSaving::ExtendedDrx) => {
                whole.set_requested_extended_drx_parameters(NasExtendedDrxParameters::new(EXTENDED_DRX));
            }
            None => {}
        }
        if p.interworks {
            let octets = network_capability(p);
            whole.set_s1_ue_network_capability(NasS1UeNetworkCapability::new(octets));
        }
        if registration.is_update() {
            whole.set_pdu_session_status(self.session_status()?);
        }
        if registration == Registration::Mobility && !self.secured {
            // Pending data caused the registration: the UE requests the user plane of all sessions.
            let active: Vec<u8> = self.active_sessions().collect();
            let status = NasUplinkDataStatus::from_sessions(&active).map_err(|e| encoding(&e))?;
            whole.set_uplink_data_status(status);
        }
        Ok((octets, nas::encode(whole)?))
    }

    /// Returns the key set identifier of the security context.
    pub(super) fn key_set(&self) -> Option<KeySetIdentifier> {
        let security = self.security.as_ref()?;
        let identifier = if security.is_mapped() { KeySetIdentifier::Mapped } else { KeySetIdentifier::Native };
        Some(identifier(security.ksi()))
    }

    /// Returns the PDU session status IE of the active sessions.
    pub(super) fn session_status(&self) -> Result<NasPduSessionStatus, CommandError> {
        let active: Vec<u8> = self.active_sessions().collect();
        NasPduSessionStatus::from_sessions(&active).map_err(|e| CommandError::Encoding(e.to_string()))
    }

    pub(super) fn identity_request(
        &mut self,
        p: &Profile,
        request: &NasIdentityRequest,
        protected: bool,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        // TS 24.501 9.11.3.3: 1 SUCI, 2 5G-GUTI, 3 IMEI, 4 5G-S-TMSI, 5 IMEISV.
        let asked = request.identity_type.value & 7;
        let incomplete = Violation::Incomplete(kind::IDENTITY_REQUEST);
        let identity = match (asked, self.guti) {
            (1, _) => identity_octets(&self.usim.suci(p.plmn, &p.concealment).map_err(|_| incomplete)?),
            (2, Some(guti)) => identity_octets(&nas::guti_octets(guti)),
            (4, Some(guti)) => identity_octets(&nas::s_tmsi_octets(guti)),
            (5, _) if protected => self.imeisv().ok_or(incomplete)?,
            // TS 24.501 5.4.3.2: the UE sends other identities than the SUCI only under protection.
            (3 | 5, _) if !protected => return Err(Violation::Unprotected(kind::IDENTITY_REQUEST)),
            _ => NasFGsMobileIdentity::from_no_identity(),
        };
        let response = nas::encode(NasIdentityResponse::new(identity)).map_err(|_| incomplete)?;
        self.answer(&response, out)
    }

    pub(super) fn imeisv(&self) -> Option<NasFGsMobileIdentity> {
        let digits = self.usim.imeisv();
        NasFGsMobileIdentity::from_imeisv(std::str::from_utf8(&digits).ok()?).ok()
    }

    pub(super) fn registration_accept(
        &mut self,
        accept: &NasRegistrationAccept,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        let reply = |ue: &mut Self, out: &mut UeOutput| {
            ue.send(header::CIPHERED, &COMPLETE, out).map_err(|_| Violation::NoContext)
        };
        if self.mm == MmState::Registered && accept.fg_guti.is_some() {
            // A retransmission by T3550: the COMPLETE was lost (TS 24.501 5.5.1.2.8).
            return reply(self, out);
        }
        if self.mm == MmState::Deregistering && accept.fg_guti.is_some() {
            // Such a retransmission crosses the deregistration: COMPLETE and request were lost.
            return Ok(());
        }
        if self.mm != MmState::Registering {
            return Err(Violation::Unexpected(kind::REGISTRATION_ACCEPT));
        }
        if accept.fgs_registration_result.emergency_registered() != self.own.is_emergency {
            out.events.push(Event::Violation(Violation::Incomplete(kind::REGISTRATION_ACCEPT)));
        }
        let given = match &accept.fg_guti {
            Some(identity) => {
                let guti = nas::guti(&identity.value).ok_or(Violation::Incomplete(kind::REGISTRATION_ACCEPT))?;
                (self.guti, self.is_foreign) = (Some(guti), false);
                true
            }
            None => false,
        };
        if accept.tai_list.is_none() && given {
            // TS 24.501 5.5.1.2.4: the accept of an initial registration has the registration area
            // with the 5G-GUTI.
            out.events.push(Event::Violation(Violation::Incomplete(kind::REGISTRATION_ACCEPT)));
        }
        if let Some(status) = &accept.pdu_session_status {
            self.drop_sessions(|psi| status.is_active(psi), out);
        }
        let is_granted = accept.mico_indication.is_some() && accept.t3324_value.is_some();
        let parameters = accept.negotiated_extended_drx_parameters.as_ref();
        self.extended_drx = parameters.and_then(|parameters| parameters.value.first()).copied();
        self.check_saving(is_granted, self.extended_drx.is_some(), out);
        self.mm = MmState::Registered;
        self.pending = None;
        if given || accept.configured_nssai.is_some() || accept.network_slicing_indication.is_some() {
            reply(self, out)?;
        }
        out.events.push(Event::Registered { guti: given });
        Ok(())
    }

    pub(super) fn registration_reject(
        &mut self,
        reject: &NasRegistrationReject,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        if self.mm != MmState::Registering {
            return Err(Violation::Unexpected(kind::REGISTRATION_REJECT));
        }
        let cause = reject.fgmm_cause.value;
        let retry_after_s = reject.t3346_value.as_ref().and_then(|t| t.to_seconds()).map(|s| s as u32);
        self.mm = MmState::Deregistered;
        self.pending = None;
        self.sessions.clear();
        // Congestion leaves the identity and the keys valid (TS 24.501 5.5.1.2.5).
        if cause != 22 {
            (self.guti, self.security) = (None, None);
        }
        out.events.push(Event::RegistrationRejected { cause, retry_after_s });
        Ok(())
    }
}
