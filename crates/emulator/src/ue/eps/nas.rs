//! Dispatch of decoded EPS NAS messages, and encoding that the codec does not provide.

use super::security::{EpsSecurity, PD_ESM};
use super::{ATTACH_PTI, Cause, CommandError, Dialect, Eps, Event, LteUe, Profile, Session, UeOutput, Violation};
use vireo_types::{Guami, Guti, Plmn, Tmsi};
use vireo_wire::nas_eps::{Direction, NasEmmMessage, NasEpsMessage};
use vireo_wire::security::nas_eps::KAsme;

/// EMM message types (TS 24.301 9.8) with more than one use.
pub(super) mod kind {
    pub(in crate::ue::eps) const ATTACH_ACCEPT: u8 = 0x42;
    pub(in crate::ue::eps) const ATTACH_REJECT: u8 = 0x44;
    pub(in crate::ue::eps) const DETACH_ACCEPT: u8 = 0x46;
    pub(in crate::ue::eps) const UPDATE_ACCEPT: u8 = 0x49;
    pub(in crate::ue::eps) const UPDATE_REJECT: u8 = 0x4b;
    pub(in crate::ue::eps) const SERVICE_REJECT: u8 = 0x4e;
    pub(in crate::ue::eps) const SERVICE_ACCEPT: u8 = 0x4f;
    pub(in crate::ue::eps) const GUTI_REALLOCATION: u8 = 0x50;
    pub(in crate::ue::eps) const AUTHENTICATION_REQUEST: u8 = 0x52;
    pub(in crate::ue::eps) const AUTHENTICATION_REJECT: u8 = 0x54;
    pub(in crate::ue::eps) const IDENTITY_REQUEST: u8 = 0x55;
    pub(in crate::ue::eps) const SECURITY_MODE_COMMAND: u8 = 0x5d;
}

/// Returns the octets of an EMM message.
pub(super) fn encode(message: impl Into<NasEmmMessage>) -> Result<Vec<u8>, CommandError> {
    NasEpsMessage::new_emm(message).encode().map_err(|e| CommandError::Encoding(e.to_string()))
}

/// Returns the mobile identity of an EPS GUTI (TS 24.301 9.9.3.12). A 5G-GUTI and an EPS GUTI map
/// to each other (TS 23.003 2.10.2.1).
pub(crate) fn guti_octets(guti: Guti) -> [u8; 11] {
    let guami = guti.guami;
    let mut octets = [0xf6; 11];
    octets[1..4].copy_from_slice(&guami.plmn.nas());
    octets[4] = guami.region;
    octets[5..7].copy_from_slice(&(guami.set << 6 | u16::from(guami.pointer & 0x3f)).to_be_bytes());
    octets[7..].copy_from_slice(&guti.tmsi.0.to_be_bytes());
    octets
}

/// Returns the GUTI of a mobile identity, if it is one.
pub(super) fn guti(octets: &[u8]) -> Option<Guti> {
    let octets: &[u8; 11] = octets.try_into().ok()?;
    if octets[0] & 7 != 6 {
        return None;
    }
    let low = u16::from_be_bytes([octets[5], octets[6]]);
    let plmn = Plmn::from_nas([octets[1], octets[2], octets[3]]);
    let guami = Guami { plmn, region: octets[4], set: low >> 6, pointer: (low & 0x3f) as u8 };
    Some(Guti { guami, tmsi: Tmsi(u32::from_be_bytes([octets[7], octets[8], octets[9], octets[10]])) })
}

impl Dialect for Eps {
    type Security = EpsSecurity;
    type Key = KAsme;
    type Response = [u8; 8];

    const TYPE_AT: usize = 1;
    const FIRST_PTI: u8 = ATTACH_PTI;
    const HAS_NEW_CONTEXT_INDICATOR: bool = false;

    fn allowed_unprotected(kind: u8) -> bool {
        use kind::*;
        matches!(
            kind,
            IDENTITY_REQUEST
                | AUTHENTICATION_REQUEST
                | AUTHENTICATION_REJECT
                | ATTACH_REJECT
                | DETACH_ACCEPT
                | UPDATE_REJECT
                | SERVICE_REJECT
        )
    }

    fn session_identity(session: &Session) -> u8 {
        session.other
    }

    fn dispatch(
        ue: &mut LteUe,
        p: &Profile,
        plain: &[u8],
        _protected: bool,
        out: &mut UeOutput,
    ) -> Result<(), Violation> {
        let is_esm = plain.first().is_some_and(|first| first & 0xf == PD_ESM);
        let kind = plain.get(if is_esm { 2 } else { 1 }).copied().unwrap_or(0);
        let message = match NasEpsMessage::decode_with_direction(plain, Direction::Downlink) {
            Ok(NasEpsMessage::Emm(_, message)) => message,
            Ok(NasEpsMessage::Esm(head, message)) => return ue.bearer_message(p, kind, head, message, out),
            _ => return Err(Violation::Undecodable),
        };
        match message {
            NasEmmMessage::AuthenticationRequest(request) => ue.authentication_request(p, &request, out),
            NasEmmMessage::AuthenticationReject(_) => {
                // TS 24.301 5.4.2.5: the UE deletes identity and keys.
                ue.fault = None;
                ue.forget();
                out.events.push(Event::AuthenticationRejected);
                Ok(())
            }
            NasEmmMessage::IdentityRequest(request) => ue.identity_request(&request, out),
            NasEmmMessage::AttachAccept(accept) => ue.attach_accept(p, &accept, out),
            NasEmmMessage::AttachReject(reject) => {
                let retry = reject.t3346_value.as_ref().and_then(|timer| timer.to_seconds());
                ue.rejected(kind, reject.emm_cause.value, retry, out)
            }
            NasEmmMessage::TrackingAreaUpdateAccept(accept) => ue.update_accept(&accept, out),
            NasEmmMessage::TrackingAreaUpdateReject(reject) => {
                let retry = reject.t3346_value.as_ref().and_then(|timer| timer.to_seconds());
                ue.rejected(kind, reject.emm_cause.value, retry, out)
            }
            NasEmmMessage::ServiceAccept(_) => ue.service_accept(out),
            NasEmmMessage::ServiceReject(reject) => ue.service_reject(&reject, out),
            NasEmmMessage::DetachAccept(_) => ue.detach_accept(out),
            NasEmmMessage::DetachRequestUeTerminated(request) => ue.detached_by_network(&request, out),
            NasEmmMessage::GutiReallocationCommand(command) => ue.guti_reallocation(&command, out),
            NasEmmMessage::EmmInformation(_) => {
                out.events.push(Event::ConfigurationUpdated);
                Ok(())
            }
            NasEmmMessage::EmmStatus(status) => {
                out.events.push(Event::Status(Cause::Emm(status.emm_cause.value)));
                Ok(())
            }
            _ => Err(Violation::Unexpected(kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eps_guti_maps_to_5g_guti_and_back() {
        // MME group 0x8001, MME code 0xc3: region 0x80, set 0b0000000111, pointer 3.
        let octets = [0xf6, 0x99, 0xf9, 0x07, 0x80, 0x01, 0xc3, 0xde, 0xad, 0xbe, 0xef];
        let known = guti(&octets).expect("a GUTI");
        assert_eq!((known.guami.region, known.guami.set, known.guami.pointer), (0x80, 7, 3));
        assert_eq!((known.tmsi, guti_octets(known)), (Tmsi(0xdead_beef), octets));
        assert_eq!(guti(&[0xf2; 11]), None);
        assert_eq!(guti(&octets[1..]), None);
    }
}
