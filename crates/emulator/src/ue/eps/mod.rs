//! UE of EPS as a pure state machine over NAS (TS 24.301).
//!
//! It has the commands, events and violations of the 5G UE. A registration is an attach with its
//! default bearer, or a tracking area update. A session is an EPS bearer context, with the EPS
//! bearer identity in place of the PSI.

mod attach;
mod authentication;
mod bearer;
mod ciot;
mod mobility;
mod nas;
mod power_saving;
pub mod security;
pub(crate) use nas::guti_octets;
#[cfg(test)]
mod tests;

use super::Registration;
use super::common::Pending;
use super::moves::{EpsOrigin, MovingUe, NrOrigin};
use super::security::{AT_HANDOVER, NasSecurity};
use super::{
    Cause, CommandError, Dialect, Event, Fault, MmState, NasUe, Profile, Service, Session, SessionState, UeOutput,
    Violation,
};
use security::{EpsSecurity, SecurityContext};
use vireo_types::{Guti, PduSessionType};

/// Procedure transaction identity of the PDN connectivity request in an attach.
const ATTACH_PTI: u8 = 1;
/// PDU session identity of the default bearer of an attach.
pub(crate) const ATTACH_PSI: u8 = 1;

/// EPS (TS 24.301), and the state that only its UE has.
#[derive(Debug)]
pub struct Eps {
    /// PDN type that the last attach requested.
    requested: PduSessionType,
    /// Keys of 5G, until the tracking area update of a UE that comes from there.
    from_nr: Option<Box<NrOrigin>>,
    /// The UE supports EMM-REGISTERED without PDN connection.
    without_pdn: bool,
    /// The packets of the UE are sent over NAS.
    over_nas: bool,
    /// The UE has attached for emergency bearer services alone.
    is_emergency: bool,
    /// Each attach must get the address of the first one.
    has_static_address: bool,
    static_address: Option<std::net::Ipv4Addr>,
}

impl Default for Eps {
    fn default() -> Self {
        Eps {
            requested: PduSessionType::Ipv4,
            from_nr: None,
            without_pdn: false,
            over_nas: false,
            is_emergency: false,
            has_static_address: false,
            static_address: None,
        }
    }
}

/// UE of EPS. Its sessions are EPS bearer contexts.
pub type LteUe = NasUe<Eps>;

impl LteUe {
    /// Creates a UE that comes from 5G.
    pub(crate) fn arrive(moving: MovingUe, from: NrOrigin) -> Self {
        LteUe {
            mm: MmState::Registered,
            guti: Some(moving.guti),
            is_foreign: true,
            sessions: moving.sessions,
            own: Eps { from_nr: Some(Box::new(from)), ..Eps::default() },
            ..LteUe::new(moving.usim)
        }
    }

    /// Creates a UE that comes from 5G by a handover. Its connection stays secured.
    pub(crate) fn arrive_connected(moving: MovingUe, keys: EpsSecurity) -> Self {
        LteUe {
            mm: MmState::Registered,
            secured: true,
            guti: Some(moving.guti),
            is_foreign: true,
            sessions: moving.sessions,
            security: Some(keys),
            access_count: AT_HANDOVER,
            ..LteUe::new(moving.usim)
        }
    }

    /// Returns what the UE takes to 5G by a handover with this value of the S1 mode to N1 mode NAS
    /// transparent container: also the keys, and EEA and EIA. `None` if it is not registered, or
    /// the container does not verify.
    pub(crate) fn handed_over(self, container: &[u8]) -> Option<(MovingUe, (NasSecurity, u8))> {
        let security = self.security.filter(|_| self.mm == MmState::Registered)?;
        let keys = security.handed_to_5g(container, self.access_count, self.hop.map(|hop| *hop))?;
        let (ciphering, integrity) = security.algorithms();
        let algorithms = (ciphering as u8) << 4 | integrity as u8;
        Some((MovingUe::new(self.usim, self.guti?, &self.sessions), (keys, algorithms)))
    }

    /// Returns what the UE takes to 5G. `None` if it is not idle and registered.
    pub(crate) fn departed(mut self, profile: &Profile) -> Option<(MovingUe, EpsOrigin)> {
        if self.mm != MmState::Registered || self.secured {
            return None;
        }
        let request = self.update_request(profile, Registration::Mobility).ok()?;
        let security = self.security.as_mut()?;
        let ksi = security.ksi();
        let (request, k_amf) = security.protect_for_nr(&request).ok()?;
        let moving = MovingUe::new(self.usim, self.guti?, &self.sessions);
        Some((moving, EpsOrigin { request, k_amf: (k_amf, ksi) }))
    }

    /// Stores a GUTI of the network.
    fn assign(&mut self, guti: Guti) {
        (self.guti, self.is_foreign) = (Some(guti), false);
    }

    /// Compares the key that the eNB received with the UE's K_eNB. The context set-up also answers
    /// a SERVICE REQUEST (TS 24.301 5.6.1.4.1).
    pub fn check_access_key(&mut self, key: &[u8], out: &mut UeOutput) {
        if !self.match_access_key(key, out) {
            return;
        }
        if self.mm == MmState::ServiceRequested {
            self.mm = MmState::Registered;
            self.secured = true;
            out.events.push(Event::ServiceAccepted);
        }
    }

    /// Handles one downlink NAS message.
    pub fn receive(&mut self, profile: &Profile, message: &[u8], out: &mut UeOutput) {
        use security::{PD_EMM, header};
        let violation = match message {
            [first, ..] if first & 0xf != PD_EMM => Err(Violation::Undecodable),
            [first, ..] => match first >> 4 {
                header::PLAIN => self.receive_plain(profile, message, out),
                header::NEW_INTEGRITY => self.security_mode_command(profile, message, out),
                header::INTEGRITY | header::CIPHERED => self.receive_protected(profile, message, out),
                _ => Err(Violation::Undecodable),
            },
            [] => Err(Violation::Undecodable),
        };
        if let Err(violation) = violation {
            out.events.push(Event::Violation(violation));
        }
    }
}
