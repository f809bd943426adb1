//! One message of every type that Vireo sends or parses, as encoded by Vireo.
//!
//! Each has most of its elements.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use vireo_types::{Duration, Teid};
use vireo_wire::pfcp::*;

pub(crate) const UPF: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
pub(crate) const SMF: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const GNB: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 3);
pub(crate) const UE: Ipv4Addr = Ipv4Addr::new(10, 45, 0, 2);
pub(crate) const UE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 0);
pub(crate) const SEID: u64 = 0x0102_0304_0506_0708;
const STARTED: RecoveryTimeStamp = RecoveryTimeStamp(3_900_000_000);

pub(crate) fn node(address: Ipv4Addr) -> NodeId {
    NodeId::from(IpAddr::from(address))
}

pub(crate) fn uplink_pdr() -> CreatePdr {
    CreatePdr {
        pdr_id: PdrId(1),
        precedence: Precedence(255),
        pdi: Pdi {
            source_interface: SourceInterface::ACCESS,
            f_teid: Some(FTeid::Choose { ipv4: true, ipv6: false, id: Some(5) }),
            network_instance: Some("internet".into()),
            ue_ip_addresses: [UeIpAddress::source(Some(UE), Some(UE6))].into_iter().collect(),
            qfis: [Qfi(9)].into_iter().collect(),
            source_interface_type: Some(InterfaceType::N3_3GPP),
            ..Pdi::default()
        },
        outer_header_removal: Some(OuterHeaderRemoval::GTPU),
        far_id: Some(FarId(1)),
        urr_ids: [UrrId(1)].into_iter().collect(),
        qer_ids: [QerId(1), QerId(2)].into_iter().collect(),
        ..CreatePdr::default()
    }
}

pub(crate) fn downlink_pdr() -> CreatePdr {
    let filter = SdfFilter {
        traffic_class: Some(0xb8fc),
        id: Some(77),
        ..SdfFilter::new("permit out ip from 198.51.100.0/24 to assigned")
    };
    CreatePdr {
        pdr_id: PdrId(2),
        precedence: Precedence(128),
        pdi: Pdi {
            source_interface: SourceInterface::CORE,
            network_instance: Some("internet".into()),
            ue_ip_addresses: [UeIpAddress::destination(Some(UE), None)].into_iter().collect(),
            sdf_filters: vec![filter],
            source_interface_type: Some(InterfaceType::N6),
            ..Pdi::default()
        },
        far_id: Some(FarId(2)),
        qer_ids: [QerId(1)].into_iter().collect(),
        ..CreatePdr::default()
    }
}

pub(crate) fn urr() -> CreateUrr {
    CreateUrr {
        urr_id: UrrId(1),
        measurement_method: MeasurementMethod::VOLUM | MeasurementMethod::DURAT,
        reporting_triggers: ReportingTriggers::VOLTH | ReportingTriggers::PERIO | ReportingTriggers::VOLQU,
        measurement_period: Some(MeasurementPeriod(600)),
        volume_threshold: Some(VolumeThreshold { total: Some(1_000_000), uplink: None, downlink: Some(900_000) }),
        volume_quota: Some(VolumeQuota { total: Some(2_000_000), uplink: None, downlink: None }),
        time_threshold: Some(TimeThreshold(3_600)),
        time_quota: Some(TimeQuota(7_200)),
        inactivity_detection_time: Some(InactivityDetectionTime(30)),
        ..CreateUrr::default()
    }
}

pub(crate) fn establishment() -> SessionEstablishmentRequest {
    let uplink = CreateFar {
        far_id: FarId(1),
        apply_action: ApplyAction::FORW,
        forwarding_parameters: Some(ForwardingParameters {
            destination_interface: DestinationInterface::CORE,
            network_instance: Some("internet".into()),
            ..ForwardingParameters::default()
        }),
        bar_id: None,
    };
    let downlink = CreateFar {
        far_id: FarId(2),
        apply_action: ApplyAction::BUFF | ApplyAction::NOCP,
        forwarding_parameters: None,
        bar_id: Some(BarId(1)),
    };
    let ambr = CreateQer {
        qer_id: QerId(1),
        qer_correlation_id: Some(QerCorrelationId(0x0abc)),
        mbr: Some(Mbr { uplink_kbps: 200_000, downlink_kbps: 1_000_000 }),
        ..CreateQer::default()
    };
    let flow = CreateQer {
        qer_id: QerId(2),
        gate_status: GateStatus { uplink_closed: false, downlink_closed: true },
        mbr: Some(Mbr { uplink_kbps: 64, downlink_kbps: 128 }),
        gbr: Some(Gbr { uplink_kbps: 32, downlink_kbps: 64 }),
        qfi: Some(Qfi(9)),
        rqi: Some(Rqi(1)),
        paging_policy_indicator: Some(PagingPolicyIndicator(3)),
        averaging_window: Some(AveragingWindow(2_000)),
        ..CreateQer::default()
    };
    SessionEstablishmentRequest {
        create_pdrs: [uplink_pdr(), downlink_pdr()].into_iter().collect(),
        create_fars: [uplink, downlink].into_iter().collect(),
        create_urrs: [urr()].into_iter().collect(),
        create_qers: [ambr, flow].into_iter().collect(),
        create_bars: std::iter::once(CreateBar {
            bar_id: BarId(1),
            downlink_data_notification_delay: Some(DownlinkDataNotificationDelay(4)),
            suggested_buffering_packets_count: Some(SuggestedBufferingPacketsCount(64)),
        })
        .collect(),
        pdn_type: Some(PdnType::IPV4V6),
        user_plane_inactivity_timer: Some(UserPlaneInactivityTimer(900)),
        user_id: Some(UserId {
            nai: Some("ue@example.org".into()),
            ..UserId::imsi("999700000000001".parse().expect("fifteen digits"))
        }),
        apn_dnn: ApnDnn::from_name("internet"),
        snssai: Some(SliceId("1-0000ab".parse().expect("an S-NSSAI"))),
        rat_type: Some(RatType::NR),
        recovery_time_stamp: Some(STARTED),
        ..SessionEstablishmentRequest::new(node(SMF), FSeid::new(SEID, SMF.into()))
    }
}

pub(crate) fn modification() -> SessionModificationRequest {
    let far = UpdateFar {
        far_id: FarId(2),
        apply_action: Some(ApplyAction::FORW),
        update_forwarding_parameters: Some(UpdateForwardingParameters {
            destination_interface: Some(DestinationInterface::ACCESS),
            outer_header_creation: Some(OuterHeaderCreation::gtpu(Teid(0x0a0b_0c0d), GNB.into())),
            transport_level_marking: Some(TransportLevelMarking(0xb8fc)),
            flags: Some(SmReqFlags::SNDEM),
            destination_interface_type: Some(InterfaceType::N3_3GPP),
            ..UpdateForwardingParameters::default()
        }),
        bar_id: None,
    };
    let pdr = UpdatePdr { pdr_id: PdrId(1), precedence: Some(Precedence(10)), ..UpdatePdr::default() };
    let gates = GateStatus { uplink_closed: true, downlink_closed: false };
    let qer = UpdateQer { qer_id: QerId(2), gate_status: Some(gates), ..UpdateQer::default() };
    let urr = UpdateUrr { urr_id: UrrId(1), time_quota: Some(TimeQuota(1)), ..UpdateUrr::default() };
    SessionModificationRequest {
        cp_f_seid: Some(FSeid { seid: SEID, ipv4: Some(SMF), ipv6: Some(Ipv6Addr::LOCALHOST) }),
        remove_pdrs: [RemovePdr { pdr_id: PdrId(3) }].into_iter().collect(),
        remove_fars: [RemoveFar { far_id: FarId(3) }].into_iter().collect(),
        remove_urrs: [RemoveUrr { urr_id: UrrId(3) }].into_iter().collect(),
        remove_qers: [RemoveQer { qer_id: QerId(3) }].into_iter().collect(),
        remove_bars: std::iter::once(RemoveBar { bar_id: BarId(1) }).collect(),
        create_pdrs: vec![uplink_pdr()],
        update_pdrs: vec![pdr],
        update_fars: [far].into_iter().collect(),
        update_urrs: vec![urr],
        update_qers: vec![qer],
        update_bars: std::iter::once(UpdateBar {
            bar_id: BarId(2),
            suggested_buffering_packets_count: Some(SuggestedBufferingPacketsCount(8)),
            ..UpdateBar::default()
        })
        .collect(),
        flags: Some(SmReqFlags::DROBU | SmReqFlags::QAURR),
        query_urrs: [QueryUrr { urr_id: UrrId(1) }].into_iter().collect(),
        ..SessionModificationRequest::default()
    }
}

pub(crate) fn usage() -> UsageReport {
    UsageReport {
        urr_id: UrrId(1),
        ur_seqn: UrSeqn(4),
        trigger: UsageReportTrigger::VOLTH,
        start_time: Some(StartTime(3_900_000_100)),
        end_time: Some(EndTime(3_900_000_200)),
        volume: Some(VolumeMeasurement {
            total: Some(30),
            uplink: Some(10),
            downlink: Some(20),
            total_packets: Some(3),
            uplink_packets: Some(1),
            downlink_packets: Some(2),
        }),
        duration: Some(DurationMeasurement(100)),
        time_of_first_packet: Some(TimeOfFirstPacket(3_900_000_101)),
        time_of_last_packet: Some(TimeOfLastPacket(3_900_000_199)),
        ..UsageReport::default()
    }
}

pub(crate) fn report() -> SessionReportRequest {
    SessionReportRequest {
        report_type: ReportType::DLDR | ReportType::USAR | ReportType::ERIR,
        downlink_data: Some(DownlinkDataReport {
            pdr_ids: [PdrId(2)].into_iter().collect(),
            service_information: [DownlinkDataServiceInformation { paging_policy: Some(46), qfi: Some(9) }]
                .into_iter()
                .collect(),
        }),
        usage_reports: vec![usage()],
        error_indication: Some(ErrorIndicationReport {
            remote_f_teids: [FTeid::new(Teid(0x0a0b_0c0d), GNB.into())].into_iter().collect(),
        }),
        flags: None,
    }
}

fn created() -> CreatedPdr {
    CreatedPdr { pdr_id: PdrId(1), f_teid: Some(FTeid::new(Teid(0x0000_0101), UPF.into())), ..CreatedPdr::default() }
}

fn associations(out: &mut Messages) {
    out.node(&AssociationSetupRequest {
        node_id: node(SMF),
        recovery_time_stamp: STARTED,
        up_function_features: None,
        cp_function_features: Some(CpFunctionFeatures::LOAD | CpFunctionFeatures::SSET),
        session_retention: Some(SessionRetentionInformation {
            addresses: [IpAddr::from(SMF), IpAddr::from(Ipv6Addr::LOCALHOST)].map(Into::into).into_iter().collect(),
        }),
    });
    out.node(&AssociationSetupResponse {
        node_id: NodeId::fqdn("upf1.example.org").expect("good labels"),
        cause: Cause::REQUEST_ACCEPTED,
        recovery_time_stamp: STARTED,
        up_function_features: Some(UpFunctionFeatures::FTUP | UpFunctionFeatures::EMPU | UpFunctionFeatures::UEIP),
        cp_function_features: None,
        flags: Some(AsRspFlags::PSREI),
    });
    out.node(&AssociationUpdateRequest {
        node_id: node(UPF),
        up_function_features: None,
        cp_function_features: None,
        release_requested: Some(AssociationReleaseRequested::SARR),
        graceful_release_period: Some(GracefulReleasePeriod::at_least(Duration::from_secs(120))),
        flags: Some(AuReqFlags::PARPS),
    });
    out.node(&AssociationUpdateResponse {
        node_id: node(SMF),
        cause: Cause::REQUEST_ACCEPTED,
        up_function_features: None,
        cp_function_features: None,
    });
    out.node(&AssociationReleaseRequest { node_id: node(SMF) });
    out.node(&AssociationReleaseResponse { node_id: node(UPF), cause: Cause::NO_ESTABLISHED_ASSOCIATION });
}

fn nodes(out: &mut Messages) {
    out.node(&HeartbeatRequest { recovery_time_stamp: STARTED });
    out.node(&HeartbeatResponse { recovery_time_stamp: STARTED });
    out.node(&VersionNotSupportedResponse {});
    out.node(&NodeReportRequest {
        node_id: node(UPF),
        report_type: NodeReportType::UPFR | NodeReportType::UPRR,
        path_failure: Some(UserPlanePathFailureReport {
            remote_peers: [RemoteGtpuPeer(GNB.into())].into_iter().collect(),
        }),
        path_recovery: Some(UserPlanePathRecoveryReport {
            remote_peers: [RemoteGtpuPeer(Ipv6Addr::LOCALHOST.into())].into_iter().collect(),
        }),
    });
    let offending_ie = Some(OffendingIe(101));
    out.node(&NodeReportResponse { node_id: node(SMF), cause: Cause::MANDATORY_IE_INCORRECT, offending_ie });
    let set = FqCsid([0x01, 192, 0, 2, 1, 0, 7][..].into());
    out.node(&SessionSetDeletionRequest { node_id: node(SMF), fq_csids: vec![set] });
    out.node(&SessionSetDeletionResponse { node_id: node(UPF), cause: Cause::REQUEST_ACCEPTED, offending_ie: None });
}

fn sessions(out: &mut Messages) {
    out.session(&establishment());
    out.session(&SessionEstablishmentResponse {
        created_pdrs: [created()].into_iter().collect(),
        ..SessionEstablishmentResponse::accepted(node(UPF), FSeid::new(9, UPF.into()))
    });
    out.session(&SessionEstablishmentResponse {
        failed_rule_id: Some(FailedRuleId::Pdr(2)),
        ..SessionEstablishmentResponse::rejected(node(UPF), Error::incorrect(84))
    });
    out.session(&modification());
    out.session(&SessionModificationResponse {
        created_pdrs: [created()].into_iter().collect(),
        usage_reports: vec![UsageReportInModification(usage())],
        additional_usage_reports: Some(AdditionalUsageReportsInformation(2)),
        ..SessionModificationResponse::new(Cause::REQUEST_ACCEPTED)
    });
    out.session(&SessionDeletionRequest::default());
    out.session(&SessionDeletionResponse {
        usage_reports: vec![UsageReportInDeletion(usage())],
        ..SessionDeletionResponse::new(Cause::REQUEST_ACCEPTED)
    });
    out.session(&report());
    out.session(&SessionReportResponse {
        update_bar: Some(UpdateBarInReport {
            bar_id: BarId(1),
            dl_buffering_duration: Some(DlBufferingDuration::at_least(Duration::from_secs(3_600))),
            dl_buffering_suggested_packet_count: Some(DlBufferingSuggestedPacketCount(300)),
            ..UpdateBarInReport::default()
        }),
        flags: Some(SrRspFlags::DROBU),
        ..SessionReportResponse::new(Cause::REQUEST_ACCEPTED)
    });
}

/// Encoded messages, each with its type.
#[derive(Default)]
pub(crate) struct Messages(pub Vec<(MessageType, Vec<u8>)>);

impl Messages {
    fn emit<T: Body>(&mut self, body: &T, seid: Option<u64>) {
        let mut octets = Vec::new();
        let mut builder = Builder::new(&mut octets, T::KIND, seid, 0x01_0203 + self.0.len() as u32);
        body.write(&mut builder);
        builder.finish().expect("fits");
        self.0.push((T::KIND, octets));
    }

    fn node<T: Body>(&mut self, body: &T) {
        self.emit(body, None);
    }

    fn session<T: Body>(&mut self, body: &T) {
        self.emit(body, Some(SEID));
    }
}

pub(crate) fn all() -> Vec<(MessageType, Vec<u8>)> {
    let mut out = Messages::default();
    nodes(&mut out);
    associations(&mut out);
    sessions(&mut out);
    out.0
}
