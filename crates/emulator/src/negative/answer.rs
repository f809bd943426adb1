//! Answers of a core to bad messages.

use crate::dialect::{Cause, nas_head};
use crate::rat::Rat;
use crate::ue::security::header;

/// Answer of a core to a bad message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// ERROR INDICATION with its cause; true if it has Criticality Diagnostics.
    ErrorIndication(Option<Cause>, bool),
    SetupResponse,
    SetupFailure(Option<Cause>),
    /// NAS for the UE: the message type if it is plain, else `None`.
    Nas(Option<u8>),
    /// UE CONTEXT RELEASE COMMAND was received.
    Release,
    /// Successful outcome of the named procedure.
    Acknowledge(String),
    Other(String),
}

/// Defines the reader of one codec by the kinds of its PDUs.
macro_rules! reader {
    (
        $name:ident, $codec:ident, $pdu:ident, $kind:ident, $cause:ident, $rat:ident,
        setup: $up:ident $refused:ident, nas: $nas:ident, reset: $reset:ident, update: $update:ident
    ) => {
        fn $name(octets: &[u8]) -> Option<Answer> {
            use vireo_wire::$codec::{ie, $kind as Kind, $pdu};
            let pdu = $pdu::decode(octets).ok()?;
            let cause = pdu.ie::<ie::Cause>().and_then(Result::ok).map(Cause::$cause);
            Some(match pdu.kind() {
                Kind::Initiating_ErrorIndication => {
                    Answer::ErrorIndication(cause, pdu.ie::<ie::CriticalityDiagnostics>().is_some())
                }
                Kind::$up => Answer::SetupResponse,
                Kind::$refused => Answer::SetupFailure(cause),
                Kind::$nas => {
                    let nas = pdu.ie::<ie::NAS_PDU>().and_then(Result::ok);
                    let head = nas.and_then(|nas| nas_head(Rat::$rat, &nas.0));
                    Answer::Nas(head.filter(|head| head.0 == header::PLAIN).map(|head| head.1))
                }
                Kind::Initiating_UEContextRelease => Answer::Release,
                Kind::$reset | Kind::$update => Answer::Acknowledge(pdu.procedure_name().into()),
                _ => Answer::Other(pdu.procedure_name().into()),
            })
        }
    };
}

reader!(
    read_ngap, ngap, NGAP_PDU, NgapPduKind, Ng, Nr,
    setup: Successful_NGSetup Unsuccessful_NGSetup, nas: Initiating_DownlinkNASTransport,
    reset: Successful_NGReset, update: Successful_RANConfigurationUpdate
);
reader!(
    read_s1ap, s1ap, S1AP_PDU, S1apPduKind, S1, Eps,
    setup: Successful_S1Setup Unsuccessful_S1Setup, nas: Initiating_downlinkNASTransport,
    reset: Successful_Reset, update: Successful_ENBConfigurationUpdate
);

impl Answer {
    /// Classifies a PDU of the core.
    pub(crate) fn read(rat: Rat, pdu: &[u8]) -> Answer {
        let answer = match rat {
            Rat::Nr => read_ngap(pdu),
            Rat::Eps => read_s1ap(pdu),
        };
        answer.unwrap_or_else(|| Answer::Other("octets that do not decode".into()))
    }

    /// Returns the name in a report.
    pub(crate) fn name(&self, rat: Rat) -> String {
        let interface = if rat == Rat::Nr { "NG" } else { "S1" };
        match self {
            Answer::ErrorIndication(Some(cause), _) => format!("ERROR INDICATION {cause:?}"),
            Answer::ErrorIndication(None, _) => "ERROR INDICATION".into(),
            Answer::SetupResponse => format!("{interface} SETUP RESPONSE"),
            Answer::SetupFailure(Some(cause)) => format!("{interface} SETUP FAILURE {cause:?}"),
            Answer::SetupFailure(None) => format!("{interface} SETUP FAILURE"),
            Answer::Nas(Some(kind)) => format!("NAS {kind:#04x}"),
            Answer::Nas(None) => "protected NAS".into(),
            Answer::Release => "UE CONTEXT RELEASE COMMAND".into(),
            Answer::Acknowledge(name) => format!("{name} acknowledged"),
            Answer::Other(name) => name.clone(),
        }
    }
}
