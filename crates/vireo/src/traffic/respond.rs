//! `vireo traffic respond`.

use super::{MIRROR_PORT, create, mirror, span, write_json};
use crate::cli::Failure;
use crate::emulate::stop_on_signal;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;
use vireo_traffic::respond::{Mirror, MirrorReport};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to listen; the generator's --server must lead here
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = mirror, default_value_t = SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, MIRROR_PORT))]
    listen: SocketAddrV4,
    /// End after this time [default: with Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = span)]
    duration: Option<Duration>,
    /// End after so many packets
    #[arg(long, value_name = "N")]
    packets: Option<u64>,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Mirrors packets.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let json = create(args.json.as_deref())?;
    let mirror = Mirror::open(args.listen)?;
    let stop = stop_on_signal()?;
    eprintln!("traffic: mirroring on {}; Ctrl-C ends it", mirror.address()?);
    let report = mirror.run(args.duration, args.packets, &stop)?;
    let MirrorReport { packets, octets, refused, others, seconds, refusal } = &report;
    println!("  {packets} packets mirrored in {seconds:.3} s, {octets} octets of payload; {others} others ignored");
    if let Some(refusal) = refusal {
        println!("  {refused} were refused by the kernel, the last: {refusal}");
    }
    write_json(json, &report)
}
