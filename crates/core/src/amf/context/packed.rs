//! Compact stored forms of parts of a context, without loss.
//!
//! They encode values that most UEs share, and numbers that follow from others, in fewer octets.

use super::{Connection, Identity, RanContext, UeSecurityCapability};
use crate::smf::{
    Forwarding, N4State, RanState, Relocation, SessionTerms, SmContext, Stage, TermsChange, Tunnel, Usage,
};
use crate::subscription::{Ambr, DnnSubscription, SliceSubscription, Subscription, UpSecurity};
use serde::de::{DeserializeOwned, Deserializer, Error};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::sync::Arc;
use vireo_types::{
    AmfUeNgapId, AssocId, Dnn, Instant, Ltmsi, Network as IpNetwork, NrCgi, PduSessionType, Pei, RanUeNgapId, Seid,
    SessionIndex, Snssai, Supi, Tai, Tmsi,
};

/// Type with a smaller stored form.
pub(super) trait PackedForm: Sized {
    /// Serializable form of the value.
    type Form: Serialize + DeserializeOwned;

    /// Returns the stored form.
    fn pack(&self) -> Self::Form;

    /// Restores the value; `None` if [`PackedForm::pack`] never returns `form`.
    fn unpack(form: Self::Form) -> Option<Self>;
}

pub(super) fn serialize<T: PackedForm, S: Serializer>(value: &T, s: S) -> Result<S::Ok, S::Error> {
    value.pack().serialize(s)
}

pub(super) fn deserialize<'de, T: PackedForm, D: Deserializer<'de>>(d: D) -> Result<T, D::Error> {
    T::unpack(T::Form::deserialize(d)?).ok_or_else(|| D::Error::custom("a value that is never stored"))
}

/// Stored form of an identity. Most have every identifier but an old 5G-TMSI, and need no presence
/// marks.
#[derive(Serialize, Deserialize)]
pub(super) enum PackedIdentity {
    Usual(Supi, Pei, Tmsi),
    Other(Identity),
    /// With the MMEs of the GUTIs of EPS, 4 bits each; the current one's are the lower.
    OfMmes(Identity, u8),
}

impl PackedForm for Identity {
    type Form = PackedIdentity;

    fn pack(&self) -> PackedIdentity {
        match *self {
            of @ Identity { mmes: [mme, old], .. } if mme | old != 0 => PackedIdentity::OfMmes(of, mme | old << 4),
            Identity { supi: Some(supi), pei: Some(pei), tmsi: Some(tmsi), old_tmsi: None, .. } => {
                PackedIdentity::Usual(supi, pei, tmsi)
            }
            other => PackedIdentity::Other(other),
        }
    }

    fn unpack(form: PackedIdentity) -> Option<Self> {
        Some(match form {
            PackedIdentity::Usual(supi, pei, tmsi) => {
                Identity { supi: Some(supi), pei: Some(pei), tmsi: Some(tmsi), ..Identity::default() }
            }
            PackedIdentity::Other(other) => other,
            PackedIdentity::OfMmes(of, mmes) => Identity { mmes: [mmes & 0xf, mmes >> 4], ..of },
        })
    }
}

impl PackedForm for UeSecurityCapability {
    type Form = SmallVec<[u8; 8]>;

    fn pack(&self) -> Self::Form {
        self.stored()
    }

    fn unpack(form: Self::Form) -> Option<Self> {
        UeSecurityCapability::from_stored(&form)
    }
}

/// Stores each bit rate as its significant digits and the number of zeros after them, because most
/// bit rates are round.
impl PackedForm for Ambr {
    type Form = (u128, u128);

    fn pack(&self) -> Self::Form {
        (digits(self.uplink_bps), digits(self.downlink_bps))
    }

    fn unpack((uplink, downlink): Self::Form) -> Option<Self> {
        Some(Ambr { uplink_bps: bps(uplink)?, downlink_bps: bps(downlink)? })
    }
}

fn digits(bps: u64) -> u128 {
    let (mut digits, mut zeros) = (bps, 0);
    while digits > 0 && digits.is_multiple_of(10) && zeros < 15 {
        (digits, zeros) = (digits / 10, zeros + 1);
    }
    u128::from(digits) << 4 | zeros
}

fn bps(form: u128) -> Option<u64> {
    u64::try_from(form >> 4).ok()?.checked_mul(10_u64.pow(form as u32 & 15))
}

/// Stored form of a subscription, with packed bit rates. The UE-AMBR has the marks of restrictions.
#[derive(Serialize, Deserialize)]
pub(super) struct PackedSubscription {
    slices: Vec<(Snssai, bool, Vec<Network>)>,
    #[serde(with = "super::packed")]
    ambr: Ambr,
}

#[derive(Serialize, Deserialize)]
struct Network {
    dnn: Dnn,
    types: Vec<PduSessionType>,
    #[serde(with = "super::packed")]
    ambr: Ambr,
    five_qi: u8,
    /// With the mark of the UP security policy.
    arp_priority: u8,
}

impl Network {
    /// Returns all terms but static addresses and framed routes, which are stored apart.
    fn from_subscription(dnn: &DnnSubscription) -> Self {
        Network {
            dnn: dnn.dnn.clone(),
            types: dnn.types.clone(),
            ambr: dnn.ambr,
            five_qi: dnn.five_qi,
            arp_priority: UpSecurity::encode(dnn.up_security, dnn.arp_priority),
        }
    }

    fn subscription(self) -> DnnSubscription {
        let Network { dnn, types, ambr, five_qi, arp_priority } = self;
        let (arp_priority, up_security) = UpSecurity::decode(arp_priority);
        DnnSubscription { dnn, types, ambr, five_qi, arp_priority, up_security, ..DnnSubscription::default() }
    }
}

impl PackedForm for Option<Arc<Subscription>> {
    type Form = Option<PackedSubscription>;

    fn pack(&self) -> Self::Form {
        let subscription = self.as_deref()?;
        let of = |s: &SliceSubscription| (s.snssai, s.default, s.dnns.iter().map(Network::from_subscription).collect());
        let slices = subscription.slices.iter().map(of).collect();
        Some(PackedSubscription { slices, ambr: subscription.marked_ambr() })
    }

    fn unpack(form: Self::Form) -> Option<Self> {
        let slice = |(snssai, default, dnns): (Snssai, bool, Vec<Network>)| SliceSubscription {
            snssai,
            default,
            dnns: dnns.into_iter().map(Network::subscription).collect(),
        };
        let whole = |PackedSubscription { slices, ambr }| {
            Subscription::from_marked(slices.into_iter().map(slice).collect(), ambr)
        };
        Some(form.map(whole).map(Arc::new))
    }
}

/// Stored form of the terms of a session: a reference to the subscription, or the values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum StoredTerms {
    /// Indexes of the slice in the subscription and of the data network in the slice.
    Subscribed(u8, u8),
    /// Values that are not in the subscription: it was another one when the session was set up.
    Own(Box<PackedTerms>),
    /// As [`StoredTerms::Own`], with framed routes. Release 0.2.0 does not read it.
    Routed(Box<PackedTerms>, Vec<IpNetwork>),
}

/// [`SessionTerms`] with a packed bit rate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PackedTerms {
    snssai: Snssai,
    dnn: Dnn,
    #[serde(with = "super::packed")]
    ambr: Ambr,
    five_qi: u8,
    /// With the mark of the UP security policy.
    arp_priority: u8,
}

/// [`SessionTerms`] that borrow from the subscription.
#[derive(PartialEq, Eq)]
struct ResolvedTerms<'a> {
    snssai: Snssai,
    dnn: &'a Dnn,
    ambr: Ambr,
    five_qi: u8,
    /// With the mark of the UP security policy.
    arp_priority: u8,
    framed_routes: &'a [IpNetwork],
}

impl<'a> ResolvedTerms<'a> {
    fn from_terms(terms: &'a SessionTerms) -> Self {
        ResolvedTerms {
            snssai: terms.snssai,
            dnn: &terms.dnn,
            ambr: terms.ambr,
            five_qi: terms.five_qi,
            arp_priority: UpSecurity::encode(terms.up_security, terms.arp_priority),
            framed_routes: &terms.framed_routes,
        }
    }

    fn from_packed(packed: &'a PackedTerms, framed_routes: &'a [IpNetwork]) -> Self {
        let PackedTerms { snssai, ref dnn, ambr, five_qi, arp_priority } = *packed;
        ResolvedTerms { snssai, dnn, ambr, five_qi, arp_priority, framed_routes }
    }
}

impl StoredTerms {
    pub(super) fn pack(terms: &SessionTerms, subscription: Option<&Subscription>) -> Self {
        let own = || {
            let ResolvedTerms { snssai, dnn, ambr, five_qi, arp_priority, .. } = ResolvedTerms::from_terms(terms);
            let packed = Box::new(PackedTerms { snssai, dnn: dnn.clone(), ambr, five_qi, arp_priority });
            match terms.framed_routes.is_empty() {
                true => StoredTerms::Own(packed),
                false => StoredTerms::Routed(packed, terms.framed_routes.clone()),
            }
        };
        let slices = subscription.map_or(&[][..], |all| &all.slices[..]);
        let places = slices.iter().zip(0..=u8::MAX).flat_map(|(slice, at)| (0..slice.dnns.len()).map(move |n| (at, n)));
        let subscribed =
            places.filter_map(|(slice, dnn)| Some(StoredTerms::Subscribed(slice, u8::try_from(dnn).ok()?)));
        let mut same = subscribed.filter(|stored| stored.matches(terms, subscription));
        same.next().unwrap_or_else(own)
    }

    /// Returns the terms with this subscription; `None` if it has no such entry.
    pub(super) fn unpack(&self, subscription: Option<&Subscription>) -> Option<SessionTerms> {
        let ResolvedTerms { snssai, dnn, ambr, five_qi, arp_priority, framed_routes } = self.resolve(subscription)?;
        let (arp_priority, up_security) = UpSecurity::decode(arp_priority);
        let (dnn, framed_routes) = (dnn.clone(), framed_routes.to_vec());
        Some(SessionTerms { snssai, dnn, ambr, five_qi, arp_priority, up_security, framed_routes, change: None })
    }

    fn resolve<'a>(&'a self, subscription: Option<&'a Subscription>) -> Option<ResolvedTerms<'a>> {
        Some(match self {
            StoredTerms::Subscribed(slice, dnn) => {
                let slice = subscription?.slices.get(usize::from(*slice))?;
                let network = slice.dnns.get(usize::from(*dnn))?;
                ResolvedTerms {
                    snssai: slice.snssai,
                    dnn: &network.dnn,
                    ambr: network.ambr,
                    five_qi: network.five_qi,
                    arp_priority: UpSecurity::encode(network.up_security, network.arp_priority),
                    framed_routes: &network.framed_routes,
                }
            }
            StoredTerms::Own(own) => ResolvedTerms::from_packed(own, &[]),
            StoredTerms::Routed(own, routes) => ResolvedTerms::from_packed(own, routes),
        })
    }

    /// Returns true if these are the stored terms.
    pub(super) fn matches(&self, terms: &SessionTerms, subscription: Option<&Subscription>) -> bool {
        self.resolve(subscription) == Some(ResolvedTerms::from_terms(terms))
    }
}

/// Returns the XOR of a SEID and the SEID of generation 0 of the UE's session. The result is the
/// generation, unless the LTMSI of the UE has changed.
pub(super) fn relative_seid(seid: Seid, ltmsi: Ltmsi, session: SessionIndex) -> u64 {
    seid.0 ^ Seid::new(ltmsi, session, 0).0
}

/// Stored form of an NG connection, without what follows from the LTMSI and the tracking area.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PackedConnection {
    assoc: AssocId,
    ran_id: RanUeNgapId,
    amf_id: u64,
    tai: Tai,
    cell: Cell,
    ran: RanContext,
}

#[derive(Debug, Serialize, Deserialize)]
enum Cell {
    /// Cell of the PLMN of the tracking area.
    Same(u64),
    Other(NrCgi),
}

impl PackedConnection {
    pub(super) fn pack(connection: &Connection, ltmsi: Ltmsi) -> Self {
        let Connection { assoc, ran_id, amf_id, tai, cell, ran } = *connection;
        let amf_id = amf_id.get() ^ AmfUeNgapId::new(ltmsi, 0).get();
        let cell = if cell.plmn == tai.plmn { Cell::Same(cell.cell) } else { Cell::Other(cell) };
        PackedConnection { assoc, ran_id, amf_id, tai, cell, ran }
    }

    pub(super) fn connection(self, ltmsi: Ltmsi) -> Option<Connection> {
        let PackedConnection { assoc, ran_id, amf_id, tai, cell, ran } = self;
        let cell = match cell {
            Cell::Same(cell) => NrCgi { plmn: tai.plmn, cell },
            Cell::Other(cell) => cell,
        };
        let amf_id = AmfUeNgapId::from_raw(amf_id ^ AmfUeNgapId::new(ltmsi, 0).get())?;
        Some(Connection { assoc, ran_id, amf_id, tai, cell, ran })
    }
}

/// Progress of a session. `U` and `F` are owned when reading and borrow the session when writing.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum SessionProgress<U = Box<SessionProgressFields>, F = Box<Forwarding>> {
    /// No procedure in progress, user plane inactive. The time is [`SmContext::since`].
    Idle(Instant),
    /// No procedure in progress, with this downlink tunnel to the RAN node.
    Up(Tunnel, Instant),
    /// Any other state, with all fields.
    Under(U),
    /// As [`SessionProgress::Under`], with forwarding of packets. Release 0.2.0 does not read it.
    Forwarding(U, F),
    /// As [`SessionProgress::Under`], with a change of the terms. Release 0.2.0 does not read it.
    Changing(U, Option<F>, TermsChange),
}

/// Fields of [`SessionProgress::Under`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SessionProgressFields<S = Stage, R = Option<Box<Relocation>>> {
    downlink: Option<Tunnel>,
    target: Option<Tunnel>,
    end_marker: bool,
    stage: S,
    ran: RanState,
    n4: N4State,
    usage: Usage,
    relocation: R,
    deadline: Option<Instant>,
    since: Instant,
}

impl<'a> SessionProgress<SessionProgressFields<&'a Stage, &'a Option<Box<Relocation>>>, &'a Forwarding> {
    #[inline]
    pub(super) fn from_session(sm: &'a SmContext) -> Self {
        let nothing = sm.handover.target.is_none() && sm.handover.forwarding.is_none();
        let nothing = nothing && !sm.end_marker && sm.relocation.is_none() && sm.deadline.is_none();
        let nothing = nothing && sm.terms.change.is_none();
        let rest =
            nothing && sm.stage == Stage::Established && sm.n4 == N4State::Synced && sm.usage == Usage::default();
        match (rest, sm.ran, sm.downlink) {
            (true, RanState::Idle, None) => SessionProgress::Idle(sm.since),
            (true, RanState::Up, Some(tunnel)) => SessionProgress::Up(tunnel, sm.since),
            _ => {
                let fields = SessionProgressFields {
                    downlink: sm.downlink,
                    target: sm.handover.target,
                    end_marker: sm.end_marker,
                    stage: &sm.stage,
                    ran: sm.ran,
                    n4: sm.n4,
                    usage: sm.usage,
                    relocation: &sm.relocation,
                    deadline: sm.deadline,
                    since: sm.since,
                };
                match (sm.handover.forwarding.as_deref(), sm.terms.change) {
                    (forwarding, Some(change)) => SessionProgress::Changing(fields, forwarding, change),
                    (None, None) => SessionProgress::Under(fields),
                    (Some(forwarding), None) => SessionProgress::Forwarding(fields, forwarding),
                }
            }
        }
    }
}

impl SessionProgress {
    /// Applies the progress to a session that is established and idle.
    pub(super) fn apply_to(self, sm: &mut SmContext) {
        match self {
            SessionProgress::Idle(since) => sm.since = since,
            SessionProgress::Up(tunnel, since) => (sm.ran, sm.downlink, sm.since) = (RanState::Up, Some(tunnel), since),
            SessionProgress::Under(under) => under.apply_to(sm),
            SessionProgress::Forwarding(under, forwarding) => {
                under.apply_to(sm);
                sm.handover.forwarding = Some(forwarding);
            }
            SessionProgress::Changing(under, forwarding, change) => {
                under.apply_to(sm);
                (sm.handover.forwarding, sm.terms.change) = (forwarding, Some(change));
            }
        }
    }
}

impl SessionProgressFields {
    fn apply_to(self, sm: &mut SmContext) {
        (sm.downlink, sm.handover.target, sm.end_marker) = (self.downlink, self.target, self.end_marker);
        (sm.stage, sm.ran, sm.n4) = (self.stage, self.ran, self.n4);
        (sm.usage, sm.relocation) = (self.usage, self.relocation);
        (sm.deadline, sm.since) = (self.deadline, self.since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_bit_rate_roundtrip_is_exact() {
        for rate in [0, 1, 10, 64_000, 1_000_000_000, 1_234_567_890, 10_u64.pow(19), u64::MAX - 5, u64::MAX] {
            assert_eq!(bps(digits(rate)), Some(rate));
            let octets = postcard::to_allocvec(&digits(rate)).expect("it encodes").len();
            assert!(rate != 1_000_000_000 || octets == 1, "{octets} octets");
        }
        assert_eq!((bps(u128::MAX), bps(u128::from(u64::MAX) << 4 | 15)), (None, None));
    }

    #[test]
    fn packed_identity_keeps_mmes_of_gutis() {
        let supi = Supi::from_digits("999700000000001").expect("an IMSI");
        let usual = Identity { supi: Some(supi), tmsi: Some(Tmsi(7)), ..Identity::default() };
        for mmes in [[0, 0], [3, 0], [0, 15], [15, 15]] {
            let identity = Identity { old_tmsi: Some(Tmsi(8)), mmes, ..usual };
            let octets = postcard::to_allocvec(&identity.pack()).expect("it encodes");
            let form = postcard::from_bytes(&octets).expect("it decodes");
            assert_eq!(Identity::unpack(form), Some(identity));
        }
    }
}
