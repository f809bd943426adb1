//! Test SMF with the transport of the AMF's requests.
//!
//! It is the core's own session logic, with a UPF that responds at once.

use crate::lab::{ASSOC, Ids, Lab, upf_answer};
use vireo_core::Env;
use vireo_core::amf::context::{RemoteSession, RemoteStage};
use vireo_core::amf::engine::Event;
use vireo_core::sba::{
    HandoverStep, N1N2Content, N1N2Transfer, N1N2TransferResult, SmfCreateRequest, SmfRequest, SmfResponse,
    SmfUpdateRequest,
};
use vireo_core::smf::{self, Create, Input, N2Sm, Output, SmContext};
use vireo_core::step::{Effect, Kind, Note};
use vireo_core::subscription::DnnSubscription;
use vireo_emulator::gnb;
use vireo_types::*;

/// SMF, with the number of AMF effects that it has seen.
#[derive(Default)]
pub(crate) struct Smf {
    pub(crate) sessions: Vec<(String, SmContext)>,
    pub(crate) ids: Ids,
    pub(crate) effects_read: usize,
    /// It does not respond.
    pub(crate) silent: bool,
    pub(crate) token: u64,
}

impl Smf {
    /// Runs a step with all responses of the UPF. Returns the N1N2 content and whether the session
    /// is released.
    pub(crate) fn run(&mut self, lab: &Lab, sm: &mut SmContext, input: Input<'_>) -> (N1N2Content, bool) {
        let mut random = |octets: &mut [u8]| octets.fill(0x11);
        let env = Env {
            now: lab.now,
            arrived: lab.now,
            config: &lab.config,
            random: &mut random,
            ids: &mut self.ids,
            ran: &(),
        };
        let outputs = smf::step(sm, input, &env);
        self.carry_out(lab, sm, outputs)
    }

    pub(crate) fn carry_out(&mut self, lab: &Lab, sm: &mut SmContext, outputs: Vec<Output>) -> (N1N2Content, bool) {
        let (mut content, mut gone) = (N1N2Content::default(), false);
        for output in outputs {
            match output {
                Output::N1(n1) => content.n1 = Some(n1),
                Output::N2(kind, octets) => content.n2 = Some((kind, octets)),
                Output::Pfcp { upf, message } => {
                    if let Some(answer) = upf_answer(&message, upf, sm.pfcp.cp_seid) {
                        let (more, ended) = self.run(lab, sm, Input::Pfcp(&answer));
                        content = N1N2Content { n1: content.n1.or(more.n1), n2: content.n2.or(more.n2) };
                        gone |= ended;
                    }
                }
                Output::Released => gone = true,
                _ => {}
            }
        }
        (content, gone)
    }

    pub(crate) fn create(&mut self, lab: &Lab, request: &SmfCreateRequest) -> (String, N1N2Content) {
        let number = self.effects_read as u16;
        let subscription = DnnSubscription::default();
        let request = Create {
            supi: request.supi,
            ltmsi: Ltmsi::new(Bucket::new(9), number),
            index: 0,
            psi: request.psi,
            dialect: Dialect::Nr,
            n1: &request.n1,
            snssai: request.snssai,
            dnn: &request.dnn,
            subscription: &subscription,
        };
        let mut random = |octets: &mut [u8]| octets.fill(0x11);
        let mut env = Env {
            now: lab.now,
            arrived: lab.now,
            config: &lab.config,
            random: &mut random,
            ids: &mut self.ids,
            ran: &(),
        };
        let (sm, outputs) = smf::create(&request, &mut env);
        let mut sm = sm.expect("a session");
        let (content, _) = self.carry_out(lab, &mut sm, outputs);
        let reference = format!("http://smf/{number}");
        self.sessions.push((reference.clone(), sm));
        (reference, content)
    }

    /// Runs a step of the session with this reference. Returns the N1N2 content and whether the
    /// session is released.
    pub(crate) fn update(&mut self, lab: &Lab, reference: &str, input: Input<'_>) -> Option<(N1N2Content, bool)> {
        let at = self.sessions.iter().position(|(name, _)| name == reference)?;
        let (name, mut sm) = self.sessions.remove(at);
        let (content, gone) = self.run(lab, &mut sm, input);
        if !gone {
            self.sessions.insert(at, (name, sm));
        }
        Some((content, gone))
    }

    /// Returns the transfer that the RAN needs about a session in a handover, unless `content` has
    /// it.
    pub(crate) fn needs(
        &mut self,
        lab: &Lab,
        reference: &str,
        update: &SmfUpdateRequest,
        content: &N1N2Content,
    ) -> Option<(N2Sm, Vec<u8>)> {
        let (_, sm) = self.sessions.iter_mut().find(|(name, _)| name == reference)?;
        let wanted = match update {
            SmfUpdateRequest::Switch(..) => return Some(smf::path_switch_answer(sm, lab.now)),
            SmfUpdateRequest::Handover(_, HandoverStep::Prepare { .. }) => N2Sm::SetupRequest,
            SmfUpdateRequest::Handover(_, HandoverStep::Prepared(..)) => N2Sm::HandoverCommand,
            _ => return None,
        };
        let refusal = smf::refusal(smf::HandoverRefusal::Preparation);
        let is_told = content.n2.as_ref().is_some_and(|(kind, _)| *kind == wanted);
        (!is_told).then_some((N2Sm::HandoverPreparationUnsuccessful, refusal))
    }

    /// Returns the new requests of the AMF.
    pub(crate) fn new_requests(&mut self, lab: &Lab) -> Vec<(u32, SmfRequest)> {
        let new = lab.effects[self.effects_read..].to_vec();
        self.effects_read = lab.effects.len();
        let asks = new.into_iter();
        asks.filter_map(|effect| {
            if let Effect::SmfRequest { number, request, .. } = effect { Some((number, request)) } else { None }
        })
        .collect()
    }

    /// Answers the AMF's requests until there are none.
    pub(crate) fn serve(&mut self, lab: &mut Lab) {
        loop {
            let new_requests = self.new_requests(lab);
            if new_requests.is_empty() {
                return;
            }
            for (number, request) in new_requests {
                self.answer(lab, number, request);
                lab.settle();
            }
        }
    }

    pub(crate) fn answer(&mut self, lab: &mut Lab, number: u32, request: SmfRequest) {
        if self.silent {
            return lab.event(Event::Smf { number, request, response: SmfResponse::Silence, sm_context: None });
        }
        let (answer, then) = match &request {
            SmfRequest::Create(create) => {
                let (reference, content) = self.create(lab, create);
                let transfer = self.transfer(create.psi, content);
                (SmfResponse::Created(reference), Some(Event::Transfer(transfer)))
            }
            SmfRequest::Update { reference, update } => {
                let input = match update {
                    SmfUpdateRequest::N1(n1) => Input::N1(n1),
                    SmfUpdateRequest::N2(kind, octets) => Input::N2(*kind, octets),
                    SmfUpdateRequest::Activate => Input::Activate,
                    SmfUpdateRequest::Deactivate => Input::Deactivate,
                    SmfUpdateRequest::Switch(octets, _) => Input::N2(N2Sm::PathSwitchRequest, octets),
                    SmfUpdateRequest::Handover(_, HandoverStep::Prepare { transfer, .. }) => {
                        Input::N2(N2Sm::HandoverRequired, transfer)
                    }
                    SmfUpdateRequest::Handover(_, HandoverStep::Prepared(kind, transfer)) => Input::N2(*kind, transfer),
                    SmfUpdateRequest::Handover(_, HandoverStep::Complete(_)) => Input::HandoverComplete,
                    SmfUpdateRequest::Handover(_, HandoverStep::Cancel) => Input::HandoverCancelled,
                };
                match self.update(lab, reference, input) {
                    Some((mut content, gone)) => {
                        // The response has the transfer that the RAN needs; other N2 content is
                        // sent in a transfer.
                        let needs = self.needs(lab, reference, update, &content);
                        let other = needs.and_then(|needs| content.n2.replace(needs));
                        let psi = self.sessions.iter().find(|(name, _)| name == reference).map(|(_, sm)| sm.psi);
                        let other = psi.zip(other).map(|(psi, other)| {
                            Event::Transfer(self.transfer(psi, N1N2Content { n1: None, n2: Some(other) }))
                        });
                        let is_refused = match content.n2 {
                            Some((N2Sm::PathSwitchUnsuccessful, _)) => true,
                            Some((N2Sm::HandoverPreparationUnsuccessful, _)) => {
                                matches!(update, SmfUpdateRequest::Handover(_, HandoverStep::Prepare { .. }))
                            }
                            _ => false,
                        };
                        let answer = match is_refused {
                            true => SmfResponse::Refused { content, unknown: false },
                            false => SmfResponse::Done(content),
                        };
                        (answer, gone.then_some(Event::SmContextReleased { number }).or(other))
                    }
                    None => (SmfResponse::Refused { content: N1N2Content::default(), unknown: true }, None),
                }
            }
            SmfRequest::Release { reference } => {
                self.update(lab, reference, Input::ReleaseLocally);
                (SmfResponse::Done(N1N2Content::default()), None)
            }
            SmfRequest::Unreached { .. } => (SmfResponse::Done(N1N2Content::default()), None),
        };
        lab.event(Event::Smf { number, request, response: answer, sm_context: None });
        then.into_iter().for_each(|event| lab.event(event));
    }

    pub(crate) fn transfer(&mut self, psi: u8, content: N1N2Content) -> N1N2Transfer {
        self.token += 1;
        let unreached = Some("http://smf/unreached".into());
        N1N2Transfer {
            token: self.token,
            psi,
            content,
            unreached,
            sm_context: None,
            created: None,
            requested_session: None,
        }
    }

    /// Reports a packet for an idle UE's session. Returns the result of the transfer.
    pub(crate) fn downlink_packet(&mut self, lab: &mut Lab, psi: u8) -> Option<N1N2TransferResult> {
        let n2 = Some((N2Sm::SetupRequest, vec![0]));
        let transfer = self.transfer(psi, N1N2Content { n1: None, n2 });
        lab.event(Event::Transfer(transfer));
        transferred(lab)
    }
}

/// Returns the result of the last transfer.
pub(crate) fn transferred(lab: &Lab) -> Option<N1N2TransferResult> {
    lab.effects
        .iter()
        .rev()
        .find_map(|e| if let Effect::N1N2TransferReply { result, .. } = e { Some(*result) } else { None })
}

pub(crate) fn amf() -> Lab {
    let mut lab = Lab::new();
    lab.config.smf_is_remote = true;
    lab.register();
    lab
}

pub(crate) fn with_session() -> (Lab, Smf) {
    let (mut lab, mut smf) = (amf(), Smf::default());
    lab.ue_does(|ue, p, out| ue.establish(p, 5, PduSessionType::Ipv4, out).expect("a request"));
    smf.serve(&mut lab);
    assert!(lab.ue.active_sessions().any(|s| s == 5), "{:?} {:?}", lab.events, lab.notes);
    (lab, smf)
}

pub(crate) fn idle() -> (Lab, Smf) {
    let (mut lab, mut smf) = with_session();
    lab.idle();
    smf.serve(&mut lab);
    (lab, smf)
}

pub(crate) fn succeeded(lab: &Lab, kind: Kind) -> usize {
    lab.notes.iter().filter(|n| matches!(n, Note::Succeeded(k, _) if *k == kind)).count()
}

pub(crate) fn stages(lab: &Lab) -> Vec<(RemoteStage, bool)> {
    lab.context().expect("a context").remote_sessions.sessions.iter().map(|s| (s.stage, s.up)).collect()
}

/// Returns a UE with these sessions.
pub(crate) fn with_sessions(sessions: &[u8]) -> (Lab, Smf) {
    let (mut lab, mut smf) = (amf(), Smf::default());
    for psi in sessions {
        lab.ue_does(|ue, p, out| ue.establish(p, *psi, PduSessionType::Ipv4, out).expect("a request"));
        smf.serve(&mut lab);
    }
    (lab, smf)
}

/// Asserts that the sessions of the UE at gNB `n` are those that the SMF has.
pub(crate) fn is_at(lab: &Lab, smf: &Smf, n: usize, sessions: &[u8]) {
    let context = lab.context().expect("a context");
    let connection = context.connection.expect("it is connected");
    assert_eq!((connection.assoc, Some(connection.ran_id)), (AssocId(ASSOC.0 + n as u32), lab.ran));
    assert!(context.handover.is_none() && context.remote_sessions.handover.is_none());
    let up = |s: &&RemoteSession| s.up && s.stage == RemoteStage::Established;
    let up: Vec<_> = context.remote_sessions.sessions.iter().filter(up).map(|s| s.psi).collect();
    let tunnels = lab.gnbs[n].tunnels(connection.ran_id);
    let mut there: Vec<_> = tunnels.iter().map(|tunnel| tunnel.psi).collect();
    there.sort_unstable();
    assert_eq!((&up[..], &there[..]), (sessions, sessions));
    for tunnel in tunnels {
        let (_, sm) = smf.sessions.iter().find(|(_, sm)| sm.psi == tunnel.psi).expect("the SMF has it");
        let n3 = std::net::IpAddr::from([127, 0, 0, 2 + n as u8]);
        assert_eq!(sm.downlink, Some(smf::Tunnel { address: n3, teid: tunnel.downlink }));
    }
}

pub(crate) const ALL: (u8, u8) = (0xf0, 0x70);

/// Returns how many path switches were acknowledged and how many failed.
pub(crate) fn answers(lab: &Lab) -> (usize, usize) {
    let count = |f: fn(&gnb::Event) -> bool| lab.gnb_events.iter().filter(|event| f(event)).count();
    (
        count(|event| matches!(event, gnb::Event::PathSwitched { .. })),
        count(|event| matches!(event, gnb::Event::PathSwitchFailed { .. })),
    )
}
