//! A Redis of the laboratory's own, in the core's namespace: the real server, which keeps nothing on disk.

use super::process::{Process, on_processors};
use super::{Lab, create};
use crate::cli::Failure;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const ADDRESS: &str = "127.0.0.1:6379";
const START_WITHIN: Duration = Duration::from_secs(10);

/// A server that runs. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Redis {
    _process: Process,
}

impl Redis {
    /// Starts it on these processors (none named: on all) and waits until it answers.
    pub(crate) fn start(lab: &Lab, processors: &[usize]) -> Result<Self, Failure> {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", "6379", "--save", "", "--appendonly", "no"]);
        let log = create(Path::new("/tmp/redis.log"))?;
        let start = || Process::start("redis", &lab.core, &mut command, Some(log));
        let mut process = on_processors(processors, start)?.map_err(|error| {
            Failure(format!("redis-server does not start ({error}); install the package redis-server"))
        })?;
        let until = Instant::now() + START_WITHIN;
        while !lab.core.run(answers)? {
            if process.ended()?.is_some() || Instant::now() > until {
                let words = process.last_words(5);
                return Err(Failure(format!("redis-server does not answer at {ADDRESS}; it says:\n{words}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Redis { _process: process })
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
