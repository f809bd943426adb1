//! State of a handover in progress, and the source node that the UE has left.
//!
//! An X2 handover has the state of an Xn handover, and an S1 handover that of an N2 handover.

use crate::amf::context::{Connection, NasSecurity};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use vireo_types::{AmfUeNgapId, AssocId, Instant, RanUeNgapId, Tai};

/// Handover in progress, with its state. New variants are the last: stored contexts number them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Handover {
    /// Xn handover: the UPFs are being updated.
    Switching(XnHandover),
    /// N2 handover: the target prepares, or the UE moves to it.
    Moving(N2Handover),
    /// Modification of tunnels that the RAN indicates: the UPFs are being updated. The UE stays at
    /// its RAN node.
    Modifying(XnHandover),
    /// N2 or S1 handover to the other system: as [`Handover::Moving`].
    ChangingSystem(Box<SystemChange>),
    /// Handover to the other system that has ended after HANDOVER COMMAND, without HANDOVER NOTIFY:
    /// the mapped security context, which the UE has in use if it has arrived.
    Unconfirmed(Box<NasSecurity>),
}

/// Handover between 5GS and EPS (TS 23.502 4.11.1.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemChange {
    pub(super) target: N2Handover,
    /// Mapped security context, which the UE has in use at the target.
    pub(super) keys: NasSecurity,
}

/// Xn handover; the UE is at the target already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XnHandover {
    /// Sessions to be switched, one bit each.
    pub(super) requested: u16,
    /// Sessions that the target did not set up, one bit each.
    pub(super) failed: u16,
    /// The RAN has other UE security capabilities than the context; the acknowledgement corrects
    /// them.
    pub(super) mismatch: bool,
    pub(super) started: Instant,
}

/// N2 handover (TS 23.502 4.9.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct N2Handover {
    pub assoc: AssocId,
    /// AMF-UE-NGAP-ID for the target.
    pub amf_id: AmfUeNgapId,
    /// RAN-UE-NGAP-ID of the target, once known.
    pub ran_id: Option<RanUeNgapId>,
    pub(super) tai: Tai,
    /// Sessions that the target is or will be requested to set up, one bit each, by their
    /// identities there. After HANDOVER COMMAND: the sessions that are handed over.
    pub(super) requested: u16,
    /// Stored under the name of the flag that it was in release 0.2.0.
    #[serde(rename = "commanded")]
    pub(super) progress: Progress,
    pub(super) started: Instant,
    pub(super) deadline: Instant,
}

impl N2Handover {
    /// Returns true if HANDOVER COMMAND was sent to the source.
    pub fn is_commanded(&self) -> bool {
        self.progress != Progress::Preparing
    }
}

/// Progress of an N2 handover.
///
/// Release 0.2.0 has a boolean: it reads the first two values, and this release reads its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Preparing,
    /// HANDOVER COMMAND was sent: the UE moves to the target.
    Commanded,
    /// The status of the bearers was relayed to the target, too.
    StatusRelayed,
}

impl Progress {
    /// Value of [`Progress::StatusRelayed`] in both forms.
    const STATUS_RELAYED: u8 = 2;
}

impl Serialize for Progress {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Progress::StatusRelayed => s.serialize_u8(Progress::STATUS_RELAYED),
            progress => s.serialize_bool(*progress == Progress::Commanded),
        }
    }
}

impl<'de> Deserialize<'de> for Progress {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = Progress;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a flag, or 2")
            }

            fn visit_bool<E: Error>(self, is_commanded: bool) -> Result<Progress, E> {
                Ok(if is_commanded { Progress::Commanded } else { Progress::Preparing })
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Progress, E> {
                match value {
                    0 => Ok(Progress::Preparing),
                    1 => Ok(Progress::Commanded),
                    2 => Ok(Progress::StatusRelayed),
                    other => Err(E::custom(format_args!("progress of a handover: unknown value ({other})"))),
                }
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Progress, E> {
                self.visit_u64(u64::try_from(value).unwrap_or(u64::MAX))
            }
        }
        if d.is_human_readable() { d.deserialize_any(Read) } else { d.deserialize_u8(Read) }
    }
}

impl Handover {
    /// Returns the time at which the handover is aborted. A path switch has no deadline: it ends
    /// with the responses of the UPFs, each of which has its own time limit.
    pub fn deadline(&self) -> Option<Instant> {
        match self {
            Handover::Switching(_) | Handover::Modifying(_) | Handover::Unconfirmed(_) => None,
            Handover::Moving(moving) => Some(moving.deadline),
            Handover::ChangingSystem(change) => Some(change.target.deadline),
        }
    }

    /// Returns the target of an N2 handover.
    pub fn target(&self) -> Option<&N2Handover> {
        match self {
            Handover::Switching(_) | Handover::Modifying(_) | Handover::Unconfirmed(_) => None,
            Handover::Moving(moving) => Some(moving),
            Handover::ChangingSystem(change) => Some(&change.target),
        }
    }

    /// As [`Handover::target`], to change it.
    pub(super) fn target_mut(&mut self) -> Option<&mut N2Handover> {
        match self {
            Handover::Switching(_) | Handover::Modifying(_) | Handover::Unconfirmed(_) => None,
            Handover::Moving(moving) => Some(moving),
            Handover::ChangingSystem(change) => Some(&mut change.target),
        }
    }

    /// Returns true if the target is in the other system.
    pub fn changes_system(&self) -> bool {
        matches!(self, Handover::ChangingSystem(_))
    }

    /// Returns true unless the handover has ended.
    pub fn is_in_progress(&self) -> bool {
        !matches!(self, Handover::Unconfirmed(_))
    }

    /// Returns what remains of a handover without HANDOVER NOTIFY.
    pub(super) fn unconfirmed(self) -> Option<Handover> {
        match self {
            Handover::ChangingSystem(change) if change.target.is_commanded() => {
                Some(Handover::Unconfirmed(Box::new(change.keys)))
            }
            _ => None,
        }
    }
}

/// RAN node that the UE has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceNode {
    /// Connection of the UE to this RAN node.
    pub connection: Connection,
    /// UE CONTEXT RELEASE COMMAND was sent.
    pub(super) commanded: bool,
    pub(super) deadline: Instant,
}

impl SourceNode {
    /// Returns the time limit of the UPFs, or of the response to UE CONTEXT RELEASE COMMAND.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_of_earlier_release_is_progress() {
        for (progress, octet) in [(Progress::Preparing, 0), (Progress::Commanded, 1), (Progress::StatusRelayed, 2)] {
            assert_eq!(postcard::to_allocvec(&progress), Ok(vec![octet]));
            assert_eq!(postcard::from_bytes(&[octet]), Ok(progress));
        }
        assert!(postcard::from_bytes::<Progress>(&[3]).is_err());
    }
}
