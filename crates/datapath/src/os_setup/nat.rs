//! Address translation of UEs' packets by nftables.

use super::tun::{PoolNetwork, networks};
use crate::network::Pool;
use crate::start_error::StartError;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::{Command, Stdio};
use tracing::warn;

/// The nftables table that belongs to the user plane.
const TABLE: &str = "inet vireo";

/// Address translation. Dropping the value removes it.
#[derive(Debug)]
pub(crate) struct Nat(());

impl Nat {
    /// Installs the table in one transaction. Replaces a table that an earlier run left.
    pub(crate) fn install(name: &str, pools: &[Pool]) -> Result<Self, StartError> {
        let mut rules = format!("table {TABLE} {{}}\ndelete table {TABLE}\ntable {TABLE} {{\n chain postrouting {{\n");
        rules.push_str("  type nat hook postrouting priority srcnat; policy accept;\n");
        for PoolNetwork { network, length, .. } in networks(pools)? {
            let family = if network.is_ipv4() { "ip" } else { "ip6" };
            let _ = writeln!(rules, "  {family} saddr {network}/{length} oifname != \"{name}\" masquerade");
        }
        rules.push_str(" }\n}\n");
        nft(&rules)?;
        Ok(Nat(()))
    }

    /// Removes the table of a run with address translation that was killed.
    pub(crate) fn remove_leftover() {
        let _ = nft(&format!("delete table {TABLE}\n"));
    }
}

impl Drop for Nat {
    fn drop(&mut self) {
        if let Err(error) = nft(&format!("delete table {TABLE}\n")) {
            warn!("the nftables table is still there: {error}; run `nft delete table {TABLE}`");
        }
    }
}

fn nft(rules: &str) -> Result<(), StartError> {
    let start = |program: &str| {
        let mut command = Command::new(program);
        command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn()
    };
    // nft lies in /usr/sbin, which is not in every PATH.
    let mut child = match start("nft").or_else(|_| start("/usr/sbin/nft")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(StartError::NoNft),
        other => other?,
    };
    if let Some(mut input) = child.stdin.take() {
        input.write_all(rules.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(StartError::Nft(text.lines().next().unwrap_or("no reason given").to_owned()))
}
