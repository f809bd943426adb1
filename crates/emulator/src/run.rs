//! Entry points for a scenario, a steady load or a campaign of mutated messages.

use crate::engine;
use crate::error::Error;
use crate::mutate;
use crate::negative;
use crate::options::Options;
use crate::progress::{EndpointFactory, Progress};
use crate::report::Report;
use crate::scenario::Mode;

/// Runs a scenario against the core.
///
/// # Errors
///
/// Returns an error if the options are invalid, an endpoint cannot be opened, or the core does not
/// accept a gNB.
pub fn run(options: &Options, progress: &mut dyn FnMut(Progress)) -> Result<Report, Error> {
    let open = |n: u32| Ok(engine::bind(options, n)?);
    run_with(options, &open, progress)
}

/// Runs with SCTP endpoints that `open` creates, for tests and for other drivers.
///
/// # Errors
///
/// Returns an error as [`run`] does.
pub fn run_with(
    options: &Options,
    open: EndpointFactory<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, Error> {
    match options.scenario.mode {
        _ if options.steady.is_some() => engine::run_with(options, open, progress),
        Mode::Steps(_) => engine::run_with(options, open, progress),
        Mode::Mutate => mutate::run(options, open, progress),
        _ => {
            engine::check(options)?;
            negative::run(options, open, progress)
        }
    }
}
