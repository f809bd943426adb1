//! `vireo config`: checks, shows and explains configurations.

use clap::{Subcommand, ValueEnum};
use std::path::PathBuf;
use vireo_config::{Config, Failure, shown};

/// Every key with its default and explanation.
const REFERENCE: &str = include_str!("../../../examples/reference.toml");

/// Notice about a UPF whose tunnels RAN nodes may direct anywhere.
const OPEN_TUNNEL_ENDS: &str = "notice: upf.tunnel-ends: empty, so that RAN nodes may name any address as the end of a \
     tunnel; list the networks of RAN nodes and other UPFs";

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
    /// Check the configuration and the files it names, and print all problems
    Check {
        /// Check only the files that the process of this role reads
        #[arg(long, value_enum)]
        role: Option<Role>,
    },
    /// Print the configuration with all defaults, without secrets
    Show,
    /// Print every key with its default and explanation
    Reference,
    /// Print the OpenAPI document of the management API
    Openapi,
}

/// Command whose process reads a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    Run,
    Controller,
    Balancer,
    Host,
    Amf,
    Smf,
    Upf,
}

/// Runs `vireo config`.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let path = args.config.as_deref();
    match args.command {
        Command::Check { role } => {
            let config = Config::load(path)?;
            let starts_upf = role.is_none_or(|role| matches!(role, Role::Run | Role::Balancer | Role::Upf));
            let is_open = starts_upf && config.upf.as_ref().is_some_and(|upf| upf.accepts_any_tunnel_end());
            check(config, role)?;
            if is_open {
                eprintln!("{OPEN_TUNNEL_ENDS}");
            }
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

/// Checks the files that the process of a role reads, or all files.
fn check(mut config: Config, role: Option<Role>) -> Result<(), Failure> {
    let read_by = |roles: &[Role]| role.is_none_or(|role| roles.contains(&role));
    if read_by(&[Role::Controller, Role::Balancer, Role::Host, Role::Amf]) {
        config.cluster.tls.as_ref().map_or(Ok(()), |tls| tls.check("cluster.tls"))?;
        config.cluster.check_listeners()?;
    }
    if read_by(&[Role::Controller]) {
        config.cluster.etcd_tls.as_ref().map_or(Ok(()), vireo_controller::check_tls)?;
    }
    // The kubelet mounts these files in the controller's pod alone.
    if role == Some(Role::Controller) {
        vireo_controller::check_scaling(config.cluster.scaling.as_ref())?;
    }
    if read_by(&[Role::Run, Role::Host, Role::Amf, Role::Smf, Role::Upf]) {
        config.state.check_tls()?;
    }
    if read_by(&[Role::Amf, Role::Smf]) {
        config.sbi.tls.as_ref().map_or(Ok(()), |tls| tls.check("sbi.tls"))?;
        config.sbi.check_listeners()?;
    }
    if read_by(&[Role::Run, Role::Host, Role::Amf]) {
        config.read_home_network_keys()?;
    }
    Ok(())
}
