//! Dispatch of decoded NAS messages, and encoding that the codec does not provide.

use super::security::NasSecurity;
use super::{CommandError, Dialect, Event, Nr, Profile, Session, Ue, UeOutput, Violation};
use crate::ue::Cause;
use vireo_types::{Guami, Guti, Plmn, Tmsi};
use vireo_wire::nas::{Nas5gmmMessage, Nas5gsMessage};
use vireo_wire::security::nas_5gs::KAmf;

/// 5GMM message types (TS 24.501 9.7) with more than one use.
pub(crate) mod kind {
    pub(crate) const REGISTRATION_ACCEPT: u8 = 0x42;
    pub(crate) const REGISTRATION_REJECT: u8 = 0x44;
    pub(crate) const DEREGISTRATION_ACCEPT: u8 = 0x46;
    pub(crate) const SERVICE_REJECT: u8 = 0x4d;
    pub(crate) const SERVICE_ACCEPT: u8 = 0x4e;
    pub(crate) const AUTHENTICATION_REQUEST: u8 = 0x56;
    pub(crate) const AUTHENTICATION_REJECT: u8 = 0x58;
    pub(crate) const IDENTITY_REQUEST: u8 = 0x5b;
    pub(crate) const SECURITY_MODE_COMMAND: u8 = 0x5d;
    pub(crate) const DL_NAS_TRANSPORT: u8 = 0x68;
}

/// Returns the octets of a message.
pub(crate) fn encode(message: impl Into<Nas5gmmMessage>) -> Result<Vec<u8>, CommandError> {
    Nas5gsMessage::new_5gmm(message).encode().map_err(|e| CommandError::Encoding(e.to_string()))
}

/// Returns the mobile identity of a 5G-GUTI (TS 24.501 9.11.3.4).
pub(crate) fn guti_octets(guti: Guti) -> [u8; 11] {
    let mut octets = [0xf2; 11];
    let guami = guti.guami;
    octets[1..4].copy_from_slice(&guami.plmn.nas());
    octets[4] = guami.region;
    octets[5..].copy_from_slice(&s_tmsi_octets(guti)[1..]);
    octets
}

/// Returns the mobile identity of the 5G-S-TMSI within a 5G-GUTI.
pub(crate) fn s_tmsi_octets(guti: Guti) -> [u8; 7] {
    let set = (guti.guami.set << 6 | u16::from(guti.guami.pointer & 0x3f)).to_be_bytes();
    let tmsi = guti.tmsi.0.to_be_bytes();
    [0xf4, set[0], set[1], tmsi[0], tmsi[1], tmsi[2], tmsi[3]]
}

/// Returns the 5G-GUTI of a mobile identity, if it is one.
pub(crate) fn guti(octets: &[u8]) -> Option<Guti> {
    let octets: &[u8; 11] = octets.try_into().ok()?;
    if octets[0] & 7 != 2 {
        return None;
    }
    let set = u16::from_be_bytes([octets[5], octets[6]]);
    let plmn = Plmn::from_nas([octets[1], octets[2], octets[3]]);
    let guami = Guami { plmn, region: octets[4], set: set >> 6, pointer: (set & 0x3f) as u8 };
    Some(Guti { guami, tmsi: Tmsi(u32::from_be_bytes([octets[7], octets[8], octets[9], octets[10]])) })
}

impl Dialect for Nr {
    type Security = NasSecurity;
    type Key = KAmf;
    type Response = [u8; 16];

    const TYPE_AT: usize = 2;
    const FIRST_PTI: u8 = 0;
    const HAS_NEW_CONTEXT_INDICATOR: bool = true;

    fn allowed_unprotected(kind: u8) -> bool {
        use kind::*;
        matches!(
            kind,
            IDENTITY_REQUEST
                | AUTHENTICATION_REQUEST
                | AUTHENTICATION_REJECT
                | REGISTRATION_REJECT
                | DEREGISTRATION_ACCEPT
                | SERVICE_REJECT
        )
    }

    fn session_identity(session: &Session) -> u8 {
        session.psi
    }

    fn dispatch(
        ue: &mut Ue,
        profile: &Profile,
        plain: &[u8],
        protected: bool,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        let kind = plain.get(2).copied().unwrap_or(0);
        let message = match Nas5gsMessage::decode(plain) {
            Ok(Nas5gsMessage::Gmm(_, message)) => message,
            _ => return Err(Violation::Undecodable),
        };
        match message {
            Nas5gmmMessage::AuthenticationRequest(request) => ue.authentication_request(profile, &request, out),
            Nas5gmmMessage::AuthenticationReject(reject) => {
                let checked = ue.check_eap_failure(&reject);
                ue.authentication_rejected(protected, out);
                checked
            }
            Nas5gmmMessage::IdentityRequest(request) => ue.identity_request(profile, &request, protected, out),
            Nas5gmmMessage::RegistrationAccept(accept) => ue.registration_accept(&accept, out),
            Nas5gmmMessage::RegistrationReject(reject) => ue.registration_reject(&reject, out),
            Nas5gmmMessage::DlNasTransport(transport) => ue.downlink_transport(&transport, out),
            Nas5gmmMessage::ServiceAccept(accept) => ue.service_accept(&accept, out),
            Nas5gmmMessage::ServiceReject(reject) => ue.service_reject(&reject, out),
            Nas5gmmMessage::DeregistrationAcceptUeOriginating(_) => ue.deregistration_accept(out),
            Nas5gmmMessage::DeregistrationRequestUeTerminated(request) => ue.deregistered_by_network(&request, out),
            Nas5gmmMessage::ConfigurationUpdateCommand(command) => ue.configuration_update(&command, out),
            Nas5gmmMessage::FiveGmmStatus(status) => {
                out.events.push(Event::Status(Cause::Mm(status.fgmm_cause.value)));
                Ok(())
            }
            _ => Err(Violation::Unexpected(kind)),
        }
    }
}
