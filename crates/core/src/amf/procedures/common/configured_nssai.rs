//! Configured NSSAI: the subscribed slices that the network serves (TS 23.501 5.15.4).

use crate::config::CoreConfig;
use crate::step::StepContext;
use crate::subscription::Subscription;
use vireo_types::{Snssai, limits};

/// Returns the configured NSSAI of a UE with this subscription.
pub fn select(config: &CoreConfig, subscription: &Subscription) -> Vec<Snssai> {
    let all = subscription.slices.iter().map(|slice| slice.snssai);
    all.filter(|snssai| config.serves_slice(*snssai)).take(limits::CONFIGURED_SNSSAIS).collect()
}

/// Returns the configured NSSAI of the UE; empty without a subscription.
pub fn current(ctx: &StepContext<'_, '_>) -> Vec<Snssai> {
    ctx.ue.subscription.as_ref().map_or_else(Vec::new, |subscription| select(ctx.env.config, subscription))
}
