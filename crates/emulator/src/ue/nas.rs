//! Dispatch of decoded NAS messages, and encoding that the codec does not provide.

use super::{CommandError, Event, Profile, Ue, UeOutput, Violation};
use crate::ue::Cause;
use vireo_types::{Guami, Guti, Plmn, Tmsi};
use vireo_wire::nas::{Nas5gmmMessage, Nas5gsMessage};

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

pub(crate) fn allowed_unprotected(kind: u8) -> bool {
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

impl Ue {
    /// Decodes a plain message and passes it to its procedure.
    pub(super) fn dispatch(
        &mut self,
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
            Nas5gmmMessage::AuthenticationRequest(request) => self.authentication_request(profile, &request, out),
            Nas5gmmMessage::AuthenticationReject(_) => {
                self.authentication_rejected(protected, out);
                Ok(())
            }
            Nas5gmmMessage::IdentityRequest(request) => self.identity_request(profile, &request, protected, out),
            Nas5gmmMessage::RegistrationAccept(accept) => self.registration_accept(&accept, out),
            Nas5gmmMessage::RegistrationReject(reject) => self.registration_reject(&reject, out),
            Nas5gmmMessage::DlNasTransport(transport) => self.downlink_transport(&transport, out),
            Nas5gmmMessage::ServiceAccept(accept) => self.service_accept(&accept, out),
            Nas5gmmMessage::ServiceReject(reject) => self.service_reject(&reject, out),
            Nas5gmmMessage::DeregistrationAcceptUeOriginating(_) => self.deregistration_accept(out),
            Nas5gmmMessage::DeregistrationRequestUeTerminated(request) => self.deregistered_by_network(&request, out),
            Nas5gmmMessage::ConfigurationUpdateCommand(command) => self.configuration_update(&command, out),
            Nas5gmmMessage::FiveGmmStatus(status) => {
                out.events.push(Event::Status(Cause::Mm(status.fgmm_cause.value)));
                Ok(())
            }
            _ => Err(Violation::Unexpected(kind)),
        }
    }
}
