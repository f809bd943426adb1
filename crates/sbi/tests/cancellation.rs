//! Tests of cancelled requests, and of the bytes that implied responses save.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use vireo_sbi::amf::{
    self, CreatedSmContext, N1MessageContainer, N1N2MessageTransferReqData, N1N2MessageTransferRspData, SM,
    TransferCause,
};
use vireo_sbi::common::{Guami, PlmnId, RefToBinaryData, Snssai};
use vireo_sbi::message::N1;
use vireo_sbi::smf::{
    Operation, SM_CONTEXTS, SmContextCreateData, SmContextCreatedData, SmContextReleaseData, SmContextUpdateData,
    UpCnxState,
};
use vireo_sbi::{
    CancelHandle, CancelSignal, ClientError, Encoding, Endpoint, IncomingRequest, Message, Outgoing, PartContent,
    Reply, Settings,
};

const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const SUPI: &str = "imsi-999700000000001";

fn settings(encoding: Encoding) -> Settings {
    let timeout = Duration::from_secs(30);
    Settings { listen: LOCAL, agent: "AMF".into(), timeout, attempts: 1, nonce: 7, encoding, tls: None }
}

type PendingReply = Receiver<Result<Reply, ClientError>>;

fn request(from: &Endpoint, uri: String, message: Message, withdrawn: Option<CancelSignal>) -> PendingReply {
    let (sender, receiver) = sync_channel(1);
    let done = Box::new(move |result| drop(sender.send(result)));
    from.client().send(Outgoing { uri, fallbacks: Vec::new(), message, key: None, lane: 1, withdrawn, done });
    receiver
}

fn soon<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(Duration::from_secs(60)).expect("an answer")
}

#[test]
fn cancelled_request_ends_and_next_is_sent() {
    for encoding in [Encoding::Json, Encoding::Grpc] {
        let (seen, calls) = sync_channel(8);
        let server = Endpoint::start(settings(encoding), move |call: IncomingRequest| drop(seen.send(call))).unwrap();
        let client = Endpoint::start(settings(encoding), |_| {}).unwrap();
        let uri = |context: &str| {
            format!("http://{}{}", server.address(), Operation::Release.uri(&format!("{SM_CONTEXTS}/{context}")))
        };
        let message = || Message::new(SmContextReleaseData::default());
        let (withdrawal, withdrawn) = CancelHandle::new();
        let first = request(&client, uri("1"), message(), Some(withdrawn));
        let held = soon(&calls);
        let second = request(&client, uri("2"), message(), None);
        withdrawal.withdraw();
        assert_eq!(soon(&first), Err(ClientError::Withdrawn));
        let next = soon(&calls);
        assert!(next.path.contains("/2/"), "{}", next.path);
        // The response is dropped.
        held.reply.send(Reply::done());
        next.reply.send(Reply::done());
        assert_eq!(soon(&second), Ok(Reply::done()));
        // A request that is not cancelled gets its response; a later cancellation has no effect.
        let (withdrawal, withdrawn) = CancelHandle::new();
        let third = request(&client, uri("3"), message(), Some(withdrawn));
        soon(&calls).reply.send(Reply::done());
        assert_eq!(soon(&third), Ok(Reply::done()));
        withdrawal.withdraw();
        let (dropped, withdrawn) = CancelHandle::new();
        drop(dropped);
        let fourth = request(&client, uri("4"), message(), Some(withdrawn));
        soon(&calls).reply.send(Reply::done());
        assert_eq!(soon(&fourth), Ok(Reply::done()));
    }
}

/// Starts a proxy to an address that counts the bytes of its connections.
fn counted(to: SocketAddr, octets: &Arc<AtomicU64>) -> SocketAddr {
    let listener = TcpListener::bind(LOCAL).unwrap();
    let (address, octets) = (listener.local_addr().unwrap(), Arc::clone(octets));
    std::thread::spawn(move || {
        for from in listener.incoming() {
            let (from, to) = (from.unwrap(), TcpStream::connect(to).unwrap());
            from.set_nodelay(true).unwrap();
            to.set_nodelay(true).unwrap();
            for (mut one, mut other) in
                [(from.try_clone().unwrap(), to.try_clone().unwrap()), (to.try_clone().unwrap(), from)]
            {
                let octets = Arc::clone(&octets);
                std::thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while let Ok(length @ 1..) = one.read(&mut buffer) {
                        octets.fetch_add(length as u64, Ordering::SeqCst);
                        if other.write_all(&buffer[..length]).is_err() {
                            break;
                        }
                    }
                    let _ = other.shutdown(Shutdown::Write);
                });
            }
        }
    });
    address
}

fn n1(message: Message) -> Message {
    message.with(N1, PartContent::Nas, vec![0x2e; 60])
}

fn create(implied: Option<u32>) -> Message {
    let plmn = PlmnId { mcc: "999".into(), mnc: "70".into() };
    n1(Message::new(SmContextCreateData {
        supi: SUPI.into(),
        pei: None,
        pdu_session_id: 5,
        dnn: "internet".into(),
        s_nssai: Snssai { sst: 1, sd: None },
        serving_nf_id: "00000000-0000-8000-8000-000000000000".into(),
        guami: Guami { plmn_id: plmn.clone(), amf_id: "020040".into() },
        serving_network: plmn,
        request_type: Some("INITIAL_REQUEST".into()),
        n1_sm_msg: Some(RefToBinaryData { content_id: N1.into() }),
        an_type: "3GPP_ACCESS".into(),
        rat_type: None,
        ue_location: None,
        sm_context_status_uri: "http://127.0.0.18:7777/namf-callback/v1/sm-contexts/x/0".into(),
        vireo_piggyback: None,
        vireo_implied: implied,
    }))
}

fn transfer(created: Option<CreatedSmContext>) -> Message {
    let n1_message_content = RefToBinaryData { content_id: N1.into() };
    n1(Message::new(N1N2MessageTransferReqData {
        n1_message_container: Some(N1MessageContainer { n1_message_class: SM.into(), n1_message_content }),
        pdu_session_id: Some(5),
        failure_uri: Some("http://127.0.0.19:7777/nsmf-callback/v1/unreached/0000000000000005".into()),
        vireo_created: created,
        ..N1N2MessageTransferReqData::default()
    }))
}

/// Returns the bytes on both connections, in both directions, for each of 16 sessions that are
/// created and updated.
fn octets_of_a_session(encoding: Encoding, is_implied: bool) -> u64 {
    const SESSIONS: u64 = 16;
    let (seen, creations) = sync_channel(8);
    let smf =
        Endpoint::start(settings(encoding), move |call: IncomingRequest| match call.path.ends_with(SM_CONTEXTS) {
            true => drop(seen.send(call)),
            false => call.reply.send(Reply::done()),
        });
    let pending = Arc::new(Mutex::new(None::<CancelHandle>));
    let withdrawal = Arc::clone(&pending);
    let amf = Endpoint::start(settings(encoding), move |call: IncomingRequest| {
        let data: N1N2MessageTransferReqData = call.message.value().unwrap();
        if data.vireo_created.is_some()
            && let Some(withdrawal) = withdrawal.lock().unwrap().take()
        {
            withdrawal.withdraw();
        }
        call.reply.send(Reply::new(200, N1N2MessageTransferRspData { cause: TransferCause::Initiated }));
    });
    let (smf, amf, octets) = (smf.unwrap(), amf.unwrap(), Arc::new(AtomicU64::new(0)));
    let (to_smf, to_amf) = (counted(smf.address(), &octets), counted(amf.address(), &octets));
    let mut before = 0;
    for session in 0..=SESSIONS {
        let context = format!("{SM_CONTEXTS}/{session:016x}");
        let location = format!("http://{}{context}", smf.address());
        let (withdrawal, withdrawn) = CancelHandle::new();
        *pending.lock().unwrap() = Some(withdrawal);
        let number = is_implied.then_some(session as u32);
        let created = request(&amf, format!("http://{to_smf}{SM_CONTEXTS}"), create(number), Some(withdrawn));
        let data = SmContextCreatedData { pdu_session_id: Some(5), s_nssai: Some(Snssai { sst: 1, sd: None }) };
        let answer = Reply { location: Some(location), ..Reply::new(201, data) };
        let call = soon(&creations);
        let mut unanswered = Some(call.reply);
        if !is_implied {
            unanswered.take().unwrap().send(answer.clone());
            assert_eq!(soon(&created).unwrap().status, 201);
        }
        let sm_context_ref = format!("{session:016x}");
        let implied = number.map(|number| CreatedSmContext { key: "0123456789abcdef".into(), number, sm_context_ref });
        let uri = format!("http://{to_amf}{}", amf::message_transfer_uri(SUPI));
        assert_eq!(soon(&request(&smf, uri, transfer(implied), None)).unwrap().status, 200);
        let update =
            SmContextUpdateData { up_cnx_state: Some(UpCnxState::Deactivated), ..SmContextUpdateData::default() };
        let uri = format!("http://{to_smf}{}", Operation::Modify.uri(&context));
        assert_eq!(soon(&request(&amf, uri, Message::new(update), None)), Ok(Reply::done()));
        if let Some(unanswered) = unanswered {
            assert_eq!(soon(&created), Err(ClientError::Withdrawn));
            unanswered.send(answer);
        }
        if session == 0 {
            // The first session includes connection set-up and headers that HPACK compresses later.
            before = octets.load(Ordering::SeqCst);
        }
    }
    (octets.load(Ordering::SeqCst) - before) / SESSIONS
}

#[test]
fn implied_response_saves_message() {
    for encoding in [Encoding::Json, Encoding::Grpc] {
        let [answered, implied] = [false, true].map(|is_implied| octets_of_a_session(encoding, is_implied));
        println!("{encoding:?}: {answered} octets for a session that is made and updated, {implied} without an answer");
        // The transfer has the content of the response. The cancellation is a frame of 13 bytes.
        assert!(implied * 100 <= answered * 101, "{encoding:?}: {implied} and {answered} octets");
    }
}
