//! `vireo cluster`: members of a cluster, draining and cordon of hosts.
//!
//! Uses the API of a controller or a balancer.

use crate::status::table;
use clap::Subcommand;
use vireo_client::{Answer, ApiArgs};
use vireo_config::Failure;
use vireo_ops::api::{BalancerStatus, HostStatus, Status};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    api: ApiArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show hosts and balancers of the current cluster map
    Status,
    /// Migrate all UEs of a host to other hosts, without loss, and stop it
    Drain {
        /// Number of the host
        #[arg(value_name = "HOST")]
        host: u16,
    },
    /// Keep a host from other buckets and new UEs; it keeps its UEs
    Cordon {
        /// Number of the host
        #[arg(value_name = "HOST")]
        host: u16,
    },
    /// End the cordon of a host, which gets its share of the buckets
    Uncordon {
        /// Number of the host
        #[arg(value_name = "HOST")]
        host: u16,
    },
}

/// Runs `vireo cluster`.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let api = args.api.find()?;
    match args.command {
        Command::Status => {
            let body = api.fetch("/status?limit=0")?;
            let status: Status = serde_json::from_str(&body).map_err(|e| {
                Failure(format!("{api}: unexpected answer ({e}); use a vireo of the release of the core"))
            })?;
            print!("{}", render(&status));
            Ok(())
        }
        Command::Drain { host } => match api.request("POST", &format!("/cluster/drain?host={host}"))? {
            Answer { status: 202, .. } => {
                println!("host {host} gives its UEs to others and leaves: see `vireo cluster status`");
                Ok(())
            }
            Answer { line, body, .. } => Err(Failure(format!("{api} answers '{line}' {}", body.trim()))),
        },
        Command::Cordon { host } | Command::Uncordon { host } => {
            let verb = if matches!(args.command, Command::Cordon { .. }) { "cordon" } else { "uncordon" };
            match api.request("POST", &format!("/v1/hosts/{host}/{verb}"))? {
                Answer { status: 202, .. } => {
                    println!("host {host}: {verb} accepted");
                    Ok(())
                }
                Answer { line, body, .. } => Err(Failure(format!("{api} answers '{line}' {}", body.trim()))),
            }
        }
    }
}

fn render(status: &Status) -> String {
    members(status).unwrap_or_else(|| {
        "no map holds: too few hosts have joined, or no balancer, or this controller stands by\n".into()
    })
}

/// Returns the members of the cluster map as tables; `None` without a map.
pub(crate) fn members(status: &Status) -> Option<String> {
    let first = status.hosts.first()?;
    let mut text =
        format!("epoch {}: {} hosts, {} balancers\n", first.epoch, status.hosts.len(), status.balancers.len());
    let host = |h: &HostStatus| {
        let [id, buckets, replicas] = [h.host.to_string(), h.buckets.to_string(), h.replicas.to_string()];
        let state = if h.cordoned { "cordoned" } else { "" };
        vec![id, h.address.clone(), buckets, replicas, h.machine.clone().unwrap_or_default(), state.to_owned()]
    };
    table(&mut text, &["HOST", "COPIES AT", "BUCKETS", "REPLICAS", "MACHINE", "STATE"], status.hosts.iter().map(host));
    let balancer = |b: &BalancerStatus| {
        let n4 = if b.holds_n4 { "talks to UPFs" } else { "" };
        vec![b.balancer.to_string(), b.address.clone(), n4.to_owned()]
    };
    table(&mut text, &["BALANCER", "HOSTS AT", "N4"], status.balancers.iter().map(balancer));
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_told_with_what_they_have() {
        assert!(render(&Status::default()).starts_with("no map holds"));
        let machine = Some("rack1-a".into());
        let host = HostStatus {
            host: 2,
            address: "10.0.0.2:7".into(),
            buckets: 5,
            replicas: 6,
            epoch: 9,
            machine,
            cordoned: true,
        };
        let balancer = BalancerStatus { balancer: 1, address: "10.0.0.9:8".into(), holds_n4: true };
        let text = render(&Status { hosts: vec![host], balancers: vec![balancer], ..Status::default() });
        assert!(text.starts_with("epoch 9: 1 hosts, 1 balancers\n"), "{text}");
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(lines.contains(&vec!["2", "10.0.0.2:7", "5", "6", "rack1-a", "cordoned"]), "{text}");
        assert!(lines.contains(&vec!["1", "10.0.0.9:8", "talks", "to", "UPFs"]), "{text}");
    }
}
