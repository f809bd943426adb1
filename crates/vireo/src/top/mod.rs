//! `vireo top`: load of a running core, updated each second.
//!
//! Shows totals, latency objectives, NFs and worker processes from the core's API. On a terminal it
//! draws a screen; otherwise it prints text.

mod sample;
mod screen;
mod view;

use sample::ApiSample;
use std::io::IsTerminal;
use std::time::Duration;
use view::View;
use vireo_client::ApiArgs;
use vireo_config::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    api: ApiArgs,
    /// Request and average over TIME, e.g. 1s or 500ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print text once, after one interval (default without a terminal)
    #[arg(long)]
    once: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let allowed = Duration::from_millis(50)..=Duration::from_secs(3600);
    if allowed.contains(&time) { Ok(time) } else { Err("50ms to 1h is allowed".into()) }
}

/// Runs `vireo top`.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let api = args.api.find()?;
    let before = ApiSample::take(&api)?;
    if !args.once && std::io::stdout().is_terminal() {
        return screen::run((args, &api), before);
    }
    std::thread::sleep(args.interval);
    let now = ApiSample::take(&api)?;
    print!("{}", View::new(&before, &now));
    Ok(())
}
