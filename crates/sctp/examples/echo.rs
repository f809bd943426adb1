//! Echo over SCTP, to measure the rate and CPU time of a driver.
//!
//! Usage: `echo server ADDR:PORT` or `echo client LOCAL ADDR:PORT [messages] [size] [window]
//! [associations]`. The environment variable SCTP_DRIVER selects auto, kernel, ip or udp.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use vireo_sctp::{Config, Driver, Endpoint, Event, bind};
use vireo_types::AssocId;

type Failure = Box<dyn std::error::Error>;

fn driver() -> Driver {
    match std::env::var("SCTP_DRIVER").as_deref() {
        Ok("kernel") => Driver::Kernel,
        Ok("ip") => Driver::UserspaceIp,
        Ok("udp") => Driver::UserspaceUdp,
        _ => Driver::Auto,
    }
}

/// Returns the CPU time of all threads so far, from the kernel's scheduler.
fn cpu() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanos = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok());
    let nanos = nanos.filter_map(|text| text.split(' ').next()?.parse::<u64>().ok());
    Duration::from_nanos(nanos.sum())
}

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let sack = std::env::var_os("SCTP_NO_I_BIT").is_none();
    let base = Config { driver: driver(), sack_immediately: sack, ..Config::default() };
    match args.first().map(String::as_str) {
        Some("server") => server(base, args[1].parse()?),
        Some("client") => client(base, args[1].parse()?, args[2].parse()?, &args[3..]),
        _ => {
            Err("usage: echo server ADDR:PORT | echo client LOCAL ADDR:PORT [messages] [size] [window] [associations]"
                .into())
        }
    }
}

fn server(base: Config, at: SocketAddr) -> Result<(), Failure> {
    let mut endpoint = bind(&Config { addresses: vec![at.ip()], port: at.port(), listen: true, ..base })?;
    eprintln!("server: {}", endpoint.driver());
    let mut replies: Vec<(AssocId, u16, u32, Vec<u8>)> = Vec::new();
    let (mut up, mut down, mut count, mut start) = (0, 0, 0_u64, cpu());
    while up == 0 || down < up {
        let mut used = 0;
        endpoint.poll(None, &mut |event| match event {
            Event::Message { assoc, stream, ppid, data } => {
                if used == replies.len() {
                    replies.push((assoc, stream, ppid, Vec::new()));
                }
                let reply = &mut replies[used];
                (reply.0, reply.1, reply.2) = (assoc, stream, ppid);
                reply.3.clear();
                reply.3.extend_from_slice(data);
                used += 1;
            }
            Event::Up { .. } => {
                up += 1;
                start = cpu();
            }
            Event::Down { .. } => down += 1,
            _ => {}
        })?;
        for (assoc, stream, ppid, data) in &replies[..used] {
            endpoint.send(*assoc, *stream, *ppid, data)?;
            count += 1;
        }
    }
    report("server", count, cpu() - start, None);
    Ok(())
}

fn report(who: &str, count: u64, cpu: Duration, wall: Option<Duration>) {
    let each = cpu.as_secs_f64() * 1e6 / count.max(1) as f64;
    let rate = wall.map_or(String::new(), |wall| format!(", {:.0} echoes/s", count as f64 / wall.as_secs_f64()));
    println!("{who}: {count} messages, {each:.2} us CPU each{rate}");
}

fn client(base: Config, local: IpAddr, to: SocketAddr, rest: &[String]) -> Result<(), Failure> {
    let number = |n: usize, default| rest.get(n).map_or(Ok(default), |text: &String| text.parse::<usize>());
    let (messages, size, window) = (number(0, 100_000)?, number(1, 100)?, number(2, 1)?);
    let associations = number(3, 1)?;
    let mut endpoint = bind(&Config { addresses: vec![local], udp_local_port: 0, ..base })?;
    let start = Instant::now();
    let assocs = (0..associations).map(|_| endpoint.connect(to)).collect::<Result<Vec<_>, _>>()?;
    let mut up = 0;
    while up < associations {
        endpoint.poll(None, &mut |event| match event {
            Event::Up { .. } => up += 1,
            Event::Down { reason, .. } => panic!("{reason}"),
            _ => {}
        })?;
    }
    println!("client: {associations} associations in {:?}", start.elapsed());
    let data = vec![7; size];
    let (mut sent, mut received) = (0, 0);
    let (start, cpu_start) = (Instant::now(), cpu());
    while received < messages {
        while sent < messages && sent - received < window {
            endpoint.send(assocs[sent % associations], 1 + (sent % 8) as u16, 60, &data)?;
            sent += 1;
        }
        let mut down = None;
        endpoint.poll(None, &mut |event| match event {
            Event::Message { .. } => received += 1,
            Event::Down { reason, .. } => down = Some(reason),
            _ => {}
        })?;
        if let Some(reason) = down {
            return Err(reason.into());
        }
    }
    report("client", received as u64, cpu() - cpu_start, Some(start.elapsed()));
    finish(&mut *endpoint, &assocs)
}

fn finish(endpoint: &mut dyn Endpoint, assocs: &[AssocId]) -> Result<(), Failure> {
    assocs.iter().for_each(|assoc| endpoint.shutdown(*assoc));
    let mut down = 0;
    while down < assocs.len() {
        endpoint.poll(None, &mut |event| down += usize::from(matches!(event, Event::Down { .. })))?;
    }
    Ok(())
}
