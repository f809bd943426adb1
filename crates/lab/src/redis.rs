//! Redis server of the lab, in the core's namespace, without data on disk.

use crate::Lab;
use crate::files::create;
use crate::limit::CpuLimit;
use crate::process::{Process, on_processors};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use vireo_config::Failure;

const ADDRESS: &str = "127.0.0.1:6379";
/// Address of the delay proxy in front of the server.
const FAR: &str = "127.0.0.1:6380";
const START_WITHIN: Duration = Duration::from_secs(10);

/// Running server. Dropping it kills the process.
#[derive(Debug)]
pub struct Redis {
    process: Process,
    /// Declared after the process: the group can be removed only after the process has ended.
    _limit: Option<CpuLimit>,
}

impl Redis {
    /// Starts the server on the processors (empty means all) and waits until it answers.
    pub fn start(lab: &Lab, processors: &[usize]) -> Result<Self, Failure> {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", "6379", "--save", "", "--appendonly", "no"]);
        let log = create(Path::new("/tmp/redis.log"))?;
        let start = || Process::start("redis", &lab.core, &mut command, Some(log));
        let mut process = on_processors(processors, start)?.map_err(|error| {
            Failure(format!("redis-server does not start ({error}); install the package redis-server"))
        })?;
        let until = Instant::now() + START_WITHIN;
        while !lab.core.run(answers)? {
            if process.exit_status()?.is_some() || Instant::now() > until {
                let words = process.last_words(5);
                return Err(Failure(format!("redis-server does not answer at {ADDRESS}; it says:\n{words}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Redis { process, _limit: None })
    }

    /// Limits the server to this fraction of a processor.
    pub fn limited_to(mut self, part: f64) -> Result<Self, Failure> {
        self._limit = Some(CpuLimit::around("redis", part, [self.process.pid()])?);
        Ok(self)
    }

    /// Starts a proxy that delays both directions by `delay`. Returns the URL of the proxy. The
    /// proxy lives as long as the returned process.
    pub fn behind_delay(lab: &Lab, delay: Duration) -> Result<(String, Process), Failure> {
        let mut command = Process::this_program();
        let delay = format!("{}us", delay.as_micros());
        command.args(["distance", "--listen", FAR, "--to", ADDRESS, "--delay", &delay]);
        let mut proxy =
            Process::start("distance", &lab.core, &mut command, Some(create(Path::new("/tmp/distance.log"))?))?;
        let until = Instant::now() + START_WITHIN;
        while !lab.core.run(|| TcpStream::connect(FAR).is_ok())? {
            if proxy.exit_status()?.is_some() || Instant::now() > until {
                return Err(Failure(format!("nobody listens at {FAR}; it says:\n{}", proxy.last_words(5))));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok((format!("redis://{FAR}"), proxy))
    }

    /// Returns the operation counts that the server reports.
    pub fn operation_counts(&self, lab: &Lab) -> Result<OperationCounts, Failure> {
        let info = lab.core.run(info)??;
        Ok(OperationCounts { cpu: self.process.cpu()?, ..OperationCounts::read(&info) })
    }
}

/// Operations of a database since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationCounts {
    /// Commands, including those of scripts.
    pub commands: u64,
    /// Bytes received and sent.
    pub octets: u64,
    /// CPU time, from the kernel.
    pub cpu: Duration,
}

impl OperationCounts {
    /// Parses the answer to INFO.
    fn read(info: &str) -> Self {
        let mut spent = OperationCounts::default();
        for (name, value) in info.lines().filter_map(|line| line.trim().split_once(':')) {
            let number = || value.parse().unwrap_or(0);
            match name {
                "total_net_input_bytes" | "total_net_output_bytes" => spent.octets += number(),
                // Commands of this measurement do not count.
                "cmdstat_info" => {}
                _ if name.starts_with("cmdstat_") => {
                    let calls = value.split(',').find_map(|part| part.strip_prefix("calls=")?.parse::<u64>().ok());
                    spent.commands += calls.unwrap_or_default();
                }
                _ => {}
            }
        }
        spent
    }
}

fn info() -> std::io::Result<String> {
    let mut stream = TcpStream::connect(ADDRESS)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"INFO everything\r\n")?;
    let mut text = Vec::new();
    loop {
        let mut some = [0; 4096];
        let read = stream.read(&mut some)?;
        text.extend_from_slice(&some[..read]);
        let known = String::from_utf8_lossy(&text);
        let whole =
            known.split_once("\r\n").and_then(|(head, rest)| Some((head.strip_prefix('$')?.parse().ok()?, rest.len())));
        match whole {
            Some((length, have)) if have >= length => return Ok(known.into_owned()),
            _ if read == 0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => {}
        }
    }
}

fn answers() -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(ADDRESS)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer)?;
        Ok(&answer == b"+PONG")
    };
    ask().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_counts_are_read_from_info() {
        let info = "$99\r\n# Stats\r\ntotal_net_input_bytes:100\r\ntotal_net_output_bytes:11\r\n# Commandstats\r\n\
            cmdstat_get:calls=3,usec=10,usec_per_call=3.33\r\ncmdstat_evalsha:calls=2,usec=50,usec_per_call=25\r\n\
            cmdstat_info:calls=1,usec=40,usec_per_call=40\r\n";
        assert_eq!(OperationCounts::read(info), OperationCounts { commands: 5, octets: 111, cpu: Duration::ZERO });
    }
}
