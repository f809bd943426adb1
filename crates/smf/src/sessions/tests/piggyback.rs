//! Tests of piggybacked SM contexts, which the test stores as AMF.

use super::*;
use std::collections::BTreeSet;
use vireo_ops::sbi::translate;

impl World {
    /// Stores the SM context of a message as AMF, unless a later one is stored.
    pub(super) fn takes(&mut self, message: &mut Message) {
        let carried = vireo_ops::sbi::translate::piggybacked(message).unwrap();
        message.parts.retain(|part| part.content != PartContent::SmContext);
        let Some(carried) = carried else { return };
        assert!(self.smf.piggybacks());
        let seid = Session::decode(&carried.octets).unwrap().sm.pfcp.cp_seid;
        if self.stored_at_amf.get(&seid).is_none_or(|left| left.version <= carried.version) {
            self.stored_at_amf.insert(seid, carried);
        }
    }

    /// Adds the stored SM context to a request of the AMF.
    pub(super) fn with_left(&self, path: &str, message: Message) -> Message {
        if !self.smf.piggybacks() || message.sm_context().is_some() {
            return message;
        }
        if let (SM_CONTEXTS, Ok(mut data)) = (path, message.value::<SmContextCreateData>()) {
            data.vireo_piggyback = data.sm_context_status_uri.rsplit('/').next().and_then(|number| number.parse().ok());
            return Message { parts: message.parts, ..Message::new(data) };
        }
        let seid = path.split('/').find_map(wire::seid_of);
        vireo_ops::sbi::translate::with_piggyback(message, seid.and_then(|seid| self.stored_at_amf.get(&seid)))
    }

    /// Returns the number of SM contexts in the SMF's memory.
    fn sessions_in_memory(&self) -> usize {
        let SessionBackend::Database(stored) = &self.smf.backend else { panic!("they travel") };
        stored.in_memory.len() + stored.lanes.len()
    }
}

/// Returns a session of an idle UE.
fn idle() -> (World, String) {
    let mut world = World::piggyback();
    let path = world.active();
    world.state(&path, UpCnxState::Deactivated);
    world.transfers.clear();
    (world, path)
}

#[test]
fn between_two_transactions_nothing_is_here() {
    let (mut world, path) = idle();
    assert_eq!((world.sessions_in_memory(), world.stored_at_amf.len()), (0, 1));
    // The next SMF does not know the session.
    world.restart();
    assert_eq!(world.smf.len(), 0);
    let back = world.state(&path, UpCnxState::Activating);
    assert_eq!(back.n2_sm_info_type, Some(N2SmInfoType::PduResSetupReq));
    world.ran_up(&path);
    assert_eq!((world.last().status, world.sessions_in_memory()), (204, 0));
    assert!(world.session().sm.downlink.is_some());
    let octets = world.stored_at_amf.values().next().unwrap().octets.len();
    assert!(octets < 300, "{octets} octets travel");
}

#[test]
fn packet_for_idle_ue_makes_new_smf_fetch() {
    let (mut world, path) = idle();
    world.restart();
    world.downlink_packet(&path);
    assert_eq!(world.transfers.len(), 1, "the AMF was asked for it, and is told");
    world.transferred(&path, N1N2TransferResult::Attempting);
    assert_eq!(world.state(&path, UpCnxState::Activating).n2_sm_info_type, Some(N2SmInfoType::PduResSetupReq));
    world.ran_up(&path);
    assert!(world.session().sm.downlink.is_some() && world.sessions_in_memory() == 0);
    // A report is ignored if the AMF does not have the session either.
    let (mut world, path) = idle();
    world.restart();
    world.stored_at_amf.clear();
    world.downlink_packet(&path);
    assert!(world.transfers.is_empty() && world.is_empty());
}

/// An SMF that knows only the SEID learns the session's UPF from the SM context.
#[test]
fn report_of_another_upf_is_refused_later() {
    let (mut world, path) = idle();
    world.restart();
    let other = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 10), 8805));
    world.upf_answers = false;
    world.reported_by(other, &path);
    assert!(world.transfers.is_empty(), "the UE is not called");
    let answers: Vec<_> = std::mem::take(&mut world.pfcp);
    let causes = answers.iter().map(|(_, octets)| pfcp::Message::new(octets).unwrap().need());
    assert_eq!(causes.collect::<Vec<_>>(), [Ok(pfcp::Cause::SESSION_CONTEXT_NOT_FOUND)]);
}

/// If an SMF dies before it responds, the next one creates the same session again.
#[test]
fn repeated_create_replaces_first_session() {
    let mut addresses = BTreeSet::new();
    let seids: BTreeSet<u64> = (0..2)
        .map(|fuse| {
            let mut world = World::piggyback();
            world.upf_answers = false;
            let message = create_message(&data());
            world.call_as(SM_CONTEXTS, message.clone(), "a");
            let (first, _) = world.pfcp[0].clone();
            if fuse == 0 {
                world.restart();
                world.call_as(SM_CONTEXTS, message, "a");
            }
            assert!(world.replies.is_empty(), "the UPF has not answered");
            assert!(world.pfcp.iter().all(|(seid, _)| *seid == first));
            world.upf_answers = true;
            world.upf();
            assert_eq!(world.last().status, 201);
            addresses.insert(world.session().sm.address.ipv4);
            first.0
        })
        .collect();
    assert_eq!((seids.len(), addresses.len()), (1, 1));
}

/// An AMF that has its response repeats nothing, so no SMF would repeat an unsent transfer.
#[test]
fn create_is_answered_after_transfer() {
    for result in [
        N1N2TransferResult::Initiated,
        N1N2TransferResult::Attempting,
        N1N2TransferResult::Unreachable,
        N1N2TransferResult::Unknown,
    ] {
        let mut world = World::piggyback();
        world.upf_answers = false;
        world.call_as(SM_CONTEXTS, create_message(&data()), "a");
        world.upf_answers_one();
        let actions = world.smf.take_actions();
        let [Action::Transfer { of, .. }] = actions[..] else { panic!("{actions:?}") };
        world.smf.on_transfer_result(of, result, world.now);
        let answer = world.smf.actions.first();
        let Some(Action::Reply(_, Reply { status: 201, .. })) = answer else { panic!("{answer:?}") };
    }
}

#[test]
fn older_piggyback_is_refused_once() {
    let (mut world, path) = idle();
    let old = world.stored_at_amf.clone();
    world.state(&path, UpCnxState::Activating);
    world.ran_up(&path);
    let new = std::mem::replace(&mut world.stored_at_amf, old);
    let deactivated =
        Message::new(&SmContextUpdateData { up_cnx_state: Some(UpCnxState::Deactivated), ..Default::default() });
    let modify = format!("{path}/modify");
    world.call(&modify, deactivated.clone());
    assert_eq!(world.last().status, 412, "{:?}", world.last());
    // The AMF has the later version.
    let old = std::mem::replace(&mut world.stored_at_amf, new);
    world.call(&modify, deactivated.clone());
    assert_eq!(world.last().status, 200);
    // The AMF has never received the later version: the stored one is accepted.
    world.stored_at_amf = old;
    world.call(&modify, deactivated.clone());
    assert_eq!(world.last().status, 412);
    world.call(&modify, deactivated);
    assert_eq!(world.last().status, 200);
}

#[test]
fn invalid_piggyback_is_refused() {
    let (mut world, path) = idle();
    let good = world.stored_at_amf.values().next().unwrap().clone();
    let data = SmContextUpdateData { up_cnx_state: Some(UpCnxState::Activating), ..SmContextUpdateData::default() };
    let mut ask = |octets: Vec<u8>| {
        world.smf = World::start(SessionStorage::Amf(PATIENCE), 1);
        let carried = PiggybackedSmContext { version: 9, octets };
        let message = translate::with_piggyback(Message::new(&data), Some(&carried));
        world.call(&format!("{path}/modify"), message);
        world.last().status
    };
    assert_eq!(ask(good.octets.clone()), 200);
    for cut in [1, 2, 20, good.octets.len() - 1] {
        assert_eq!(ask(good.octets[..cut].to_vec()), 400, "{cut}");
    }
    // Every change of one octet is answered.
    for at in 0..good.octets.len() {
        let mut octets = good.octets.clone();
        octets[at] ^= 0x81;
        ask(octets);
    }
}

/// A new SMF does not know which addresses are in use, but the UPF does.
#[test]
fn address_in_use_is_skipped() {
    let mut world = World::piggyback();
    let mut config = config();
    config.dnns[0].ipv4_pool = Some((Ipv4Addr::new(10, 45, 0, 0), 28));
    world.smf = Sessions::new(config, "http://smf".into(), StdRng::seed_from_u64(1), SessionStorage::Amf(PATIENCE));
    world.upf_answers = false;
    world.call(SM_CONTEXTS, create_message(&data()));
    let mut asked = BTreeSet::new();
    for _ in 0..3 {
        let (seid, request) = world.pfcp.remove(0);
        let request = pfcp::SessionEstablishmentRequest::parse(&pfcp::Message::new(&request).unwrap()).unwrap();
        let pdr = request.create_pdrs.iter().find_map(|pdr| pdr.pdi.ue_ip_addresses.first()?.ipv4);
        assert!(asked.insert(pdr.unwrap()), "each is another");
        let error = pfcp::Error { cause: pfcp::Cause::RULE_FAILURE, offending_ie: Some(pfcp::UeIpAddress::ID) };
        let node = Ipv4Addr::new(127, 0, 0, 8);
        let mut octets = Vec::new();
        let refused = pfcp::SessionEstablishmentResponse::rejected(IpAddr::V4(node).into(), error);
        refused.emit(&mut octets, seid.0, 0).unwrap();
        world.smf.pfcp((UPF, seid), &octets, world.now);
        world.act();
    }
    assert!(world.replies.is_empty());
    world.upf_answers = true;
    world.upf();
    assert_eq!(world.last().status, 201);
    assert!(world.session().sm.address.ipv4.is_some_and(|address| !asked.contains(&address)));
}

/// For an AMF without piggyback, the SMF keeps the SM context in memory.
#[test]
fn amf_without_piggyback_is_served() {
    let mut world = World::piggyback();
    let mut lookup = |_: Supi| {
        let slices = vec![SliceSubscription::default()];
        Ok(Some(Subscription { slices, ..Subscription::default() }))
    };
    let mut call = |world: &mut World, path: &str, message: Message| {
        assert!(message.sm_context().is_none());
        let call = IncomingRequest {
            path: path.to_owned(),
            message,
            key: None,
            repeated: false,
            reply: ReplyTo::disconnected(),
        };
        world.smf.call(call, world.now, &mut lookup);
        world.act();
    };
    call(&mut world, SM_CONTEXTS, create_message(&data()));
    let location = world.last().location.clone().unwrap();
    let path = location.strip_prefix("http://smf").unwrap().to_owned();
    let state = |state| Message::new(&SmContextUpdateData { up_cnx_state: Some(state), ..Default::default() });
    let n2 = SmContextUpdateData {
        n2_sm_info: Some(part("n2")),
        n2_sm_info_type: Some(N2SmInfoType::PduResSetupRsp),
        ..SmContextUpdateData::default()
    };
    call(&mut world, &format!("{path}/modify"), Message::new(&n2).with("n2", PartContent::Ngap, setup_response()));
    call(&mut world, &format!("{path}/modify"), state(UpCnxState::Deactivated));
    assert_eq!((world.last().status, world.sessions_in_memory(), world.stored_at_amf.len()), (200, 1, 0));
    call(&mut world, &format!("{path}/release"), Message::default());
    assert!(world.is_empty());
}
