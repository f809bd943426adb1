//! Option values and report files that the commands share.

use crate::emulate::create as create_file;
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;
use vireo_config::Failure;

/// Port of PFCP (TS 29.244 4.2.2).
pub(super) const PFCP: u16 = 8805;
/// Default port of `vireo traffic respond`.
pub(super) const MIRROR_PORT: u16 = 5678;

/// Parses an address with an optional port.
fn endpoint(text: &str, port: u16) -> Result<SocketAddrV4, String> {
    SocketAddrV4::from_str(text)
        .or_else(|_| Ipv4Addr::from_str(text).map(|address| SocketAddrV4::new(address, port)))
        .map_err(|_| format!("{text:?} is no IPv4 address (192.0.2.1) or address and port (192.0.2.1:{port})"))
}

pub(super) fn mirror(text: &str) -> Result<SocketAddrV4, String> {
    endpoint(text, MIRROR_PORT)
}

/// Parses a PFCP endpoint.
pub(super) fn n4(text: &str) -> Result<SocketAddrV4, String> {
    endpoint(text, PFCP)
}

/// Parses a time greater than zero.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    let span = humantime::parse_duration(text).map_err(|error| format!("{text:?}: {error}"))?;
    if span.is_zero() || span > Duration::from_secs(30 * 24 * 3600) {
        return Err(format!("{text:?}: take a time of more than 0 and up to 30 days"));
    }
    Ok(span)
}

/// Creates the report file before the run, so that an invalid path fails at once.
pub(super) fn create(path: Option<&Path>) -> Result<Option<File>, Failure> {
    path.map(create_file).transpose()
}

pub(super) fn write_json(file: Option<File>, report: &impl Serialize) -> Result<(), Failure> {
    if let Some(mut file) = file {
        serde_json::to_writer_pretty(&mut file, report)?;
        file.write_all(b"\n")?;
    }
    Ok(())
}
