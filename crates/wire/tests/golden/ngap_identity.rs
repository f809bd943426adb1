//! Each choice and length of a Global RAN Node ID (TS 38.413 9.3.1.5), and messages that name two.

use crate::case::{Case, ngap_case};
use crate::ngap_node::areas;
use crate::values::*;
use vireo_wire::ngap::aper::Bits;
use vireo_wire::ngap::*;

/// NG SETUP REQUEST of a RAN node.
macro_rules! set_up {
    ($name:literal, $identity:expr) => {
        ngap_case!(
            $name,
            InitiatingMessage,
            NGSetup,
            NGSetupRequest,
            GlobalRANNodeID = $identity,
            SupportedTAList = areas(),
            DefaultPagingDRX = PagingDRX::v128
        )
    };
}

fn bits(value: u64, length: usize) -> Bits {
    Bits::new(value, length).expect("it fits")
}

fn gnb_of(length: usize) -> GlobalRANNodeID {
    let id = GNBID::gNB_ID(bits(1 << (length - 1) | 0x1234, length));
    GlobalRANNodeID::globalGNB_ID(GlobalGNBID::new(network(), id, None))
}

fn ng_enb(id: NgENBID) -> GlobalRANNodeID {
    GlobalRANNodeID::globalNgENB_ID(GlobalNgENBID::new(network(), id, None))
}

fn macro_enb() -> GlobalRANNodeID {
    ng_enb(NgENBID::macroNgENB_ID(bits(0x12345, 20)))
}

fn n3iwf() -> GlobalRANNodeID {
    GlobalRANNodeID::globalN3IWF_ID(GlobalN3IWFID::new(network(), N3IWFID::n3IWF_ID(bits(0x1234, 16)), None))
}

/// A choice of a later release.
fn extension(id: ProtocolIEID, value: Vec<u8>) -> GlobalRANNodeID {
    GlobalRANNodeID::choice_Extensions(ProtocolIEField::new(id, Criticality::reject, value.into()))
}

fn tngf() -> GlobalRANNodeID {
    let id = TNGFID::tNGF_ID([0x12, 0x34, 0x56, 0x78].into());
    let id = encode_open_type(&GlobalTNGFID::new(network(), id, None)).expect("it encodes");
    extension(ID_GLOBAL_TNGF_ID, id.to_vec())
}

fn twif() -> GlobalRANNodeID {
    let id = TWIFID::tWIF_ID([0x12, 0x34, 0x56, 0x78].into());
    let id = encode_open_type(&GlobalTWIFID::new(network(), id, None)).expect("it encodes");
    extension(ID_GLOBAL_TWIF_ID, id.to_vec())
}

fn w_agf() -> GlobalRANNodeID {
    let id = WAGFID::w_AGF_ID([0x12, 0x34].into());
    let id = encode_open_type(&GlobalWAGFID::new(network(), id, None)).expect("it encodes");
    extension(ID_GLOBAL_W_AGF_ID, id.to_vec())
}

/// Request of gNB 0x102 for the Xn addresses of an ng-eNB.
fn son() -> SONConfigurationTransfer<'static> {
    let (to, from) = (TargetRANNodeIDSON::new(macro_enb(), area(), None), SourceRANNodeID::new(gnb(), area(), None));
    let information = SONInformation::sONInformationRequest(SONInformationRequest::xn_TNL_configuration_info);
    SONConfigurationTransfer::new(to, from, information, None, None)
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        set_up!("NGSetupRequest-gnb-22", gnb_of(22)),
        set_up!("NGSetupRequest-gnb-23", gnb_of(23)),
        set_up!("NGSetupRequest-gnb-24", gnb_of(24)),
        set_up!("NGSetupRequest-gnb-25", gnb_of(25)),
        set_up!("NGSetupRequest-gnb-26", gnb_of(26)),
        set_up!("NGSetupRequest-gnb-27", gnb_of(27)),
        set_up!("NGSetupRequest-gnb-28", gnb_of(28)),
        set_up!("NGSetupRequest-gnb-29", gnb_of(29)),
        set_up!("NGSetupRequest-gnb-30", gnb_of(30)),
        set_up!("NGSetupRequest-gnb-31", gnb_of(31)),
        set_up!("NGSetupRequest-gnb-32", gnb_of(32)),
        set_up!("NGSetupRequest-ng-enb-macro", macro_enb()),
        set_up!("NGSetupRequest-ng-enb-short", ng_enb(NgENBID::shortMacroNgENB_ID(bits(0x12345, 18)))),
        set_up!("NGSetupRequest-ng-enb-long", ng_enb(NgENBID::longMacroNgENB_ID(bits(0x11_2345, 21)))),
        set_up!("NGSetupRequest-n3iwf", n3iwf()),
        set_up!("NGSetupRequest-tngf", tngf()),
        set_up!("NGSetupRequest-twif", twif()),
        set_up!("NGSetupRequest-w-agf", w_agf()),
        ngap_case!(
            "NGSetupFailure-unspecified",
            UnsuccessfulOutcome,
            NGSetup,
            NGSetupFailure,
            Cause = Cause::misc(CauseMisc::unspecified),
            TimeToWait = TimeToWait::v60s
        ),
        ngap_case!(
            "UplinkRANConfigurationTransfer",
            InitiatingMessage,
            UplinkRANConfigurationTransfer,
            UplinkRANConfigurationTransfer,
            SONConfigurationTransferUL = son()
        ),
        ngap_case!(
            "DownlinkRANConfigurationTransfer",
            InitiatingMessage,
            DownlinkRANConfigurationTransfer,
            DownlinkRANConfigurationTransfer,
            SONConfigurationTransferDL = son()
        ),
    ]
}
