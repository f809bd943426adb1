//! Messages between `vireo run` and its shards, over the socket that a shard inherits.
//!
//! Each message is a frame: a length of four bytes, then the message in postcard encoding. Both
//! ends are of one build.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize as SerializeDerive};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use vireo_fabric::identity::TlsTexts;
use vireo_ops::api::{PoolStatus, Status, StatusFilter, UePage, UeQuery};
use vireo_types::{DeregistrationCause, Supi};

/// Maximum length of a message in bytes.
const MAX_MESSAGE_BYTES: u32 = 64 << 20;

/// Text of the configuration file with its name. The caller of [`super`] parses it.
#[derive(Clone, PartialEq, Eq, SerializeDerive, Deserialize)]
pub struct ConfigText {
    pub name: String,
    pub text: String,
}

impl fmt::Debug for ConfigText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text may contain keys.
        f.debug_struct("ConfigText").field("name", &self.name).finish_non_exhaustive()
    }
}

/// First message to a shard.
#[derive(Clone, Debug, SerializeDerive, Deserialize)]
pub(super) struct ShardSetup {
    /// Address of the controller.
    pub(super) controller: SocketAddr,
    /// Certificate for connections to the balancer and to other shards.
    pub(super) tls: TlsTexts,
    pub(super) config: ConfigText,
}

/// Further messages to a shard.
#[derive(Debug, SerializeDerive, Deserialize)]
pub(super) enum ToShard {
    Request {
        number: u32,
        request: Request,
    },
    /// The configuration file was read again.
    Reload(ConfigText),
}

/// Request that a shard answers.
#[derive(Clone, Debug, SerializeDerive, Deserialize)]
pub(super) enum Request {
    Status(StatusFilter),
    Ues(UeQuery),
    Pools,
    Metrics,
    Deregister {
        supi: u64,
        reregister: bool,
        cause: Option<DeregistrationCause>,
    },
    /// Relocates the sessions of a UE to the UPF with this name.
    Relocate {
        supi: u64,
        upf: String,
    },
    /// Requests the cell of a UE from its RAN node.
    Locate {
        supi: u64,
    },
}

/// Messages of a shard.
#[derive(Debug, SerializeDerive, Deserialize)]
pub(super) enum FromShard {
    /// The shard serves UEs as this host.
    Ready {
        host: u16,
    },
    /// The shard ends for this reason.
    Failed(String),
    Reply {
        number: u32,
        reply: Reply,
    },
}

/// Answer to a request.
#[derive(Debug, SerializeDerive, Deserialize)]
pub(super) enum Reply {
    /// `None` if the shard's host does not answer in time.
    Status(Option<Box<Status>>),
    /// `None` if the shard's host does not answer in time.
    Ues(Option<UePage>),
    Pools(Vec<PoolStatus>),
    Metrics(String),
    /// True if the shard has the UE.
    Done(bool),
    /// The shard does not answer in time.
    Busy,
}

/// Converts a SUPI of a message.
pub(super) fn supi(word: u64) -> Option<Supi> {
    Supi::from_u64(word)
}

/// Sends a message.
pub(super) fn write(stream: &mut UnixStream, message: &impl Serialize) -> io::Result<()> {
    let octets = postcard::to_stdvec(message).map_err(io::Error::other)?;
    let length = u32::try_from(octets.len()).ok().filter(|length| *length <= MAX_MESSAGE_BYTES);
    let length = length.ok_or_else(|| io::Error::other("a message is too long"))?;
    stream.write_all(&[&length.to_le_bytes()[..], &octets].concat())
}

/// Receives a message.
pub(super) fn read<T: DeserializeOwned>(stream: &mut UnixStream) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > MAX_MESSAGE_BYTES {
        return Err(io::Error::other("a message is too long"));
    }
    let mut octets = vec![0; length as usize];
    stream.read_exact(&mut octets)?;
    postcard::from_bytes(&octets).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_ops::api::{Counts, ShardStatus, UeStatus};

    #[test]
    fn messages_pass_through_a_socket() {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let status = Status {
            version: "1".into(),
            counts: Counts { ues: 7, ..Counts::default() },
            ues: vec![UeStatus { supi: "imsi-1".into(), gnb: Some("gnb".into()), ..UeStatus::default() }],
            shards: vec![ShardStatus { host: Some(3), ..ShardStatus::default() }],
            ..Status::default()
        };
        let reply = Reply::Status(Some(Box::new(status.clone())));
        write(&mut one, &FromShard::Reply { number: 9, reply }).unwrap();
        match read(&mut other).unwrap() {
            FromShard::Reply { number: 9, reply: Reply::Status(received) } => {
                assert_eq!(received.as_deref(), Some(&status))
            }
            other => panic!("{other:?}"),
        }
        one.write_all(&u32::MAX.to_le_bytes()).unwrap();
        assert!(read::<FromShard>(&mut other).is_err(), "no memory is allocated for it");
    }
}
