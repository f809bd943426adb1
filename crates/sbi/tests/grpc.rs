//! Tests of two gRPC endpoints, with errors between them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use vireo_sbi::amf::{
    self, N1N2MessageTransferReqData, N1N2MessageTransferRspData, N1N2MsgTxfrFailureNotification, SM, TransferCause,
};
use vireo_sbi::common::{
    Guami, N2SmInfoType, NgRanTargetId, PlmnId, ProblemDetails, RefToBinaryData, Snssai, UserLocation,
};
use vireo_sbi::grpc::{self, Method};
use vireo_sbi::message::{AMF_CONTEXT, BODY_OCTETS, N1, N2, SM_CONTEXT};
use vireo_sbi::smf::{
    HoState, Operation, RELEASED, SM_CONTEXTS, SmContextCreateData, SmContextCreatedData, SmContextError,
    SmContextReleaseData, SmContextStatusNotification, SmContextUpdateData, SmContextUpdatedData, StatusInfo,
    UpCnxState,
};
use vireo_sbi::{ClientError, Encoding, Endpoint, IncomingRequest, Message, Outgoing, PartContent, Reply, Settings};

const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const SUPI: &str = "imsi-999700000000001";

fn settings(encoding: Encoding) -> Settings {
    let timeout = Duration::from_secs(10);
    Settings { listen: LOCAL, agent: "AMF".into(), timeout, attempts: 1, nonce: 7, encoding, tls: None }
}

/// Sends a request with a key that is unique for each `place`.
fn request(from: &Endpoint, place: usize, uri: String, message: Message) -> Receiver<Result<Reply, ClientError>> {
    let (sender, receiver) = sync_channel(1);
    let done = Box::new(move |result| drop(sender.send(result)));
    let (key, withdrawn) = (Some(format!("k{place}")), None);
    from.client().send(Outgoing { uri, fallbacks: Vec::new(), message, key, lane: 1, withdrawn, done });
    receiver
}

fn soon<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(Duration::from_secs(30)).expect("an answer")
}

fn part(id: &str) -> RefToBinaryData {
    RefToBinaryData { content_id: id.into() }
}

fn with_n1(message: Message) -> Message {
    message.with(N1, PartContent::Nas, vec![0x2e, 5, 1])
}

fn with_both(message: Message) -> Message {
    with_n1(message).with(N2, PartContent::Ngap, vec![0, 7])
}

fn piggybacked(message: Message) -> Message {
    message.with(SM_CONTEXT, PartContent::SmContext, vec![0, 0, 0, 9, 1, 2, 3])
}

fn committed(message: Message) -> Message {
    message.with(AMF_CONTEXT, PartContent::AmfContext, vec![9; 3])
}

fn create() -> SmContextCreateData {
    let plmn = PlmnId { mcc: "999".into(), mnc: "70".into() };
    SmContextCreateData {
        supi: SUPI.into(),
        pei: None,
        pdu_session_id: 5,
        dnn: "internet".into(),
        s_nssai: Snssai { sst: 1, sd: Some("0a0b0c".into()) },
        serving_nf_id: "00000000-0000-8000-8000-000000000000".into(),
        guami: Guami { plmn_id: plmn.clone(), amf_id: "020040".into() },
        serving_network: plmn,
        request_type: Some("INITIAL_REQUEST".into()),
        n1_sm_msg: Some(part(N1)),
        an_type: "3GPP_ACCESS".into(),
        rat_type: None,
        ue_location: None,
        sm_context_status_uri: "http://127.0.0.18:7777/namf-callback/v1/sm-contexts/x/0".into(),
        vireo_piggyback: Some(3),
        vireo_implied: Some(4),
    }
}

fn update() -> SmContextUpdateData {
    let plmn = "99970".parse().unwrap();
    let tai = vireo_types::Tai { plmn, tac: vireo_types::Tac(1) };
    SmContextUpdateData {
        ue_location: Some(UserLocation::new(tai, vireo_types::NrCgi { plmn, cell: 0x10 })),
        ho_state: Some(HoState::Preparing),
        target_id: Some(NgRanTargetId::new(vireo_types::GnbId { plmn, id: 10, bits: 22 }, tai)),
        to_be_switched: Some(true),
        failed_to_be_switched: Some(false),
        up_cnx_state: Some(UpCnxState::Activating),
        n1_sm_msg: Some(part(N1)),
        n2_sm_info: Some(part(N2)),
        n2_sm_info_type: Some(N2SmInfoType::PduResSetupRsp),
    }
}

fn transfer() -> N1N2MessageTransferReqData {
    let content = amf::N2InfoContent { ngap_ie_type: Some(N2SmInfoType::PduResSetupReq), ngap_data: part(N2) };
    let sm_info = amf::N2SmInformation { pdu_session_id: 5, n2_info_content: Some(content), s_nssai: None };
    N1N2MessageTransferReqData {
        n1_message_container: Some(amf::N1MessageContainer {
            n1_message_class: SM.into(),
            n1_message_content: part(N1),
        }),
        n2_info_container: Some(amf::N2InfoContainer { n2_information_class: SM.into(), sm_info: Some(sm_info) }),
        pdu_session_id: Some(5),
        failure_uri: Some("http://127.0.0.19:7777/nsmf-callback/v1/unreached/0".into()),
        vireo_created: Some(amf::CreatedSmContext { key: "k".into(), number: 4, sm_context_ref: "x".into() }),
    }
}

/// Returns path, message and response of every operation.
fn operations() -> Vec<(String, Message, Reply)> {
    let of = |status, message| Reply { status, location: None, message };
    let at = |location: &str, reply: Reply| Reply { location: Some(location.into()), ..reply };
    let context = format!("{SM_CONTEXTS}/0123456789abcdef");
    let n1n2_msg_data_uri = "http://127.0.0.18:7777/x".to_owned();
    let failure = N1N2MsgTxfrFailureNotification { cause: TransferCause::UeNotResponding, n1n2_msg_data_uri };
    let status = SmContextStatusNotification { status_info: StatusInfo { resource_status: RELEASED.into() } };
    let up = SmContextUpdatedData { up_cnx_state: Some(UpCnxState::Activated), ..SmContextUpdatedData::default() };
    let command = SmContextUpdatedData {
        n1_sm_msg: Some(part(N1)),
        n2_sm_info: Some(part(N2)),
        n2_sm_info_type: Some(N2SmInfoType::PduResRelCmd),
        ho_state: Some(HoState::Completed),
        ..SmContextUpdatedData::default()
    };
    let transferred = |cause| Message::new(N1N2MessageTransferRspData { cause });
    let created = Message::new(SmContextCreatedData { pdu_session_id: Some(5), s_nssai: Some(create().s_nssai) });
    let (modify, release) = (Operation::Modify.uri(&context), Operation::Release.uri(&context));
    let (attempting, sent) = (TransferCause::AttemptingToReachUe, TransferCause::Initiated);
    let nothing = || committed(Message::new(SmContextReleaseData::default()));
    vec![
        (
            SM_CONTEXTS.into(),
            committed(with_n1(Message::new(create()))),
            at("http://smf/x", of(201, piggybacked(created))),
        ),
        (
            modify.clone(),
            committed(piggybacked(with_both(Message::new(update())))),
            of(200, with_both(Message::new(command))),
        ),
        (modify.clone(), piggybacked(Message::new(SmContextUpdateData::default())), of(200, Message::new(up))),
        (modify, Message::new(SmContextUpdateData::default()), of(200, piggybacked(Message::default()))),
        (release, nothing(), Reply::done()),
        (amf::status_callback_uri(SUPI, 7), Message::new(status), Reply::done()),
        (
            amf::message_transfer_uri(SUPI),
            piggybacked(with_both(Message::new(transfer()))),
            of(200, piggybacked(transferred(sent))),
        ),
        (
            amf::message_transfer_uri(SUPI),
            with_both(Message::new(transfer())),
            at("http://amf/m", of(202, transferred(attempting))),
        ),
        ("/nsmf-callback/v1/unreached/0123456789abcdef".into(), committed(Message::new(failure)), Reply::done()),
        (amf::held_sm_context_uri(SUPI, 7), Message::default(), of(200, piggybacked(Message::default()))),
    ]
}

#[test]
fn every_operation_round_trips() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let replies: Vec<_> = operations().into_iter().map(|(_, _, reply)| reply).collect();
    let calls = Arc::clone(&seen);
    let server = Endpoint::start(settings(Encoding::Grpc), move |call: IncomingRequest| {
        let mut calls = calls.lock().unwrap();
        call.reply.send(replies[calls.len()].clone());
        calls.push((call.path, call.message, call.key, call.repeated));
    });
    let server = server.unwrap();
    let client = Endpoint::start(settings(Encoding::Grpc), |_| {}).unwrap();
    for (place, (path, message, reply)) in operations().into_iter().enumerate() {
        let answer = soon(&request(&client, place, format!("http://{}{path}", server.address()), message.clone()));
        assert_eq!(answer, Ok(reply), "{path}");
        let call = seen.lock().unwrap().last().cloned().unwrap();
        assert_eq!(call, (path, message, Some(format!("k{place}")), false));
    }
}

/// Returns the names of an operation's request and response in the proto file.
fn names(method: Method) -> [&'static str; 2] {
    match method {
        Method::CreateSmContext => ["SmContextCreateData", "SmContextCreatedData"],
        Method::UpdateSmContext => ["SmContextUpdateData", "SmContextUpdatedData"],
        Method::ReleaseSmContext => ["SmContextReleaseData", "SmContextUpdatedData"],
        Method::SmContextStatusNotify => ["SmContextStatusNotification", "PiggybackedSmContext"],
        Method::N1N2MessageTransfer => ["N1N2MessageTransferReqData", "N1N2MessageTransferRspData"],
        Method::N1N2TransferFailureNotify => ["N1N2MsgTxfrFailureNotification", "PiggybackedSmContext"],
        Method::FetchSmContext => ["HeldSmContext", "PiggybackedSmContext"],
    }
}

/// With `VIREO_GRPC_OUT=FILE`, writes requests and responses in gRPC and in JSON for
/// tests/reference/grpc.py.
#[test]
fn every_operation_has_octets_for_the_witness() {
    let hex = |octets: &[u8]| octets.iter().map(|octet| format!("{octet:02x}")).collect::<String>();
    let line = |name: &str, octets: &[u8], message: &Message| {
        let parts = message.parts.iter().map(|part| format!("\t{}={}", part.id, hex(&part.octets)));
        let (_, json) = Message { parts: Vec::new(), ..message.clone() }.encode("application/json");
        format!("{name}\t{}\t{}{}\n", hex(octets), String::from_utf8(json).unwrap(), parts.collect::<String>())
    };
    let mut out = String::new();
    for (path, message, reply) in operations() {
        let (method, asked) = grpc::encode_request(&path, &message).unwrap();
        let [request, answer] = names(method);
        out += &line(request, &asked, &message);
        out += &line(answer, &grpc::encode_response(method, &reply).unwrap(), &reply.message);
    }
    assert_eq!(out.lines().count(), 2 * operations().len());
    if let Some(file) = std::env::var_os("VIREO_GRPC_OUT") {
        std::fs::write(file, out).expect("the file of VIREO_GRPC_OUT can be written");
    }
}

#[test]
fn problem_has_cause_and_n1_message() {
    let problem = |status, cause| ProblemDetails::new(status, cause, "because");
    let told = SmContextError {
        error: problem(403, "DNN_DENIED"),
        n1_sm_msg: Some(part(N1)),
        n2_sm_info: Some(part(N2)),
        n2_sm_info_type: Some(N2SmInfoType::PduResSetupFail),
    };
    let told = Reply { status: 403, location: None, message: piggybacked(with_both(Message::new(told))) };
    let problems = [
        told,
        Reply::problem(&problem(404, "CONTEXT_NOT_FOUND")),
        Reply::problem(&problem(412, "SM_CONTEXT_STALE")),
        Reply::problem(&problem(504, "UE_NOT_REACHABLE")),
        Reply::problem(&problem(500, "INSUFFICIENT_RESOURCES_SLICE_DNN")),
        // A piggybacked SM context of the maximum size.
        Reply {
            message: Message::new(problem(403, "X")).with(SM_CONTEXT, PartContent::SmContext, vec![7; 8 * 1024]),
            ..Reply::problem(&problem(403, "X"))
        },
    ];
    let next = Arc::new(Mutex::new(problems.clone().into_iter()));
    let server = Endpoint::start(settings(Encoding::Grpc), move |call: IncomingRequest| {
        call.reply.send(next.lock().unwrap().next().expect("a problem"));
    });
    let server = server.unwrap();
    let client = Endpoint::start(settings(Encoding::Grpc), |_| {}).unwrap();
    for (place, problem) in problems.into_iter().enumerate() {
        let path = Operation::Modify.uri(&format!("{SM_CONTEXTS}/x"));
        let message = Message::new(SmContextUpdateData::default());
        let answer = soon(&request(&client, place, format!("http://{}{path}", server.address()), message));
        assert_eq!(answer, Ok(problem));
    }
}

#[test]
fn malformed_and_oversized_requests_are_refused() {
    let server =
        Endpoint::start(settings(Encoding::Grpc), |call: IncomingRequest| call.reply.send(Reply::done())).unwrap();
    let client = Endpoint::start(settings(Encoding::Grpc), |_| {}).unwrap();
    let modify = Operation::Modify.uri(&format!("{SM_CONTEXTS}/x"));
    let request =
        |path: &str, message| soon(&request(&client, 0, format!("http://{}{path}", server.address()), message));
    let data = SmContextUpdateData { n1_sm_msg: Some(part(N1)), ..SmContextUpdateData::default() };
    let long = Message::new(data).with(N1, PartContent::Nas, vec![0; BODY_OCTETS]);
    assert_eq!(request(&modify, long).unwrap().status, 413);
    let unsaid = [
        (modify.as_str(), Message::from_json(b"{}".to_vec())),
        (modify.as_str(), Message::new(SmContextReleaseData::default())),
        (modify.as_str(), Message::new(update())),
        ("/x", Message::new(transfer())),
        (SM_CONTEXTS, Message::new(ProblemDetails::default())),
    ];
    for (path, message) in unsaid {
        let answer = request(path, message);
        assert!(matches!(answer, Err(ClientError::NotEncodable(_))), "{answer:?}");
    }
    // A name with an encoded slash, and an update without a state.
    let context = format!("{SM_CONTEXTS}/x%2fy/modify");
    let refused = request(&context, Message::new(SmContextUpdateData::default())).unwrap();
    let problem: ProblemDetails = refused.message.value().unwrap();
    assert_eq!((refused.status, problem.cause.as_deref()), (400, Some("INVALID_MSG_FORMAT")));
}

#[test]
fn other_encoding_is_refused_at_once() {
    for (asks, is_asked) in [(Encoding::Json, Encoding::Grpc), (Encoding::Grpc, Encoding::Json)] {
        let server =
            Endpoint::start(settings(is_asked), |call: IncomingRequest| call.reply.send(Reply::done())).unwrap();
        let client = Endpoint::start(settings(asks), |_| {}).unwrap();
        let path = Operation::Modify.uri(&format!("{SM_CONTEXTS}/x"));
        let message = Message::new(SmContextUpdateData::default());
        let answer = soon(&request(&client, 0, format!("http://{}{path}", server.address()), message));
        let Err(error @ ClientError::Encoding(_)) = answer else { panic!("{answer:?}") };
        assert!(error.to_string().contains("sbi.encoding is the same at all functions"), "{error}");
    }
}
