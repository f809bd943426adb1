//! One gNB with its associations: what is to be sent waits here while an association takes nothing.

use crate::gnb::{Gnb, NgState, Outbox, PPID, PduRoute, SendError as GnbError};
use rustc_hash::{FxHashSet, FxHasher};
use std::collections::VecDeque;
use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};
use vireo_sctp::{Endpoint, SendError};
use vireo_types::AssocId;

/// How much may wait for an association that takes nothing: beyond it the core is dead or far too slow.
const BACKLOG: usize = 100_000;
/// How long after the loss of an association the AMF may say again what it has said by that one.
const REPEATED_US: u64 = 5_000_000;
/// Messages of the AMF that are remembered, to know repeats of them: more than come in the moment in which a balancer dies.
const HEARD: usize = 1024;

/// One association of a gNB.
#[derive(Debug, Default)]
pub(super) struct AssociationSlot {
    /// Where the AMF is; `None`: nobody has said yet.
    pub(super) core: Option<SocketAddr>,
    pub(super) assoc: Option<AssocId>,
    /// It is up, with so many outbound streams.
    pub(super) streams: Option<u16>,
    backlog: VecDeque<(u16, Vec<u8>)>,
    blocked: bool,
    /// When to connect (or, if it is up, to bind it) again, in microseconds.
    pub(super) retry_us: Option<u64>,
}

impl AssociationSlot {
    /// The association is gone.
    fn reset(&mut self) {
        *self = AssociationSlot { core: self.core, retry_us: self.retry_us, ..AssociationSlot::default() };
    }
}

/// A gNB with its associations.
#[derive(Debug)]
pub(super) struct GnbLink {
    pub(super) gnb: Gnb,
    /// Its number in the run.
    pub(super) number: u32,
    /// The first is there from the beginning, the others follow once NG is set up.
    pub(super) ties: Vec<AssociationSlot>,
    pub(super) outbox: Outbox,
    /// The addresses that the AMF wants an association with, until it is clear whether there is one with each.
    wanted: Vec<IpAddr>,
    /// Associations whose other ends the AMF says are gone.
    pub(super) removed: Vec<u8>,
    /// What was meant for an association that is gone and has perhaps not come to the AMF, with its stream. It goes by
    /// another: the AMF knows by NAS COUNTs and UE NGAP IDs what it has heard before.
    again: Vec<(u16, Vec<u8>)>,
    /// What was heard by each association lately, as hashes, and what was heard by one that is gone: hosts of the AMF that do
    /// not know whether a balancer has sent something have another one send it, octet for octet.
    heard: Vec<(u8, u64)>,
    at: usize,
    repeats: FxHashSet<u64>,
    repeats_until_us: u64,
    /// Why an association went down last.
    pub(super) trouble: Option<String>,
    /// Why the core refused NG SETUP.
    pub(super) refused: Option<String>,
}

impl GnbLink {
    /// A gNB that is to have `associations` with AMFs at these addresses, in turn. If there is but one address, the AMF may
    /// tell of others.
    pub(super) fn new(gnb: Gnb, number: u32, cores: &[SocketAddr], associations: u32) -> Self {
        let core = |by: u32| match cores {
            [one] => (by == 0).then_some(*one),
            _ => cores.get((number as usize + by as usize) % cores.len().max(1)).copied(),
        };
        let ties = (0..associations.max(1))
            .map(|by| AssociationSlot { core: core(by), ..AssociationSlot::default() })
            .collect();
        GnbLink {
            gnb,
            number,
            ties,
            outbox: Outbox::default(),
            wanted: Vec::new(),
            removed: Vec::new(),
            again: Vec::new(),
            heard: Vec::new(),
            at: 0,
            repeats: FxHashSet::default(),
            repeats_until_us: 0,
            trouble: None,
            refused: None,
        }
    }

    /// The address of the first association.
    pub(super) fn core(&self) -> SocketAddr {
        self.ties[0].core.unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)))
    }

    /// Whether every association carries UEs.
    pub(super) fn is_complete(&self) -> bool {
        self.gnb.state() == NgState::Up && self.gnb.associations_up() == self.ties.len()
    }

    /// The association takes messages again.
    pub(super) fn unblock(&mut self, by: u8) {
        self.ties[usize::from(by)].blocked = false;
    }

    /// An association is gone. Whether the gNB goes on with another.
    pub(super) fn lost(&mut self, by: u8, now_us: u64) -> bool {
        let unsent = std::mem::take(&mut self.ties[usize::from(by)].backlog);
        self.ties[usize::from(by)].reset();
        let goes_on = self.gnb.detach(by);
        if goes_on {
            unsent.into_iter().for_each(|(stream, pdu)| self.unacknowledged(stream, &pdu));
            self.repeats = self.heard.iter().filter(|(of, _)| *of == by).map(|(_, hash)| *hash).collect();
            self.repeats_until_us = now_us + REPEATED_US;
            self.heard.clear();
            self.at = 0;
        } else {
            self.outbox.clear();
            self.again.clear();
            self.repeats.clear();
        }
        goes_on
    }

    /// A message of an association that is about to end or has ended was not acknowledged.
    pub(super) fn unacknowledged(&mut self, stream: u16, pdu: &[u8]) {
        // What is about no UE is about the association.
        if stream != 0 && self.again.len() < BACKLOG {
            self.again.push((stream, pdu.to_vec()));
        }
    }

    /// An association that has ended has given back what was not acknowledged: it goes by another, if there is one. How much.
    pub(super) fn repeat(&mut self) -> usize {
        let again = std::mem::take(&mut self.again);
        self.fail_over(&again)
    }

    fn fail_over(&mut self, pdus: &[(u16, Vec<u8>)]) -> usize {
        let by = self.gnb.pick_live(0);
        if self.gnb.association_state(by) != NgState::Up {
            return 0;
        }
        for (stream, pdu) in pdus {
            self.outbox.push_by(PduRoute { by, stream: *stream }, pdu);
        }
        pdus.len()
    }

    /// Whether the AMF has said this about a UE before, by an association that is gone. What is about no UE may be the same each
    /// time.
    pub(super) fn is_repeat(&mut self, by: u8, pdu: &[u8], now_us: u64) -> bool {
        if now_us > self.repeats_until_us && !self.repeats.is_empty() {
            self.repeats.clear();
        }
        let mut hasher = FxHasher::default();
        hasher.write(pdu);
        let hash = hasher.finish();
        if self.repeats.remove(&hash) {
            return true;
        }
        if self.heard.len() < HEARD {
            self.heard.push((by, hash));
        } else {
            self.heard[self.at] = (by, hash);
            self.at = (self.at + 1) % HEARD;
        }
        false
    }

    /// Nobody is at these addresses of the AMF any more: associations with them end as long as there is another.
    pub(super) fn remove(&mut self, addresses: &[IpAddr]) {
        let gone =
            |tie: &AssociationSlot| tie.assoc.is_some() && tie.core.is_some_and(|core| addresses.contains(&core.ip()));
        let gone: Vec<u8> = (0u8..).zip(&self.ties).filter(|(_, tie)| gone(tie)).map(|(by, _)| by).collect();
        let up = |by: &u8| self.gnb.association_state(*by) == NgState::Up;
        if gone.iter().filter(|by| up(by)).count() < self.gnb.associations_up() {
            self.removed.extend(gone);
        }
    }

    /// Begins what the associations that are up are for: NG Setup on one if there is no NG yet, else a RAN Configuration
    /// Update on each that was not bound. Those that are still to come have their time now.
    pub(super) fn attach(&mut self, now_us: u64) -> Result<(), GnbError> {
        for by in 0..self.ties.len() as u8 {
            let tie = &mut self.ties[usize::from(by)];
            match tie.streams {
                Some(streams) if self.gnb.association_state(by) == NgState::Down => {
                    self.gnb.attach(by, streams, &mut self.outbox)?;
                }
                None if self.gnb.state() == NgState::Up && tie.assoc.is_none() && tie.retry_us.is_none() => {
                    // Before that the AMF may tell of further addresses.
                    tie.retry_us = Some(now_us + FURTHER_US);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The AMF wants an association with each of these addresses.
    pub(super) fn request_associations(&mut self, addresses: Vec<IpAddr>, now_us: u64) -> Result<(), GnbError> {
        let port = self.core().port();
        for address in &addresses {
            let known = self.ties.iter().any(|tie| tie.core.is_some_and(|core| core.ip() == *address));
            // One that nobody has said an address for yet.
            if let Some(tie) = self.ties.iter_mut().find(|tie| tie.core.is_none()).filter(|_| !known) {
                (tie.core, tie.retry_us) = (Some(SocketAddr::new(*address, port)), Some(now_us));
            }
        }
        self.wanted = addresses;
        self.answer_wanted()
    }

    /// Tells the AMF once it is clear which of the associations that it wants there are.
    pub(super) fn answer_wanted(&mut self) -> Result<(), GnbError> {
        let to = |address: &IpAddr| {
            let address = *address;
            move |tie: &&AssociationSlot| tie.core.is_some_and(|core| core.ip() == address)
        };
        let open = |address: &IpAddr| {
            // Neither up, nor failed for the first time.
            self.ties.iter().find(to(address)).is_some_and(|tie| tie.streams.is_none() && self.trouble.is_none())
        };
        if self.wanted.is_empty() || self.wanted.iter().any(open) {
            return Ok(());
        }
        let up = |address: &IpAddr| self.ties.iter().filter(to(address)).any(|tie| tie.streams.is_some());
        let tried: Vec<(IpAddr, bool)> = self.wanted.iter().map(|address| (*address, up(address))).collect();
        self.wanted.clear();
        self.gnb.acknowledge_associations(&tried, &mut self.outbox)
    }

    /// Sends what waits. An error says which association is of no more use, and why.
    pub(super) fn flush(&mut self, endpoint: &mut dyn Endpoint) -> Result<(), (u8, String)> {
        for (by, tie) in (0u8..).zip(&mut self.ties) {
            let Some(assoc) = tie.assoc else { continue };
            while !tie.blocked
                && let Some((stream, pdu)) = tie.backlog.front()
            {
                match endpoint.send(assoc, *stream, PPID, pdu) {
                    Ok(()) => drop(tie.backlog.pop_front()),
                    Err(SendError::Full) => tie.blocked = true,
                    Err(error) => return Err((by, error.to_string())),
                }
            }
        }
        let (mut useless, mut astray) = (None, Vec::new());
        for (way, pdu) in self.outbox.routes() {
            let Some(tie) = self.ties.get_mut(usize::from(way.by)) else { continue };
            let Some(assoc) = tie.assoc else {
                if way.stream != 0 {
                    astray.push((way.stream, pdu.to_vec()));
                }
                continue;
            };
            if !tie.blocked {
                match endpoint.send(assoc, way.stream, PPID, pdu) {
                    Ok(()) => continue,
                    Err(SendError::Full) => tie.blocked = true,
                    Err(error) => {
                        useless = useless.or(Some((way.by, error.to_string())));
                        if way.stream != 0 {
                            self.again.push((way.stream, pdu.to_vec()));
                        }
                        continue;
                    }
                }
            }
            tie.backlog.push_back((way.stream, pdu.to_vec()));
        }
        self.outbox.clear();
        // What was meant for an association that is gone goes by another.
        self.fail_over(&astray);
        let full = (0u8..).zip(&self.ties).find(|(_, tie)| tie.backlog.len() > BACKLOG);
        useless = useless.or(full.map(|(by, _)| (by, "the core takes no messages".into())));
        useless.map_or(Ok(()), Err)
    }
}

/// How long after NG Setup an association is begun of which no address is known but the first one's.
const FURTHER_US: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gnb::{Event, GnbConfig, Inbox, PduRoute};
    use vireo_types::{GnbId, Tac, Tai};
    use vireo_wire::ngap::build_ngap;
    use vireo_wire::ngap::*;

    fn link(cores: &[&str], associations: u32) -> GnbLink {
        let plmn = "99970".parse().expect("a PLMN");
        let config = GnbConfig {
            id: GnbId { plmn, id: 1, bits: 24 },
            name: "gnb".into(),
            tai: Tai { plmn, tac: Tac(1) },
            slices: vec![vireo_types::Snssai { sst: 1, sd: None }],
            n3: [127, 0, 0, 1].into(),
        };
        let cores: Vec<SocketAddr> = cores.iter().map(|core| core.parse().expect("an address")).collect();
        GnbLink::new(Gnb::new(config), 0, &cores, associations)
    }

    /// Association `by` is up, and the AMF answers what the gNB asks on it.
    fn up(link: &mut GnbLink, by: u8, taken: bool) -> Vec<Event> {
        link.ties[usize::from(by)].streams = Some(4);
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
        link.gnb.receive_by(by, &answer, &mut inbox, &mut link.outbox).expect("it is taken");
        inbox.events
    }

    fn ways(link: &mut GnbLink) -> Vec<PduRoute> {
        let ways = link.outbox.routes().map(|(way, _)| way).collect();
        link.outbox.clear();
        ways
    }

    #[test]
    fn ues_are_dealt_to_the_associations_and_go_on_with_the_one_that_is_left() {
        let mut link = link(&["10.0.0.1:38412", "10.0.0.2:38412"], 2);
        assert_eq!(up(&mut link, 0, true), [Event::Ready]);
        assert!(!link.is_complete());
        assert_eq!(up(&mut link, 1, true), [Event::ConfigurationUpdated(true)]);
        assert!(link.is_complete());
        let cause = RRCEstablishmentCause::mo_Signalling;
        let open = |link: &mut GnbLink, owner| {
            let ran = link.gnb.initial_ue(owner, &[0x7e], None, cause, &mut link.outbox).expect("it encodes");
            (ran, ways(link)[0])
        };
        let (first, second) = (open(&mut link, 0), open(&mut link, 1));
        assert_eq!([first.1, second.1].map(|way| way.by), [0, 1]);
        // The AMF answers both by association 1.
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
            link.gnb.receive_by(1, &nas, &mut Inbox::default(), &mut link.outbox).expect("it is taken");
            link.gnb.uplink_nas(ran, &[0x7e], &mut link.outbox).expect("it encodes");
            assert_eq!(ways(&mut link)[0].by, 1, "where the AMF was heard");
        }
        assert!(link.lost(1, 0), "the other one is there");
        assert_eq!(link.gnb.connected(), 2);
        link.gnb.uplink_nas(second.0, &[0x7e], &mut link.outbox).expect("it encodes");
        assert_eq!(ways(&mut link)[0].by, 0);
        assert_eq!(open(&mut link, 3).1.by, 0);
        assert_eq!(up(&mut link, 1, false), [Event::ConfigurationUpdated(false)]);
        assert_eq!(link.gnb.associations_up(), 1);
        assert_eq!(up(&mut link, 1, true), [Event::ConfigurationUpdated(true)]);
        assert!(link.is_complete());
        link.lost(0, 0);
        assert!(!link.lost(1, 0));
        assert_eq!((link.gnb.connected(), link.gnb.state()), (0, NgState::Down));
        assert_eq!(up(&mut link, 1, true), [Event::Ready], "NG is set up on whichever comes first");
    }

    /// A message of the AMF to a UE with these octets of NAS.
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
    fn what_a_dead_association_has_not_carried_goes_by_another() {
        let mut link = link(&["10.0.0.1:38412", "10.0.0.2:38412"], 2);
        up(&mut link, 0, true);
        up(&mut link, 1, true);
        link.unacknowledged(0, b"about no UE");
        link.unacknowledged(3, b"first");
        link.ties[1].backlog.push_back((2, b"second".to_vec()));
        assert!(link.lost(1, 0));
        assert_eq!(link.repeat(), 2);
        let sent: Vec<_> = link.outbox.routes().map(|(way, pdu)| (way, pdu.to_vec())).collect();
        let by_0 = |stream| PduRoute { by: 0, stream };
        assert_eq!(sent, [(by_0(3), b"first".to_vec()), (by_0(2), b"second".to_vec())]);
        assert_eq!(link.repeat(), 0, "once");
        link.unacknowledged(3, b"third");
        assert!(!link.lost(0, 0));
        assert_eq!(link.repeat(), 0, "the UEs have no connection any more");
        assert!(link.outbox.is_empty());
    }

    #[test]
    fn what_the_amf_says_once_more_by_another_association_is_known() {
        let mut link = link(&["10.0.0.1:38412", "10.0.0.2:38412"], 2);
        up(&mut link, 0, true);
        up(&mut link, 1, true);
        let pdus = [1u8, 2, 3].map(|n| downlink(vireo_types::RanUeNgapId(1), &[0x7e, n]));
        assert!(!link.is_repeat(1, &pdus[0], 1) && !link.is_repeat(1, &pdus[1], 1) && !link.is_repeat(0, &pdus[2], 1));
        assert!(!link.is_repeat(1, &pdus[0], 1), "no association is gone: it is judged as any other message");
        link.lost(1, 10);
        assert!(link.is_repeat(0, &pdus[0], 20));
        assert!(!link.is_repeat(0, &pdus[0], 20), "once");
        assert!(!link.is_repeat(0, &pdus[2], 20), "it was heard by the one that lives");
        assert!(!link.is_repeat(0, &pdus[1], 10 + REPEATED_US + 1), "that is too long ago");
    }

    #[test]
    fn associations_that_the_amf_gives_up_end_unless_there_is_no_other() {
        let mut link = link(&["10.0.0.1:38412", "10.0.0.2:38412"], 2);
        up(&mut link, 0, true);
        up(&mut link, 1, true);
        for (tie, assoc) in link.ties.iter_mut().zip([AssocId(5), AssocId(6)]) {
            tie.assoc = Some(assoc);
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
            link.gnb.receive_by(0, &update, &mut inbox, &mut link.outbox).expect("it is taken");
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
    fn further_addresses_are_the_amfs_to_tell_and_it_hears_what_became_of_them() {
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
        link.gnb.receive_by(0, &update, &mut inbox, &mut link.outbox).expect("it is taken");
        let Some(Event::AssociationsWanted(wanted)) = inbox.events.pop() else { panic!("addresses") };
        assert_eq!(wanted, addresses);
        link.request_associations(wanted, 7).expect("it encodes");
        assert!(link.outbox.is_empty(), "it is not clear yet");
        assert_eq!((link.ties[1].core, link.ties[1].retry_us), (Some(([10, 0, 0, 2], 38412).into()), Some(7)));
        link.ties[1].streams = Some(2);
        link.answer_wanted().expect("it encodes");
        let (way, pdu) = link.outbox.routes().next().expect("the answer");
        let pdu = NGAP_PDU::decode(pdu).expect("NGAP");
        assert_eq!((way.by, pdu.kind()), (0, NgapPduKind::Successful_AMFConfigurationUpdate));
        let up = pdu.ie::<ie::AMF_TNLAssociationSetupList>().expect("a list").expect("it decodes");
        let failed = pdu.ie::<ie::AMF_TNLAssociationFailedToSetupList>().expect("a list").expect("it decodes");
        assert_eq!((up.0.len(), failed.0.len()), (2, 1), "there are to be two, and three are wanted");
    }
}
