//! The UE context in the RAN: set up with the answer to an initial NAS message, and with the user plane of the sessions
//! that the UE wants back (TS 38.413 8.3.1, TS 23.502 4.2.3.2).

use crate::context::RanContext;
use crate::n2::{self, ContextSetup, SessionSetup};
use crate::step::StepContext;

/// The UE's message, just accepted, asks for what [`set_up`] does, perhaps after others have answered and the UE has said more. A RAN
/// that has a context of the UE, or was asked to set one up, has its key.
pub fn begin(turn: &mut StepContext<'_, '_>) {
    let none = turn.ue.connection.is_some_and(|c| c.ran.is_none());
    if let Some(security) = turn.ue.security.as_mut().filter(|_| none) {
        security.begin_access();
    }
}

/// Gives the RAN what it needs for the UE: by Initial Context Setup if it has no context yet, else each session and the
/// NAS message on their own.
pub fn set_up(turn: &mut StepContext<'_, '_>, nas: Option<Vec<u8>>, sessions: Vec<SessionSetup>) {
    let Some(connection) = turn.ue.connection else { return };
    if !connection.ran.is_none() {
        if let Some(nas) = nas {
            turn.send_encoded_nas(nas);
        }
        let ambr = turn.ue.ambr();
        for session in sessions {
            turn.send(|c| n2::session_setup_request(c, ambr, session));
        }
        return;
    }
    let Some(security) = &mut turn.ue.security else { return };
    let kgnb = security.initial_kgnb();
    let setup = ContextSetup {
        guami: turn.env.config.guami(),
        allowed: &turn.ue.allowed,
        capability: turn.ue.security_capability,
        kgnb,
        ambr: turn.ue.ambr(),
        radio_capability: &turn.ue.radio_capability,
        sessions,
        nas,
    };
    let pdu = n2::context_setup_request(&connection, setup);
    turn.send(|_| pdu);
    let deadline = turn.now() + turn.env.config.timers.ran_response;
    if let Some(connection) = &mut turn.ue.connection {
        connection.ran = RanContext::SettingUp { deadline };
    }
}
