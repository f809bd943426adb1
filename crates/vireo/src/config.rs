//! `vireo config`: checks, shows and explains configurations.

use clap::Subcommand;
use std::path::PathBuf;
use vireo_config::{Config, Failure, shown};

/// Every key with its default and explanation.
const REFERENCE: &str = include_str!("../../../examples/reference.toml");

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Read the configuration from FILE [default: vireo.toml, if present]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check the configuration and all TLS files, and print all problems
    Check,
    /// Print the configuration with all defaults, without secrets
    Show,
    /// Print every key with its default and explanation
    Reference,
    /// Print the OpenAPI document of the management API
    Openapi,
}

/// Runs `vireo config`.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let path = args.config.as_deref();
    match args.command {
        Command::Check => {
            let config = Config::load(path)?;
            config.cluster.tls.as_ref().map_or(Ok(()), |tls| tls.check("cluster.tls"))?;
            config.cluster.check_listeners()?;
            config.cluster.etcd_tls.map_or(Ok(()), |tls| vireo_controller::check_tls(&tls))?;
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
        Command::Openapi => print!("{}", vireo_api::openapi()),
    }
    Ok(())
}
