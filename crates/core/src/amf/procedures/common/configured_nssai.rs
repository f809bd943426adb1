//! Configured NSSAI: the subscribed slices that the network serves (TS 23.501 5.15.4).

use crate::config::CoreConfig;
use crate::step::StepContext;
use crate::subscription::Subscription;
use vireo_types::{Snssai, limits};

/// Returns the configured NSSAI of a UE with this subscription.
pub fn select(config: &CoreConfig, subscription: &Subscription) -> Vec<Snssai> {
    let is_served = |snssai: &Snssai| config.slices.iter().any(|slice| slice.snssai == *snssai);
    let all = subscription.slices.iter().map(|slice| slice.snssai);
    all.filter(is_served).take(limits::CONFIGURED_SNSSAIS).collect()
}

/// Returns the configured NSSAI of the UE; empty without a subscription.
pub fn current(ctx: &StepContext<'_, '_>) -> Vec<Snssai> {
    ctx.ue.subscription.as_ref().map_or_else(Vec::new, |subscription| select(ctx.env.config, subscription))
}
