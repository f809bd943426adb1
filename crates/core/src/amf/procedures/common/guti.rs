//! Assignment of a GUTI to a UE (TS 24.501 5.3.3, TS 24.301 5.3.1).

use crate::amf::context::UeContext;
use crate::step::{Effect, StepContext};
use vireo_types::Dialect;

/// Assigns a new GUTI to the UE. The previous one stays valid until the UE has confirmed the new
/// one. Returns false if there is no free one.
pub fn assign(ctx: &mut StepContext<'_, '_>) -> bool {
    let Some(tmsi) = ctx.env.ids.tmsi(ctx.ue.ltmsi) else { return false };
    // After an uncompleted exchange the UE may have either 5G-TMSI: the previous one stays valid.
    let superseded = match ctx.ue.identity.old_tmsi {
        Some(_) => ctx.ue.identity.tmsi,
        None => {
            let identity = &mut ctx.ue.identity;
            (identity.old_tmsi, identity.mmes[1]) = (identity.tmsi, identity.mmes[0]);
            None
        }
    };
    ctx.ue.identity.tmsi = Some(tmsi);
    ctx.ue.identity.mmes[0] = mme(ctx.ue);
    ctx.effect(Effect::BindTmsi(tmsi));
    if let Some(superseded) = superseded {
        ctx.effect(Effect::FreeTmsi(superseded));
    }
    ctx.ue.pending.reallocate = false;
    true
}

/// Handles that the UE has the new GUTI: the previous one is free.
pub fn confirm(ctx: &mut StepContext<'_, '_>) {
    if let Some(old) = ctx.ue.identity.old_tmsi.take() {
        ctx.effect(Effect::FreeTmsi(old));
    }
}

/// Returns the balancer of the UE's connection, if it is the UE's MME; 0 in 5GS.
fn mme(ue: &UeContext) -> u8 {
    ue.connection.map(|c| c.assoc).filter(|assoc| assoc.dialect() == Dialect::Eps).map_or(0, |assoc| assoc.balancer())
}
