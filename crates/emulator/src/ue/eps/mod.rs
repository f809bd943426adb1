//! UE of EPS as a pure state machine over NAS (TS 24.301).
//!
//! It has the commands, events and violations of the 5G UE. A registration is an attach with its
//! default bearer, or a tracking area update. A session is an EPS bearer context, with the EPS
//! bearer identity in place of the PSI.

mod attach;
mod authentication;
mod bearer;
mod mobility;
mod nas;
pub mod security;
pub(crate) use nas::guti_octets;
#[cfg(test)]
mod tests;

use super::Registration;
use super::moves::{EpsOrigin, MovingUe, NrOrigin};
use super::security::{AT_HANDOVER, NasSecurity};
use super::{Cause, CommandError, Event, Fault, MmState, Profile, Service, Session, SessionState, UeOutput, Violation};
use crate::usim::Usim;
use security::{EpsSecurity, NextHop, Refusal};
use vireo_types::{Guti, PduSessionType};
use vireo_wire::security::nas_eps::KAsme;

/// State that exists only during an attach or an authentication.
#[derive(Debug, Default)]
struct Pending {
    /// Plain ATTACH REQUEST or TRACKING AREA UPDATE REQUEST, for HASH_MME.
    request: Vec<u8>,
    /// Last answered challenge and its RES, for a retransmission.
    challenge: Option<([u8; 16], [u8; 8])>,
    /// K_ASME of the last answered challenge, with its eKSI, until security mode control activates
    /// it.
    k_asme: Option<(KAsme, u8)>,
}

/// One UE with its USIM, security context and bearers.
#[derive(Debug)]
pub struct LteUe {
    usim: Usim,
    mm: MmState,
    /// True if secure exchange of NAS messages is established on this connection (TS 24.301 4.4.4).
    secured: bool,
    security: Option<EpsSecurity>,
    /// EPS GUTI, mapped to a 5G-GUTI (TS 23.003 2.10.2.1).
    guti: Option<Guti>,
    /// True if the MMEs of this tracking area have not assigned the GUTI.
    is_foreign: bool,
    pending: Option<Box<Pending>>,
    sessions: Vec<Session>,
    /// PDN type that the last attach requested.
    requested: PduSessionType,
    /// Uplink NAS COUNT from which K_eNB is derived.
    access_count: u32,
    /// COUNT of the first SECURITY MODE COMPLETE, from which K_eNB may be derived as well. The
    /// commands answered since then were repeats of one command.
    first_complete: Option<u32>,
    /// Last NH that an eNB received since then.
    hop: Option<Box<NextHop>>,
    fault: Option<Fault>,
    /// True if the registration in progress is a tracking area update.
    updating: bool,
    /// Keys of 5G, until the tracking area update of a UE that comes from there.
    from_nr: Option<Box<NrOrigin>>,
}

impl LteUe {
    /// Creates a UE that is switched off.
    pub fn new(usim: Usim) -> Self {
        LteUe {
            usim,
            mm: MmState::Deregistered,
            secured: false,
            security: None,
            guti: None,
            is_foreign: false,
            pending: None,
            sessions: Vec::new(),
            requested: PduSessionType::Ipv4,
            access_count: 0,
            first_complete: None,
            hop: None,
            fault: None,
            updating: false,
            from_nr: None,
        }
    }

    /// Creates a UE that comes from 5G.
    pub(crate) fn arrive(moving: MovingUe, from: NrOrigin) -> Self {
        LteUe {
            mm: MmState::Registered,
            guti: Some(moving.guti),
            is_foreign: true,
            sessions: moving.sessions,
            from_nr: Some(Box::new(from)),
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

    /// Returns the EMM state.
    pub fn mm(&self) -> MmState {
        self.mm
    }

    /// Returns the USIM.
    pub fn usim(&self) -> &Usim {
        &self.usim
    }

    /// Returns the EPS GUTI, mapped to a 5G-GUTI.
    pub fn guti(&self) -> Option<Guti> {
        self.guti
    }

    /// Returns the GUTI whose S-TMSI the UE gives to lower layers, if it is registered in this
    /// tracking area (TS 24.301 5.3.1.1).
    pub fn access_guti(&self) -> Option<Guti> {
        self.guti.filter(|_| !self.is_foreign)
    }

    /// Stores a GUTI of the network.
    fn assign(&mut self, guti: Guti) {
        (self.guti, self.is_foreign) = (Some(guti), false);
    }

    /// Returns the EPS bearer contexts.
    pub fn sessions(&self) -> &[Session] {
        &self.sessions
    }

    /// Returns the EPS bearer identities of the active bearers.
    pub fn active_sessions(&self) -> impl Iterator<Item = u8> + '_ {
        let active = self.sessions.iter().filter(|session| session.state == SessionState::Active);
        active.map(|session| session.psi)
    }

    /// Returns the security context, for tests and negative cases.
    pub fn security(&mut self) -> Option<&mut EpsSecurity> {
        self.security.as_mut()
    }

    /// Makes the next authentication, or the next message, fail in this way.
    pub fn inject(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }

    /// Handles the release of the S1 connection: the next message is an initial NAS message.
    pub fn connection_released(&mut self) {
        self.secured = false;
        self.pending = None;
        self.mm = match self.mm {
            MmState::ServiceRequested => MmState::Registered,
            // TS 24.301 5.5.3.2.6: the UE stays registered and may retry.
            MmState::Registering if self.updating => MmState::Registered,
            MmState::Registering | MmState::Deregistering => MmState::Deregistered,
            settled => settled,
        };
        if self.mm == MmState::Deregistered {
            self.sessions.clear();
        }
    }

    /// Ends a bearer without signalling.
    pub fn forget_session(&mut self, psi: u8) {
        self.sessions.retain(|session| session.psi != psi);
    }

    /// Detaches the UE without signalling; identity and keys stay.
    pub fn detach(&mut self) {
        self.connection_released();
        self.mm = MmState::Deregistered;
        self.sessions.clear();
    }

    /// Deletes identity and keys, as a severe cause requires.
    fn forget(&mut self) {
        self.mm = MmState::Deregistered;
        self.pending = None;
        self.sessions.clear();
        (self.guti, self.security) = (None, None);
    }

    /// Begins an access: K_eNB is derived from the COUNT of the next message.
    fn begin_access(&mut self) {
        let next = self.security.as_ref().map_or(0, EpsSecurity::uplink_count);
        (self.access_count, self.first_complete, self.hop) = (next, None, None);
    }

    /// Compares the key that the eNB received with the UE's K_eNB. If T3460 expired before the
    /// answer, SECURITY MODE COMMAND arrives twice. The network then uses the first answer that it
    /// receives. It derives the key from that answer's COUNT (TS 33.401 7.2.6.2).
    ///
    /// The context set-up also answers a SERVICE REQUEST (TS 24.301 5.6.1.4.1).
    pub fn check_access_key(&mut self, key: &[u8], out: &mut UeOutput) {
        let mut counts = self.first_complete.unwrap_or(self.access_count)..=self.access_count;
        let is_own = |count: &u32| self.security.as_ref().and_then(|s| s.k_enb(*count)).is_some_and(|own| own == key);
        match counts.find(is_own) {
            Some(count) => (self.access_count, self.first_complete) = (count, None),
            None => return out.events.push(Event::Violation(Violation::AccessKey)),
        }
        if self.mm == MmState::ServiceRequested {
            self.mm = MmState::Registered;
            self.secured = true;
            out.events.push(Event::ServiceAccepted);
        }
    }

    /// Compares the NH that the eNB of a handover received with the UE's NH of that chaining
    /// counter.
    pub fn check_next_hop(&mut self, key: &[u8], chaining: u8, out: &mut UeOutput) {
        let last = self.hop.as_deref().copied();
        let own = self.security.as_ref().and_then(|security| security.next_hop(self.access_count, chaining, last));
        match own {
            Some(own) if own.nh == key => self.hop = Some(Box::new(own)),
            _ => out.events.push(Event::Violation(Violation::AccessKey)),
        }
    }

    /// Protects `plain` with the current context and sends it.
    fn send(&mut self, kind: u8, plain: &[u8], out: &mut UeOutput) -> Result<(), CommandError> {
        let security = self.security.as_mut().ok_or(CommandError::NoContext)?;
        security.protect(kind, plain, &mut out.octets).map_err(|_| CommandError::NoContext)?;
        out.ends.push(out.octets.len());
        Ok(())
    }

    /// Sends an answer, protected if secure exchange is established, else plain.
    fn answer(&mut self, plain: &[u8], out: &mut UeOutput) -> Result<(), Violation> {
        if self.secured {
            self.send(security::header::CIPHERED, plain, out).map_err(|_| Violation::NoContext)
        } else {
            out.plain(plain);
            Ok(())
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

    fn receive_protected(&mut self, profile: &Profile, message: &[u8], out: &mut UeOutput) -> Result<(), Violation> {
        let security = self.security.as_mut().ok_or(Violation::NoContext)?;
        let mut plain = std::mem::take(&mut out.scratch);
        plain.clear();
        let result = match security.unprotect(message, &mut plain) {
            Ok(()) => {
                self.secured = true;
                self.dispatch(profile, &plain, out)
            }
            Err(Refusal::Short) => Err(Violation::Undecodable),
            Err(Refusal::Mac | Refusal::Exhausted) => Err(Violation::WrongMac),
        };
        out.scratch = plain;
        result
    }

    /// Handles messages that are allowed without protection before secure exchange is established
    /// (TS 24.301 4.4.4.2).
    fn receive_plain(&mut self, profile: &Profile, message: &[u8], out: &mut UeOutput) -> Result<(), Violation> {
        let kind = message.get(1).copied().unwrap_or(0);
        if self.secured || !nas::allowed_unprotected(kind) {
            return Err(Violation::Unprotected(kind));
        }
        self.dispatch(profile, message, out)
    }
}
