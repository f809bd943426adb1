use crate::pfcp::Error;
use crate::pfcp::ie::{Element, Reader};

/// Defines elements that are one number. `& mask` clears spare bits in both directions.
macro_rules! numbers {
    ($($(#[$m:meta])* $name:ident($int:ident $(& $mask:literal)?) = $id:literal
        $({ $($(#[$cm:meta])* $constant:ident = $value:literal;)* })?;)*) => {$(
        $(#[$m])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $int);

        $(impl $name { $($(#[$cm])* pub const $constant: $name = $name($value);)* })?

        impl Element for $name {
            const ID: u16 = $id;

            #[inline]
            fn decode(octets: &[u8]) -> Result<Self, Error> {
                let number = Reader::new($id, octets).$int()?;
                Ok($name(number $(& $mask)?))
            }

            #[inline]
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&(self.0 $(& $mask)?).to_be_bytes());
            }
        }
    )*};
}

numbers! {
    /// Source Interface (8.2.2): source of the packets of a PDR.
    SourceInterface(u8 & 0x0f) = 20 {
        /// The access network.
        ACCESS = 0;
        /// Another UPF towards the data network, or the core.
        CORE = 1;
        /// SGi-LAN or N6-LAN.
        N6_LAN = 2;
        /// The control plane function.
        CP_FUNCTION = 3;
        /// Within a 5G VN group.
        VN_INTERNAL = 4;
    };
    /// Destination Interface (8.2.24): destination of the packets of a FAR.
    DestinationInterface(u8 & 0x0f) = 42 {
        /// The access network.
        ACCESS = 0;
        /// Another UPF towards the data network, or the core.
        CORE = 1;
        /// SGi-LAN or N6-LAN.
        N6_LAN = 2;
        /// The control plane function.
        CP_FUNCTION = 3;
        /// Lawful interception.
        LI_FUNCTION = 4;
        /// Within a 5G VN group.
        VN_INTERNAL = 5;
    };
    /// 3GPP Interface Type (8.2.118): the reference point of a Source or Destination Interface.
    InterfaceType(u8 & 0x3f) = 160 {
        S1_U = 0;
        S5_S8_U = 1;
        /// N3 of 3GPP access.
        N3_3GPP = 11;
        /// N3 for data forwarding.
        N3_FORWARDING = 14;
        N9 = 15;
        SGI = 16;
        N6 = 17;
    };
    /// PDR ID (8.2.36).
    PdrId(u16) = 56;
    /// FAR ID (8.2.74).
    FarId(u32) = 108;
    /// QER ID (8.2.75).
    QerId(u32) = 109;
    /// URR ID (8.2.54).
    UrrId(u32) = 81;
    /// BAR ID (8.2.57).
    BarId(u8) = 88;
    /// Linked URR ID (8.2.55).
    LinkedUrrId(u32) = 82;
    /// Precedence (8.2.11): the PDR with the lowest is matched first.
    Precedence(u32) = 29;
    /// QER Correlation ID (8.2.10).
    QerCorrelationId(u32) = 28;
    /// Traffic Endpoint ID (8.2.92).
    TrafficEndpointId(u8) = 131;
    /// QFI (8.2.89): QoS Flow Identifier, 6 bits.
    Qfi(u8 & 0x3f) = 124;
    /// RQI (8.2.88): bit 1 = reflective QoS is indicated to the UE.
    Rqi(u8 & 0x01) = 123;
    /// Paging Policy Indicator (8.2.116), 3 bits.
    PagingPolicyIndicator(u8 & 0x07) = 158;
    /// Averaging Window (8.2.115) in milliseconds.
    AveragingWindow(u32) = 157;
    /// Transport Level Marking (8.2.12): DSCP in the first octet, its mask in the second.
    TransportLevelMarking(u16) = 30;
    /// PDN Type (8.2.79).
    PdnType(u8 & 0x07) = 113 {
        IPV4 = 1;
        IPV6 = 2;
        IPV4V6 = 3;
        /// Unstructured, without IP.
        NON_IP = 4;
        ETHERNET = 5;
    };
    /// RAT Type (8.2.186), values of TS 29.274 8.17.
    RatType(u8) = 275 {
        EUTRAN = 6;
        NR = 10;
    };
    /// Recovery Time Stamp (8.2.65): start time of the sender, in seconds since 1900-01-01 (NTP).
    RecoveryTimeStamp(u32) = 96;
    /// User Plane Inactivity Timer (8.2.83) in seconds.
    UserPlaneInactivityTimer(u32) = 117;
    /// Downlink Data Notification Delay (8.2.28) in units of 50 ms.
    DownlinkDataNotificationDelay(u8) = 46;
    /// Suggested Buffering Packets Count (8.2.100).
    SuggestedBufferingPacketsCount(u8) = 140;
    /// Offending IE (8.2.22): the type of the faulty element.
    OffendingIe(u16) = 40;
    /// Framed-Routing (8.2.110): the value of RADIUS attribute 10.
    FramedRouting(u32) = 154;
    /// Measurement Period (8.2.42) in seconds.
    MeasurementPeriod(u32) = 64;
    /// Time Threshold (8.2.14) in seconds.
    TimeThreshold(u32) = 32;
    /// Time Quota (8.2.51) in seconds.
    TimeQuota(u32) = 74;
    /// Subsequent Time Threshold (8.2.17) in seconds.
    SubsequentTimeThreshold(u32) = 35;
    /// Subsequent Time Quota (8.2.87) in seconds.
    SubsequentTimeQuota(u32) = 122;
    /// Quota Holding Time (8.2.48) in seconds.
    QuotaHoldingTime(u32) = 71;
    /// Quota Validity Time (IE type 181) in seconds.
    QuotaValidityTime(u32) = 181;
    /// Inactivity Detection Time (8.2.18) in seconds.
    InactivityDetectionTime(u32) = 36;
    /// Number of Reports (IE type 182).
    NumberOfReports(u16) = 182;
    /// Monitoring Time (8.2.15) in seconds since 1900-01-01.
    MonitoringTime(u32) = 33;
    /// Activation Time (8.2.121) in seconds since 1900-01-01.
    ActivationTime(u32) = 163;
    /// Deactivation Time (8.2.122) in seconds since 1900-01-01.
    DeactivationTime(u32) = 164;
    /// Duration Measurement (8.2.45) in seconds.
    DurationMeasurement(u32) = 67;
    /// Start Time (8.2.52) in seconds since 1900-01-01.
    StartTime(u32) = 75;
    /// End Time (8.2.53) in seconds since 1900-01-01.
    EndTime(u32) = 76;
    /// Time of First Packet (8.2.46) in seconds since 1900-01-01.
    TimeOfFirstPacket(u32) = 69;
    /// Time of Last Packet (8.2.47) in seconds since 1900-01-01.
    TimeOfLastPacket(u32) = 70;
    /// UR-SEQN (8.2.71): sequence number of a usage report of its URR.
    UrSeqn(u32) = 104;
    /// Query URR Reference (8.2.90).
    QueryUrrReference(u32) = 125;
    /// Additional Usage Reports Information (8.2.91): bit 16 announces further reports, the other
    /// bits give their number.
    AdditionalUsageReportsInformation(u16) = 126;
}

impl TransportLevelMarking {
    /// Returns true if the marked bits of the DSCP are all zero.
    pub const fn is_zero(self) -> bool {
        let [dscp, mask] = self.0.to_be_bytes();
        dscp & mask == 0
    }
}

/// Cause (8.2.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cause(pub u8);

macro_rules! causes {
    ($($name:ident = $value:literal $text:literal;)*) => {
        impl Cause {
            $(#[doc = concat!($text, ".")] pub const $name: Cause = Cause($value);)*

            /// Returns the name in the specification, if the value is known.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

causes! {
    REQUEST_ACCEPTED = 1 "request accepted";
    MORE_USAGE_REPORT = 2 "more usage report to send";
    REQUEST_PARTIALLY_ACCEPTED = 3 "request partially accepted";
    REQUEST_REJECTED = 64 "request rejected";
    SESSION_CONTEXT_NOT_FOUND = 65 "session context not found";
    MANDATORY_IE_MISSING = 66 "mandatory IE missing";
    CONDITIONAL_IE_MISSING = 67 "conditional IE missing";
    INVALID_LENGTH = 68 "invalid length";
    MANDATORY_IE_INCORRECT = 69 "mandatory IE incorrect";
    INVALID_FORWARDING_POLICY = 70 "invalid forwarding policy";
    INVALID_F_TEID_ALLOCATION = 71 "invalid F-TEID allocation option";
    NO_ESTABLISHED_ASSOCIATION = 72 "no established PFCP association";
    RULE_FAILURE = 73 "rule creation/modification failure";
    CONGESTION = 74 "PFCP entity in congestion";
    NO_RESOURCES = 75 "no resources available";
    SERVICE_NOT_SUPPORTED = 76 "service not supported";
    SYSTEM_FAILURE = 77 "system failure";
    REDIRECTION_REQUESTED = 78 "redirection requested";
    ALL_ADDRESSES_OCCUPIED = 79 "all dynamic addresses are occupied";
    UNKNOWN_PREDEFINED_RULE = 80 "unknown pre-defined rule";
    UNKNOWN_APPLICATION = 81 "unknown application ID";
}

impl Cause {
    /// Returns true if the request was accepted, at least partly.
    pub const fn is_accepted(self) -> bool {
        matches!(self.0, 1..64)
    }
}

impl std::fmt::Debug for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "cause {}", self.0),
        }
    }
}

impl Element for Cause {
    const ID: u16 = 19;

    fn decode(octets: &[u8]) -> Result<Self, Error> {
        Reader::new(Self::ID, octets).u8().map(Cause)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.0);
    }
}
