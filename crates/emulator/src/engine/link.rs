//! One gNB with its associations: what is to be sent waits here while an association takes nothing.

use crate::gnb::{Gnb, NgState, Outbox, PPID, SendError as GnbError};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use vireo_sctp::{Endpoint, SendError};
use vireo_types::AssocId;

/// How much may wait for an association that takes nothing: beyond it the core is dead or far too slow.
const BACKLOG: usize = 100_000;

/// One association of a gNB.
#[derive(Debug, Default)]
pub(super) struct Tie {
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

impl Tie {
    /// The association is gone.
    fn reset(&mut self) {
        *self = Tie { core: self.core, retry_us: self.retry_us, ..Tie::default() };
    }
}

/// A gNB with its associations.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) gnb: Gnb,
    /// Its number in the run.
    pub(super) number: u32,
    /// The first is there from the beginning, the others follow once NG is set up.
    pub(super) ties: Vec<Tie>,
    pub(super) outbox: Outbox,
    /// The addresses that the AMF wants an association with, until it is clear whether there is one with each.
    wanted: Vec<IpAddr>,
    /// Why an association went down last.
    pub(super) trouble: Option<String>,
    /// Why the core refused NG SETUP.
    pub(super) refused: Option<String>,
}

impl Link {
    /// A gNB that is to have `associations` with AMFs at these addresses, in turn. If there is but one address, the AMF may
    /// tell of others.
    pub(super) fn new(gnb: Gnb, number: u32, cores: &[SocketAddr], associations: u32) -> Self {
        let core = |by: u32| match cores {
            [one] => (by == 0).then_some(*one),
            _ => cores.get((number as usize + by as usize) % cores.len().max(1)).copied(),
        };
        let ties = (0..associations.max(1)).map(|by| Tie { core: core(by), ..Tie::default() }).collect();
        let (outbox, wanted) = (Outbox::default(), Vec::new());
        Link { gnb, number, ties, outbox, wanted, trouble: None, refused: None }
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
    pub(super) fn lost(&mut self, by: u8) -> bool {
        self.ties[usize::from(by)].reset();
        let goes_on = self.gnb.detach(by);
        if !goes_on {
            self.outbox.clear();
        }
        goes_on
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
    pub(super) fn want(&mut self, addresses: Vec<IpAddr>, now_us: u64) -> Result<(), GnbError> {
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
            move |tie: &&Tie| tie.core.is_some_and(|core| core.ip() == address)
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
        let mut useless = None;
        for (way, pdu) in self.outbox.ways() {
            let Some(tie) = self.ties.get_mut(usize::from(way.by)) else { continue };
            // What was meant for an association that is gone is gone with it.
            let Some(assoc) = tie.assoc else { continue };
            if !tie.blocked {
                match endpoint.send(assoc, way.stream, PPID, pdu) {
                    Ok(()) => continue,
                    Err(SendError::Full) => tie.blocked = true,
                    Err(error) => {
                        useless = useless.or(Some((way.by, error.to_string())));
                        continue;
                    }
                }
            }
            tie.backlog.push_back((way.stream, pdu.to_vec()));
        }
        self.outbox.clear();
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
    use crate::gnb::{Event, GnbConfig, Inbox, Way};
    use vireo_types::{GnbId, Tac, Tai};
    use vireo_wire::ngap::build_ngap;
    use vireo_wire::ngap::*;

    fn link(cores: &[&str], associations: u32) -> Link {
        let plmn = "99970".parse().expect("a PLMN");
        let config = GnbConfig {
            id: GnbId { plmn, id: 1, bits: 24 },
            name: "gnb".into(),
            tai: Tai { plmn, tac: Tac(1) },
            slices: vec![vireo_types::Snssai { sst: 1, sd: None }],
            n3: [127, 0, 0, 1].into(),
        };
        let cores: Vec<SocketAddr> = cores.iter().map(|core| core.parse().expect("an address")).collect();
        Link::new(Gnb::new(config), 0, &cores, associations)
    }

    /// Association `by` is up, and the AMF answers what the gNB asks on it.
    fn up(link: &mut Link, by: u8, taken: bool) -> Vec<Event> {
        link.ties[usize::from(by)].streams = Some(4);
        link.attach(0).expect("it encodes");
        let sent: Vec<_> = link.outbox.ways().map(|(way, pdu)| (way, NGAP_PDU::decode(pdu).expect("NGAP"))).collect();
        let (way, request) = sent.last().expect("something was asked");
        assert_eq!(*way, Way { by, stream: 0 });
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

    fn ways(link: &mut Link) -> Vec<Way> {
        let ways = link.outbox.ways().map(|(way, _)| way).collect();
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
        let open = |link: &mut Link, owner| {
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
        assert!(link.lost(1), "the other one is there");
        assert_eq!(link.gnb.connected(), 2);
        link.gnb.uplink_nas(second.0, &[0x7e], &mut link.outbox).expect("it encodes");
        assert_eq!(ways(&mut link)[0].by, 0);
        assert_eq!(open(&mut link, 3).1.by, 0);
        assert_eq!(up(&mut link, 1, false), [Event::ConfigurationUpdated(false)]);
        assert_eq!(link.gnb.associations_up(), 1);
        assert_eq!(up(&mut link, 1, true), [Event::ConfigurationUpdated(true)]);
        assert!(link.is_complete());
        link.lost(0);
        assert!(!link.lost(1));
        assert_eq!((link.gnb.connected(), link.gnb.state()), (0, NgState::Down));
        assert_eq!(up(&mut link, 1, true), [Event::Ready], "NG is set up on whichever comes first");
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
        link.want(wanted, 7).expect("it encodes");
        assert!(link.outbox.is_empty(), "it is not clear yet");
        assert_eq!((link.ties[1].core, link.ties[1].retry_us), (Some(([10, 0, 0, 2], 38412).into()), Some(7)));
        link.ties[1].streams = Some(2);
        link.answer_wanted().expect("it encodes");
        let (way, pdu) = link.outbox.ways().next().expect("the answer");
        let pdu = NGAP_PDU::decode(pdu).expect("NGAP");
        assert_eq!((way.by, pdu.kind()), (0, NgapPduKind::Successful_AMFConfigurationUpdate));
        let up = pdu.ie::<ie::AMF_TNLAssociationSetupList>().expect("a list").expect("it decodes");
        let failed = pdu.ie::<ie::AMF_TNLAssociationFailedToSetupList>().expect("a list").expect("it decodes");
        assert_eq!((up.0.len(), failed.0.len()), (2, 1), "there are to be two, and three are wanted");
    }
}
