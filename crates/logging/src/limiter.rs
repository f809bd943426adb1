//! The decision which log lines are written. Callers pass the time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::{self, Write};
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use tracing::Level;
use tracing::callsite::Identifier;

/// Limits of written lines.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Period of the other limits. It begins with a line of its kind.
    pub period: Duration,
    /// Maximum lines of one kind for one peer.
    pub per_peer: u32,
    /// Maximum lines of one kind.
    pub per_kind: u32,
    /// Maximum number of kinds counted separately. Further details of a call site count as one
    /// kind.
    pub kinds: usize,
    /// Maximum number of peers of a kind whose suppressed lines are counted separately.
    pub peers: usize,
}

impl Default for Limits {
    /// Returns 5 lines per peer and 20 per kind in 10 s, and 1,024 kinds with 32 peers each.
    fn default() -> Self {
        Limits { period: Duration::from_secs(10), per_peer: 5, per_kind: 20, kinds: 1024, peers: 32 }
    }
}

/// Text of a bounded length; the rest is cut off.
#[derive(Clone, Copy)]
pub(crate) struct BoundedText<const N: usize> {
    octets: [u8; N],
    length: usize,
}

impl<const N: usize> Default for BoundedText<N> {
    fn default() -> Self {
        BoundedText { octets: [0; N], length: 0 }
    }
}

impl<const N: usize> BoundedText<N> {
    pub(crate) fn new(value: &dyn fmt::Debug) -> Self {
        let mut text = Self::default();
        // a longer text is truncated, and a value whose formatting fails is empty
        let _ = write!(text, "{value:?}");
        text
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.octets[..self.length]).unwrap_or_default()
    }
}

impl<const N: usize> Write for BoundedText<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = N - self.length;
        let fits = (0..=room.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        self.octets[self.length..self.length + fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.length += fits;
        if fits == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// A kind of lines: a call site, with the value of the field `fault` or `reason`.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    site: Identifier,
    detail: u64,
}

/// The properties of a line that the limiter uses.
pub(crate) struct Line<'a> {
    pub(crate) site: Identifier,
    pub(crate) level: Level,
    /// A short word that distinguishes lines of a call site; empty if there is none.
    pub(crate) detail: &'a str,
    /// The peer that the line concerns; empty if there is none.
    pub(crate) peer: &'a str,
}

struct Kind {
    since: Instant,
    level: Level,
    text: Option<Box<str>>,
    written: u32,
    suppressed: u64,
    peers: Vec<Peer>,
}

struct Peer {
    name: Box<str>,
    written: u32,
    suppressed: u64,
}

/// Suppressed lines of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuppressedLines {
    /// Level of the first of them.
    pub level: Level,
    /// Text of the first of them.
    pub text: String,
    /// Number of suppressed lines.
    pub count: u64,
    /// Number of peers that they concern, at most [`Limits::peers`]; 0 = none in particular.
    pub peers: usize,
    /// Peer that most of them concern.
    pub peer: String,
}

/// State of all kinds of lines.
pub(crate) struct Limiter {
    limits: Limits,
    hasher: RandomState,
    kinds: HashMap<Key, Kind>,
}

impl Limiter {
    pub(crate) fn new(limits: Limits) -> Self {
        Limiter { limits, hasher: RandomState::new(), kinds: HashMap::new() }
    }

    /// Returns true if a line must be written. `text` is called for the first suppressed line.
    pub(crate) fn admits(&mut self, line: &Line<'_>, now: Instant, text: impl FnOnce() -> String) -> bool {
        let limits = self.limits;
        let kind = self.kind(line, now);
        let peer = kind.peer(line.peer, limits.peers);
        let few = kind.written < limits.per_kind;
        let known = peer.and_then(|at| kind.peers.get_mut(at));
        // Peers that are not counted separately have only the limit of the kind.
        if few && known.as_ref().is_none_or(|peer| peer.written < limits.per_peer || peer.name.is_empty()) {
            if let Some(peer) = known {
                peer.written += 1;
            }
            kind.written += 1;
            return true;
        }
        if let Some(peer) = known {
            peer.suppressed += 1;
        }
        kind.suppressed += 1;
        if kind.text.is_none() {
            (kind.text, kind.level) = (Some(text().into()), line.level);
        }
        false
    }

    fn kind(&mut self, line: &Line<'_>, now: Instant) -> &mut Kind {
        let detail = if line.detail.is_empty() { 0 } else { self.hasher.hash_one(line.detail) };
        let mut key = Key { site: line.site.clone(), detail };
        if self.kinds.len() >= self.limits.kinds && !self.kinds.contains_key(&key) {
            key.detail = 0;
        }
        match self.kinds.entry(key) {
            Entry::Occupied(entry) => {
                let kind = entry.into_mut();
                // A period with suppressed lines is ended by `ended`, which reports them.
                if kind.suppressed == 0 && now.saturating_duration_since(kind.since) >= self.limits.period {
                    *kind = Kind::new(now, line.level);
                }
                kind
            }
            Entry::Vacant(entry) => entry.insert(Kind::new(now, line.level)),
        }
    }

    /// Returns the suppressed lines of periods that have ended by `now`, or of all periods.
    pub(crate) fn take_ended(&mut self, now: Instant, all: bool) -> Vec<SuppressedLines> {
        let period = self.limits.period;
        let mut ended = Vec::new();
        self.kinds.retain(|_, kind| {
            if !all && now.saturating_duration_since(kind.since) < period {
                return true;
            }
            ended.extend(kind.suppressed());
            false
        });
        ended
    }
}

impl Kind {
    fn new(since: Instant, level: Level) -> Self {
        Kind { since, level, text: None, written: 0, suppressed: 0, peers: Vec::new() }
    }

    /// Returns the index of a peer, or `None` if it is not counted separately.
    fn peer(&mut self, name: &str, limit: usize) -> Option<usize> {
        if name.is_empty() {
            return None;
        }
        let name = host(name);
        self.peers.iter().position(|peer| *peer.name == *name.as_str()).or_else(|| {
            (self.peers.len() < limit).then(|| {
                self.peers.push(Peer { name: name.as_str().into(), written: 0, suppressed: 0 });
                self.peers.len() - 1
            })
        })
    }

    fn suppressed(&mut self) -> Option<SuppressedLines> {
        let text = self.text.take()?.into();
        let concerned = || self.peers.iter().filter(|peer| peer.suppressed > 0);
        let most = concerned().max_by_key(|peer| peer.suppressed);
        Some(SuppressedLines {
            level: self.level,
            text,
            count: self.suppressed,
            peers: concerned().count(),
            peer: most.map_or_else(String::new, |peer| peer.name.to_string()),
        })
    }
}

/// Returns a peer without its port, which the peer may change with each connection.
fn host(peer: &str) -> BoundedText<64> {
    let mut name = BoundedText::default();
    // no name is longer than the buffer, because `peer` is not
    let _ = match peer.parse::<SocketAddr>() {
        Ok(address) => write!(name, "{}", address.ip()),
        Err(_) => match peer.parse::<IpAddr>() {
            Ok(address) => write!(name, "{address}"),
            Err(_) => name.write_str(peer),
        },
    };
    name
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("limits", &self.limits).field("kinds", &self.kinds.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns two call sites.
    fn sites() -> [Identifier; 2] {
        use tracing::callsite::DefaultCallsite;
        use tracing::field::FieldSet;
        use tracing::metadata::{Kind, Metadata};
        macro_rules! site {
            () => {{
                static SITE: DefaultCallsite = DefaultCallsite::new(&META);
                static META: Metadata<'static> = Metadata::new(
                    "event",
                    "test",
                    Level::WARN,
                    None,
                    None,
                    None,
                    FieldSet::new(&[], tracing::callsite::Identifier(&SITE)),
                    Kind::EVENT,
                );
                tracing::callsite::Identifier(&SITE)
            }};
        }
        [site!(), site!()]
    }

    struct Log {
        limiter: Limiter,
        now: Instant,
    }

    impl Log {
        fn new() -> Self {
            Log { limiter: Limiter::new(Limits::default()), now: Instant::now() }
        }

        fn admits(&mut self, site: &Identifier, detail: &str, peer: &str) -> bool {
            let line = Line { site: site.clone(), level: Level::WARN, detail, peer };
            self.limiter.admits(&line, self.now, || format!("{detail} of {peer}"))
        }

        fn take_ended(&mut self) -> Vec<SuppressedLines> {
            self.limiter.take_ended(self.now, false)
        }
    }

    #[test]
    fn flood_of_one_peer_is_few_lines_and_one_count() {
        let [site, other] = sites();
        let mut log = Log::new();
        let written = (0..50_000_u32).filter(|n| log.admits(&site, "", &format!("10.0.0.1:{}", n % 60_000))).count();
        assert_eq!(written, 5, "whatever the port is");
        assert!(log.admits(&site, "", "10.0.0.2:1"), "another peer has lines of its own");
        assert!(log.admits(&other, "", "10.0.0.1:1"), "and another kind");
        assert_eq!(log.take_ended(), [], "the period has not ended");
        log.now += Duration::from_secs(10);
        let count = SuppressedLines {
            level: Level::WARN,
            text: " of 10.0.0.1:5".into(),
            count: 49_995,
            peers: 1,
            peer: "10.0.0.1".into(),
        };
        assert_eq!(log.take_ended(), [count]);
        assert_eq!(log.take_ended(), [], "once");
        assert!(log.admits(&site, "", "10.0.0.1:1"), "a new period");
    }

    #[test]
    fn flood_of_many_peers_is_bounded() {
        let [site, _] = sites();
        let mut log = Log::new();
        let peers = (0..100_000_u32).map(|n| std::net::Ipv4Addr::from(n).to_string());
        assert_eq!(peers.filter(|peer| log.admits(&site, "", peer)).count(), 20);
        assert!(log.limiter.kinds.values().all(|kind| kind.peers.len() == 32));
        log.now += Duration::from_secs(10);
        let ended = log.take_ended();
        assert_eq!((ended[0].count, ended[0].peers, ended.len()), (99_980, 12, 1));
        assert!(log.limiter.kinds.is_empty(), "nothing is kept of a quiet kind");
    }

    #[test]
    fn reasons_are_kinds_up_to_a_bound() {
        let [site, _] = sites();
        let mut log = Log::new();
        for _ in 0..5 {
            assert!(log.admits(&site, "nas-bad-mac", "a") && log.admits(&site, "limit", "a"));
        }
        assert!(!log.admits(&site, "limit", "a"));
        let admitted = (0..100_000).filter(|n: &u32| log.admits(&site, &n.to_string(), "a")).count();
        assert!(admitted < 5 * Limits::default().kinds + 20, "{admitted}");
        assert!(log.limiter.kinds.len() <= Limits::default().kinds + 1, "{}", log.limiter.kinds.len());
    }

    #[test]
    fn lines_without_peer_use_limit_of_kind() {
        let [site, _] = sites();
        let mut log = Log::new();
        assert_eq!((0..100).filter(|_| log.admits(&site, "", "")).count(), 20);
        let all = log.limiter.take_ended(log.now, true);
        assert_eq!((all[0].count, all[0].peers, all[0].peer.as_str()), (80, 0, ""));
    }

    #[test]
    fn slow_kind_is_never_limited() {
        let [site, _] = sites();
        let mut log = Log::new();
        for _ in 0..100 {
            assert!(log.admits(&site, "", "[2001:db8::1]:8805"));
            log.now += Duration::from_secs(3);
        }
    }

    #[test]
    fn long_values_are_cut() {
        let text = BoundedText::<8>::new(&format_args!("{}", "ü".repeat(9)));
        assert_eq!(text.as_str(), "üüüü");
        assert_eq!(host("[2001:db8::1]:8805").as_str(), "2001:db8::1");
        assert_eq!(host("gnb-7").as_str(), "gnb-7");
    }
}
