//! `vireo traffic respond`: echo of user packets on N6.

use super::options::{MIRROR_PORT, create, mirror, span, write_json};
use crate::emulate::stop_on_signal;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;
use vireo_config::Failure;
use vireo_traffic::respond::{Mirror, MirrorReport};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Listen at this address; the generator's --server must route here
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = mirror, default_value_t = SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, MIRROR_PORT))]
    listen: SocketAddrV4,
    /// Stop after TIME [default: on Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = span)]
    duration: Option<Duration>,
    /// Stop after N packets
    #[arg(long, value_name = "N")]
    packets: Option<u64>,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Returns packets to their senders until a limit or a signal.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let json = create(args.json.as_deref())?;
    let mirror = Mirror::open(args.listen)?;
    let stop = stop_on_signal()?;
    eprintln!("traffic: mirroring on {}; Ctrl-C ends it", mirror.address()?);
    let report = mirror.run(args.duration, args.packets, &stop)?;
    let MirrorReport { packets, octets, refused, unrelated: others, seconds, refusal } = &report;
    println!("  {packets} packets mirrored in {seconds:.3} s, {octets} octets of payload; {others} others ignored");
    if let Some(refusal) = refusal {
        println!("  {refused} were refused by the kernel, the last: {refusal}");
    }
    write_json(json, &report)
}
