//! UE that moves between 4G and 5G, by hand, with the eNB that it uses.
//!
//! Its keys are derived here once more, from the parameters of TS 33.501 A.14 and A.15, and its
//! security contexts are those of the codec crate.

use crate::lab::{self, ASSOC, Lab};
use vireo_core::amf::context::{NasSecurity, UeContext};
use vireo_types::{AmfUeNgapId, Dialect, RanUeNgapId, Tmsi};
use vireo_wire::nas::{self, Nas5gmmMessage, Nas5gsMessage, Nas5gsSecurityHeaderType};
use vireo_wire::nas_eps::*;
use vireo_wire::ngap;
use vireo_wire::s1ap::{self, S1AP_PDU, S1apPduKind, ie};
use vireo_wire::security::kdf::kdf;
use vireo_wire::security::nas_5gs::{KNasInt, NasConnection, nas_mac};
use vireo_wire::security::{self, NasCount};

pub(super) const ENB_UE: u32 = 0x00ab_cdef;
pub(super) const PLMN: [u8; 3] = [0x99, 0xf9, 0x07];
/// EEA0 to EEA2, EIA1 and EIA2, N1 mode.
pub(super) const CAPABILITY: [u8; 7] = [0xe0, 0x60, 0, 0, 0, 0, 0x20];
/// 5G-EA0 to 5G-EA2, 5G-IA1 and 5G-IA2, and the same of EPS.
pub(super) const CAPABILITY_5G: [u8; 4] = [0xe0, 0x60, 0xe0, 0x60];

/// What moves: the network, and what the UE has.
pub(super) struct Phone {
    pub(super) lab: Lab,
    /// Security context of EPS.
    pub(super) eps: Option<NasSecurityContext>,
    /// KASME' of that context.
    pub(super) kasme: [u8; 32],
    /// Security context of 5G, once it was mapped.
    pub(super) nr: Option<nas::NasSecurityContext>,
    pub(super) guti: NasEpsMobileIdentity,
    pub(super) eksi: u8,
    /// Applied to each REGISTRATION REQUEST.
    pub(super) change: fn(nas::NasRegistrationRequest) -> nas::NasRegistrationRequest,
}

/// Returns a KDF output of a key and one COUNT (TS 33.220 B.2.0).
pub(super) fn derived(key: &[u8; 32], function: u8, count: u32) -> [u8; 32] {
    let [a, b, c, d] = count.to_be_bytes();
    *kdf(key, &[function, a, b, c, d, 0, 4])
}

/// Returns the 4G-GUTI that a UE maps from its 5G-GUTI (TS 23.003 2.10.2.1.2).
fn mapped_guti(context: &UeContext, config: &vireo_core::config::CoreConfig) -> NasEpsMobileIdentity {
    let (group, code) = config.guami().mme();
    let tmsi = context.identity.tmsi.expect("a 5G-GUTI").0;
    let octets = [&[0xf6][..], &PLMN, &group.to_be_bytes(), &[code], &tmsi.to_be_bytes()].concat();
    NasEpsMobileIdentity::new(octets)
}

/// Protects an EMM message as a UE does that comes from 5G: as a message of 5G (TS 33.501 8.5.2).
pub(super) fn protected_by_5g(security: &NasSecurity, plain: &[u8]) -> Vec<u8> {
    let count = NasCount::new(security.uplink).expect("a COUNT");
    let nia = security::IntegrityAlgorithm::try_from(security.integrity).expect("an algorithm");
    let mut out = [&[0x17, 0, 0, 0, 0, count.sequence_number()][..], plain].concat();
    let key = KNasInt::new(&security.knas_int);
    let mac = nas_mac(&key, count, NasConnection::ThreeGpp, security::Direction::Uplink, &out[5..], nia);
    out[1..5].copy_from_slice(&mac.to_be_bytes());
    out
}

pub(super) fn plmn() -> s1ap::PLMNidentity {
    s1ap::PLMNidentity(s1ap::TBCDSTRING(PLMN))
}

impl Phone {
    /// Returns a UE that is registered in 5G and idle, with one session of PDU session ID 3.
    pub(super) fn new() -> Self {
        let mut lab = Lab::new();
        lab.config.eps.interworks = true;
        lab.register();
        lab.session(3);
        lab.idle();
        lab.change(|ue| {
            ue.security_capability = vireo_core::amf::context::UeSecurityCapability::new(&CAPABILITY_5G);
        });
        // The emulator's UE stays in 5G.
        lab.reachable = false;
        let context = lab.context().expect("a context");
        let guti = mapped_guti(&context, &lab.config);
        Phone { lab, eps: None, kasme: [0; 32], nr: None, guti, eksi: 7, change: |request| request }
    }

    pub(super) fn context(&self) -> UeContext {
        self.lab.context().expect("a context")
    }

    pub(super) fn security(&self) -> NasSecurity {
        self.context().security.clone().expect("keys")
    }

    /// Returns TRACKING AREA UPDATE REQUEST with the bearers that the UE has.
    pub(super) fn update_request(&self, bearers: u16, active: bool) -> NasEpsMessage {
        let kind = NasEpsUpdateType::from_update_type(UpdateType::TaUpdating).with_active(active);
        let request = NasTrackingAreaUpdateRequest::new(
            kind,
            NasKeySetIdentifier::new(self.security().key_set.identifier()),
            self.guti.clone(),
        )
        .with_ue_network_capability(NasUeNetworkCapability::new(CAPABILITY.to_vec()))
        .with_eps_bearer_context_status(NasEpsBearerContextStatus::new(bearers.to_le_bytes().to_vec()))
        .with_ue_status(NasUeStatus::from_status(false, true));
        NasEpsMessage::new_emm(request)
    }

    /// Moves to 4G: sends TRACKING AREA UPDATE REQUEST, and takes the mapped keys into use.
    pub(super) fn move_to_4g(&mut self, bearers: u16, active: bool) {
        let before = self.security();
        let plain = self.update_request(bearers, active).encode().expect("it encodes");
        self.initial(protected_by_5g(&before, &plain));
        self.kasme = derived(&before.kamf, 0x73, before.uplink);
        let kamf = vireo_wire::security::nas_5gs::KAmf::new(&before.kamf);
        let count = |count| NasCount::new(count).expect("a COUNT");
        let (uplink, downlink) = (count(before.uplink), count(before.downlink));
        let (eia, eea) = (IntegrityAlgorithm::EIA2, CipheringAlgorithm::EEA2);
        let mapped = NasSecurityContext::from_mapped_kasme_idle(&kamf, uplink, downlink, eia, eea);
        (self.eps, self.eksi) = (Some(mapped.expect("keys")), before.key_set.identifier());
    }

    /// Sends a NAS message in INITIAL UE MESSAGE of the eNB.
    pub(super) fn initial(&mut self, nas: Vec<u8>) {
        use vireo_wire::s1ap::*;
        let pdu = build_s1ap!(
            InitiatingMessage,
            initialUEMessage,
            InitialUEMessage,
            eNB_UE_S1AP_ID(ENB_UE),
            NAS_PDU(nas),
            TAI(s1ap::helpers::tai(plmn(), [0, 1])),
            EUTRAN_CGI(EUTRANCGI::new(plmn(), CellIdentity(Bits::low(0x123_4501, 28)), None)),
            RRC_Establishment_Cause(RRCEstablishmentCause::mo_Signalling),
        );
        self.lab.take_from_enb(&pdu.and_then(|pdu| pdu.encode()).expect("it encodes"));
    }

    pub(super) fn mme_id(&self) -> u32 {
        self.context().connection.expect("a connection").amf_id.mme()
    }

    /// Sends a message of the UE under its keys of EPS.
    pub(super) fn uplink(&mut self, message: &NasEpsMessage) {
        self.uplink_with(message, NasEpsSecurityHeaderType::IntegrityProtectedAndCiphered);
    }

    /// As [`Phone::uplink`], with this protection.
    pub(super) fn uplink_with(&mut self, message: &NasEpsMessage, header: NasEpsSecurityHeaderType) {
        use vireo_wire::s1ap::*;
        let nas = self.eps.as_mut().expect("keys").protect(message, header, Direction::Uplink).expect("it encodes");
        let pdu = build_s1ap!(
            InitiatingMessage,
            uplinkNASTransport,
            UplinkNASTransport,
            MME_UE_S1AP_ID(self.mme_id()),
            eNB_UE_S1AP_ID(ENB_UE),
            NAS_PDU(nas),
            EUTRAN_CGI(EUTRANCGI::new(plmn(), CellIdentity(Bits::low(0x123_4501, 28)), None)),
            TAI(s1ap::helpers::tai(plmn(), [0, 1])),
        );
        self.lab.take_from_enb(&pdu.and_then(|pdu| pdu.encode()).expect("it encodes"));
    }

    /// Returns the S1AP PDUs of a kind that were sent to the eNB.
    pub(super) fn pdus(&self, kind: S1apPduKind) -> Vec<s1ap::S1APPDU<'static>> {
        let decoded = self.lab.to_enb.iter().map(|pdu| S1AP_PDU::decode(pdu).expect("a PDU"));
        decoded.filter(|pdu| pdu.kind() == kind).collect()
    }

    /// Returns the last EMM or ESM message to the UE, verified under its keys of EPS.
    pub(super) fn received(&mut self) -> NasEpsMessage {
        let pdu = S1AP_PDU::decode(self.lab.to_enb.last().expect("a PDU")).expect("a PDU");
        let item = |nas: Option<s1ap::NASPDU<'_>>| nas.map(|nas| nas.0.to_vec());
        let nas = match pdu.kind() {
            S1apPduKind::Initiating_InitialContextSetup => {
                pdu.items::<ie::E_RABToBeSetupListCtxtSUReq>().find_map(|bearer| item(bearer.expect("an item").nas_pdu))
            }
            S1apPduKind::Initiating_E_RABSetup => pdu
                .items::<ie::E_RABToBeSetupListBearerSUReq>()
                .map(|bearer| bearer.expect("an item").nas_pdu.0.to_vec())
                .next(),
            _ => pdu.ie::<ie::NAS_PDU>().map(|nas| nas.expect("octets").0.to_vec()),
        };
        let nas = nas.expect("a NAS message");
        self.eps.as_mut().expect("keys").unprotect(&nas, Direction::Downlink).expect("a right MAC").message
    }

    /// Has the eNB set up the UE context with these bearers.
    pub(super) fn set_up(&mut self, bearers: &[u8]) {
        use vireo_wire::s1ap::*;
        let item = |ebi: &u8| {
            let address = TransportLayerAddress([127, 0, 0, 4].into());
            let item = ERABSetupItemCtxtSURes::new(ERABID((*ebi).into()), address, GTPTEID([1, 2, 3, *ebi]), None);
            build_s1ap_ie!(IGNORE E_RABSetupItemCtxtSURes(item)).expect("an item")
        };
        let pdu = build_s1ap!(
            SuccessfulOutcome,
            InitialContextSetup,
            InitialContextSetupResponse,
            MME_UE_S1AP_ID(self.mme_id()),
            eNB_UE_S1AP_ID(ENB_UE),
            E_RABSetupListCtxtSURes(ERABSetupListCtxtSURes(bearers.iter().map(item).collect())),
        );
        self.lab.take_from_enb(&pdu.and_then(|pdu| pdu.encode()).expect("it encodes"));
    }

    /// Completes the update, and has the eNB release the UE.
    pub(super) fn complete_and_release(&mut self) {
        self.uplink(&NasEpsMessage::new_emm(NasTrackingAreaUpdateComplete::new()));
        self.end_connection();
    }

    /// Has the eNB release the UE.
    pub(super) fn end_connection(&mut self) {
        use vireo_wire::s1ap::*;
        let Some(connection) = self.context().connection else { return };
        let mme_id = connection.amf_id.mme();
        let request = build_s1ap!(
            InitiatingMessage,
            UEContextReleaseRequest,
            UEContextReleaseRequest,
            MME_UE_S1AP_ID(mme_id),
            eNB_UE_S1AP_ID(ENB_UE),
            Cause(Cause::radioNetwork(CauseRadioNetwork::user_inactivity)),
        );
        let complete = build_s1ap!(
            SuccessfulOutcome,
            UEContextRelease,
            UEContextReleaseComplete,
            MME_UE_S1AP_ID(mme_id),
            eNB_UE_S1AP_ID(ENB_UE),
        );
        for pdu in [request, complete] {
            self.lab.take_from_enb(&pdu.and_then(|pdu| pdu.encode()).expect("it encodes"));
        }
        assert_eq!(self.context().connection, None);
    }

    /// Returns REGISTRATION REQUEST of the UE, which contains an update request under its keys of
    /// EPS (TS 24.501 5.5.1.3.2).
    pub(super) fn registration_request(&mut self, sessions: u16) -> Nas5gsMessage {
        let update = self.update_request(0, false);
        let header = NasEpsSecurityHeaderType::IntegrityProtected;
        let container = self.eps.as_mut().expect("keys").protect(&update, header, Direction::Uplink);
        let container = nas::NasEpsNasMessageContainer::new(container.expect("it encodes"));
        Nas5gsMessage::new_5gmm(self.mobility(7, sessions).with_eps_nas_message_container(container))
    }

    /// Returns REGISTRATION REQUEST of a UE that was handed over from EPS.
    pub(super) fn mobility_request(&self, sessions: u16) -> Nas5gsMessage {
        Nas5gsMessage::new_5gmm(self.mobility(self.security().key_set.ie(), sessions))
    }

    fn mobility(&self, ngksi: u8, sessions: u16) -> nas::NasRegistrationRequest {
        let guami = self.lab.config.guami();
        let tmsi = Tmsi(u32::from_be_bytes(self.guti.value[7..].try_into().expect("a 4G-GUTI")));
        let identity = [
            &[0xf2][..],
            &PLMN,
            &[guami.region],
            &(guami.set << 6 | u16::from(guami.pointer)).to_be_bytes(),
            &tmsi.0.to_be_bytes(),
        ]
        .concat();
        let kind =
            nas::NasFGsRegistrationType::from_registration_type(nas::RegistrationType::MobilityRegistrationUpdating);
        let request = nas::NasRegistrationRequest::new(
            kind,
            nas::NasKeySetIdentifier::new(ngksi),
            nas::NasFGsMobileIdentity::new(identity),
        )
        .with_ue_security_capability(nas::NasUeSecurityCapability::new(CAPABILITY_5G.to_vec()))
        .with_ue_status(nas::NasUeStatus::from_status(true, false))
        .with_pdu_session_status(nas::NasPduSessionStatus::new(sessions.to_le_bytes().to_vec()));
        (self.change)(request)
    }

    /// Sends a NAS message in INITIAL UE MESSAGE of the first gNB.
    pub(super) fn initial_5g(&mut self, nas: &[u8]) {
        let mut out = vireo_emulator::gnb::Outbox::default();
        let cause = ngap::RRCEstablishmentCause::mo_Signalling;
        self.lab.gnbs[0].initial_ue(9, nas, None, cause, &mut out).expect("a message");
        self.lab.bring_to_core(0, &out);
        self.lab.settle();
    }

    /// Sends a message under the keys of 5G.
    pub(super) fn uplink_5g(&mut self, message: &Nas5gsMessage, header: Nas5gsSecurityHeaderType) {
        let nas = self.nr.as_mut().expect("keys").protect(message, header, nas::Direction::Uplink);
        self.uplink_nas_5g(&nas.expect("it encodes"));
    }

    /// Sends NAS octets on the connection of the gNB.
    pub(super) fn uplink_nas_5g(&mut self, nas: &[u8]) {
        let connection = self.context().connection.expect("a connection");
        let (amf_id, ran_id): (AmfUeNgapId, RanUeNgapId) = (connection.amf_id, connection.ran_id);
        assert_eq!(connection.assoc, ASSOC);
        self.lab.take_from_gnb(0, &lab::uplink_nas(amf_id, ran_id, nas));
        self.lab.settle();
    }

    /// Returns the NAS octets of the last NGAP PDU to the gNB.
    pub(super) fn nas_5g(&self) -> Vec<u8> {
        let pdu = ngap::NGAP_PDU::decode(self.lab.sent.last().expect("a PDU")).expect("a PDU");
        pdu.ie::<ngap::ie::NAS_PDU>().expect("an IE").expect("octets").0.to_vec()
    }

    /// Moves to 5G: registers, and takes the mapped keys of 5G into use. Returns the accept.
    pub(super) fn move_to_5g(&mut self, sessions: u16) -> nas::NasRegistrationAccept {
        let request = self.registration_request(sessions);
        let before = self.security();
        self.initial_5g(&request.encode().expect("it encodes"));
        let command = self.nas_5g();
        assert_eq!(command[..2], [0x7e, 3], "SECURITY MODE COMMAND is not ciphered");
        let kasme = vireo_wire::security::nas_eps::KAsme::new(&before.kamf);
        let count = NasCount::new(before.uplink).expect("a COUNT");
        let (nia, nea) = (nas::IntegrityAlgorithm::NIA2, nas::CipheringAlgorithm::NEA2);
        let mapped = nas::NasSecurityContext::from_mapped_kamf_idle(&kasme, count, nia, nea).expect("keys");
        let mut mapped = mapped;
        let verified = mapped.unprotect(&command, nas::Direction::Downlink).expect("a right MAC");
        let Nas5gsMessage::Gmm(_, Nas5gmmMessage::SecurityModeCommand(command)) = verified.message else {
            panic!("a Security Mode Command")
        };
        assert_eq!(command.ngksi.value, 8 | before.key_set.identifier(), "a mapped context with the eKSI");
        assert!(command.selected_eps_nas_security_algorithms.is_some_and(|algorithms| algorithms.value == 0x22));
        self.nr = Some(mapped);
        let container = nas::NasMessageContainer::new(request.encode().expect("it encodes"));
        let complete = nas::NasSecurityModeComplete::new().with_nas_message_container(container);
        let header = Nas5gsSecurityHeaderType::IntegrityProtectedAndCipheredWithNewFiveGNasSecurityContext;
        self.uplink_5g(&Nas5gsMessage::new_5gmm(complete), header);
        let accept = self.nas_5g();
        let verified = self.nr.as_mut().expect("keys").unprotect(&accept, nas::Direction::Downlink);
        match verified.expect("a right MAC").message {
            Nas5gsMessage::Gmm(_, Nas5gmmMessage::RegistrationAccept(accept)) => *accept,
            other => panic!("{other:?}"),
        }
    }

    /// Requests a PDN connection, to which the UE may assign a PDU session identity.
    pub(super) fn connect(&mut self, psi: Option<u8>) {
        let mut request = NasPdnConnectivityRequest::new(
            NasRequestType::from_request_type(RequestTypeValue::Initial),
            NasPdnType::from_pdn_type(PdnType::Ipv4),
        );
        if let Some(psi) = psi {
            let options = NasProtocolConfigurationOptions::new(vec![0x80, 0, 0x1a, 1, psi]);
            request = request.with_protocol_configuration_options(options);
        }
        self.uplink(&NasEpsMessage::new_esm(request, 0, 9));
    }

    /// Confirms a default bearer.
    pub(super) fn confirm(&mut self, ebi: u8) {
        self.uplink(&NasEpsMessage::new_esm(NasActivateDefaultEpsBearerContextAccept::new(), ebi, 0));
    }

    /// Returns PDU session identity and identity towards the UE of each session.
    pub(super) fn sessions(&self) -> Vec<(u8, u8)> {
        self.context().sessions.iter().map(|s| (s.psi, s.id())).collect()
    }

    /// Returns true if all sessions and keys are of one dialect.
    pub(super) fn is_all_of(&self, dialect: Dialect) -> bool {
        let context = self.context();
        context.session_dialect() == dialect && context.sessions.iter().all(|s| s.dialect == dialect)
    }
}
