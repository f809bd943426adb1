use clap::Args as ClapArgs;
use serde_json::json;
use std::io::{self, Write};
use vireo_config::Failure;
use vireo_subscribers::{Filter, Page, Store, Subscriber};
use vireo_types::Supi;

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// List only IMSIs that begin with DIGITS
    #[arg(long, default_value = "", value_name = "DIGITS")]
    prefix: String,
    /// List only IMSIs after this one, for paging
    #[arg(long, value_name = "IMSI")]
    after: Option<Supi>,
    /// List at most N subscribers
    #[arg(long, default_value_t = 100)]
    limit: u32,
    /// Print subscribers and total as JSON
    #[arg(long)]
    json: bool,
    /// Print only the number of subscribers
    #[arg(long)]
    count: bool,
}

/// Lists or counts subscribers.
pub(super) fn run(store: &mut Store, args: &Args) -> Result<(), Failure> {
    let filter = Filter { prefix: args.prefix.clone() };
    let total = store.count(&filter)?;
    if args.count {
        println!("{total}");
        return Ok(());
    }
    let found = store.list(&filter, Page { after: args.after, limit: args.limit })?;
    match print(args, total, &found) {
        // The reader closed the pipe, as `head` does.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => Ok(printed?),
    }
}

fn print(args: &Args, total: u64, found: &[Subscriber]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if args.json {
        let list: Vec<_> = found.iter().map(without_keys).collect();
        serde_json::to_writer_pretty(&mut out, &json!({ "total": total, "subscribers": list }))?;
        return writeln!(out);
    }
    writeln!(out, "{:<15}  {:<20}  {:<24}  IPV4", "IMSI", "SLICES", "DNNS")?;
    for subscriber in found {
        writeln!(out, "{}", line(subscriber))?;
    }
    if (found.len() as u64) < total {
        writeln!(out, "{} of {total}; more with --limit or --after", found.len())?;
    }
    Ok(())
}

fn without_keys(s: &Subscriber) -> serde_json::Value {
    let amf = format!("{:02x}{:02x}", s.amf[0], s.amf[1]);
    let mut record =
        json!({ "imsi": s.supi.reveal(), "amf": amf, "ipv4": s.static_ipv4, "subscription": s.subscription });
    if let Some(msisdn) = &s.msisdn {
        record["msisdn"] = msisdn.reveal().into();
    }
    if let Some(method) = s.method {
        record["authentication_method"] = method.to_string().into();
    }
    record
}

fn line(s: &Subscriber) -> String {
    let slices: Vec<_> = s.subscription.slices.iter().map(|s| s.snssai.to_string()).collect();
    let mut dnns: Vec<_> =
        s.subscription.slices.iter().flat_map(|s| s.dnns.iter().map(|d| d.dnn.to_string())).collect();
    dnns.sort();
    dnns.dedup();
    let ipv4 = s.static_ipv4.map_or_else(|| "-".into(), |a| a.to_string());
    format!("{:<15}  {:<20}  {:<24}  {ipv4}", s.supi.reveal(), slices.join(","), dnns.join(","))
}
