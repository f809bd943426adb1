use crate::pfcp::Error;
use crate::pfcp::ie::{Element, Reader};

/// Elements that are sets of bits. Octet 5 of the specification is the lowest octet of the number, octet 6 the next.
/// `min` octets must be there when read; `out` octets at least are written, so that receivers of this release find
/// every octet it defines.
macro_rules! flags {
    ($($(#[$m:meta])* $name:ident($int:ident) = $id:literal, min $min:literal, out $out:literal
        { $($(#[$fm:meta])* $flag:ident = $value:expr;)* })*) => {$(
        $(#[$m])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub $int);

        impl $name {
            $($(#[$fm])* pub const $flag: $name = $name($value);)*

            /// Whether all bits of `other` are set.
            pub const fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl std::ops::BitOr for $name {
            type Output = $name;

            fn bitor(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }
        }

        impl Element for $name {
            const ID: u16 = $id;

            fn decode(octets: &[u8]) -> Result<Self, Error> {
                const SIZE: usize = size_of::<$int>();
                Reader::new($id, octets).take($min)?;
                let mut bits = [0; SIZE];
                bits.iter_mut().zip(octets).for_each(|(bits, octet)| *bits = *octet);
                Ok($name($int::from_le_bytes(bits)))
            }

            fn encode(&self, out: &mut Vec<u8>) {
                let bits = self.0.to_le_bytes();
                let used = bits.iter().rposition(|octet| *octet != 0).map_or(0, |at| at + 1);
                out.extend_from_slice(&bits[..used.max($out)]);
            }
        }
    )*};
}

flags! {
    /// Apply Action (8.2.26): what a FAR does with a packet.
    ApplyAction(u16) = 44, min 1, out 2 {
        /// Drop.
        DROP = 1;
        /// Forward.
        FORW = 1 << 1;
        /// Buffer.
        BUFF = 1 << 2;
        /// Notify the control plane of the first buffered packet.
        NOCP = 1 << 3;
        /// Duplicate.
        DUPL = 1 << 4;
        /// Tell of buffered downlink packets.
        BDPN = 1 << 9;
        /// Tell of discarded downlink packets.
        DDPN = 1 << 10;
    }

    /// Report Type (8.2.21): what a Session Report Request reports.
    ReportType(u8) = 39, min 1, out 1 {
        /// Downlink data.
        DLDR = 1;
        /// Usage.
        USAR = 1 << 1;
        /// An error indication of a remote GTP-U peer.
        ERIR = 1 << 2;
        /// Inactivity of the user plane.
        UPIR = 1 << 3;
        /// TSC management information.
        TMIR = 1 << 4;
        /// A session report (of SRRs).
        SESR = 1 << 5;
        /// That the session is set up anew by the UPF.
        UISR = 1 << 6;
    }

    /// UP Function Features (8.2.25).
    UpFunctionFeatures(u128) = 43, min 1, out 2 {
        /// Downlink data buffering in the control plane.
        BUCP = 1;
        /// The buffering parameter Downlink Data Notification Delay.
        DDND = 1 << 1;
        /// The buffering parameter DL Buffering Duration.
        DLBD = 1 << 2;
        /// Traffic steering.
        TRST = 1 << 3;
        /// F-TEID allocation in the UPF.
        FTUP = 1 << 4;
        /// PFD management.
        PFDM = 1 << 5;
        /// Header enrichment of uplink traffic.
        HEEU = 1 << 6;
        /// Traffic redirection.
        TREU = 1 << 7;
        /// End marker packets made by the UPF.
        EMPU = 1 << 8;
        /// PDI optimisation.
        PDIU = 1 << 9;
        /// Uplink and downlink buffering control.
        UDBC = 1 << 10;
        /// Quota action.
        QUOAC = 1 << 11;
        /// Trace.
        TRACE = 1 << 12;
        /// Framed routing.
        FRRT = 1 << 13;
        /// PFDs with a subset of their contents.
        PFDE = 1 << 14;
        /// Enhanced association release.
        EPFAR = 1 << 15;
        /// Deferred PDR activation.
        DPDRA = 1 << 16;
        /// Activation and deactivation of predefined PDRs.
        ADPDP = 1 << 17;
        /// UE IP address allocation in the UPF.
        UEIP = 1 << 18;
        /// SMF sets.
        SSET = 1 << 19;
        /// Measurement of packets.
        MNOP = 1 << 20;
        /// Multiple instances of Traffic Endpoint ID in a PDI.
        MTE = 1 << 21;
        /// Bundling of messages in a datagram.
        BUNDL = 1 << 22;
        /// 5G VN group communication.
        GCOM = 1 << 23;
        /// Multiple associations to an SMF set.
        MPAS = 1 << 24;
        /// Redundant transmission on the transport layer.
        RTTL = 1 << 25;
        /// Quota validity time.
        VTIME = 1 << 26;
        /// Number of reports.
        NORP = 1 << 27;
        /// IPTV service.
        IPTV = 1 << 28;
        /// UE addresses by IPv6 prefix length other than /64.
        IP6PL = 1 << 29;
    }

    /// CP Function Features (8.2.58).
    CpFunctionFeatures(u32) = 89, min 1, out 1 {
        /// Load control.
        LOAD = 1;
        /// Overload control.
        OVRL = 1 << 1;
        /// Enhanced association release.
        EPFAR = 1 << 2;
        /// SMF sets.
        SSET = 1 << 3;
        /// Bundling of messages in a datagram.
        BUNDL = 1 << 4;
        /// Multiple associations from an SMF set.
        MPAS = 1 << 5;
        /// Additional usage reports after a session deletion.
        ARDR = 1 << 6;
        /// UE IP address usage reporting.
        UIAUR = 1 << 7;
    }

    /// Measurement Method (8.2.40).
    MeasurementMethod(u8) = 62, min 1, out 1 {
        /// Duration.
        DURAT = 1;
        /// Volume.
        VOLUM = 1 << 1;
        /// Events.
        EVENT = 1 << 2;
    }

    /// Measurement Information (8.2.68).
    MeasurementInformation(u16) = 100, min 1, out 1 {
        /// Measure before QoS enforcement.
        MBQE = 1;
        /// Inactive measurement.
        INAM = 1 << 1;
        /// Reduced application detection information.
        RADI = 1 << 2;
        /// Immediate start of time metering.
        ISTM = 1 << 3;
        /// Measurement of number of packets.
        MNOP = 1 << 4;
    }

    /// Reporting Triggers (8.2.19): when a URR reports.
    ReportingTriggers(u32) = 37, min 2, out 3 {
        /// Periodically.
        PERIO = 1;
        /// Volume threshold.
        VOLTH = 1 << 1;
        /// Time threshold.
        TIMTH = 1 << 2;
        /// Quota holding time.
        QUHTI = 1 << 3;
        /// Start of traffic.
        START = 1 << 4;
        /// Stop of traffic.
        STOPT = 1 << 5;
        /// Dropped downlink traffic threshold.
        DROTH = 1 << 6;
        /// Linked usage reporting.
        LIUSA = 1 << 7;
        /// Volume quota.
        VOLQU = 1 << 8;
        /// Time quota.
        TIMQU = 1 << 9;
        /// Envelope closure.
        ENVCL = 1 << 10;
        /// Quota validity time.
        QUVTI = 1 << 15;
    }

    /// Usage Report Trigger (8.2.41): why a usage report is sent.
    UsageReportTrigger(u32) = 63, min 2, out 3 {
        /// Periodically.
        PERIO = 1;
        /// Volume threshold.
        VOLTH = 1 << 1;
        /// Time threshold.
        TIMTH = 1 << 2;
        /// Quota holding time.
        QUHTI = 1 << 3;
        /// Start of traffic.
        START = 1 << 4;
        /// Stop of traffic.
        STOPT = 1 << 5;
        /// Dropped downlink traffic threshold.
        DROTH = 1 << 6;
        /// Immediate report, on demand of the control plane.
        IMMER = 1 << 7;
        /// Volume quota.
        VOLQU = 1 << 8;
        /// Time quota.
        TIMQU = 1 << 9;
        /// Linked usage reporting.
        LIUSA = 1 << 10;
        /// Termination of the session or the URR.
        TERMR = 1 << 11;
        /// Monitoring time.
        MONIT = 1 << 12;
        /// Termination by the UPF.
        TEBUR = 1 << 17;
        /// Quota validity time.
        QUVTI = 1 << 19;
    }

    /// PFCPSMReq-Flags (8.2.31), of session modifications and of Update Forwarding Parameters.
    SmReqFlags(u8) = 49, min 1, out 1 {
        /// Drop buffered packets.
        DROBU = 1;
        /// Send end marker packets on the old path.
        SNDEM = 1 << 1;
        /// Query all URRs.
        QAURR = 1 << 2;
    }

    /// PFCPSRRsp-Flags (8.2.32), of session report responses.
    SrRspFlags(u8) = 50, min 1, out 1 {
        /// Drop buffered packets.
        DROBU = 1;
    }

    /// PFCPASRsp-Flags (8.2.134), of association setup responses.
    AsRspFlags(u8) = 184, min 1, out 1 {
        /// The sessions that the request wanted kept are.
        PSREI = 1;
        /// The UPF is configured for IPUPS.
        UUPSI = 1 << 1;
    }

    /// PFCPSRReq-Flags (8.2.119), of session report requests.
    SrReqFlags(u8) = 161, min 1, out 1 {
        /// The session is deleted in the UPF.
        PSDBU = 1;
    }

    /// PFCPSEReq-Flags (IE type 186), of session establishments.
    SeReqFlags(u8) = 186, min 1, out 1 {
        /// A session that was there before is restored.
        RESTI = 1;
        /// Usage is not measured until told so.
        SUMPC = 1 << 1;
    }

    /// PFCPAUReq-Flags (8.2.120), of association updates.
    AuReqFlags(u8) = 162, min 1, out 1 {
        /// PFCP association release is prepared: no new sessions.
        PARPS = 1;
    }

    /// PFCP Association Release Request (8.2.77), of association updates by a UPF.
    AssociationReleaseRequested(u8) = 111, min 1, out 1 {
        /// The UPF asks for the release of the association.
        SARR = 1;
        /// It sends usage reports that were not sent yet.
        URSS = 1 << 1;
    }

    /// Node Report Type (8.2.69).
    NodeReportType(u8) = 101, min 1, out 1 {
        /// A user plane path has failed.
        UPFR = 1;
        /// A user plane path is there again.
        UPRR = 1 << 1;
        /// Clock drift.
        CKDR = 1 << 2;
        /// QoS of a GTP-U path.
        GPQR = 1 << 3;
    }

    /// QER Control Indications (8.2.174).
    QerControlIndications(u8) = 251, min 1, out 1 {
        /// Report the status of rate control.
        RCSR = 1;
    }
}
