//! `vireo plan`: number of user-plane modules for a market and a density of devices.
//!
//! Calculates from the time that one packet costs.

use crate::numbers::{amount, number};
use std::fs;
use std::path::PathBuf;
use vireo_bench::results::{Summary, Table};
use vireo_config::Failure;
use vireo_experiments::capacity::{Cell, Demand, Module, PacketTime, plan};
use vireo_experiments::plot::{Axis, Chart};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Set T_n, receiving and sending a packet, in ns [default: recorded]
    #[arg(long, value_name = "NS", value_parser = time, requires = "tc")]
    tn: Option<f64>,
    /// Set T_c, lookup and decision for a packet, in ns [default: recorded]
    #[arg(long, value_name = "NS", value_parser = time, requires = "tn")]
    tc: Option<f64>,
    /// Set the rest in ns [default: recorded; 0 with --tn and --tc]
    #[arg(long, value_name = "NS", value_parser = time)]
    other: Option<f64>,
    /// Take all three times from FILE, a summary.json of cloud-breakdown
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tn", "tc", "other"])]
    measured: Option<PathBuf>,
    /// Take the times of the paper: T_n 3147, T_c 259, other 288 ns
    #[arg(long, conflicts_with_all = ["tn", "tc", "measured", "driver"])]
    paper: bool,
    /// Select the driver in the recorded or given summary
    #[arg(long, value_name = "D", default_value = "af-xdp", conflicts_with_all = ["tn", "tc"])]
    driver: String,
    /// Set packets per second of a device and direction, one per market
    #[arg(long, value_name = "P,...", value_delimiter = ',', value_parser = amount, default_value = "1,5,10,20")]
    markets: Vec<f64>,
    /// Set active devices per square kilometre, one per kind of area
    #[arg(long, value_name = "K,...", value_delimiter = ',', value_parser = amount, default_value = "100,500,2500")]
    densities: Vec<f64>,
    /// Set the area in square kilometres
    #[arg(long, value_name = "KM2", value_parser = amount, default_value = "100")]
    area: f64,
    /// Set the cores of a module
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024), default_value = "2")]
    cores: u32,
    /// Limit a module to N devices, independent of their traffic
    #[arg(long, value_name = "N", value_parser = amount, default_value = "50000")]
    devices: f64,
    /// Load a module to this fraction of its limit
    #[arg(long, value_name = "0..1", value_parser = share, default_value = "0.9")]
    utilisation: f64,
    /// Write the matrix as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Plot modules over density, one line per market, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Recorded measurement, the source of the default times.
const RECORDED: &[u8] = include_bytes!("../../../results/cloud-breakdown/summary.json");
/// Its name in messages.
const RECORDED_NAME: &str = "results/cloud-breakdown/summary.json";

impl Args {
    /// Returns the times of the options, of the paper, of a summary, or the recorded ones.
    fn time(&self) -> Result<PacketTime, Failure> {
        let found = match (&self.measured, self.tn, self.tc) {
            (_, Some(network), Some(compute)) => PacketTime { network, compute, other: 0.0 },
            _ if self.paper => PacketTime::PAPER,
            (Some(path), ..) => {
                let octets = fs::read(path).map_err(|error| Failure(format!("{}: {error}", path.display())))?;
                measured(&octets, &self.driver).map_err(|what| Failure(format!("{}: {what}", path.display())))?
            }
            _ => measured(RECORDED, &self.driver).map_err(|what| Failure(format!("{RECORDED_NAME}: {what}")))?,
        };
        Ok(PacketTime { other: self.other.unwrap_or(found.other), ..found })
    }

    /// Returns the source of the times, for the output.
    fn source(&self) -> String {
        match &self.measured {
            _ if self.tn.is_some() => "given".to_owned(),
            _ if self.paper => "the paper".to_owned(),
            Some(path) => format!("{}, driver {}", path.display(), self.driver),
            None => format!("{RECORDED_NAME}, driver {}", self.driver),
        }
    }
}

/// Returns the times of a driver in the summary of `vireo experiment cloud-breakdown`.
fn measured(summary: &[u8], driver: &str) -> Result<PacketTime, String> {
    let summary: Summary = serde_json::from_slice(summary)
        .map_err(|error| format!("this is no summary of an experiment ({error}): give that of cloud-breakdown"))?;
    let find = |part: &str| {
        let name = format!("{driver}, {part}");
        summary.figures.iter().find(|figure| figure.name == name).map(|figure| figure.ours.median)
    };
    let drivers: Vec<&str> = summary.figures.iter().filter_map(|figure| figure.name.strip_suffix(", T_c")).collect();
    let drivers: Vec<&str> = drivers.into_iter().filter(|name| !name.contains(',')).collect();
    match (find("T_n"), find("T_c")) {
        // Measurement error may make a difference negative.
        (Some(network), Some(compute)) => {
            Ok(PacketTime { network, compute, other: find("other").unwrap_or(0.0).max(0.0) })
        }
        _ if drivers.is_empty() => Err("it has no times of packets: give the summary of cloud-breakdown".to_owned()),
        _ => Err(format!("it has no driver {driver:?}: choose one of {}", drivers.join(", "))),
    }
}

fn time(text: &str) -> Result<f64, String> {
    number(text, |ns| (0.0..=1e9).contains(&ns), "a time in ns from 0 to a second (1e9)")
}

fn share(text: &str) -> Result<f64, String> {
    number(text, |n| n > 0.0 && n <= 1.0, "a share above 0 and up to 1")
}

/// Runs `vireo plan`.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let time = args.time()?;
    if time.total() <= 0.0 {
        return Err(Failure("the times of a packet are all 0; give measured values with --tn and --tc".into()));
    }
    let module = Module::new(time, args.cores, args.devices, args.utilisation);
    let demand = Demand { markets: args.markets.clone(), densities: args.densities.clone(), area: args.area };
    let cells = plan(&demand, &module);
    print!("{}", text(time, &module, args, &cells));
    if let Some(path) = &args.csv {
        write(path, &table(&cells).csv()?)?;
    }
    if let Some(path) = &args.plot {
        write(path, chart(args, &cells).svg()?.as_bytes())?;
    }
    Ok(())
}

fn write(path: &PathBuf, octets: &[u8]) -> Result<(), Failure> {
    fs::write(path, octets).map_err(|error| Failure(format!("{}: {error}", path.display())))
}

fn text(time: PacketTime, module: &Module, args: &Args, cells: &[Cell]) -> String {
    let mut text = format!(
        "packet times: {}\n\
         T_p = {:.0} ns (T_n {:.0}, {:.0}% of it; T_c {:.0}; other {:.0}): a core does {:.0} packets/s\n\
         M = {} cores, {:.0} packets/s in each direction at {:.0}% of the limit, {:.0} devices\n\n\
         {:>12} {:>14} {:>12} {:>16} {:>8} {:>8}\n",
        args.source(),
        time.total(),
        time.network,
        time.network_share() * 100.0,
        time.compute,
        time.other,
        time.limit(),
        module.cores,
        module.pps,
        args.utilisation * 100.0,
        module.devices,
        "p (1/s)",
        "k (1/km2)",
        "N",
        "PPS each way",
        "modules",
        "cores",
    );
    for Cell { market, density, devices, pps, modules, cores } in cells {
        text.push_str(&format!("{market:>12} {density:>14} {devices:>12.0} {pps:>16.0} {modules:>8} {cores:>8}\n"));
    }
    text
}

fn table(cells: &[Cell]) -> Table {
    let mut table = Table::new(&["p_per_s", "k_per_km2", "devices", "pps_each_way", "modules", "cores"]);
    for cell in cells {
        table.row([
            cell.market.to_string(),
            cell.density.to_string(),
            cell.devices.to_string(),
            cell.pps.to_string(),
            cell.modules.to_string(),
            cell.cores.to_string(),
        ]);
    }
    table
}

fn chart(args: &Args, cells: &[Cell]) -> Chart {
    let title = format!("Modules for {} km2", args.area);
    let chart = Chart::new(title, Axis::linear("active devices per km2"), Axis::linear("modules"));
    args.markets.iter().fold(chart, |chart, market| {
        let mut points: Vec<(f64, f64)> = cells
            .iter()
            .filter(|cell| cell.market == *market)
            .map(|cell| (cell.density, cell.modules as f64))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        chart.line(format!("{market} packets/s per device"), points)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &[&str]) -> Result<Args, clap::Error> {
        Line::try_parse_from([&["plan"], line].concat()).map(|line| line.args)
    }

    #[test]
    fn plan_matrix_is_written_as_csv_and_svg() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let mut args =
            parse(&["--paper", "--markets", "10,8", "--densities", "2500,500", "--utilisation", "1"]).unwrap();
        (args.csv, args.plot) = (Some(file("a.csv")), Some(file("a.svg")));
        run(&args).unwrap();
        let csv = fs::read_to_string(file("a.csv")).unwrap();
        // 2,000,000 packets per second at 270,709 per pair of cores.
        assert!(csv.contains("8,2500,250000,2000000,8,16\n") && csv.lines().count() == 5, "{csv}");
        let svg = fs::read_to_string(file("a.svg")).unwrap();
        assert!(svg.contains("8 packets/s per device") && svg.contains("Modules for 100 km2"));
        args.csv = Some(file("not/there.csv"));
        assert!(run(&args).unwrap_err().to_string().contains("there.csv"));
    }

    #[test]
    fn times_are_recorded_or_given() {
        let time = |line: &[&str]| parse(line).unwrap().time().unwrap();
        let recorded = time(&[]);
        assert_eq!(recorded, measured(RECORDED, "af-xdp").unwrap());
        assert!(recorded.network > 100.0 && recorded.compute > 1.0, "{recorded:?}");
        assert!(time(&["--driver", "xdp"]).total() < recorded.total());
        assert_eq!(time(&["--paper"]), PacketTime::PAPER);
        assert!(parse(&["--paper", "--driver", "xdp"]).is_err());
        assert_eq!(time(&["--tn", "300", "--tc", "30"]), PacketTime { network: 300.0, compute: 30.0, other: 0.0 });
        assert_eq!(time(&["--other", "0"]), PacketTime { other: 0.0, ..recorded });
        assert!(parse(&["--tn", "300"]).is_err(), "one of ours and one of the paper's mean nothing together");
        assert!(run(&parse(&["--tn", "0", "--tc", "0"]).unwrap()).is_err());
    }

    #[test]
    fn measured_times_are_read_by_driver() {
        let figure = |name: &str, ns: f64| {
            serde_json::json!({ "name": name, "unit": "ns", "ours": { "median": ns, "min": ns, "max": ns, "runs": [ns] },
                "paper": null, "baseline": null, "mark": null, "met": true })
        };
        let figures = [
            figure("af-xdp, T_n", 900.0),
            figure("af-xdp, T_c", 30.0),
            figure("af-xdp, uplink, T_c", 29.0),
            figure("af-xdp, other", -5.0),
            figure("xdp, T_n", 200.0),
            figure("xdp, T_c", 90.0),
        ];
        let summary = |figures: &[serde_json::Value]| {
            let machine = serde_json::json!({ "cpu": "x", "cpus": 2, "kernel": "6", "release": "0.2.0" });
            let json = serde_json::json!({ "experiment": "cloud-breakdown", "about": "?", "paper": "", "machine": machine,
                "quick": false, "runs": 1, "configurations": [], "figures": figures, "met": true, "notes": [] });
            json.to_string().into_bytes()
        };
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("summary.json");
        fs::write(&file, summary(&figures)).unwrap();
        let time = |driver: &[&str]| parse(&[&["--measured", file.to_str().unwrap()], driver].concat()).unwrap().time();
        assert_eq!(time(&[]).unwrap(), PacketTime { network: 900.0, compute: 30.0, other: 0.0 });
        assert_eq!(time(&["--driver", "xdp"]).unwrap(), PacketTime { network: 200.0, compute: 90.0, other: 0.0 });
        let refused = time(&["--driver", "dpdk"]).unwrap_err().to_string();
        assert!(refused.contains("summary.json") && refused.contains("choose one of af-xdp, xdp"), "{refused}");
        assert!(measured(&summary(&[]), "xdp").unwrap_err().contains("no times"));
        assert!(measured(b"{}", "xdp").is_err());
        assert!(parse(&["--measured", "a", "--tn", "1", "--tc", "1"]).is_err(), "either or");
        assert!(parse(&["--driver", "xdp", "--tn", "1", "--tc", "1"]).is_err(), "of what?");
    }

    #[test]
    fn invalid_amounts_are_refused() {
        for line in
            [["--other", "-1"], ["--area", "-1"], ["--utilisation", "1.1"], ["--markets", "1,x"], ["--other", "nan"]]
        {
            let line = format!("{}={}", line[0], line[1]);
            assert!(parse(&[&line]).is_err(), "{line}");
        }
    }
}
