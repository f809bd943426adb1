//! `vireo pki`: certificate authority for processes of clusters and of SBA mode.
//!
//! Each certificate names the roles of its process.

use clap::{Subcommand, ValueEnum};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use vireo_config::Failure;
use vireo_fabric::identity::CertificateRole;
use vireo_pki::{Authority, Files};

/// Range of a certificate's validity, in days.
const DAYS: std::ops::RangeInclusive<i64> = 1..=36_500;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Set the directory of the authority and of the issued files
    #[arg(long, global = true, value_name = "DIR", default_value = "pki")]
    directory: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create an authority: DIR/ca.pem, and DIR/ca.key with mode 0600
    Init {
        /// Set the validity in days
        #[arg(long, value_name = "DAYS", default_value_t = 3650, value_parser = clap::value_parser!(u32).range(DAYS))]
        days: u32,
    },
    /// Issue a certificate: DIR/NAME.pem, and DIR/NAME.key with mode 0600
    Issue(IssueArgs),
}

#[derive(Debug, clap::Args)]
struct IssueArgs {
    /// Set a role of the process; repeat for several roles
    #[arg(long, value_name = "ROLE", required_unless_present = "address")]
    role: Vec<Role>,
    /// Set the name of the process and of its files
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: String,
    /// Set the cluster of the roles: `name` of cluster.tls and sbi.tls
    #[arg(long, value_name = "NAME", default_value = "vireo", value_parser = name)]
    cluster: String,
    /// Set an address or host name that clients check, e.g. of etcd or Redis
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    address: Vec<String>,
    /// Set the validity in days
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(DAYS))]
    days: u32,
    /// Replace existing files of this name
    #[arg(long)]
    replace: bool,
}

/// Role of a process, as on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    Balancer,
    Host,
    Controller,
    Amf,
    Smf,
    Upf,
}

impl From<Role> for CertificateRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Balancer => CertificateRole::Balancer,
            Role::Host => CertificateRole::Host,
            Role::Controller => CertificateRole::Controller,
            Role::Amf => CertificateRole::Amf,
            Role::Smf => CertificateRole::Smf,
            Role::Upf => CertificateRole::Upf,
        }
    }
}

/// Checks a name of a process, a cluster or a file.
fn name(text: &str) -> Result<String, String> {
    let known = |octet: u8| octet.is_ascii_alphanumeric() || b"-_.".contains(&octet);
    match (1..=64).contains(&text.len()) && text.bytes().all(known) && !text.starts_with(['.', '-']) {
        true => Ok(text.to_owned()),
        false => Err("1 to 64 letters, digits, -, _ and . are allowed".into()),
    }
}

fn address(text: &str) -> Result<String, String> {
    if text.parse::<IpAddr>().is_ok() { Ok(text.to_owned()) } else { name(text) }
}

/// Runs `vireo pki`.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Init { days } => init(&args.directory, *days),
        Command::Issue(issue) => self::issue(&args.directory, issue),
    }
}

/// Returns the paths of the authority's certificate and key.
fn files(directory: &Path) -> [PathBuf; 2] {
    ["ca.pem", "ca.key"].map(|name| directory.join(name))
}

fn init(directory: &Path, days: u32) -> Result<(), Failure> {
    let [certificate, key] = files(directory);
    for file in [&certificate, &key] {
        if file.exists() {
            let reason = "an authority is there already; its certificates end with it: name another --directory";
            return Err(Failure(format!("{}: {reason}", file.display())));
        }
    }
    if !directory.exists() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|error| Failure(format!("{} cannot be made: {error}", directory.display())))?;
    }
    let authority = Authority::from_key(&Authority::new()?.key(), days)?;
    write(&key, &authority.key(), 0o600, false)?;
    write(&certificate, &authority.certificate(), 0o644, false)?;
    println!("{}: the authority, for {days} days; every process has a copy", certificate.display());
    println!("{}: its key, which signs certificates; keep it where no process runs", key.display());
    Ok(())
}

fn issue(directory: &Path, args: &IssueArgs) -> Result<(), Failure> {
    if args.name == "ca" {
        return Err(Failure("--name ca: the authority's files are called so; give the process another name".into()));
    }
    let [certificate, key] = files(directory);
    let read = |path: &Path| {
        let text = fs::read_to_string(path);
        text.map_err(|error| Failure(format!("{}: {error}; make an authority with `vireo pki init`", path.display())))
    };
    let (known, key_text) = (read(&certificate)?, read(&key)?);
    if fs::metadata(&key)?.mode() & 0o077 != 0 {
        return Err(Failure(format!("{}: other users may read the authority's key: chmod 600", key.display())));
    }
    let unfit = |error: io::Error| Failure(format!("{}: no private key in PEM ({error})", key.display()));
    let authority = Authority::from_key(&key_text, 1).map_err(unfit)?;
    let roles: Vec<CertificateRole> = args.role.iter().map(|role| (*role).into()).collect();
    let uris: Vec<String> = roles.iter().map(|role| role.uri(&args.cluster)).collect();
    let names: Vec<&str> = uris.iter().chain(&args.address).map(String::as_str).collect();
    let signed = authority.sign(&args.name, &names, args.days)?;
    vireo_fabric::identity::verify_signed_by(&signed.certificate, &known)
        .map_err(|error| Failure(format!("{} does not belong to {}: {error}", key.display(), certificate.display())))?;
    let own = Files::new(directory, &args.name);
    write(&own.key, &signed.key, 0o600, args.replace)?;
    write(&own.certificate, &signed.certificate, 0o644, args.replace)?;
    let Files { certificate, key, authorities } = own;
    if roles.is_empty() {
        // The certificate belongs to another program, which has its own configuration keys.
        println!("certificate {}, key {}, authorities {}", certificate.display(), key.display(), authorities.display());
        return Ok(());
    }
    println!(
        "tls = {{ certificate = {certificate:?}, key = {key:?}, authorities = {authorities:?}, name = {:?} }}",
        args.cluster
    );
    Ok(())
}

/// Writes a new file. With `replace`, removes an existing file first, so that its mode does not
/// remain.
fn write(path: &Path, text: &str, mode: u32, replace: bool) -> Result<(), Failure> {
    if replace
        && let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(Failure(format!("{} cannot be replaced: {error}", path.display())));
    }
    let made = File::options().write(true).create_new(true).mode(mode).open(path);
    made.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure(format!("{} is there already: give --replace", path.display())),
        _ => Failure(format!("{} cannot be written: {error}", path.display())),
    })
}
