//! `vireo token`: named tokens of the management API, with roles.

use clap::{Subcommand, ValueEnum};
use std::path::PathBuf;
use vireo_config::{Config, Failure};
use vireo_ops::api::{NamedTokens, Role};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Use the token file of this configuration [default: vireo.toml, if present]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create a token and print it; only its hash is stored
    Create {
        /// Name of the token, as in the audit log
        name: String,
        /// Rights of its holder
        #[arg(long, value_enum)]
        role: RoleArg,
    },
    /// List the names and roles of all tokens
    List,
    /// Revoke a token; running processes refuse it at once
    Revoke {
        /// Name of the token
        name: String,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RoleArg {
    /// See everything but keys and whole SUPIs
    Read,
    /// See SUPIs and cells, control UEs, drain hosts
    Operate,
    /// Change subscribers and the configuration
    Admin,
}

impl From<RoleArg> for Role {
    fn from(role: RoleArg) -> Self {
        match role {
            RoleArg::Read => Role::Read,
            RoleArg::Operate => Role::Operate,
            RoleArg::Admin => Role::Admin,
        }
    }
}

/// Runs `vireo token`.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let tokens = NamedTokens::new(&Config::load(args.config.as_deref())?.api.tokens);
    match &args.command {
        Command::Create { name, role } => println!("{}", tokens.create(name, (*role).into())?),
        Command::Revoke { name } => {
            tokens.revoke(name)?;
            println!("revoked {name}");
        }
        Command::List => {
            for token in tokens.list()? {
                let created = humantime::format_rfc3339_seconds(
                    std::time::UNIX_EPOCH + std::time::Duration::from_secs(token.created_at),
                );
                println!("{:<24} {:<8} {created}", token.name, token.role.name());
            }
        }
    }
    Ok(())
}
