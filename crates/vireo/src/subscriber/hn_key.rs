//! `vireo subscriber hn-key`: home network key pairs for SUCIs of ECIES profiles.

use clap::{Args as ClapArgs, ValueEnum};
use vireo_config::Failure;
use vireo_subscribers::{HomeNetworkKey, Profile};

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Scheme {
    /// Use X25519
    #[value(name = "A", alias = "a")]
    A,
    /// Use secp256r1
    #[value(name = "B", alias = "b")]
    B,
}

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Select the ECIES profile of TS 33.501 Annex C.3.4
    #[arg(long)]
    profile: Scheme,
    /// Set the home network public key identifier
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=254))]
    id: u8,
}

/// Creates a key pair and prints each half with its destination.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let profile = match args.profile {
        Scheme::A => Profile::A,
        Scheme::B => Profile::B,
    };
    let (key, private) = HomeNetworkKey::generate(args.id, profile)?;
    println!("# For vireo.toml. Keep it secret.");
    println!("[[subscribers.home-network-key]]");
    println!("id = {}", args.id);
    println!("profile = \"{}\"", if profile == Profile::A { "A" } else { "B" });
    println!("private = \"{}\"", hex::encode(private));
    println!();
    println!("# For USIMs: protection scheme {}, key identifier {}, public key", args.profile as u8 + 1, args.id);
    println!("# {}", hex::encode(key.public()));
    if let Some(point) = key.uncompressed() {
        println!("# The same key as an uncompressed point:");
        println!("# {}", hex::encode(point));
    }
    Ok(())
}
