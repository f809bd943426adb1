//! `vireo subscriber`: provisioning of the subscriber database.
//!
//! Works on the database alone, whether or not a core uses it.

mod add;
mod hn_key;
mod list;
mod private;
mod transfer;

use clap::Subcommand;
use std::path::PathBuf;
use vireo_config::{Config, Failure, SubscribersConfig};
use vireo_subscribers::{OnExisting, Store};
use vireo_types::Supi;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Use this file or postgres:// URL [default: that of the configuration]
    #[arg(long, global = true, value_name = "DATABASE")]
    database: Option<String>,
    /// Use the sealing key of K and OPc in FILE [default: DATABASE.key]
    #[arg(long, global = true, value_name = "FILE", requires = "database")]
    key_file: Option<PathBuf>,
    /// Take the database from this configuration [default: vireo.toml]
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "database")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Add one subscriber, or a range of subscribers
    Add(Box<add::Args>),
    /// Import subscribers from CSV or JSON, all of a file or none
    Import(transfer::ImportArgs),
    /// Export subscribers as CSV or JSON
    Export(transfer::ExportArgs),
    /// List subscribers, without keys
    List(list::Args),
    /// Remove subscribers
    Remove(ImsiArgs),
    /// Suspend subscribers: they get no service and keep their records
    Suspend(ImsiArgs),
    /// End the suspension of subscribers
    Resume(ImsiArgs),
    /// Seal all K and OPc with a new key; running cores follow
    Rekey,
    /// Create a home network key pair for concealed identities (SUCI)
    HnKey(hn_key::Args),
}

#[derive(Debug, clap::Args)]
struct ImsiArgs {
    /// Select the subscribers with these IMSIs
    #[arg(required = true, value_name = "IMSI")]
    imsi: Vec<Supi>,
}

/// Runs `vireo subscriber`.
pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let subscribers = || match &args.database {
        Some(database) => Ok(SubscribersConfig::for_database(database.clone(), args.key_file.clone())),
        None => Config::load(args.config.as_deref()).map(|c| c.subscribers).map_err(Failure::from),
    };
    match args.command {
        Command::Add(add) => add::run(&mut subscribers()?.open()?, &add),
        Command::Import(import) => transfer::import(&mut subscribers()?.open()?, &import),
        Command::Export(export) => transfer::export(&mut subscribers()?.open_existing()?, &export),
        Command::List(list) => list::run(&mut subscribers()?.open_existing()?, &list),
        Command::Remove(remove) => remove_all(&mut subscribers()?.open_existing()?, &remove),
        Command::Suspend(of) => suspend(&mut subscribers()?.open_existing()?, &of, true),
        Command::Resume(of) => suspend(&mut subscribers()?.open_existing()?, &of, false),
        Command::Rekey => {
            let count = subscribers()?.open_existing()?.rekey()?;
            println!("sealed the keys of {count} subscribers anew");
            Ok(())
        }
        Command::HnKey(args) => hn_key::run(&args),
    }
}

/// Suspends subscribers, or ends their suspension: all of them or, if one is unknown, none.
fn suspend(store: &mut Store, args: &ImsiArgs, suspended: bool) -> Result<(), Failure> {
    let mut records = Vec::with_capacity(args.imsi.len());
    for supi in &args.imsi {
        let record = store.get(*supi)?;
        let mut record = record.ok_or_else(|| Failure(format!("{} is not in {}", supi.reveal(), store.path())))?;
        record.subscription.suspended = suspended;
        records.push(record);
    }
    let count = store.import(&records, OnExisting::Replace, &mut |_| {})?;
    println!("{} {count}", if suspended { "suspended" } else { "resumed" });
    Ok(())
}

fn remove_all(store: &mut Store, args: &ImsiArgs) -> Result<(), Failure> {
    let removed = store.remove(args.imsi.iter().copied())?;
    let asked = args.imsi.len() as u64;
    if removed < asked {
        return Err(Failure(format!("removed {removed} of {asked}: the others are not in {}", store.path())));
    }
    println!("removed {removed}");
    Ok(())
}

/// Runs `work` with a progress bar. The bar appears only on a terminal and only for long work.
fn progress<T>(total: u64, work: impl FnOnce(&mut dyn FnMut(u64)) -> Result<T, Failure>) -> Result<T, Failure> {
    if total < 10_000 {
        return work(&mut |_| {});
    }
    let bar = indicatif::ProgressBar::new(total);
    let result = work(&mut |done| bar.set_position(done));
    bar.finish_and_clear();
    result
}
