//! Addresses of other processes, also as host names.

use crossbeam_channel::{Receiver, Sender, bounded};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// Longest host name in octets (RFC 1035 2.3.4).
const NAME: usize = 253;
/// Longest label of a host name in octets.
const LABEL: usize = 63;

/// Address and port, or host name and port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ServerAddress {
    Address(SocketAddr),
    Name { host: String, port: u16 },
}

/// A text that is no server address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no address or host name with a port, as in \"192.0.2.1:7770\" or \"controller:7770\"")]
pub struct ServerAddressError(String);

impl ServerAddress {
    /// Returns the address, unless only the resolver of the system knows it.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            ServerAddress::Address(address) => Some(*address),
            ServerAddress::Name { .. } => None,
        }
    }

    /// Returns true if a process can connect to the address: neither address nor port is a
    /// wildcard.
    pub fn is_reachable(&self) -> bool {
        match self {
            ServerAddress::Address(address) => address.port() != 0 && !address.ip().is_unspecified(),
            ServerAddress::Name { port, .. } => *port != 0,
        }
    }

    /// Returns the addresses. A host name is resolved, which may take seconds.
    ///
    /// # Errors
    ///
    /// Returns the error of the resolver.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        match self {
            ServerAddress::Address(address) => Ok(vec![*address]),
            ServerAddress::Name { host, port } => {
                let found = (host.as_str(), *port).to_socket_addrs();
                let described = |e: io::Error| io::Error::new(e.kind(), format!("{host} cannot be resolved: {e}"));
                Ok(found.map_err(described)?.collect())
            }
        }
    }
}

impl From<SocketAddr> for ServerAddress {
    fn from(address: SocketAddr) -> Self {
        ServerAddress::Address(address)
    }
}

impl FromStr for ServerAddress {
    type Err = ServerAddressError;

    fn from_str(text: &str) -> Result<Self, ServerAddressError> {
        if let Ok(address) = text.parse() {
            return Ok(ServerAddress::Address(address));
        }
        let is_label = |label: &str| {
            (1..=LABEL).contains(&label.len())
                && label.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'-' || octet == b'_')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let error = || ServerAddressError(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
        let labels = host.strip_suffix('.').unwrap_or(host);
        // The last label of a name is no number: that is an incomplete address (RFC 1123 2.1).
        let is_address = labels.rsplit('.').next().is_none_or(|last| last.bytes().all(|octet| octet.is_ascii_digit()));
        match host.len() <= NAME && !is_address && labels.split('.').all(is_label) {
            true => Ok(ServerAddress::Name { host: host.to_owned(), port: port.parse().map_err(|_| error())? }),
            false => Err(error()),
        }
    }
}

impl TryFrom<String> for ServerAddress {
    type Error = ServerAddressError;

    fn try_from(text: String) -> Result<Self, ServerAddressError> {
        text.parse()
    }
}

impl From<ServerAddress> for String {
    fn from(server: ServerAddress) -> Self {
        server.to_string()
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddress::Address(address) => address.fmt(f),
            ServerAddress::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// Resolves servers. Names that cannot be resolved are omitted if others can.
///
/// # Errors
///
/// Returns the error of the last name, if there is no address at all.
pub fn resolve(servers: &[ServerAddress]) -> io::Result<Vec<SocketAddr>> {
    let (mut all, mut last) = (Vec::new(), None);
    for server in servers {
        match server.resolve() {
            Ok(addresses) => all.extend(addresses),
            Err(error) => last = Some(error),
        }
    }
    let mut unique = Vec::with_capacity(all.len());
    all.into_iter().for_each(|address| {
        if !unique.contains(&address) {
            unique.push(address)
        }
    });
    match unique.is_empty() {
        false => Ok(unique),
        true => Err(last.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into())),
    }
}

/// Addresses of controllers, tried in turn. Host names are resolved again before each round of
/// connections, on a separate thread: the resolver may take seconds.
#[derive(Debug)]
pub(crate) struct Candidates {
    addresses: Vec<SocketAddr>,
    /// Index of the next one, counted on over all rounds.
    next: usize,
    /// `None` without host names.
    resolver: Option<Resolver>,
    /// Error of the last resolution.
    trouble: Option<String>,
    configured: String,
}

/// Thread that resolves host names. It ends with this value.
#[derive(Debug)]
struct Resolver {
    requests: Sender<()>,
    answered: Receiver<io::Result<Vec<SocketAddr>>>,
}

impl Candidates {
    /// Resolves the servers, and starts the thread if there are names.
    pub(crate) fn new(servers: Vec<ServerAddress>) -> Self {
        let configured = servers.iter().map(ServerAddress::to_string).collect::<Vec<_>>().join(", ");
        let (addresses, trouble) = match resolve(&servers) {
            Ok(addresses) => (addresses, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let resolver = servers.iter().any(|server| server.address().is_none()).then(|| {
            let ((requests, requested), (answers, answered)) = (bounded::<()>(1), bounded(1));
            let run = move || {
                for () in requested {
                    if answers.send(resolve(&servers)).is_err() {
                        return;
                    }
                }
            };
            // Without the thread the first addresses stay.
            let started = std::thread::Builder::new().name("resolver".into()).spawn(run);
            if let Err(error) = started {
                tracing::warn!(%error, "thread for host names not started; names are not resolved again");
            }
            Resolver { requests, answered }
        });
        Candidates { addresses, next: 0, resolver, trouble, configured }
    }

    /// Returns the address to try next; an error while no name is resolved.
    pub(crate) fn address(&mut self) -> io::Result<SocketAddr> {
        if let Some(resolver) = &self.resolver
            && let Ok(answer) = resolver.answered.try_recv()
        {
            match answer {
                Ok(addresses) => (self.addresses, self.trouble) = (addresses, None),
                Err(error) => self.trouble = Some(error.to_string()),
            }
        }
        match self.current() {
            Some(address) => Ok(address),
            None => Err(io::Error::new(io::ErrorKind::NotFound, self.trouble.clone().unwrap_or_default())),
        }
    }

    /// Returns the present address.
    pub(crate) fn current(&self) -> Option<SocketAddr> {
        self.addresses.get(self.next.checked_rem(self.addresses.len())?).copied()
    }

    /// Selects the next address. Names are resolved meanwhile.
    pub(crate) fn advance(&mut self) {
        self.next = self.next.wrapping_add(1);
        if let Some(resolver) = &self.resolver {
            // A full queue means that the thread is at it.
            let _ = resolver.requests.try_send(());
        }
    }

    /// Selects an address that may not be configured.
    pub(crate) fn select(&mut self, address: SocketAddr) {
        self.next = self.addresses.iter().position(|known| *known == address).unwrap_or_else(|| {
            self.addresses.push(address);
            self.addresses.len() - 1
        });
    }

    /// Returns the last address tried, if all have been tried.
    pub(crate) fn exhausted(&self) -> Option<SocketAddr> {
        let last = self.next.checked_sub(1)?;
        let address = self.addresses.get(last.checked_rem(self.addresses.len())?)?;
        (self.next >= self.addresses.len()).then_some(*address)
    }

    /// Returns the first address.
    pub(crate) fn first(&self) -> Option<SocketAddr> {
        self.addresses.first().copied()
    }

    /// Returns the servers as they are configured.
    pub(crate) fn configured(&self) -> &str {
        &self.configured
    }

    /// Replaces all by one address, for tests of a member without a controller.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn replace(&mut self, address: SocketAddr) {
        (self.addresses, self.resolver) = (vec![address], None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn server(text: &str) -> ServerAddress {
        text.parse().unwrap()
    }

    #[test]
    fn names_and_addresses_are_told_apart() {
        for text in ["192.0.2.1:7770", "[2001:db8::1]:7770", "controller:7770", "a-1.core.svc.cluster.local.:2379"] {
            assert_eq!(server(text).to_string(), text);
        }
        assert!(server("192.0.2.1:1").address().is_some() && server("controller:1").address().is_none());
        for text in [
            "controller",
            "controller:",
            ":7770",
            "192.0.2.300:1",
            "192.0.2:1",
            "a..b:1",
            "-a:1",
            "a b:1",
            "http://a:1",
            "a:70000",
            "",
        ] {
            assert!(text.parse::<ServerAddress>().is_err(), "{text}");
        }
        assert!(format!("{}:1", "a.".repeat(127)).parse::<ServerAddress>().is_err(), "254 octets");
        assert!(server("controller:0").address().is_none() && !server("controller:0").is_reachable());
    }

    #[test]
    fn name_is_resolved_again_at_each_round() {
        let mut candidates = Candidates::new(vec![server("localhost:7770"), server("192.0.2.1:7770")]);
        let first = candidates.address().unwrap();
        assert!(first.ip().is_loopback());
        assert_eq!(candidates.exhausted(), None);
        // As if the name had led elsewhere before.
        candidates.addresses = vec!["198.51.100.1:7770".parse().unwrap()];
        candidates.advance();
        let deadline = Instant::now() + Duration::from_secs(20);
        while candidates.address().unwrap().ip() == std::net::Ipv4Addr::new(198, 51, 100, 1) {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(candidates.addresses.contains(&first) && candidates.addresses.len() >= 2);
    }

    #[test]
    fn unresolved_name_is_named() {
        let mut candidates = Candidates::new(vec![server("no-such-host.invalid:7770")]);
        let error = candidates.address().unwrap_err().to_string();
        assert!(error.contains("no-such-host.invalid cannot be resolved"), "{error}");
        assert_eq!((candidates.current(), candidates.exhausted()), (None, None));
        candidates.advance();
        assert_eq!(candidates.configured(), "no-such-host.invalid:7770");
        assert!(resolve(&[server("no-such-host.invalid:1"), server("192.0.2.1:1")]).unwrap().len() == 1);
    }
}
