//! UE of either dialect.

use crate::options::Options;
use crate::ran::Tunnel;
use crate::rat::Rat;
use crate::ue::eps::LteUe;
use crate::ue::security::{SecurityContext, header};
use crate::ue::{
    self, CommandError, Fault, MmState, PowerSaving, Registration, Service, Session, SessionState, SessionVariant, Ue,
    UeOutput,
};
use crate::usim::Usim;
use vireo_types::{Guti, PduSessionType};

/// UE of either dialect.
#[derive(Debug)]
pub(crate) enum Device {
    Nr(Ue),
    Eps(LteUe),
}

/// Calls the same method of either UE.
macro_rules! either {
    ($device:expr, $ue:ident => $call:expr) => {
        match $device {
            Device::Nr($ue) => $call,
            Device::Eps($ue) => $call,
        }
    };
}

impl Device {
    pub(crate) fn new(rat: Rat, usim: Usim) -> Self {
        match rat {
            Rat::Nr => Device::Nr(Ue::new(usim)),
            Rat::Eps => Device::Eps(LteUe::new(usim)),
        }
    }

    pub(crate) fn rat(&self) -> Rat {
        match self {
            Device::Nr(_) => Rat::Nr,
            Device::Eps(_) => Rat::Eps,
        }
    }

    /// Returns the name of the mobility management protocol, for texts.
    pub(crate) fn mm_name(&self) -> &'static str {
        match self {
            Device::Nr(_) => "5GMM",
            Device::Eps(_) => "EMM",
        }
    }

    pub(crate) fn mm(&self) -> MmState {
        either!(self, ue => ue.mm())
    }

    pub(crate) fn usim(&self) -> &Usim {
        either!(self, ue => ue.usim())
    }

    pub(crate) fn guti(&self) -> Option<Guti> {
        either!(self, ue => ue.guti())
    }

    /// Returns the GUTI whose S-TMSI the UE sends in RRC, if any.
    pub(crate) fn access_guti(&self) -> Option<Guti> {
        either!(self, ue => ue.access_guti())
    }

    pub(crate) fn sessions(&self) -> &[Session] {
        either!(self, ue => ue.sessions())
    }

    /// Returns true if the packets of the UE are sent over NAS.
    pub(crate) fn is_over_nas(&self) -> bool {
        matches!(self, Device::Eps(ue) if ue.is_over_nas())
    }

    /// Sends a packet over NAS. An idle UE sends it with a service request, and expects nothing
    /// more.
    pub(crate) fn send_data(&mut self, psi: u8, packet: &[u8], out: &mut UeOutput) -> Result<(), CommandError> {
        match self {
            Device::Eps(ue) if ue.is_secured() => ue.send_data(psi, packet, out),
            Device::Eps(ue) => ue.control_plane_service(Some((psi, packet)), false, out),
            Device::Nr(_) => Err(CommandError::Session(psi)),
        }
    }

    /// Returns true if every active session has a tunnel.
    pub(crate) fn has_tunnels(&self, tunnels: &[Tunnel]) -> bool {
        if self.is_over_nas() {
            return true;
        }
        let has = |psi: u8| tunnels.iter().any(|tunnel| tunnel.psi == psi);
        either!(self, ue => ue.active_sessions().all(has))
    }

    /// Returns the session with this PDU session identity. A bearer of EPS has it beside its own.
    fn session(&self, psi: u8) -> Option<&Session> {
        self.sessions().iter().find(|session| match self {
            Device::Nr(_) => session.psi == psi,
            Device::Eps(_) => session.other == psi,
        })
    }

    /// Returns the identity of session `psi` at its RAN node.
    pub(crate) fn tunnel_identity(&self, psi: u8) -> Option<u8> {
        self.session(psi).map(|session| session.psi)
    }

    /// Returns true if session `psi` is active with its tunnel.
    pub(crate) fn is_established(&self, psi: u8, tunnels: &[Tunnel]) -> bool {
        let session = self.session(psi).filter(|session| session.state == SessionState::Active);
        session.is_some_and(|session| tunnels.iter().any(|tunnel| tunnel.psi == session.psi))
    }

    /// Returns true if session `psi` has ended, with its tunnel: each other tunnel has its session.
    pub(crate) fn is_released(&self, psi: u8, tunnels: &[Tunnel]) -> bool {
        let has_session = |tunnel: &Tunnel| self.sessions().iter().any(|session| session.psi == tunnel.psi);
        self.session(psi).is_none() && tunnels.iter().all(has_session)
    }

    /// Returns true if a registration of this kind is complete on the RAN side. The default bearer
    /// of an attach needs its tunnel.
    pub(crate) fn is_registered(&self, registration: Registration, tunnels: &[Tunnel]) -> bool {
        match (self, registration) {
            (Device::Nr(_), _) | (_, Registration::Periodic) => true,
            (Device::Eps(_), _) => self.has_tunnels(tunnels),
        }
    }

    pub(crate) fn inject(&mut self, fault: Fault) {
        either!(self, ue => ue.inject(fault));
    }

    pub(crate) fn request_saving(&mut self, saving: PowerSaving) {
        either!(self, ue => ue.request_saving(saving));
    }

    /// Makes each further 5G AKA a deviation of the network.
    pub(crate) fn require_eap(&mut self) {
        if let Device::Nr(ue) = self {
            ue.require_eap();
        }
    }

    pub(crate) fn extended_drx(&self) -> Option<u8> {
        either!(self, ue => ue.extended_drx())
    }

    pub(crate) fn connection_released(&mut self) {
        either!(self, ue => ue.connection_released());
    }

    pub(crate) fn forget_session(&mut self, psi: u8) {
        if let Some(psi) = self.session(psi).map(|session| session.psi) {
            either!(self, ue => ue.forget_session(psi));
        }
    }

    pub(crate) fn detach(&mut self) {
        either!(self, ue => ue.detach());
    }

    pub(crate) fn register(
        &mut self,
        options: &Options,
        registration: Registration,
        out: &mut UeOutput,
    ) -> Result<(), CommandError> {
        self.register_with(options, registration, options.session_type, out)
    }

    /// As `register`; the default bearer of an attach has this type.
    pub(crate) fn register_with(
        &mut self,
        options: &Options,
        registration: Registration,
        kind: PduSessionType,
        out: &mut UeOutput,
    ) -> Result<(), CommandError> {
        match self {
            Device::Nr(ue) => ue.register(&options.profile, registration, out),
            Device::Eps(ue) => ue.register(&options.profile, registration, kind, out),
        }
    }

    /// Starts the establishment of a session. An EPS UE has its first one since its attach.
    pub(crate) fn establish(
        &mut self,
        options: &Options,
        psi: u8,
        kind: Option<PduSessionType>,
        out: &mut UeOutput,
    ) -> Result<(), CommandError> {
        match self {
            Device::Nr(ue) => ue.establish(&options.profile, psi, kind.unwrap_or(options.session_type), out),
            Device::Eps(ue) if ue.is_active(psi) => Ok(()),
            Device::Eps(ue) => {
                let session = (psi, kind.unwrap_or(options.session_type));
                ue.establish_as(&options.profile, session, SessionVariant::Usual, out)
            }
        }
    }

    /// Starts the establishment of a further session in this way.
    pub(crate) fn establish_as(
        &mut self,
        options: &Options,
        psi: u8,
        variant: SessionVariant,
        out: &mut UeOutput,
    ) -> Result<(), CommandError> {
        let kind = options.session_type;
        match self {
            Device::Nr(ue) => ue.establish_as(&options.profile, (psi, kind), variant, out),
            Device::Eps(ue) => ue.establish_as(&options.profile, (psi, kind), variant, out),
        }
    }

    /// Requests the modification of a PDU session.
    pub(crate) fn request_modification(&mut self, psi: u8, out: &mut UeOutput) -> Result<(), CommandError> {
        match self {
            Device::Nr(ue) => ue.request_modification(psi, out),
            Device::Eps(_) => Err(CommandError::Session(psi)),
        }
    }

    pub(crate) fn release(&mut self, psi: u8, out: &mut UeOutput) -> Result<(), CommandError> {
        either!(self, ue => ue.release(psi, out))
    }

    pub(crate) fn service_request(&mut self, service: Service, out: &mut UeOutput) -> Result<(), CommandError> {
        either!(self, ue => ue.service_request(service, out))
    }

    pub(crate) fn deregister(
        &mut self,
        options: &Options,
        switch_off: bool,
        out: &mut UeOutput,
    ) -> Result<(), CommandError> {
        match self {
            Device::Nr(ue) => ue.deregister(&options.profile, switch_off, out),
            Device::Eps(ue) => ue.deregister(switch_off, out),
        }
    }

    pub(crate) fn receive(&mut self, options: &Options, nas: &[u8], out: &mut UeOutput) {
        either!(self, ue => ue.receive(&options.profile, nas, out));
    }

    pub(crate) fn check_access_key(&mut self, key: &[u8], out: &mut UeOutput) {
        either!(self, ue => ue.check_access_key(key, out));
    }

    pub(crate) fn check_next_hop(&mut self, key: &[u8], chaining: u8, out: &mut UeOutput) {
        either!(self, ue => ue.check_next_hop(key, chaining, out));
    }

    /// Returns true if a registration also activates the first session.
    pub(crate) fn attaches_with_session(&self) -> bool {
        matches!(self, Device::Eps(_))
    }

    /// Returns true if a registration also activates this session.
    pub(crate) fn attaches_with(&self, psi: u8) -> bool {
        self.attaches_with_session() && psi == ue::eps::ATTACH_PSI
    }

    /// Moves the idle UE to the other technology. Returns false if it cannot move; it is then
    /// switched off.
    pub(crate) fn change_rat(&mut self, options: &Options) -> bool {
        let spare = Device::new(self.rat(), self.usim().renewed());
        let moved = match std::mem::replace(self, spare) {
            Device::Nr(ue) => ue.departed().map(|(moving, from)| Device::Eps(LteUe::arrive(moving, from))),
            Device::Eps(ue) => ue.departed(&options.profile).map(|(moving, from)| Device::Nr(Ue::arrive(moving, from))),
        };
        moved.map(|device| *self = device).is_some()
    }

    /// Hands the connected UE over to the other technology, with the value of the NAS transparent
    /// container in its command. Returns false if it cannot move; it is then switched off.
    pub(crate) fn apply_handover_command(&mut self, container: &[u8]) -> bool {
        let spare = Device::new(self.rat(), self.usim().renewed());
        let moved = match std::mem::replace(self, spare) {
            Device::Nr(ue) => ue.into_eps(container).map(Device::Eps),
            Device::Eps(ue) => ue.into_nr(container).map(Device::Nr),
        };
        moved.map(|device| *self = device).is_some()
    }

    /// Compares the key that a target of the other technology received with the UE's own.
    pub(crate) fn check_mapped_key(&mut self, key: &[u8], chaining: u8, out: &mut UeOutput) {
        either!(self, ue => ue.check_mapped_key(key, chaining, out));
    }

    /// Returns true if the UE has a security context.
    pub(crate) fn has_security(&mut self) -> bool {
        self.ksi().is_some()
    }

    /// Returns the key set identifier of the security context.
    pub(crate) fn ksi(&mut self) -> Option<u8> {
        match self {
            Device::Nr(ue) => ue.security().map(|security| security.ksi()),
            Device::Eps(ue) => ue.security().map(|security| security.ksi()),
        }
    }

    /// Protects a message with the next uplink COUNT, for tests and negative cases.
    pub(crate) fn protect(&mut self, kind: u8, plain: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        match self {
            Device::Nr(ue) => ue.security()?.protect(kind, plain, &mut out),
            Device::Eps(ue) => ue.security()?.protect(kind, plain, &mut out),
        }
        .ok()?;
        Some(out)
    }

    /// Protects an initial message. In 5G its whole content is in a NAS message container; in EPS
    /// it is not ciphered.
    pub(crate) fn protect_initial(&mut self, clear: &[u8], whole: &[u8]) -> Option<Vec<u8>> {
        let Device::Nr(ue) = self else { return self.protect(header::INTEGRITY, clear) };
        let mut out = Vec::new();
        ue.security()?.protect_initial(clear, whole, &mut out).ok()?;
        Some(out)
    }

    /// Returns the mobile identity of the GUTI.
    pub(crate) fn guti_octets(&self) -> Option<[u8; 11]> {
        self.guti().map(|guti| guti_octets(self.rat(), guti))
    }
}

/// Returns the mobile identity of a GUTI: 5G-GUTI or EPS GUTI.
pub(crate) fn guti_octets(rat: Rat, guti: Guti) -> [u8; 11] {
    match rat {
        Rat::Nr => ue::nas::guti_octets(guti),
        Rat::Eps => ue::eps::guti_octets(guti),
    }
}

/// Returns the security header type and the message type of a message; the latter only if plain.
pub(crate) fn nas_head(rat: Rat, nas: &[u8]) -> Option<(u8, u8)> {
    match (rat, nas) {
        (Rat::Nr, [_, protection, kind, ..]) => Some((protection & 0xf, *kind)),
        (Rat::Eps, [first, kind, ..]) => Some((first >> 4, *kind)),
        _ => None,
    }
}
