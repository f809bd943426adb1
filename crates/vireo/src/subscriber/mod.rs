//! `vireo subscriber`: provisioning. It works on the database alone, whether or not a core runs on it.

mod add;
mod hn_key;
mod list;
mod private;
mod transfer;

use crate::cli::Failure;
use crate::config::Config;
use clap::Subcommand;
use std::path::PathBuf;
use vireo_subscribers::Store;
use vireo_types::Supi;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The subscriber database [default: that of the configuration, or else vireo.db]
    #[arg(long, global = true, value_name = "FILE")]
    database: Option<String>,
    /// The configuration that names it [default: vireo.toml if it is there]
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "database")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Add one subscriber, or a range of them
    Add(add::Args),
    /// Import subscribers from CSV or JSON: all of a file, or none
    Import(transfer::ImportArgs),
    /// Export subscribers as CSV or JSON
    Export(transfer::ExportArgs),
    /// List subscribers; keys are never shown
    List(list::Args),
    /// Remove subscribers
    Remove(RemoveArgs),
    /// Make a key pair of the home network for concealed identities (SUCI)
    HnKey(hn_key::Args),
}

#[derive(Debug, clap::Args)]
struct RemoveArgs {
    /// IMSIs of those to remove
    #[arg(required = true, value_name = "IMSI")]
    imsi: Vec<Supi>,
}

/// Does what `vireo subscriber` was asked.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let database = || match &args.database {
        Some(database) => Ok(database.clone()),
        None => Config::load(args.config.as_deref()).map(|c| c.subscribers.database).map_err(Failure::from),
    };
    match args.command {
        Command::Add(add) => add::run(&mut Store::open(&database()?)?, &add),
        Command::Import(import) => transfer::import(&mut Store::open(&database()?)?, &import),
        Command::Export(export) => transfer::export(&mut Store::open_existing(&database()?)?, &export),
        Command::List(list) => list::run(&mut Store::open_existing(&database()?)?, &list),
        Command::Remove(remove) => remove_all(&mut Store::open_existing(&database()?)?, &remove),
        Command::HnKey(args) => hn_key::run(&args),
    }
}

fn remove_all(store: &mut Store, args: &RemoveArgs) -> Result<(), Failure> {
    let removed = store.remove(args.imsi.iter().copied())?;
    let asked = args.imsi.len() as u64;
    if removed < asked {
        return Err(Failure(format!("removed {removed} of {asked}: the others are not in {}", store.path())));
    }
    println!("removed {removed}");
    Ok(())
}

/// Runs `work` with a progress bar for it to report to; the bar shows only on a terminal and only for long work.
fn progress<T>(total: u64, work: impl FnOnce(&mut dyn FnMut(u64)) -> Result<T, Failure>) -> Result<T, Failure> {
    if total < 10_000 {
        return work(&mut |_| {});
    }
    let bar = indicatif::ProgressBar::new(total);
    let result = work(&mut |done| bar.set_position(done));
    bar.finish_and_clear();
    result
}
