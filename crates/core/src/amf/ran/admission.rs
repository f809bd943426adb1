//! Admission of RAN nodes by address, PLMN and gNB ID.
//!
//! A node is checked against the operator's list and against the RAN nodes that are set up.

use crate::amf::n2::{self, Cause};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use vireo_types::{Network, Plmn, RanNodeId};
use vireo_wire::ngap::*;

/// Entry of the operator's list: RAN nodes allowed from a range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allow {
    pub network: Network,
    /// PLMN of the Global RAN Node ID; `None` = any.
    pub plmn: Option<Plmn>,
    /// First and last gNB ID; `None` = any.
    pub ids: Option<(u32, u32)>,
}

impl Allow {
    /// Returns true if a RAN node with this identity may connect from the address.
    pub fn permits(&self, address: IpAddr, id: RanNodeId) -> bool {
        let plmn = self.plmn.is_none_or(|plmn| plmn == id.plmn());
        plmn && self.ids.is_none_or(|(first, last)| (first..=last).contains(&id.value()))
            && self.network.contains(address)
    }
}

/// Reason why a peer, or the identity that it sends, is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No entry has the peer's address.
    Address,
    /// No entry allows the identity for the peer's address.
    Identity,
    /// A RAN node with this identity is set up.
    InUse,
    /// An additional association comes from an address that neither belongs to the RAN node nor is
    /// allowed for its identity.
    Binding,
    /// The peer's address has the maximum number of associations.
    Associations,
    /// The association completed no NG Setup, and joined no RAN node, in time.
    NoSetup,
    /// The peer has named too many connections that do not exist in PATH SWITCH REQUESTs.
    Guessing,
    /// There is the maximum number of associations. One ends, or a new one is refused, by their
    /// numbers at each machine.
    Full,
}

impl Refusal {
    /// All reasons.
    pub const ALL: [Refusal; 8] = [
        Refusal::Address,
        Refusal::Identity,
        Refusal::InUse,
        Refusal::Binding,
        Refusal::Associations,
        Refusal::NoSetup,
        Refusal::Guessing,
        Refusal::Full,
    ];

    /// Returns the label of the reason in metrics and log lines.
    pub const fn label(self) -> &'static str {
        match self {
            Refusal::Address => "address",
            Refusal::Identity => "identity",
            Refusal::InUse => "identity_in_use",
            Refusal::Binding => "binding",
            Refusal::Associations => "associations",
            Refusal::NoSetup => "no_ng_setup",
            Refusal::Guessing => "guessing",
            Refusal::Full => "full",
        }
    }
}

/// Decision about an NG Setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The NG Setup takes effect.
    Granted,
    /// The RAN node that has the identity is first probed.
    Contested,
    Refused(Refusal),
}

/// Returns true if a peer with this address may have an association. An empty list allows all.
pub fn allows(list: &[Allow], peer: IpAddr) -> bool {
    list.is_empty() || list.iter().any(|entry| entry.network.contains(peer))
}

/// Decides about an NG Setup of `peer` as `id`. `up` has the addresses of the RAN node that is set
/// up with this identity; it is empty if there is none. A RAN node that sets up again from its own
/// address has restarted.
pub fn setup(list: &[Allow], peer: IpAddr, id: RanNodeId, mut up: impl Iterator<Item = IpAddr>) -> Verdict {
    if !list.is_empty() && !list.iter().any(|entry| entry.permits(peer, id)) {
        return Verdict::Refused(Refusal::Identity);
    }
    let peer = peer.to_canonical();
    match up.next().map(|first| first.to_canonical() == peer || up.any(|address| address.to_canonical() == peer)) {
        None | Some(true) => Verdict::Granted,
        Some(false) => Verdict::Contested,
    }
}

/// Returns true if an association of `peer` may join the RAN node `id`, whose associations have the
/// addresses `up`.
pub fn binds(list: &[Allow], peer: IpAddr, id: RanNodeId, mut up: impl Iterator<Item = IpAddr>) -> bool {
    // An empty list allows no identity for other addresses.
    up.any(|address| address.to_canonical() == peer.to_canonical()) || list.iter().any(|entry| entry.permits(peer, id))
}

/// Encodes NG SETUP FAILURE for a RAN node that may not use its identity, or not yet (TS 38.413
/// 8.7.1.3).
pub fn setup_refused(refusal: Refusal) -> Vec<u8> {
    // By then the RAN node that is set up may have been found dead.
    let wait = if refusal == Refusal::InUse { TimeToWait::v10s } else { TimeToWait::v60s };
    let cause = Cause::misc(CauseMisc::unspecified);
    n2::encode(build_ngap!(UnsuccessfulOutcome, NGSetup, NGSetupFailure, Cause(cause), TimeToWait(wait)))
}

/// Encodes RAN CONFIGURATION UPDATE FAILURE for an association that may not join the RAN node that
/// it names (8.7.2.3).
pub fn binding_refused() -> Vec<u8> {
    n2::encode(build_ngap!(
        UnsuccessfulOutcome,
        RANConfigurationUpdate,
        RANConfigurationUpdateFailure,
        Cause(Cause::misc(CauseMisc::unspecified)),
        TimeToWait(TimeToWait::v60s),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vireo_types::GnbId;

    fn allow(network: &str, plmn: Option<&str>, ids: Option<(u32, u32)>) -> Allow {
        let plmn = plmn.map(|plmn| plmn.parse().expect("a PLMN"));
        Allow { network: network.parse().expect("a network"), plmn, ids }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn gnb(id: u32) -> RanNodeId {
        GnbId { plmn: "99970".parse().expect("a PLMN"), id, bits: 24 }.into()
    }

    #[test]
    fn lists_give_identities_to_addresses() {
        let list = [
            allow("10.1.0.0/16", Some("99970"), Some((0x100, 0x1ff))),
            allow("10.2.0.7/32", Some("00101"), None),
            allow("10.3.0.0/24", None, None),
        ];
        let nobody = std::iter::empty;
        for (peer, id, granted) in [
            ("10.1.9.9", 0x100, true),
            ("10.1.9.9", 0x1ff, true),
            ("10.1.9.9", 0x200, false),
            ("10.1.9.9", 0xff, false),
            ("10.2.0.7", 0x100, false),
            ("10.3.0.9", 0x100, true),
            ("10.4.0.9", 0x100, false),
        ] {
            let verdict = if granted { Verdict::Granted } else { Verdict::Refused(Refusal::Identity) };
            assert_eq!(setup(&list, ip(peer), gnb(id), nobody()), verdict, "{peer} {id}");
            assert_eq!(binds(&list, ip(peer), gnb(id), nobody()), granted, "{peer} {id}");
        }
        assert!(allows(&list, ip("10.2.0.7")) && !allows(&list, ip("10.2.0.8")));
        assert!(allows(&[], ip("10.2.0.8")));
    }

    #[test]
    fn node_id_of_live_association_is_contested() {
        let up = || ["10.1.0.1", "10.1.0.2"].map(ip).into_iter();
        let decide = |peer| setup(&[], ip(peer), gnb(1), up());
        assert_eq!(decide("10.1.0.3"), Verdict::Contested);
        assert_eq!(decide("10.1.0.2"), Verdict::Granted, "it has restarted");
        assert_eq!(decide("::ffff:10.1.0.1"), Verdict::Granted);
        assert_eq!(setup(&[], ip("10.1.0.3"), gnb(1), std::iter::empty()), Verdict::Granted);
        assert!(binds(&[], ip("10.1.0.1"), gnb(1), up()) && !binds(&[], ip("10.1.0.3"), gnb(1), up()));
        let list = [allow("10.1.0.0/24", None, None)];
        assert!(binds(&list, ip("10.1.0.3"), gnb(1), up()));
        assert_eq!(
            setup(&list, ip("10.1.0.3"), gnb(1), up()),
            Verdict::Contested,
            "the list does not decide who lives"
        );
    }

    #[test]
    fn refusals_say_when_to_come_again() {
        for (refusal, wait) in [(Refusal::Identity, TimeToWait::v60s), (Refusal::InUse, TimeToWait::v10s)] {
            let octets = setup_refused(refusal);
            let pdu = NGAP_PDU::decode_borrowed(&octets).expect("a PDU");
            assert_eq!(pdu.kind(), NgapPduKind::Unsuccessful_NGSetup);
            assert_eq!(pdu.ie::<ie::TimeToWait>().and_then(Result::ok), Some(wait));
        }
        let octets = binding_refused();
        let pdu = NGAP_PDU::decode_borrowed(&octets).expect("a PDU");
        assert_eq!(pdu.kind(), NgapPduKind::Unsuccessful_RANConfigurationUpdate);
    }
}
