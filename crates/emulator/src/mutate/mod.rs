//! Campaigns of mutated NGAP or S1AP and NAS messages during normal service of another node.
//!
//! Two gNBs or eNBs attack. Their UEs have separate subscriptions and visit each state that a UE
//! has at a core. In each state they send mutated messages:
//!
//! * octets of an NGAP or S1AP PDU,
//! * its information elements,
//! * plain NAS,
//! * NAS inside valid protection,
//! * valid messages at the wrong time or in the name of other UEs.
//!
//! A third node sends non-UE-associated messages. A fourth node, with its own endpoint and address,
//! has good UEs, which run all procedures in a loop.
//!
//! A campaign fails if a good UE fails, or if the core stops answering. It also fails if too few
//! messages pass the ASN.1 decoder or are protected. Its messages follow from the seed and from the
//! core's answers.

mod campaign;
mod device;
mod dice;
mod element;
mod good;
mod library;
mod message;
mod nas;
mod ngap;
mod octets;
mod peer;
pub(crate) mod report;
mod s1ap;
#[cfg(test)]
mod tests;

pub(crate) use library::{initial_ue, uplink_nas};
pub use report::{GoodUes, Growth, Mutations};

use crate::error::Error;
use crate::options::Options;
use crate::progress::{EndpointFactory, Progress};
use crate::rat::Rats;
use crate::report::Report;
use campaign::Campaign;
use good::GoodIds;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs a campaign of [`Options::messages`] messages.
///
/// # Errors
///
/// Returns an error if the options are invalid, or if the core does not accept the nodes.
pub(crate) fn run(
    options: &Options,
    open: EndpointFactory<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, Error> {
    if options.rats == Rats::Both {
        return Err(Error::Options("a campaign has one dialect: give --rat nr or --rat eps".into()));
    }
    if options.cores(options.rats.list()[0]).is_empty() || options.n3.is_empty() {
        return Err(Error::Options("no address: give --core ADDR and --n3 ADDR".into()));
    }
    let good_ids = Arc::new(GoodIds::default());
    let over = Arc::new(AtomicBool::new(false));
    let (result, good) = std::thread::scope(|scope| {
        let served = scope.spawn(|| good::serve(options, open, &good_ids, &over));
        let mut result = Campaign::new(options, open, &good_ids);
        if let Ok(campaign) = &mut result {
            campaign.run(progress, &|| served.is_finished());
        }
        over.store(true, Ordering::Relaxed);
        (result, served.join().unwrap_or(Err(Error::Stopped)))
    });
    let mut report = good?;
    let (mutations, driver) = result?.finish(&report);
    report.scenario = options.scenario.name.into();
    report.rat = options.rats;
    (report.gnbs, report.driver) = (4, driver);
    report.mutations = Some(mutations);
    Ok(report)
}
