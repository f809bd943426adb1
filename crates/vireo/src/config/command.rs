//! `vireo config`: checks and shows configurations.

use super::{Config, read};
use crate::cli::Failure;
use clap::Subcommand;
use std::path::PathBuf;

/// Every key with its default and explanation.
const REFERENCE: &str = include_str!("../../../../examples/reference.toml");

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The configuration [default: vireo.toml if it is there]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say whether the configuration is right, and all that is wrong; the files of all TLS tables are read, too
    Check,
    /// Print the configuration with all defaults; secrets are not shown
    Show,
    /// Print every key with its default and explanation
    Reference,
}

/// Does what `vireo config` was asked.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let path = args.config.as_deref();
    match args.command {
        Command::Check => {
            let config = Config::load(path)?;
            config.cluster.tls.as_ref().map_or(Ok(()), |tls| tls.check("cluster.tls"))?;
            config.cluster.check_listeners()?;
            config.cluster.etcd_tls.map_or(Ok(()), |tls| tls.check())?;
            config.state.check_tls()?;
            config.sbi.tls.as_ref().map_or(Ok(()), |tls| tls.check("sbi.tls"))?;
            config.sbi.check_listeners()?;
            println!("the configuration is right");
        }
        Command::Show => {
            Config::load(path)?;
            print!("{}", shown(path)?);
        }
        Command::Reference => print!("{REFERENCE}"),
    }
    Ok(())
}

/// The configuration with all defaults, as a file would say it, secrets excepted.
pub(crate) fn shown(path: Option<&std::path::Path>) -> Result<String, Failure> {
    let mut file = read(path)?;
    (file.slice, file.dnn) = (file.slices(), file.dnns());
    Ok(toml::to_string(&file)?)
}
