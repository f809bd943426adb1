//! `vireo traffic`: user packets for any UPF.
//!
//! `generate` emulates the RAN and, on request, the control plane. `respond` returns every packet
//! on N6. `mutate` emulates a hostile control plane.

mod generate;
mod mutate;
mod respond;

use crate::cli::Failure;
use crate::lab;
use clap::Subcommand;
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

/// Port of PFCP (TS 29.244 4.2.2).
const PFCP: u16 = 8805;
/// Default port of `vireo traffic respond`.
const MIRROR_PORT: u16 = 5678;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    traffic: Traffic,
}

#[derive(Debug, Subcommand)]
enum Traffic {
    /// Send uplink packets of many users from emulated gNBs and count replies
    Generate(Box<generate::Args>),
    /// Return the packets of `generate` from N6
    Respond(respond::Args),
    /// Send mutated PFCP to a UPF and check another control plane's sessions
    Mutate(Box<mutate::Args>),
}

/// Runs `vireo traffic`.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.traffic {
        Traffic::Generate(args) => generate::run(args),
        Traffic::Respond(args) => respond::run(args),
        Traffic::Mutate(args) => mutate::run(args),
    }
}

/// Parses an address with an optional port.
fn endpoint(text: &str, port: u16) -> Result<SocketAddrV4, String> {
    SocketAddrV4::from_str(text)
        .or_else(|_| Ipv4Addr::from_str(text).map(|address| SocketAddrV4::new(address, port)))
        .map_err(|_| format!("{text:?} is no IPv4 address (192.0.2.1) or address and port (192.0.2.1:{port})"))
}

fn mirror(text: &str) -> Result<SocketAddrV4, String> {
    endpoint(text, MIRROR_PORT)
}

/// Parses a PFCP endpoint.
fn n4(text: &str) -> Result<SocketAddrV4, String> {
    endpoint(text, PFCP)
}

/// Parses a time greater than zero.
fn span(text: &str) -> Result<Duration, String> {
    let span = humantime::parse_duration(text).map_err(|error| format!("{text:?}: {error}"))?;
    if span.is_zero() || span > Duration::from_secs(30 * 24 * 3600) {
        return Err(format!("{text:?}: take a time of more than 0 and up to 30 days"));
    }
    Ok(span)
}

/// Creates the report file before the run, so that an invalid path fails at once.
fn create(path: Option<&Path>) -> Result<Option<File>, Failure> {
    path.map(lab::create).transpose()
}

fn write_json(file: Option<File>, report: &impl Serialize) -> Result<(), Failure> {
    if let Some(mut file) = file {
        serde_json::to_writer_pretty(&mut file, report)?;
        file.write_all(b"\n")?;
    }
    Ok(())
}
