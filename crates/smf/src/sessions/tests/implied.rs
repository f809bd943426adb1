//! Tests of an AMF that accepts the first transfer as create response.

use super::*;

/// The AMF's session number.
const NUMBER: u32 = 7;

/// State of such an AMF.
#[derive(Clone, Debug, Default)]
pub(super) struct ImpliedState {
    /// Key of its last create request, and true if that is answered.
    request: (String, bool),
    /// Responses for which no request was waiting.
    spared: u32,
    /// The AMF's reply to such a transfer, if it does not accept it.
    refuses: Option<N1N2TransferResult>,
}

impl World {
    /// Makes the AMF accept transfers as responses.
    pub(super) fn implying(mut self) -> Self {
        self.implied = Some(ImpliedState::default());
        self
    }

    /// Adds the AMF's wish for an implied response to a request.
    pub(super) fn with_wish(&mut self, (path, key): (&str, &str), message: Message) -> Message {
        let Some(taken) = self.implied.as_mut().filter(|_| path == SM_CONTEXTS) else { return message };
        if taken.request.0 != key {
            taken.request = (key.to_owned(), false);
        }
        let Ok(mut data) = message.value::<SmContextCreateData>() else { return message };
        data.vireo_implied = Some(NUMBER);
        Message { parts: message.parts, ..Message::new(data) }
    }

    /// Returns true if the request of a response was cancelled.
    pub(super) fn is_spared(&mut self, reply: &Reply) -> bool {
        let Some(taken) = self.implied.as_mut().filter(|_| reply.status == 201) else { return false };
        let is_spared = std::mem::replace(&mut taken.request.1, true);
        taken.spared += u32::from(is_spared);
        is_spared
    }

    /// Accepts the last transfer as response if it says so, and replies to it.
    pub(super) fn takes_for_answer(&mut self, of: TransferName) {
        let created = self.transfers.last().and_then(|transfer| transfer.vireo_created.clone());
        let (Some(taken), Some(created)) = (&mut self.implied, &created) else { return assert_eq!(created, None) };
        assert_eq!((&created.key, created.number), (&taken.request.0, NUMBER));
        if taken.refuses.is_none() && !std::mem::replace(&mut taken.request.1, true) {
            let location = Some(format!("http://smf{SM_CONTEXTS}/{}", created.sm_context_ref));
            self.replies.push(Reply { status: 201, location, ..Reply::default() });
        }
        let result = taken.refuses.unwrap_or(N1N2TransferResult::Initiated);
        self.smf.on_transfer_result(of, result, self.now);
    }

    fn spared(&self) -> u32 {
        self.implied.as_ref().expect("it takes them").spared
    }
}

const STARTS: [fn() -> World; 4] =
    [World::stored, World::piggyback, || World::shared(Format::Json), || World::shared_by_all(Format::Binary)];

/// Each session needs one response less, with the same number of database operations.
#[test]
fn first_transfer_is_the_create_response() {
    for start in STARTS {
        let (mut given, mut implied) = (start(), start().implying());
        for world in [&mut given, &mut implied] {
            whole_life(world);
        }
        assert_eq!((given.replies.len(), given.transfers.len()), (implied.replies.len(), implied.transfers.len()));
        assert_eq!(implied.spared(), 1, "the SMF has one answer that nobody waits for");
        let says = implied.transfers.iter().filter(|transfer| transfer.vireo_created.is_some());
        assert_eq!(says.count(), 1);
        let asked = |world: &World| world.records.as_ref().map(|records| records.operations());
        assert_eq!(
            asked(&given).map(|asked| (asked.writes, asked.removals)),
            asked(&implied).map(|asked| (asked.writes, asked.removals))
        );
    }
}

#[test]
fn failed_create_is_answered() {
    for start in STARTS {
        let mut world = start().implying();
        world.call(SM_CONTEXTS, create_message(&SmContextCreateData { pdu_session_id: 6, ..data() }));
        assert_eq!(world.last().status, 403);
        // A silent UPF: the session existed and has ended.
        world.upf_answers = false;
        world.call(SM_CONTEXTS, create_message(&data()));
        assert_eq!(world.replies.len(), 1, "there is nothing to say yet");
        let (seid, _) = world.pfcp.pop().expect("the UPF is asked");
        world.smf.pfcp_timeout(seid, world.now);
        world.act();
        assert_eq!((world.last().status, world.notified.len(), world.spared()), (201, 1, 0));
        let [transfer] = &world.transfers[..] else { panic!("{:?}", world.transfers) };
        assert!(transfer.n1_message_container.is_some() && transfer.vireo_created.is_none(), "the UE is told");
    }
}

/// The AMF creates the same session again before the UPF has the first one.
#[test]
fn superseded_create_is_answered() {
    let mut world = World::stored().implying();
    world.upf_answers = false;
    world.call(SM_CONTEXTS, create_message(&data()));
    assert!(world.replies.is_empty());
    world.call(SM_CONTEXTS, create_message(&data()));
    // The first session still has the only address, so the second one is refused.
    let statuses: Vec<u16> = world.replies.iter().map(|reply| reply.status).collect();
    assert_eq!(statuses, [500, 201]);
    world.upf_answers = true;
    world.act();
    assert_eq!((world.smf.index.len(), world.notified.len()), (0, 0), "the AMF does not have the first session");
}

#[test]
fn refused_transfer_is_no_response() {
    for (start, result) in STARTS
        .into_iter()
        .flat_map(|start| [(start, N1N2TransferResult::Unreachable), (start, N1N2TransferResult::Unknown)])
    {
        let mut world = start().implying();
        world.implied.as_mut().unwrap().refuses = Some(result);
        world.call(SM_CONTEXTS, create_message(&data()));
        assert!(world.transfers[0].vireo_created.is_some());
        assert_eq!((world.last().status, world.replies.len(), world.spared()), (201, 1, 0), "{result:?}");
        let reference = &world.transfers[0].vireo_created.as_ref().unwrap().sm_context_ref;
        assert!(world.last().location.as_ref().is_some_and(|location| location.ends_with(reference)));
    }
}

/// Wherever the SMF is killed, the AMF, which repeats its request, gets a response, implied or
/// explicit.
#[test]
fn next_smf_answers_after_kill_at_any_time() {
    for (start, least) in STARTS.into_iter().zip([40, 15, 40, 40]) {
        let mut kills = 0;
        for fuse in 0.. {
            let mut world = start().implying();
            world.fuse = Some(fuse);
            whole_life(&mut world);
            assert!(world.spared() <= 1, "killed at {fuse}");
            if world.fuse.is_some() {
                break;
            }
            kills += 1;
        }
        assert!(kills > least, "{kills} places to be killed at");
    }
}

/// An AMF without a key, or of another vendor, gets an explicit response.
#[test]
fn amf_without_implied_response_is_answered() {
    let mut world = World::stored();
    world.upf_answers = false;
    world.create();
    let wishes = SmContextCreateData { vireo_implied: Some(NUMBER), pdu_session_id: 5, ..data() };
    let (reply, before) = (ReplyTo::disconnected(), world.replies.len());
    let call = IncomingRequest {
        path: SM_CONTEXTS.into(),
        message: create_message(&wishes),
        key: None,
        repeated: false,
        reply,
    };
    let mut lookup =
        |_| Ok(Some(Subscription { slices: vec![SliceSubscription::default()], ..Subscription::default() }));
    world.smf.call(call, world.now, &mut lookup);
    world.act();
    assert!(world.replies.len() > before, "at once");
}
