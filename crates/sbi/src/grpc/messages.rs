//! Messages of `proto/vireo-sbi.proto`, written by hand.
//!
//! Enumerations are numbers. 0 or an absent field means no value.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PlmnId {
    #[prost(string, tag = "1")]
    pub(crate) mcc: String,
    #[prost(string, tag = "2")]
    pub(crate) mnc: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Snssai {
    #[prost(uint32, tag = "1")]
    pub(crate) sst: u32,
    #[prost(string, optional, tag = "2")]
    pub(crate) sd: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Guami {
    #[prost(message, optional, tag = "1")]
    pub(crate) plmn_id: Option<PlmnId>,
    #[prost(string, tag = "2")]
    pub(crate) amf_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Tai {
    #[prost(message, optional, tag = "1")]
    pub(crate) plmn_id: Option<PlmnId>,
    #[prost(string, tag = "2")]
    pub(crate) tac: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Ncgi {
    #[prost(message, optional, tag = "1")]
    pub(crate) plmn_id: Option<PlmnId>,
    #[prost(string, tag = "2")]
    pub(crate) nr_cell_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct NrLocation {
    #[prost(message, optional, tag = "1")]
    pub(crate) tai: Option<Tai>,
    #[prost(message, optional, tag = "2")]
    pub(crate) ncgi: Option<Ncgi>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct UserLocation {
    #[prost(message, optional, tag = "1")]
    pub(crate) nr_location: Option<NrLocation>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GNbId {
    #[prost(uint32, tag = "1")]
    pub(crate) bit_length: u32,
    #[prost(string, tag = "2")]
    pub(crate) g_n_b_value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GlobalRanNodeId {
    #[prost(message, optional, tag = "1")]
    pub(crate) plmn_id: Option<PlmnId>,
    #[prost(message, optional, tag = "2")]
    pub(crate) g_nb_id: Option<GNbId>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct NgRanTargetId {
    #[prost(message, optional, tag = "1")]
    pub(crate) ran_node_id: Option<GlobalRanNodeId>,
    #[prost(message, optional, tag = "2")]
    pub(crate) tai: Option<Tai>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SmContextCreateData {
    #[prost(string, tag = "1")]
    pub(crate) supi: String,
    #[prost(string, optional, tag = "2")]
    pub(crate) pei: Option<String>,
    #[prost(uint32, tag = "3")]
    pub(crate) pdu_session_id: u32,
    #[prost(string, tag = "4")]
    pub(crate) dnn: String,
    #[prost(message, optional, tag = "5")]
    pub(crate) s_nssai: Option<Snssai>,
    #[prost(string, tag = "6")]
    pub(crate) serving_nf_id: String,
    #[prost(message, optional, tag = "7")]
    pub(crate) guami: Option<Guami>,
    #[prost(message, optional, tag = "8")]
    pub(crate) serving_network: Option<PlmnId>,
    #[prost(string, optional, tag = "9")]
    pub(crate) request_type: Option<String>,
    #[prost(bytes = "vec", optional, tag = "10")]
    pub(crate) n1_sm_msg: Option<Vec<u8>>,
    #[prost(string, tag = "11")]
    pub(crate) an_type: String,
    #[prost(string, optional, tag = "12")]
    pub(crate) rat_type: Option<String>,
    #[prost(message, optional, tag = "13")]
    pub(crate) ue_location: Option<UserLocation>,
    #[prost(string, tag = "14")]
    pub(crate) sm_context_status_uri: String,
    #[prost(uint32, optional, tag = "15")]
    pub(crate) vireo_piggyback: Option<u32>,
    #[prost(bytes = "vec", optional, tag = "16")]
    pub(crate) sm_context: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "17")]
    pub(crate) amf_context: Option<Vec<u8>>,
    #[prost(uint32, optional, tag = "18")]
    pub(crate) vireo_implied: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SmContextCreatedData {
    #[prost(string, tag = "1")]
    pub(crate) location: String,
    #[prost(uint32, optional, tag = "2")]
    pub(crate) pdu_session_id: Option<u32>,
    #[prost(message, optional, tag = "3")]
    pub(crate) s_nssai: Option<Snssai>,
    #[prost(bytes = "vec", optional, tag = "4")]
    pub(crate) sm_context: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SmContextUpdateData {
    #[prost(string, tag = "1")]
    pub(crate) sm_context_ref: String,
    #[prost(int32, optional, tag = "2")]
    pub(crate) up_cnx_state: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub(crate) n1_sm_msg: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "4")]
    pub(crate) n2_sm_info: Option<Vec<u8>>,
    #[prost(int32, optional, tag = "5")]
    pub(crate) n2_sm_info_type: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "6")]
    pub(crate) sm_context: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "7")]
    pub(crate) amf_context: Option<Vec<u8>>,
    #[prost(bool, optional, tag = "8")]
    pub(crate) to_be_switched: Option<bool>,
    #[prost(bool, optional, tag = "9")]
    pub(crate) failed_to_be_switched: Option<bool>,
    #[prost(message, optional, tag = "10")]
    pub(crate) ue_location: Option<UserLocation>,
    #[prost(int32, optional, tag = "11")]
    pub(crate) ho_state: Option<i32>,
    #[prost(message, optional, tag = "12")]
    pub(crate) target_id: Option<NgRanTargetId>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SmContextUpdatedData {
    #[prost(int32, optional, tag = "1")]
    pub(crate) up_cnx_state: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(crate) n1_sm_msg: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub(crate) n2_sm_info: Option<Vec<u8>>,
    #[prost(int32, optional, tag = "4")]
    pub(crate) n2_sm_info_type: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "5")]
    pub(crate) sm_context: Option<Vec<u8>>,
    #[prost(int32, optional, tag = "6")]
    pub(crate) ho_state: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SmContextReleaseData {
    #[prost(string, tag = "1")]
    pub(crate) sm_context_ref: String,
    #[prost(string, optional, tag = "2")]
    pub(crate) cause: Option<String>,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub(crate) sm_context: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "4")]
    pub(crate) amf_context: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SmContextStatusNotification {
    #[prost(string, tag = "1")]
    pub(crate) path: String,
    #[prost(string, tag = "2")]
    pub(crate) resource_status: String,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub(crate) sm_context: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct N1MessageContainer {
    #[prost(string, tag = "1")]
    pub(crate) n1_message_class: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) n1_message_content: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct N2InfoContent {
    #[prost(int32, optional, tag = "1")]
    pub(crate) ngap_ie_type: Option<i32>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) ngap_data: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct N2SmInformation {
    #[prost(uint32, tag = "1")]
    pub(crate) pdu_session_id: u32,
    #[prost(message, optional, tag = "2")]
    pub(crate) n2_info_content: Option<N2InfoContent>,
    #[prost(message, optional, tag = "3")]
    pub(crate) s_nssai: Option<Snssai>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct N2InfoContainer {
    #[prost(string, tag = "1")]
    pub(crate) n2_information_class: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) sm_info: Option<N2SmInformation>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct N1N2MessageTransferReqData {
    #[prost(string, tag = "1")]
    pub(crate) ue_context_id: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) n1_message_container: Option<N1MessageContainer>,
    #[prost(message, optional, tag = "3")]
    pub(crate) n2_info_container: Option<N2InfoContainer>,
    #[prost(uint32, optional, tag = "4")]
    pub(crate) pdu_session_id: Option<u32>,
    #[prost(string, optional, tag = "5")]
    pub(crate) n1n2_failure_txf_notif_uri: Option<String>,
    #[prost(bytes = "vec", optional, tag = "6")]
    pub(crate) sm_context: Option<Vec<u8>>,
    #[prost(message, optional, tag = "7")]
    pub(crate) vireo_created: Option<CreatedSmContext>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CreatedSmContext {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(uint32, tag = "2")]
    pub(crate) number: u32,
    #[prost(string, tag = "3")]
    pub(crate) sm_context_ref: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct N1N2MessageTransferRspData {
    #[prost(int32, tag = "1")]
    pub(crate) cause: i32,
    #[prost(string, optional, tag = "2")]
    pub(crate) location: Option<String>,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub(crate) sm_context: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct N1N2MsgTxfrFailureNotification {
    #[prost(string, tag = "1")]
    pub(crate) path: String,
    #[prost(int32, tag = "2")]
    pub(crate) cause: i32,
    #[prost(string, tag = "3")]
    pub(crate) n1n2_msg_data_uri: String,
    #[prost(bytes = "vec", optional, tag = "4")]
    pub(crate) sm_context: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "5")]
    pub(crate) amf_context: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HeldSmContext {
    #[prost(string, tag = "1")]
    pub(crate) ue_context_id: String,
    #[prost(uint32, tag = "2")]
    pub(crate) number: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PiggybackedSmContext {
    #[prost(bytes = "vec", optional, tag = "1")]
    pub(crate) sm_context: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Problem {
    #[prost(uint32, tag = "1")]
    pub(crate) status: u32,
    #[prost(string, optional, tag = "2")]
    pub(crate) cause: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub(crate) detail: Option<String>,
    #[prost(bytes = "vec", optional, tag = "4")]
    pub(crate) n1_sm_msg: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "5")]
    pub(crate) n2_sm_info: Option<Vec<u8>>,
    #[prost(int32, optional, tag = "6")]
    pub(crate) n2_sm_info_type: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "7")]
    pub(crate) sm_context: Option<Vec<u8>>,
}

/// google.rpc.Status: machine-readable details of a gRPC status.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Status {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) details: Vec<Any>,
}

/// google.protobuf.Any.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Any {
    #[prost(string, tag = "1")]
    pub(crate) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected octets follow from the encoding rules of protocol buffers: key, length, value.
    #[test]
    fn octets_are_those_of_the_file() {
        let update = SmContextUpdateData {
            sm_context_ref: "a1".into(),
            up_cnx_state: Some(3),
            n1_sm_msg: Some(vec![0x2e]),
            n2_sm_info: None,
            n2_sm_info_type: Some(2),
            sm_context: Some(vec![]),
            amf_context: None,
            to_be_switched: Some(true),
            failed_to_be_switched: None,
            ue_location: Some(UserLocation { nr_location: None }),
            ho_state: Some(2),
            target_id: None,
        };
        let octets = [0x0a, 2, b'a', b'1', 0x10, 3, 0x1a, 1, 0x2e, 0x28, 2, 0x32, 0, 0x40, 1, 0x52, 0, 0x58, 2];
        assert_eq!(update.encode_to_vec(), octets);
    }

    /// Every field of the proto file must exist here with its number and type, and no others.
    #[test]
    fn messages_match_proto_file() {
        let (file, here) = (include_str!("../../proto/vireo-sbi.proto"), include_str!("messages.rs"));
        let here = here.split_once("/// google.rpc.Status").unwrap().0;
        let mut fields = 0;
        let mut is_message = false;
        let words =
            |line: &'static str| line.split("//").next().unwrap_or_default().trim_end_matches(['{', '}', ' ', ';']);
        for line in file.lines().map(str::trim).map(words) {
            let of: Vec<&str> = line.split_whitespace().collect();
            match of.as_slice() {
                ["message", name] => {
                    is_message = true;
                    assert!(here.contains(&format!("struct {name} {{")), "{name}");
                }
                ["enum" | "service", _] => is_message = false,
                [rest @ .., kind, name, "=", number] if is_message => {
                    let (attribute, kind) = match *kind {
                        "string" => ("string", "String"),
                        "uint32" => ("uint32", "u32"),
                        "bool" => ("bool", "bool"),
                        "bytes" => ("bytes = \"vec\"", "Vec<u8>"),
                        "N2SmInfoType" | "UpCnxState" | "HoState" | "TransferCause" => ("int32", "i32"),
                        other => ("message", other),
                    };
                    let field = match rest == ["optional"] || attribute == "message" {
                        true => format!(
                            "#[prost({attribute}, optional, tag = \"{number}\")]\n    pub(crate) {name}: Option<{kind}>,"
                        ),
                        false => format!("#[prost({attribute}, tag = \"{number}\")]\n    pub(crate) {name}: {kind},"),
                    };
                    assert!(here.contains(&field), "{field}");
                    fields += 1;
                }
                _ => {}
            }
        }
        assert_eq!(here.matches("#[prost(").count(), fields);
    }
}
