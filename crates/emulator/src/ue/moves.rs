//! What a UE takes along when it moves between 5G and EPS with N26 (TS 23.502 4.11.1.2, 4.11.1.3).
//!
//! The UE of one system becomes that of the other: USIM, GUTI, sessions and addresses stay. The
//! keys are mapped (TS 33.501 8.2 to 8.6). The move is complete with a
//! [`super::Registration::Mobility`] in the other system.

use super::security::NasSecurity;
use super::{Profile, Session, SessionState};
use crate::usim::Usim;
use vireo_types::Guti;
use vireo_wire::security::nas_5gs::KAmf;

/// Identity and sessions of a UE that moves.
#[derive(Debug)]
pub(crate) struct MovingUe {
    pub(super) usim: Usim,
    pub(super) guti: Guti,
    /// Active sessions under their identities in the other system.
    pub(super) sessions: Vec<Session>,
}

impl MovingUe {
    /// Leaves behind the sessions that have no identity in the other system.
    pub(super) fn new(usim: Usim, guti: Guti, sessions: &[Session]) -> Self {
        let moves = |session: &&Session| session.state == SessionState::Active && session.other != 0;
        let convert = |session: &Session| Session { psi: session.other, other: session.psi, pti: 0, ..*session };
        MovingUe { usim, guti, sessions: sessions.iter().filter(moves).map(convert).collect() }
    }
}

/// Keys and request of a UE that comes from EPS, until security mode control.
#[derive(Debug)]
pub(crate) struct EpsOrigin {
    /// TRACKING AREA UPDATE REQUEST under the keys of EPS.
    pub(super) request: Vec<u8>,
    /// K_AMF' and its key set identifier, which is that of K_ASME.
    pub(super) k_amf: (KAmf, u8),
}

/// Keys of 5G with which a UE in EPS protects its first message.
#[derive(Debug)]
pub(crate) struct NrOrigin {
    pub(super) security: NasSecurity,
    /// EEA and EIA that the network selected for EPS (TS 24.501 9.11.3.25).
    pub(super) algorithms: u8,
}

/// Returns the value of the UE network capability. N1 mode and dual connectivity with NR are in its
/// seventh octet (TS 24.301 9.9.3.34).
pub(super) fn network_capability(profile: &Profile) -> Vec<u8> {
    let mut octets = vec![profile.ciphering, profile.integrity];
    if profile.interworks {
        octets.extend_from_slice(&[0, 0, 0, 0, 0x30]);
    }
    octets
}

/// Returns the value of the UE additional security capability (TS 24.301 9.9.3.53).
pub(super) fn additional_capability(profile: &Profile) -> [u8; 4] {
    [profile.ciphering, 0, profile.integrity, 0]
}
