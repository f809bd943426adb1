//! Binary encoding of a context for shared memory, replication and databases.
//!
//! An encoded context is a header, the perpetual part and the ephemeral part (see `parts`). Each
//! part has a version that grows when the part changes, so that the owner sends only changed parts
//! to replicas. The header, big-endian:
//!
//! ```text
//! octet 0      layout version
//! octets 1-3   length of the perpetual part
//! octets 4-7   version of the perpetual part
//! octets 8-11  version of the ephemeral part
//! ```
//!
//! A caller that loads a context and stores it once uses [`decode`] and [`encode_after`]. A caller
//! that keeps it decoded between steps also keeps its [`IncrementalEncoder`], which encodes only
//! what a step changed.

use super::parts::{self, AllocationPart, Ephemeral, IdentityPart, Perpetual, SharedSubscriptions, SubscriptionPart};
use super::{Connection, Reachability, UeContext};
use crate::{octets, postcard_writer};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use vireo_types::{AssocId, Ltmsi, Tmsi};

/// Layout that this build writes, in the first octet of every encoded context. It grows with each
/// change of [`UeContext`] or its components.
pub const LAYOUT_VERSION: u8 = 5;
/// Oldest layout that this build reads: that of release 0.2.0.
pub const OLDEST_LAYOUT: u8 = 5;
/// Length of the header in octets.
const HEADER: usize = 12;
/// Initial capacity for the perpetual part in octets; most perpetual parts fit.
const PERPETUAL: usize = 256;

/// Error of encoding or decoding a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Layout version that this build does not read.
    #[error("the context has layout version {0}, this release reads {OLDEST_LAYOUT} to {LAYOUT_VERSION}")]
    Version(u8),
    /// Truncated, or a part does not decode.
    #[error("the context does not decode")]
    Damaged,
    /// Too large to be stored: a bug of this build, because the limits are far below.
    #[error("the context is too large to be stored")]
    TooLarge,
}

/// Layout of an encoded context, and versions of its parts. A part whose version differs from that
/// of a copy must be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// Layout version of both parts.
    pub layout: u8,
    /// Version of the perpetual part; it wraps.
    pub perpetual: u32,
    /// Version of the ephemeral part, which every step changes; it wraps.
    pub ephemeral: u32,
}

impl Default for Versions {
    fn default() -> Self {
        Versions { layout: LAYOUT_VERSION, perpetual: 0, ephemeral: 0 }
    }
}

/// Encoded context split into its parts, not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodedContext<'a> {
    pub versions: Versions,
    pub perpetual: &'a [u8],
    pub ephemeral: &'a [u8],
}

impl<'a> EncodedContext<'a> {
    /// Splits the encoding of a context.
    ///
    /// # Errors
    ///
    /// Returns [`CodecError::Version`] for a layout that this build does not read, and
    /// [`CodecError::Damaged`] for a truncated encoding.
    pub fn new(octets: &'a [u8]) -> Result<Self, CodecError> {
        let (header, rest) = match octets {
            [OLDEST_LAYOUT..=LAYOUT_VERSION, ..] => octets.split_first_chunk::<HEADER>().ok_or(CodecError::Damaged)?,
            [version, ..] => return Err(CodecError::Version(*version)),
            [] => return Err(CodecError::Damaged),
        };
        let [layout, l0, l1, l2, p0, p1, p2, p3, e0, e1, e2, e3] = *header;
        let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        let (perpetual, ephemeral) = rest.split_at_checked(length).ok_or(CodecError::Damaged)?;
        let versions = Versions {
            layout,
            perpetual: u32::from_be_bytes([p0, p1, p2, p3]),
            ephemeral: u32::from_be_bytes([e0, e1, e2, e3]),
        };
        Ok(EncodedContext { versions, perpetual, ephemeral })
    }

    /// Returns the length of the encoded context in octets.
    pub fn encoded_len(&self) -> usize {
        HEADER + self.perpetual.len() + self.ephemeral.len()
    }

    /// Appends the encoded context.
    ///
    /// # Errors
    ///
    /// Returns [`CodecError::TooLarge`] if the perpetual part exceeds the length field.
    pub fn put(&self, out: &mut Vec<u8>) -> Result<(), CodecError> {
        put_header(self.versions, self.perpetual.len(), out)?;
        out.extend_from_slice(self.perpetual);
        out.extend_from_slice(self.ephemeral);
        Ok(())
    }

    /// Returns the current and the former 5G-TMSI.
    pub fn temporary_identities(&self) -> [Option<Tmsi>; 2] {
        match self.versions.layout {
            LAYOUT_VERSION => parts::temporary_identities(self.perpetual),
            _ => [None; 2],
        }
    }

    /// Returns the connection of the UE, whose LTMSI this is.
    pub fn connection(&self, ltmsi: Ltmsi) -> Option<Connection> {
        match self.versions.layout {
            LAYOUT_VERSION => parts::connection(self.ephemeral, ltmsi),
            _ => None,
        }
    }

    /// Decodes the context.
    ///
    /// # Errors
    ///
    /// Returns [`CodecError::Version`] for a layout that this build does not read, and
    /// [`CodecError::Damaged`] if a part does not decode.
    pub fn decode(&self) -> Result<UeContext, CodecError> {
        self.decode_sharing(None)
    }

    fn decode_sharing(&self, shared: Option<&mut SharedSubscriptions>) -> Result<UeContext, CodecError> {
        match self.versions.layout {
            LAYOUT_VERSION => self.decode_current(shared),
            // The decoder of an earlier layout is a branch here.
            other => Err(CodecError::Version(other)),
        }
    }

    fn decode_current(&self, shared: Option<&mut SharedSubscriptions>) -> Result<UeContext, CodecError> {
        let perpetual = Perpetual::decode(self.perpetual, shared).ok_or(CodecError::Damaged)?;
        let (ephemeral, rest): (Ephemeral, _) =
            postcard::take_from_bytes(self.ephemeral).map_err(|_| CodecError::Damaged)?;
        let mut context = parts::join(perpetual, ephemeral).ok_or(CodecError::Damaged)?;
        if !rest.is_empty() {
            let (remote_sessions, rest) = postcard::take_from_bytes(rest).map_err(|_| CodecError::Damaged)?;
            context.remote_sessions = remote_sessions;
            if !rest.is_empty() {
                let LastNode { assoc, recommended } = postcard::from_bytes(rest).map_err(|_| CodecError::Damaged)?;
                (context.reachability.last_node, context.reachability.recommended) = (assoc, recommended.into_owned());
            }
        }
        Ok(context)
    }
}

/// Last RAN node of an idle UE, and what it has recommended for paging.
#[derive(Serialize, Deserialize)]
struct LastNode<'a> {
    assoc: Option<AssocId>,
    #[serde(with = "octets")]
    recommended: Cow<'a, [u8]>,
}

fn header(versions: Versions, length: usize) -> Result<[u8; HEADER], CodecError> {
    let length = u32::try_from(length).ok().filter(|l| l >> 24 == 0).ok_or(CodecError::TooLarge)?;
    let [_, l0, l1, l2] = length.to_be_bytes();
    let [p0, p1, p2, p3] = versions.perpetual.to_be_bytes();
    let [e0, e1, e2, e3] = versions.ephemeral.to_be_bytes();
    Ok([versions.layout, l0, l1, l2, p0, p1, p2, p3, e0, e1, e2, e3])
}

fn put_header(versions: Versions, length: usize, out: &mut Vec<u8>) -> Result<(), CodecError> {
    out.extend_from_slice(&header(versions, length)?);
    Ok(())
}

fn put(part: &impl serde::Serialize, out: &mut Vec<u8>) -> Result<(), CodecError> {
    postcard_writer::to_vec(part, out).map_err(|_| CodecError::Damaged)
}

/// Appends one piece of a part, copying its octets in `before` if it is unchanged.
fn piece(before: Option<&[u8]>, piece: &impl serde::Serialize, out: &mut Vec<u8>) -> Result<(), CodecError> {
    match before {
        Some(octets) => {
            out.extend_from_slice(octets);
            Ok(())
        }
        None => put(piece, out),
    }
}

/// Appends the parameters of paging, further terms of the subscription, and the time of the
/// authentication. Each is absent if it and what follows are empty.
fn put_paging(allocation: &AllocationPart<'_>, out: &mut Vec<u8>) -> Result<(), CodecError> {
    allocation.paging().map_or(Ok(()), |paging| put(paging, out))?;
    allocation.further().map_or(Ok(()), |further| put(further, out))?;
    allocation.agreed_at().map_or(Ok(()), |agreed_at| put(&agreed_at, out))
}

/// Appends the ephemeral part, in SBA mode the AMF's
/// [`RemoteSessions`](crate::sba::RemoteSessions), and of an idle UE its last RAN node, which
/// release 0.2.0 ignores. What is empty is absent, unless something follows.
fn put_ephemeral(context: &UeContext, out: &mut Vec<u8>) -> Result<(), CodecError> {
    put(&parts::ephemeral(context), out)?;
    let Reachability { last_node: assoc, recommended, .. } = &context.reachability;
    let last_node = LastNode { assoc: *assoc, recommended: Cow::Borrowed(recommended) };
    let has_none = last_node.assoc.is_none() && recommended.is_empty();
    if context.remote_sessions.is_empty() && has_none {
        return Ok(());
    }
    put(&context.remote_sessions, out)?;
    if has_none { Ok(()) } else { put(&last_node, out) }
}

/// Appends the encoding of a context that is stored for the first time.
///
/// # Errors
///
/// Returns an error if the context has no encoding or is too large. No context causes this; it
/// would be a bug of this build, and the context must not be stored.
pub fn encode(context: &UeContext, mut out: Vec<u8>) -> Result<Vec<u8>, CodecError> {
    encode_full(context, None, &mut out)?;
    Ok(out)
}

/// Appends the encoding of a context that replaces the stored encoding `before`. The version of a
/// part grows if the part has changed.
///
/// # Errors
///
/// As [`encode`].
pub fn encode_after(context: &UeContext, before: &[u8], out: &mut Vec<u8>) -> Result<(), CodecError> {
    encode_full(context, EncodedContext::new(before).ok(), out)
}

fn encode_full(context: &UeContext, before: Option<EncodedContext<'_>>, out: &mut Vec<u8>) -> Result<(), CodecError> {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    let perpetual = parts::perpetual(context);
    put(&perpetual, out)?;
    put_paging(&perpetual.allocation, out)?;
    let end = out.len();
    let mut versions = Versions { layout: LAYOUT_VERSION, ..before.map(|b| b.versions).unwrap_or_default() };
    let is_same = |b: EncodedContext<'_>| b.versions.layout == LAYOUT_VERSION && b.perpetual == &out[start + HEADER..];
    if !before.is_some_and(is_same) {
        versions.perpetual = versions.perpetual.wrapping_add(1);
    }
    versions.ephemeral = versions.ephemeral.wrapping_add(1);
    put_ephemeral(context, out)?;
    out[start..start + HEADER].copy_from_slice(&header(versions, end - start - HEADER)?);
    Ok(())
}

/// Decodes a context.
///
/// # Errors
///
/// Returns [`CodecError::Version`] for a layout that this release does not read, and
/// [`CodecError::Damaged`] for octets that are not a context.
pub fn decode(octets: &[u8]) -> Result<UeContext, CodecError> {
    EncodedContext::new(octets)?.decode()
}

/// Decoder of many contexts. Those that it decodes share equal subscriptions, which saves time and
/// memory.
#[derive(Debug, Default)]
pub struct ContextDecoder {
    subscriptions: SharedSubscriptions,
}

impl ContextDecoder {
    /// Decodes a context.
    ///
    /// # Errors
    ///
    /// As [`decode`].
    pub fn decode(&mut self, octets: &[u8]) -> Result<UeContext, CodecError> {
        EncodedContext::new(octets)?.decode_sharing(Some(&mut self.subscriptions))
    }
}

/// Returns an encoded context without the radio capabilities of the UE, under the same versions: a
/// RAN node asks the UE for them again.
///
/// # Errors
///
/// As [`decode`] and [`encode`].
pub fn without_radio_capability(octets: &[u8]) -> Result<Vec<u8>, CodecError> {
    let stored = EncodedContext::new(octets)?;
    let mut context = stored.decode()?;
    context.delete_radio_capability();
    let encoded = encode(&context, Vec::new())?;
    let EncodedContext { versions: Versions { layout, .. }, perpetual, ephemeral } = EncodedContext::new(&encoded)?;
    let mut out = Vec::new();
    EncodedContext { versions: Versions { layout, ..stored.versions }, perpetual, ephemeral }.put(&mut out)?;
    Ok(out)
}

/// Encoder of a context that stays decoded between steps. It detects by comparison which pieces of
/// the perpetual part a step left unchanged, and reuses their octets.
#[derive(Debug)]
pub struct IncrementalEncoder {
    versions: Versions,
    perpetual: Perpetual<'static>,
    octets: Vec<u8>,
    /// Offsets in `octets` at which the first two pieces end; `None` if `octets` was read and the
    /// offsets are unknown.
    ends: Option<[usize; 2]>,
}

impl IncrementalEncoder {
    /// Returns the encoder of a context whose stored encoding is `octets`.
    ///
    /// # Errors
    ///
    /// As [`decode`].
    pub fn from_stored(context: &UeContext, octets: &[u8]) -> Result<Self, CodecError> {
        let record = EncodedContext::new(octets)?;
        if record.versions.layout != LAYOUT_VERSION {
            let Versions { perpetual, ephemeral, .. } = record.versions;
            let versions = Versions { layout: LAYOUT_VERSION, perpetual: perpetual.wrapping_add(1), ephemeral };
            return IncrementalEncoder::whole(context, versions);
        }
        let perpetual = parts::perpetual(context).into_static();
        Ok(IncrementalEncoder { versions: record.versions, perpetual, octets: record.perpetual.to_vec(), ends: None })
    }

    /// Returns the encoder of a context that is not stored yet.
    ///
    /// # Errors
    ///
    /// As [`encode`].
    pub fn new(context: &UeContext) -> Result<Self, CodecError> {
        IncrementalEncoder::whole(context, Versions::default())
    }

    fn whole(context: &UeContext, versions: Versions) -> Result<Self, CodecError> {
        let perpetual = parts::perpetual(context).into_static();
        let mut parts = IncrementalEncoder { versions, perpetual, octets: Vec::new(), ends: None };
        parts.encode_perpetual([false; 3])?;
        Ok(parts)
    }

    /// Encodes the perpetual part again, reusing the pieces marked in `same`.
    fn encode_perpetual(&mut self, same: [bool; 3]) -> Result<(), CodecError> {
        let before = std::mem::take(&mut self.octets);
        let (before, [first, second]) = match self.ends {
            Some(ends) => (Some(&before[..]), ends),
            None => (None, [0; 2]),
        };
        let kept = |piece: usize, of: std::ops::Range<usize>| before.filter(|_| same[piece]).map(|octets| &octets[of]);
        let mut octets = Vec::with_capacity(PERPETUAL.max(before.map_or(0, <[u8]>::len)));
        let Perpetual { identity, subscription, allocation } = &self.perpetual;
        piece(kept(0, 0..first), identity, &mut octets)?;
        let first_end = octets.len();
        piece(kept(1, first..second), subscription, &mut octets)?;
        let ends = [first_end, octets.len()];
        piece(kept(2, second..before.map_or(second, <[u8]>::len)), allocation, &mut octets)?;
        if !same[2] || before.is_none() {
            put_paging(allocation, &mut octets)?;
        }
        (self.octets, self.ends) = (octets, Some(ends));
        Ok(())
    }

    /// Appends the encoding of the context after a step. Returns true if the perpetual part has
    /// changed. If the result is not committed, the encoder must be discarded.
    ///
    /// # Errors
    ///
    /// As [`encode`].
    pub fn encode(&mut self, context: &UeContext, out: &mut Vec<u8>) -> Result<bool, CodecError> {
        let Perpetual { identity, subscription, allocation } = &mut self.perpetual;
        let (same_identity, same_subscription) = (identity.matches(context), subscription.matches(context));
        // Sessions refer to the subscription by index, so that a changed subscription changes them
        // too.
        let same = [same_identity, same_subscription, same_subscription && allocation.matches(context)];
        let changed = same != [true; 3];
        if changed {
            if !same[0] {
                *identity = IdentityPart::from_context(context);
            }
            if !same[1] {
                *subscription = SubscriptionPart::from_context(context);
            }
            if !same[2] {
                *allocation = AllocationPart::from_context(context).into_static();
            }
            self.encode_perpetual(same)?;
        }
        if changed || self.versions.perpetual == 0 {
            self.versions.perpetual = self.versions.perpetual.wrapping_add(1);
        }
        self.versions.ephemeral = self.versions.ephemeral.wrapping_add(1);
        put_header(self.versions, self.octets.len(), out)?;
        out.extend_from_slice(&self.octets);
        put_ephemeral(context, out)?;
        Ok(changed)
    }

    /// Returns the versions of the last encoding.
    pub fn versions(&self) -> Versions {
        self.versions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amf::context::Registration;
    use crate::smf::tests::Bench;
    use crate::smf::{ModificationCommand, RanTerms, TermsChange, UpfUpdate};
    use crate::subscription::{Ambr, AreaRestrictions, Subscription};
    use std::sync::Arc;
    use vireo_types::{Bucket, Instant, Ltmsi, Tac, Tmsi};

    fn context() -> UeContext {
        UeContext::new(Ltmsi::new(Bucket::new(7), 9))
    }

    fn subscription(uplink_bps: u64) -> Subscription {
        Subscription { ambr: Ambr { uplink_bps, ..Ambr::default() }, ..Subscription::default() }
    }

    #[test]
    fn context_roundtrip_is_exact_and_garbage_fails() {
        let octets = encode(&context(), Vec::new()).expect("it encodes");
        assert_eq!(decode(&octets), Ok(context()));
        assert!(octets.len() < 64, "an empty context is small: {} octets", octets.len());
        assert_eq!(decode(&[]), Err(CodecError::Damaged));
        for layout in [OLDEST_LAYOUT - 1, LAYOUT_VERSION + 1] {
            assert_eq!(decode(&[layout, 1, 2]), Err(CodecError::Version(layout)));
        }
        for end in 1..octets.len() {
            assert_eq!(decode(&octets[..end]), Err(CodecError::Damaged), "{end} of {} octets", octets.len());
        }
    }

    #[test]
    fn connection_is_read_without_the_rest() {
        use crate::amf::context::RanContext;
        use vireo_types::{AmfUeNgapId, NrCgi, RanUeNgapId, Tai};
        let mut ue = context();
        let plmn = "99970".parse().expect("a PLMN");
        let read = |ue: &UeContext| {
            let octets = encode(ue, Vec::new()).expect("it encodes");
            EncodedContext::new(&octets).expect("a record").connection(ue.ltmsi)
        };
        assert_eq!(read(&ue), None);
        ue.sessions = vec![Bench::active().sm().clone()];
        ue.connection = Some(Connection {
            assoc: AssocId(3),
            ran_id: RanUeNgapId(8),
            amf_id: AmfUeNgapId::new(ue.ltmsi, 0x123),
            tai: Tai { plmn, tac: Tac(1) },
            cell: NrCgi { plmn, cell: 1 },
            ran: RanContext::SetUp,
        });
        assert_eq!(read(&ue), ue.connection);
        // Of an earlier number of the UE.
        ue.ltmsi = Ltmsi::new(Bucket::new(8), 1);
        assert_eq!(read(&ue), ue.connection);
    }

    #[test]
    fn decoder_shares_equal_subscriptions() {
        let mut decoder = ContextDecoder::default();
        let mut decoded = |number: u16, subscription: &Subscription| {
            let mut ue = UeContext::new(Ltmsi::new(Bucket::new(7), number));
            ue.subscription = Some(Arc::new(subscription.clone()));
            let octets = encode(&ue, Vec::new()).expect("it encodes");
            assert_eq!(decoder.decode(&octets).as_ref(), Ok(&ue));
            assert!(decoder.decode(&octets[..octets.len() - 1]).is_err(), "the end is missing");
            decoder.decode(&octets).expect("a context").subscription.expect("a subscription")
        };
        let usual = subscription(1_000_000);
        let of_usual = [1, 2].map(|number| decoded(number, &usual));
        assert!(Arc::ptr_eq(&of_usual[0], &of_usual[1]));
        // These terms are stored apart: the rest has the usual encoding.
        let areas = AreaRestrictions { forbidden: vec![Tac(7)], ..AreaRestrictions::default() };
        let restricted = decoded(3, &Subscription { areas, ..usual.clone() });
        assert!(!Arc::ptr_eq(&restricted, &of_usual[0]) && decoded(4, &usual).areas.is_empty());
        // More than are shared at a time, each twice.
        for number in 0..40 {
            decoded(number, &subscription(u64::from(number / 2) + 5));
        }
        assert_eq!(*decoded(5, &usual), usual);
    }

    #[test]
    fn only_what_a_step_changes_has_a_new_version() {
        let mut ue = context();
        let mut parts = IncrementalEncoder::new(&ue).expect("it encodes");
        let mut before = Vec::new();
        parts.encode(&ue, &mut before).expect("it encodes");
        assert_eq!(before, encode(&ue, Vec::new()).expect("it encodes"), "the first one is as any other's first");
        for (step, changes) in [false, true, false, true, true, true, false, true].into_iter().enumerate() {
            match step {
                0 => ue.connections += 1,
                1 => ue.identity.tmsi = Some(Tmsi(1)),
                2 => {}
                3 => {
                    ue.radio_capability = vec![1, 2, 3];
                    ue.reachability.paging.capability = vec![4, 5];
                }
                // Of three pieces the middle one changes, then the outer ones; then the same again.
                4 => ue.subscription = Some(Arc::new(subscription(5))),
                5 => (ue.next_session, ue.registration) = (1, Registration::Registered),
                6 => ue.subscription = Some(Arc::new(subscription(5))),
                _ => ue.subscription = Some(Arc::new(subscription(1_000_000))),
            }
            let (mut kept, mut once) = (Vec::new(), Vec::new());
            assert_eq!(parts.encode(&ue, &mut kept), Ok(changes));
            encode_after(&ue, &before, &mut once).expect("it encodes");
            assert_eq!(kept, once, "who keeps the context and who loads it write the same");
            let (old, new) =
                (EncodedContext::new(&before).expect("a record"), EncodedContext::new(&kept).expect("a record"));
            let grown = |a: u32, b: u32| b.wrapping_sub(a);
            assert_eq!(grown(old.versions.perpetual, new.versions.perpetual), u32::from(changes));
            assert_eq!(grown(old.versions.ephemeral, new.versions.ephemeral), 1);
            assert_eq!((old.perpetual != new.perpetual, new.decode()), (changes, Ok(ue.clone())));
            assert_eq!(IncrementalEncoder::from_stored(&ue, &kept).map(|p| p.versions()), Ok(parts.versions()));
            before = kept;
        }
    }

    /// A RAN node has refused a change: the end of the change restores the former terms.
    #[test]
    fn end_of_change_stores_terms_again() {
        let mut ue = context();
        ue.sessions = vec![Bench::active().sm().clone()];
        let former = ue.sessions[0].terms.clone();
        let mut parts = IncrementalEncoder::new(&ue).expect("it encodes");
        let ran = RanTerms::Unknown;
        let change = TermsChange { upf: UpfUpdate::Done, command: ModificationCommand::Due, since: Instant(0), ran };
        (ue.sessions[0].terms.five_qi, ue.sessions[0].terms.change) = (7, Some(change));
        parts.encode(&ue, &mut Vec::new()).expect("it encodes");
        ue.sessions[0].terms = former.clone();
        let mut octets = Vec::new();
        assert_eq!(parts.encode(&ue, &mut octets), Ok(true));
        assert_eq!(decode(&octets).map(|ue| ue.sessions[0].terms.clone()), Ok(former));
    }

    #[test]
    fn context_without_capability_keeps_versions() {
        let mut ue = context();
        ue.identity.tmsi = Some(Tmsi(7));
        let before = encode(&ue, Vec::new()).expect("it encodes");
        ue.radio_capability = vec![7; 70_000];
        let mut large = Vec::new();
        encode_after(&ue, &before, &mut large).expect("it encodes");
        let small = without_radio_capability(&large).expect("it encodes");
        let versions = |octets: &[u8]| EncodedContext::new(octets).expect("a record").versions;
        assert_eq!(versions(&small), versions(&large));
        ue.radio_capability.clear();
        assert_eq!(decode(&small), Ok(ue));
    }

    #[test]
    fn record_from_parts_equals_whole_record() {
        let octets = encode(&context(), Vec::new()).expect("it encodes");
        let record = EncodedContext::new(&octets).expect("a record");
        let mut again = Vec::new();
        record.put(&mut again).expect("it fits");
        assert_eq!(again, octets);
    }
}
