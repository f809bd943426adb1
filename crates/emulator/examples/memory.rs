//! CPU cost of the emulator as a library, with the core in the same process.
//!
//! SCTP runs in memory. `cargo run --release -p vireo-emulator --example memory -- 20000 5`
//! requests 20,000 service requests per second for five seconds from the scripted network of the
//! tests. The network has its own thread. The printed CPU time per procedure is the emulator's
//! alone.

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Duration;
use support::Behaviour;
use support::lab::{CORE, Lab};
use vireo_emulator::load::Pattern;
use vireo_emulator::mix::{Activity, Steady};
use vireo_emulator::scenario::Scenario;
use vireo_emulator::{Load, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let rate: f64 = arguments.next().map_or(Ok(10_000.0), |text| text.parse())?;
    let seconds: f64 = arguments.next().map_or(Ok(5.0), |text| text.parse())?;
    let activity: Activity = arguments.next().map_or(Ok(Activity::ServiceRequest), |text| text.parse())?;

    let scenario = Scenario::find("session").ok_or("there is such a scenario")?;
    let mut options = Options::lab((CORE, 38412).into(), scenario);
    (options.ues, options.gnbs, options.load) = (2000, 2, Load::Window(100));
    options.steady = Some(Steady::weighted(&[(activity, 1.0)], rate, Pattern::Constant, Duration::ZERO));
    options.duration = Some(Duration::from_secs_f64(seconds));

    // `Lab::run` starts the network and passes a closure that creates memory endpoints to
    // `vireo_emulator::run_with`.
    let lab = Lab::new(Behaviour::default());
    let report = lab.run(&options)?;
    print!("{report}");
    Ok(())
}
