//! `vireo distance`: TCP proxy that delays both directions by a fixed time.
//!
//! Stands between a network function and its database, such as that of a UPF at the edge, and keeps
//! the order of data. The delayed data is bounded. At the bound the proxy stops reading, and TCP
//! flow control stops the sender.

use rand::Rng;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use vireo_config::Failure;

/// Upper bound of one read, in bytes.
const CHUNK: usize = 16 * 1024;
/// Upper bound of delayed reads per direction of a connection: 4 MiB.
const CHUNKS: usize = 256;
/// Upper bound of simultaneous connections.
const CONNECTIONS: usize = 256;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Listen at this address
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// Connect to this server
    #[arg(long, value_name = "ADDRESS:PORT")]
    to: SocketAddr,
    /// Delay each direction by TIME (adds twice TIME to a round trip)
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    delay: Duration,
    /// Add a random delay of at most TIME
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "0s")]
    jitter: Duration,
}

/// Runs the proxy until the listener fails.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let listener = TcpListener::bind(args.listen)
        .map_err(|error| Failure(format!("cannot listen at {}: {error}; give another --listen", args.listen)))?;
    let way = DelayLine { to: args.to, delay: args.delay, jitter: args.jitter };
    eprintln!("{} is {:?} away at {}", args.to, args.delay, listener.local_addr()?);
    Err(serve(&listener, way).into())
}

/// Target address and delay of a connection.
#[derive(Clone, Copy, Debug)]
struct DelayLine {
    to: SocketAddr,
    delay: Duration,
    jitter: Duration,
}

/// Accepts connections until the listener fails.
fn serve(listener: &TcpListener, way: DelayLine) -> std::io::Error {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let client = match listener.accept() {
            Ok((client, _)) => client,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => continue,
            Err(error) => return error,
        };
        if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
            open.fetch_sub(1, Ordering::Relaxed);
            // Dropping the connection closes it for the client.
            continue;
        }
        let open = Arc::clone(&open);
        std::thread::spawn(move || {
            if let Err(error) = relay(client, way) {
                eprintln!("a connection to {} ends: {error}", way.to);
            }
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Relays both directions until both sides have ended.
fn relay(client: TcpStream, way: DelayLine) -> std::io::Result<()> {
    let server = TcpStream::connect(way.to)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, from_server) = (client.try_clone()?, server.try_clone()?);
    std::thread::scope(|scope| {
        scope.spawn(|| direction(&from_client, &server, way));
        direction(&from_server, &client, way);
    });
    Ok(())
}

/// Relays one direction. The end of the source follows all delayed data. When the target ends, the
/// proxy stops reading the source.
fn direction(from: &TcpStream, to: &TcpStream, way: DelayLine) {
    let (held, due) = sync_channel(CHUNKS);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let ended = write(to, &due);
            let _ = to.shutdown(Shutdown::Write);
            if ended.is_err() {
                let _ = from.shutdown(Shutdown::Read);
            }
            // Frees a reader that waits on a full queue.
            drop(due);
        });
        // An error ends this direction like an end of file.
        let _ = read(from, held, way);
    });
}

/// Reads data and queues it with its due time.
fn read(mut from: &TcpStream, held: SyncSender<(Instant, Vec<u8>)>, way: DelayLine) -> std::io::Result<()> {
    let (mut buffer, mut last) = (vec![0; CHUNK], Instant::now());
    loop {
        let length = from.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        let jitter = way.jitter.mul_f64(rand::rng().random());
        // Data does not overtake earlier data.
        last = last.max(Instant::now() + way.delay + jitter);
        if held.send((last, buffer[..length].to_vec())).is_err() {
            return Ok(());
        }
    }
}

/// Writes each queued read at its due time.
fn write(mut to: &TcpStream, due: &Receiver<(Instant, Vec<u8>)>) -> std::io::Result<()> {
    while let Ok((when, octets)) = due.recv() {
        std::thread::sleep(when.saturating_duration_since(Instant::now()));
        to.write_all(&octets)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a proxy to a server that calls `server` for each connection.
    fn proxy(delay: Duration, jitter: Duration, server: fn(TcpStream)) -> TcpStream {
        let far = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpListener::bind("127.0.0.1:0").unwrap();
        let way = DelayLine { to: far.local_addr().unwrap(), delay, jitter };
        let address = near.local_addr().unwrap();
        std::thread::spawn(move || far.incoming().flatten().for_each(server));
        std::thread::spawn(move || serve(&near, way));
        TcpStream::connect(address).unwrap()
    }

    fn echo(stream: TcpStream) {
        let _ = std::io::copy(&mut &stream, &mut &stream);
    }

    #[test]
    fn round_trip_takes_twice_the_delay() {
        let delay = Duration::from_millis(60);
        let mut client = proxy(delay, Duration::ZERO, echo);
        for _ in 0..3 {
            let begun = Instant::now();
            client.write_all(b"ping").unwrap();
            client.read_exact(&mut [0; 4]).unwrap();
            assert!(begun.elapsed() >= 2 * delay, "{:?}", begun.elapsed());
        }
    }

    #[test]
    fn all_comes_in_order_and_the_end_behind_it() {
        let mut client = proxy(Duration::from_millis(1), Duration::from_millis(5), echo);
        let sent: Vec<u8> = (0..2_000_000u32).map(|n| (n / 251 + n) as u8).collect();
        let mut writer = client.try_clone().unwrap();
        let octets = sent.clone();
        let writing = std::thread::spawn(move || {
            octets.chunks(70_001).for_each(|chunk| writer.write_all(chunk).unwrap());
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        client.read_to_end(&mut received).unwrap();
        writing.join().unwrap();
        assert!(received == sent, "{} of {} octets", received.len(), sent.len());
    }

    #[test]
    fn delayed_bytes_are_bounded() {
        // The server accepts the connection and reads nothing until the test ends.
        let client = proxy(Duration::from_secs(3600), Duration::ZERO, std::mem::forget);
        client.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        let (chunk, mut sent) = (vec![0; 1 << 20], 0usize);
        // The kernel's buffers hold some further megabytes.
        while sent < 256 << 20 {
            match (&client).write(&chunk) {
                Ok(length) => sent += length,
                Err(_) => return,
            }
        }
        panic!("it has taken {sent} octets");
    }
}
