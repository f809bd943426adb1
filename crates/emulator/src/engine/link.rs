//! One RAN node with its associations and the messages that a full association defers.
//!
//! The link also resends unacknowledged messages on another association and drops repeats of the
//! AMF.

use crate::dialect::Node;
use crate::ran::{InterfaceState, Outbox, PduRoute, SendError as NodeError};
use crate::rat::Rat;
use rustc_hash::{FxHashSet, FxHasher};
use std::collections::VecDeque;
use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};
use vireo_sctp::{Endpoint, SendError};
use vireo_types::AssocId;

/// Maximum number of deferred messages of an association. Beyond it the core is dead or far too
/// slow.
const BACKLOG: usize = 100_000;
/// Time after the loss of an association in which the AMF may repeat messages of that association.
const REPEATED_US: u64 = 5_000_000;
/// Number of remembered AMF messages for the detection of repeats. It exceeds the number of
/// messages that arrive while a balancer dies.
const RECENT: usize = 1024;

/// State of one association of a gNB.
#[derive(Debug, Default)]
pub(super) struct AssociationSlot {
    /// Address of the AMF; `None` if not known yet.
    pub(super) core: Option<SocketAddr>,
    pub(super) assoc: Option<AssocId>,
    /// Number of outbound streams; `None` while the association is down.
    pub(super) streams: Option<u16>,
    backlog: VecDeque<(u16, Vec<u8>)>,
    blocked: bool,
    /// Time to connect again, in microseconds. If the association is up: time to bind it again.
    pub(super) retry_us: Option<u64>,
}

impl AssociationSlot {
    /// Marks the association as down.
    fn reset(&mut self) {
        *self = AssociationSlot { core: self.core, retry_us: self.retry_us, ..AssociationSlot::default() };
    }
}

/// A gNB or eNB with its associations.
#[derive(Debug)]
pub(super) struct NodeLink {
    pub(super) node: Node,
    /// Number in the run among the nodes of its dialect.
    pub(super) number: u32,
    /// The first exists from the start; the others follow after NG Setup.
    pub(super) associations: Vec<AssociationSlot>,
    pub(super) outbox: Outbox,
    /// Addresses of the pending AMF CONFIGURATION UPDATE, until each association is up or has
    /// failed.
    requested: Vec<IpAddr>,
    /// Associations whose remote endpoints the AMF has removed.
    pub(super) removed: Vec<u8>,
    /// Unacknowledged messages of lost associations, with their streams. They are resent on another
    /// association. The AMF recognises repeats by NAS COUNTs and UE NGAP IDs.
    unacknowledged_pdus: Vec<(u16, Vec<u8>)>,
    /// Hashes of the messages recently received, by association, including lost ones. If a host
    /// does not know whether a balancer has sent a message, another balancer repeats it byte for
    /// byte.
    recent: Vec<(u8, u64)>,
    at: usize,
    repeats: FxHashSet<u64>,
    repeats_until_us: u64,
    /// Reason of the last association loss.
    pub(super) trouble: Option<String>,
    /// Reason for which the core refused NG or S1 SETUP.
    pub(super) refused: Option<String>,
}

impl NodeLink {
    /// Creates a gNB with `associations` associations, spread in turn over the AMF addresses
    /// `cores`. If there is only one address, the AMF may announce further ones.
    pub(super) fn new(node: Node, number: u32, cores: &[SocketAddr], associations: u32) -> Self {
        let core = |by: u32| match cores {
            [one] => (by == 0).then_some(*one),
            _ => cores.get((number as usize + by as usize) % cores.len().max(1)).copied(),
        };
        let associations = (0..associations.max(1))
            .map(|by| AssociationSlot { core: core(by), ..AssociationSlot::default() })
            .collect();
        NodeLink {
            node,
            number,
            associations,
            outbox: Outbox::default(),
            requested: Vec::new(),
            removed: Vec::new(),
            unacknowledged_pdus: Vec::new(),
            recent: Vec::new(),
            at: 0,
            repeats: FxHashSet::default(),
            repeats_until_us: 0,
            trouble: None,
            refused: None,
        }
    }

    /// Returns the AMF address of the first association.
    pub(super) fn core(&self) -> SocketAddr {
        self.associations[0].core.unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)))
    }

    /// Returns true if every association carries UEs.
    pub(super) fn is_complete(&self) -> bool {
        self.node.is_up() && self.node.associations_up() == self.associations.len()
    }

    /// Marks the association as writable again.
    pub(super) fn unblock(&mut self, by: u8) {
        self.associations[usize::from(by)].blocked = false;
    }

    /// Marks an association as lost. Returns true if the gNB continues with another one.
    pub(super) fn on_association_lost(&mut self, by: u8, now_us: u64) -> bool {
        let unsent = std::mem::take(&mut self.associations[usize::from(by)].backlog);
        self.associations[usize::from(by)].reset();
        let goes_on = self.node.detach(by);
        if goes_on {
            unsent.into_iter().for_each(|(stream, pdu)| self.unacknowledged(stream, &pdu));
            self.repeats = self.recent.iter().filter(|(of, _)| *of == by).map(|(_, hash)| *hash).collect();
            self.repeats_until_us = now_us + REPEATED_US;
            self.recent.clear();
            self.at = 0;
        } else {
            self.outbox.clear();
            self.unacknowledged_pdus.clear();
            self.repeats.clear();
        }
        goes_on
    }

    /// Stores a message that a closing or closed association did not acknowledge.
    pub(super) fn unacknowledged(&mut self, stream: u16, pdu: &[u8]) {
        // Stream 0 carries messages that concern the association, not a UE.
        // Those of an eNB are for the MME of the association alone.
        let has_alternatives = stream != 0 && self.node.rat() == Rat::Nr;
        if has_alternatives && self.unacknowledged_pdus.len() < BACKLOG {
            self.unacknowledged_pdus.push((stream, pdu.to_vec()));
        }
    }

    /// Resends the unacknowledged messages of closed associations on another association, if there
    /// is one. Returns their number.
    pub(super) fn repeat(&mut self) -> usize {
        let unacknowledged_pdus = std::mem::take(&mut self.unacknowledged_pdus);
        self.fail_over(&unacknowledged_pdus)
    }

    fn fail_over(&mut self, pdus: &[(u16, Vec<u8>)]) -> usize {
        let by = self.node.pick_live(0);
        if self.node.association_state(by) != InterfaceState::Up || self.node.rat() == Rat::Eps {
            return 0;
        }
        for (stream, pdu) in pdus {
            self.outbox.push_by(PduRoute { by, stream: *stream }, pdu);
        }
        pdus.len()
    }

    /// Records a UE-associated message. Returns true if a lost association has already delivered
    /// it. Messages without a UE may legitimately have equal content.
    pub(super) fn check_repeat(&mut self, by: u8, pdu: &[u8], now_us: u64) -> bool {
        if now_us > self.repeats_until_us && !self.repeats.is_empty() {
            self.repeats.clear();
        }
        let mut hasher = FxHasher::default();
        hasher.write(pdu);
        let hash = hasher.finish();
        if self.repeats.remove(&hash) {
            return true;
        }
        if self.recent.len() < RECENT {
            self.recent.push((by, hash));
        } else {
            self.recent[self.at] = (by, hash);
            self.at = (self.at + 1) % RECENT;
        }
        false
    }

    /// Marks the associations with these AMF addresses for closing. They end as long as another
    /// association is up.
    pub(super) fn remove(&mut self, addresses: &[IpAddr]) {
        let gone = |association: &AssociationSlot| {
            association.assoc.is_some() && association.core.is_some_and(|core| addresses.contains(&core.ip()))
        };
        let gone: Vec<u8> =
            (0u8..).zip(&self.associations).filter(|(_, association)| gone(association)).map(|(by, _)| by).collect();
        let up = |by: &u8| self.node.association_state(*by) == InterfaceState::Up;
        if gone.iter().filter(|by| up(by)).count() < self.node.associations_up() {
            self.removed.extend(gone);
        }
    }

    /// Starts NG or S1 Setup on one association if the interface is down. Otherwise it sends a RAN
    /// Configuration Update on each association that is up and not bound. It schedules the
    /// remaining associations.
    pub(super) fn attach(&mut self, now_us: u64) -> Result<(), NodeError> {
        for by in 0..self.associations.len() as u8 {
            let association = &mut self.associations[usize::from(by)];
            match association.streams {
                Some(streams) if self.node.association_state(by) == InterfaceState::Down => {
                    self.node.attach(by, streams, &mut self.outbox)?;
                }
                None if self.node.is_up() && association.assoc.is_none() && association.retry_us.is_none() => {
                    // Until then the AMF may announce further addresses.
                    association.retry_us = Some(now_us + FURTHER_US);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Handles the AMF's request for an association with each of these addresses.
    pub(super) fn request_associations(&mut self, addresses: Vec<IpAddr>, now_us: u64) -> Result<(), NodeError> {
        let port = self.core().port();
        for address in &addresses {
            let known =
                self.associations.iter().any(|association| association.core.is_some_and(|core| core.ip() == *address));
            // An association slot without an address.
            if let Some(association) =
                self.associations.iter_mut().find(|association| association.core.is_none()).filter(|_| !known)
            {
                (association.core, association.retry_us) = (Some(SocketAddr::new(*address, port)), Some(now_us));
            }
        }
        self.requested = addresses;
        self.answer_requested()
    }

    /// Acknowledges the AMF's request once each requested association is up or has failed.
    pub(super) fn answer_requested(&mut self) -> Result<(), NodeError> {
        let to = |address: &IpAddr| {
            let address = *address;
            move |association: &&AssociationSlot| association.core.is_some_and(|core| core.ip() == address)
        };
        let open = |address: &IpAddr| {
            // Neither up, nor failed for the first time.
            self.associations
                .iter()
                .find(to(address))
                .is_some_and(|association| association.streams.is_none() && self.trouble.is_none())
        };
        if self.requested.is_empty() || self.requested.iter().any(open) {
            return Ok(());
        }
        let up = |address: &IpAddr| {
            self.associations.iter().filter(to(address)).any(|association| association.streams.is_some())
        };
        let tried: Vec<(IpAddr, bool)> = self.requested.iter().map(|address| (*address, up(address))).collect();
        self.requested.clear();
        self.node.gnb()?.acknowledge_associations(&tried, &mut self.outbox)
    }

    /// Sends the deferred messages. The error names the unusable association and the reason.
    pub(super) fn flush(&mut self, endpoint: &mut dyn Endpoint) -> Result<(), (u8, String)> {
        let ppid = self.node.ppid();
        for (by, association) in (0u8..).zip(&mut self.associations) {
            let Some(assoc) = association.assoc else { continue };
            while !association.blocked
                && let Some((stream, pdu)) = association.backlog.front()
            {
                match endpoint.send(assoc, *stream, ppid, pdu) {
                    Ok(()) => drop(association.backlog.pop_front()),
                    Err(SendError::Full) => association.blocked = true,
                    Err(error) => return Err((by, error.to_string())),
                }
            }
        }
        let (mut useless, mut astray) = (None, Vec::new());
        for (way, pdu) in self.outbox.routes() {
            let Some(association) = self.associations.get_mut(usize::from(way.by)) else { continue };
            let Some(assoc) = association.assoc else {
                if way.stream != 0 {
                    astray.push((way.stream, pdu.to_vec()));
                }
                continue;
            };
            if !association.blocked {
                match endpoint.send(assoc, way.stream, ppid, pdu) {
                    Ok(()) => continue,
                    Err(SendError::Full) => association.blocked = true,
                    Err(error) => {
                        useless = useless.or(Some((way.by, error.to_string())));
                        if way.stream != 0 {
                            self.unacknowledged_pdus.push((way.stream, pdu.to_vec()));
                        }
                        continue;
                    }
                }
            }
            association.backlog.push_back((way.stream, pdu.to_vec()));
        }
        self.outbox.clear();
        // Messages of a lost association are resent on another one.
        self.fail_over(&astray);
        let full = (0u8..).zip(&self.associations).find(|(_, association)| association.backlog.len() > BACKLOG);
        useless = useless.or(full.map(|(by, _)| (by, "the core takes no messages".into())));
        useless.map_or(Ok(()), Err)
    }
}

/// Delay after NG Setup before an association without its own AMF address connects to the first AMF
/// address.
const FURTHER_US: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gnb::{Event, Gnb, GnbConfig, Inbox};
    use vireo_types::{GnbId, Tac, Tai};
    use vireo_wire::ngap::build_ngap;
    use vireo_wire::ngap::*;

    fn link(cores: &[&str], associations: u32) -> NodeLink {
        let plmn = "99970".parse().expect("a PLMN");
        let config = GnbConfig {
            id: GnbId { plmn, id: 1, bits: 24 }.into(),
            name: "gnb".into(),
            tai: Tai { plmn, tac: Tac(1) },
            slices: vec![vireo_types::Snssai { sst: 1, sd: None }],
            n3: [127, 0, 0, 1].into(),
        };
        let cores: Vec<SocketAddr> = cores.iter().map(|core| core.parse().expect("an address")).collect();
        NodeLink::new(Node::Gnb(Box::new(Gnb::new(config))), 0, &cores, associations)
    }

    /// Brings association `by` up and lets the AMF answer the gNB's request on it.
    fn up(link: &mut NodeLink, by: u8, taken: bool) -> Vec<Event> {
        link.associations[usize::from(by)].streams = Some(4);
        link.attach(0).expect("it encodes");
        let sent: Vec<_> = link.outbox.routes().map(|(way, pdu)| (way, NGAP_PDU::decode(pdu).expect("NGAP"))).collect();
        let (way, request) = sent.last().expect("something was asked");
        assert_eq!(*way, PduRoute { by, stream: 0 });
        let answer = match (request.kind(), taken) {
            (NgapPduKind::Initiating_NGSetup, true) => {
                build_ngap!(SuccessfulOutcome, NGSetup, NGSetupResponse, AMFName("amf"))
            }
            (NgapPduKind::Initiating_RANConfigurationUpdate, true) => {
                build_ngap!(SuccessfulOutcome, RANConfigurationUpdate, RANConfigurationUpdateAcknowledge,)
            }
            (NgapPduKind::Initiating_RANConfigurationUpdate, false) => build_ngap!(
                UnsuccessfulOutcome,
                RANConfigurationUpdate,
                RANConfigurationUpdateFailure,
                Cause(Cause::misc(CauseMisc::unspecified)),
            ),
            (kind, _) => panic!("{kind:?}"),
        };
        link.outbox.clear();
        let answer = answer.and_then(|pdu| pdu.encode()).expect("it encodes");
        let mut inbox = Inbox::default();
        link.node.gnb().expect("a gNB").receive_by(by, &answer, &mut inbox, &mut link.outbox).expect("it is taken");
        inbox.events
    }

    fn ways(link: &mut NodeLink) -> Vec<PduRoute> {
        let ways = link.outbox.routes().map(|(way, _)| way).collect();
        link.outbox.clear();
        ways
    }

    #[test]
    fn lost_association_moves_ues_to_remaining_one() {
        let mut link = link(&["10.0.0.1:38412", "10.0.0.2:38412"], 2);
        assert_eq!(up(&mut link, 0, true), [Event::Ready]);
        assert!(!link.is_complete());
        assert_eq!(up(&mut link, 1, true), [Event::ConfigurationUpdated(true)]);
        assert!(link.is_complete());
        let cause = RRCEstablishmentCause::mo_Signalling;
        let open = |link: &mut NodeLink, owner| {
            let ran = link
                .node
                .gnb()
                .expect("a gNB")
                .initial_ue(owner, &[0x7e], None, cause, &mut link.outbox)
                .expect("it encodes");
            (ran, ways(link)[0])
        };
        let (first, second) = (open(&mut link, 0), open(&mut link, 1));
        assert_eq!([first.1, second.1].map(|way| way.by), [0, 1]);
        // The AMF answers both UEs on association 1.
        for (ran, amf_id) in [(first.0, 5u64), (second.0, 6)] {
            let nas = build_ngap!(
                InitiatingMessage,
                DownlinkNASTransport,
                DownlinkNASTransport,
                AMF_UE_NGAP_ID(amf_id),
                RAN_UE_NGAP_ID(ran.0),
                NAS_PDU(vec![0x7e]),
            );
            let nas = nas.and_then(|pdu| pdu.encode()).expect("it encodes");
            link.node
                .gnb()
                .expect("a gNB")
                .receive_by(1, &nas, &mut Inbox::default(), &mut link.outbox)
                .expect("it is taken");
            link.node.gnb().expect("a gNB").uplink_nas(ran, &[0x7e], &mut link.outbox).expect("it encodes");
            assert_eq!(ways(&mut link)[0].by, 1, "where the AMF was heard");
        }
        assert!(link.on_association_lost(1, 0), "the other one is there");
        assert_eq!(link.node.gnb().expect("a gNB").connected(), 2);
        link.node.gnb().expect("a gNB").uplink_nas(second.0, &[0x7e], &mut link.outbox).expect("it encodes");
        assert_eq!(ways(&mut link)[0].by, 0);
        assert_eq!(open(&mut link, 3).1.by, 0);
        assert_eq!(up(&mut link, 1, false), [Event::ConfigurationUpdated(false)]);
        assert_eq!(link.node.gnb().expect("a gNB").associations_up(), 1);
        assert_eq!(up(&mut link, 1, true), [Event::ConfigurationUpdated(true)]);
        assert!(link.is_complete());
        link.on_association_lost(0, 0);
        assert!(!link.on_association_lost(1, 0));
        assert_eq!(
            (link.node.gnb().expect("a gNB").connected(), link.node.gnb().expect("a gNB").state()),
            (0, InterfaceState::Down)
        );
        assert_eq!(up(&mut link, 1, true), [Event::Ready], "NG is set up on whichever comes first");
    }

    /// Builds a DOWNLINK NAS TRANSPORT with these NAS octets.
    fn downlink(ran: vireo_types::RanUeNgapId, nas: &[u8]) -> Vec<u8> {
        let pdu = build_ngap!(
            InitiatingMessage,
            DownlinkNASTransport,
            DownlinkNASTransport,
            AMF_UE_NGAP_ID(7u64),
            RAN_UE_NGAP_ID(ran.0),
            NAS_PDU(nas.to_vec()),
        );
        pdu.and_then(|pdu| pdu.encode()).expect("it encodes")
    }

    #[test]
    fn unacknowledged_messages_use_other_association() {
        let mut link = link(&["10.0.0.1:38412", "10.0.0.2:38412"], 2);
        up(&mut link, 0, true);
        up(&mut link, 1, true);
        link.unacknowledged(0, b"about no UE");
        link.unacknowledged(3, b"first");
        link.associations[1].backlog.push_back((2, b"second".to_vec()));
        assert!(link.on_association_lost(1, 0));
        assert_eq!(link.repeat(), 2);
        let sent: Vec<_> = link.outbox.routes().map(|(way, pdu)| (way, pdu.to_vec())).collect();
        let by_0 = |stream| PduRoute { by: 0, stream };
        assert_eq!(sent, [(by_0(3), b"first".to_vec()), (by_0(2), b"second".to_vec())]);
        assert_eq!(link.repeat(), 0, "once");
        link.unacknowledged(3, b"third");
        assert!(!link.on_association_lost(0, 0));
        assert_eq!(link.repeat(), 0, "the UEs have no connection any more");
        assert!(link.outbox.is_empty());
    }

    #[test]
    fn repeat_on_other_association_is_dropped() {
        let mut link = link(&["10.0.0.1:38412", "10.0.0.2:38412"], 2);
        up(&mut link, 0, true);
        up(&mut link, 1, true);
        let pdus = [1u8, 2, 3].map(|n| downlink(vireo_types::RanUeNgapId(1), &[0x7e, n]));
        assert!(
            !link.check_repeat(1, &pdus[0], 1)
                && !link.check_repeat(1, &pdus[1], 1)
                && !link.check_repeat(0, &pdus[2], 1)
        );
        assert!(!link.check_repeat(1, &pdus[0], 1), "no association is gone: it is judged as any other message");
        link.on_association_lost(1, 10);
        assert!(link.check_repeat(0, &pdus[0], 20));
        assert!(!link.check_repeat(0, &pdus[0], 20), "once");
        assert!(!link.check_repeat(0, &pdus[2], 20), "it was heard by the one that lives");
        assert!(!link.check_repeat(0, &pdus[1], 10 + REPEATED_US + 1), "that is too long ago");
    }

    #[test]
    fn removed_association_ends_unless_last() {
        let mut link = link(&["10.0.0.1:38412", "10.0.0.2:38412"], 2);
        up(&mut link, 0, true);
        up(&mut link, 1, true);
        for (association, assoc) in link.associations.iter_mut().zip([AssocId(5), AssocId(6)]) {
            association.assoc = Some(assoc);
        }
        let item = |last: u8| {
            let address = TransportLayerAddress([10, 0, 0, last].into());
            AMFTNLAssociationToRemoveItem::new(CPTransportLayerInformation::endpointIPAddress(address), None)
        };
        for (gone, removed) in [(vec![2], vec![1]), (vec![1, 2], vec![]), (vec![9], vec![])] {
            let list = AMFTNLAssociationToRemoveList(gone.into_iter().map(item).collect());
            let update = build_ngap!(
                InitiatingMessage,
                AMFConfigurationUpdate,
                AMFConfigurationUpdate,
                AMF_TNLAssociationToRemoveList(list),
            );
            let update = update.and_then(|pdu| pdu.encode()).expect("it encodes");
            let mut inbox = Inbox::default();
            link.node.gnb().expect("a gNB").receive_by(0, &update, &mut inbox, &mut link.outbox).expect("it is taken");
            let (_, answer) = link.outbox.routes().next().expect("it is acknowledged at once");
            let answer = NGAP_PDU::decode(answer).expect("NGAP").kind();
            assert_eq!(answer, NgapPduKind::Successful_AMFConfigurationUpdate);
            link.outbox.clear();
            let Some(Event::AssociationsRemoved(addresses)) = inbox.events.pop() else { panic!("addresses") };
            link.remove(&addresses);
            assert_eq!(std::mem::take(&mut link.removed), removed);
        }
    }

    #[test]
    fn configuration_update_adds_associations() {
        let mut link = link(&["10.0.0.1:38412"], 2);
        up(&mut link, 0, true);
        let addresses = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]].map(IpAddr::from);
        let item = |address: &IpAddr| {
            let IpAddr::V4(address) = address else { panic!("IPv4") };
            let address =
                CPTransportLayerInformation::endpointIPAddress(TransportLayerAddress(address.octets().into()));
            AMFTNLAssociationToAddItem::new(address, None, TNLAddressWeightFactor(1), None)
        };
        let list = AMFTNLAssociationToAddList(addresses.iter().map(item).collect());
        let update = build_ngap!(
            InitiatingMessage,
            AMFConfigurationUpdate,
            AMFConfigurationUpdate,
            AMF_TNLAssociationToAddList(list),
        );
        let update = update.and_then(|pdu| pdu.encode()).expect("it encodes");
        let mut inbox = Inbox::default();
        link.node.gnb().expect("a gNB").receive_by(0, &update, &mut inbox, &mut link.outbox).expect("it is taken");
        let Some(Event::AssociationsWanted(requested)) = inbox.events.pop() else { panic!("addresses") };
        assert_eq!(requested, addresses);
        link.request_associations(requested, 7).expect("it encodes");
        assert!(link.outbox.is_empty(), "it is not clear yet");
        assert_eq!(
            (link.associations[1].core, link.associations[1].retry_us),
            (Some(([10, 0, 0, 2], 38412).into()), Some(7))
        );
        link.associations[1].streams = Some(2);
        link.answer_requested().expect("it encodes");
        let (way, pdu) = link.outbox.routes().next().expect("the answer");
        let pdu = NGAP_PDU::decode(pdu).expect("NGAP");
        assert_eq!((way.by, pdu.kind()), (0, NgapPduKind::Successful_AMFConfigurationUpdate));
        let up = pdu.ie::<ie::AMF_TNLAssociationSetupList>().expect("a list").expect("it decodes");
        let failed = pdu.ie::<ie::AMF_TNLAssociationFailedToSetupList>().expect("a list").expect("it decodes");
        assert_eq!((up.0.len(), failed.0.len()), (2, 1), "there are to be two, and three are wanted");
    }
}
