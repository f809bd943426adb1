//! Conversion between the models and the gRPC messages.
//!
//! Both have the same members. In gRPC, binary parts replace the references to them.

use super::error::GrpcError;
use super::messages as wire;
use crate::amf::{self, TransferCause};
use crate::common::{self, N2SmInfoType, ProblemDetails, RefToBinaryData};
use crate::message::{AMF_CONTEXT, Body, Message, Model, N1, N2, Part, PartContent, SM_CONTEXT};
use crate::smf::{self, HoState, UpCnxState};

/// Returns the content of a referenced part.
fn part(
    message: &Message,
    reference: Option<&RefToBinaryData>,
    content: PartContent,
) -> Result<Option<Vec<u8>>, GrpcError> {
    let found = |reference: &RefToBinaryData| {
        let part = message.part(reference, content).map(<[u8]>::to_vec);
        part.ok_or_else(|| GrpcError::NoPart(reference.content_id.clone()))
    };
    reference.map(found).transpose()
}

/// Returns the piggybacked SM context of a message.
pub(super) fn sm_context(message: &Message) -> Option<Vec<u8>> {
    message.sm_context().map(<[u8]>::to_vec)
}

/// Returns the AMF part for a commit by the SMF.
pub(super) fn amf_context(message: &Message) -> Option<Vec<u8>> {
    message.parts.iter().find(|part| part.content == PartContent::AmfContext).map(|part| part.octets.clone())
}

/// Adds the AMF part for a commit by the SMF, if there is one.
pub(super) fn with_amf_context(message: Message, amf_context: Option<Vec<u8>>) -> Message {
    match amf_context {
        None => message,
        Some(octets) => message.with(AMF_CONTEXT, PartContent::AmfContext, octets),
    }
}

/// Parts of a message that is being decoded.
#[derive(Default)]
pub(super) struct Parts(Vec<Part>);

impl Parts {
    fn put(&mut self, id: &str, content: PartContent, octets: Option<Vec<u8>>) -> Option<RefToBinaryData> {
        self.0.push(Part { id: id.to_owned(), content, octets: octets? });
        Some(RefToBinaryData { content_id: id.to_owned() })
    }

    fn n1(&mut self, octets: Option<Vec<u8>>) -> Option<RefToBinaryData> {
        self.put(N1, PartContent::Nas, octets)
    }

    fn n2(&mut self, octets: Option<Vec<u8>>) -> Option<RefToBinaryData> {
        self.put(N2, PartContent::Ngap, octets)
    }

    /// Creates a message from a model, these parts and a piggybacked SM context.
    pub(super) fn into_message(mut self, model: impl Into<Model>, sm_context: Option<Vec<u8>>) -> Message {
        self.put(SM_CONTEXT, PartContent::SmContext, sm_context);
        Message { parts: self.0, ..Message::new(model) }
    }
}

/// Creates a message without body, with at most a piggybacked SM context.
pub(super) fn nothing_but(sm_context: Option<Vec<u8>>) -> Message {
    let mut parts = Parts::default();
    parts.put(SM_CONTEXT, PartContent::SmContext, sm_context);
    Message { body: Body::Nothing, parts: parts.0 }
}

fn octet(number: u32, name: &'static str) -> Result<u8, GrpcError> {
    number.try_into().map_err(|_| GrpcError::NotAnOctet(name))
}

/// Returns the value of a number; numbers start at 1, and 0 = none.
fn from_number<T: Copy>(all: &[T], number: Option<i32>, name: &'static str) -> Result<Option<T>, GrpcError> {
    let number = number.unwrap_or_default();
    if number == 0 {
        return Ok(None);
    }
    let index = number.checked_sub(1).and_then(|index| usize::try_from(index).ok());
    let found = index.and_then(|index| all.get(index).copied());
    found.map(Some).ok_or(GrpcError::UnknownNumber { name, number })
}

fn kind(number: Option<i32>) -> Result<Option<N2SmInfoType>, GrpcError> {
    from_number(&N2SmInfoType::ALL, number, "n2SmInfoType")
}

fn state(number: Option<i32>) -> Result<Option<UpCnxState>, GrpcError> {
    from_number(&UpCnxState::ALL, number, "upCnxState")
}

/// Decodes a handover state. Unknown numbers give `Other`, as in JSON.
fn ho_state(number: Option<i32>) -> Option<HoState> {
    from_number(&HoState::ALL, number, "hoState").unwrap_or(Some(HoState::Other))
}

/// Decodes a cause. Unknown numbers give `Other`, as in JSON.
fn cause(number: i32) -> TransferCause {
    from_number(&TransferCause::ALL, Some(number), "cause").ok().flatten().unwrap_or(TransferCause::Other)
}

impl From<&common::PlmnId> for wire::PlmnId {
    fn from(plmn: &common::PlmnId) -> Self {
        wire::PlmnId { mcc: plmn.mcc.clone(), mnc: plmn.mnc.clone() }
    }
}

impl From<wire::PlmnId> for common::PlmnId {
    fn from(plmn: wire::PlmnId) -> Self {
        common::PlmnId { mcc: plmn.mcc, mnc: plmn.mnc }
    }
}

impl From<&common::Snssai> for wire::Snssai {
    fn from(slice: &common::Snssai) -> Self {
        wire::Snssai { sst: slice.sst.into(), sd: slice.sd.clone() }
    }
}

impl TryFrom<wire::Snssai> for common::Snssai {
    type Error = GrpcError;

    fn try_from(slice: wire::Snssai) -> Result<Self, GrpcError> {
        Ok(common::Snssai { sst: octet(slice.sst, "sst")?, sd: slice.sd })
    }
}

fn plmn(plmn: Option<wire::PlmnId>) -> Result<common::PlmnId, GrpcError> {
    plmn.map(Into::into).ok_or(GrpcError::Missing("plmnId"))
}

fn tai(tai: Option<wire::Tai>) -> Result<common::Tai, GrpcError> {
    let tai = tai.ok_or(GrpcError::Missing("tai"))?;
    Ok(common::Tai { plmn_id: plmn(tai.plmn_id)?, tac: tai.tac })
}

impl From<&common::Tai> for wire::Tai {
    fn from(tai: &common::Tai) -> Self {
        wire::Tai { plmn_id: Some((&tai.plmn_id).into()), tac: tai.tac.clone() }
    }
}

impl From<&common::NgRanTargetId> for wire::NgRanTargetId {
    fn from(target: &common::NgRanTargetId) -> Self {
        let common::NgRanTargetId { ran_node_id: node, tai } = target;
        let gnb =
            |id: &common::GNbId| wire::GNbId { bit_length: id.bit_length.into(), g_n_b_value: id.g_n_b_value.clone() };
        let node =
            wire::GlobalRanNodeId { plmn_id: Some((&node.plmn_id).into()), g_nb_id: node.g_nb_id.as_ref().map(gnb) };
        wire::NgRanTargetId { ran_node_id: Some(node), tai: Some(tai.into()) }
    }
}

impl TryFrom<wire::NgRanTargetId> for common::NgRanTargetId {
    type Error = GrpcError;

    fn try_from(target: wire::NgRanTargetId) -> Result<Self, GrpcError> {
        let node = target.ran_node_id.ok_or(GrpcError::Missing("ranNodeId"))?;
        let gnb = |id: wire::GNbId| {
            Ok::<_, GrpcError>(common::GNbId {
                bit_length: octet(id.bit_length, "bitLength")?,
                g_n_b_value: id.g_n_b_value,
            })
        };
        let ran_node_id =
            common::GlobalRanNodeId { plmn_id: plmn(node.plmn_id)?, g_nb_id: node.g_nb_id.map(gnb).transpose()? };
        Ok(common::NgRanTargetId { ran_node_id, tai: tai(target.tai)? })
    }
}

impl From<&common::UserLocation> for wire::UserLocation {
    fn from(location: &common::UserLocation) -> Self {
        let nr = |nr: &common::NrLocation| wire::NrLocation {
            tai: Some((&nr.tai).into()),
            ncgi: Some(wire::Ncgi { plmn_id: Some((&nr.ncgi.plmn_id).into()), nr_cell_id: nr.ncgi.nr_cell_id.clone() }),
        };
        wire::UserLocation { nr_location: location.nr_location.as_ref().map(nr) }
    }
}

impl TryFrom<wire::UserLocation> for common::UserLocation {
    type Error = GrpcError;

    fn try_from(location: wire::UserLocation) -> Result<Self, GrpcError> {
        let nr = |nr: wire::NrLocation| {
            let ncgi = nr.ncgi.ok_or(GrpcError::Missing("ncgi"))?;
            let tai = tai(nr.tai)?;
            let ncgi = common::Ncgi { plmn_id: plmn(ncgi.plmn_id)?, nr_cell_id: ncgi.nr_cell_id };
            Ok::<_, GrpcError>(common::NrLocation { tai, ncgi })
        };
        Ok(common::UserLocation { nr_location: location.nr_location.map(nr).transpose()? })
    }
}

impl wire::SmContextCreateData {
    pub(super) fn from_message(data: &smf::SmContextCreateData, message: &Message) -> Result<Self, GrpcError> {
        Ok(wire::SmContextCreateData {
            supi: data.supi.clone(),
            pei: data.pei.clone(),
            pdu_session_id: data.pdu_session_id.into(),
            dnn: data.dnn.clone(),
            s_nssai: Some((&data.s_nssai).into()),
            serving_nf_id: data.serving_nf_id.clone(),
            guami: Some(wire::Guami { plmn_id: Some((&data.guami.plmn_id).into()), amf_id: data.guami.amf_id.clone() }),
            serving_network: Some((&data.serving_network).into()),
            request_type: data.request_type.clone(),
            n1_sm_msg: part(message, data.n1_sm_msg.as_ref(), PartContent::Nas)?,
            an_type: data.an_type.clone(),
            rat_type: data.rat_type.clone(),
            ue_location: data.ue_location.as_ref().map(Into::into),
            sm_context_status_uri: data.sm_context_status_uri.clone(),
            vireo_piggyback: data.vireo_piggyback,
            vireo_implied: data.vireo_implied,
            sm_context: sm_context(message),
            amf_context: amf_context(message),
        })
    }

    pub(super) fn into_message(self) -> Result<Message, GrpcError> {
        let mut parts = Parts::default();
        let guami = self.guami.ok_or(GrpcError::Missing("guami"))?;
        let data = smf::SmContextCreateData {
            supi: self.supi,
            pei: self.pei,
            pdu_session_id: octet(self.pdu_session_id, "pduSessionId")?,
            dnn: self.dnn,
            s_nssai: self.s_nssai.ok_or(GrpcError::Missing("sNssai"))?.try_into()?,
            serving_nf_id: self.serving_nf_id,
            guami: common::Guami {
                plmn_id: guami.plmn_id.ok_or(GrpcError::Missing("plmnId"))?.into(),
                amf_id: guami.amf_id,
            },
            serving_network: self.serving_network.ok_or(GrpcError::Missing("servingNetwork"))?.into(),
            request_type: self.request_type,
            n1_sm_msg: parts.n1(self.n1_sm_msg),
            an_type: self.an_type,
            rat_type: self.rat_type,
            ue_location: self.ue_location.map(TryInto::try_into).transpose()?,
            sm_context_status_uri: self.sm_context_status_uri,
            vireo_piggyback: self.vireo_piggyback,
            vireo_implied: self.vireo_implied,
        };
        Ok(with_amf_context(parts.into_message(data, self.sm_context), self.amf_context))
    }
}

impl wire::SmContextCreatedData {
    pub(super) fn from_message(location: String, data: &smf::SmContextCreatedData, message: &Message) -> Self {
        wire::SmContextCreatedData {
            location,
            pdu_session_id: data.pdu_session_id.map(Into::into),
            s_nssai: data.s_nssai.as_ref().map(Into::into),
            sm_context: sm_context(message),
        }
    }

    /// Decodes the message, without its location.
    pub(super) fn into_message(self) -> Result<Message, GrpcError> {
        let data = smf::SmContextCreatedData {
            pdu_session_id: self.pdu_session_id.map(|psi| octet(psi, "pduSessionId")).transpose()?,
            s_nssai: self.s_nssai.map(TryInto::try_into).transpose()?,
        };
        Ok(Parts::default().into_message(data, self.sm_context))
    }
}

impl wire::SmContextUpdateData {
    pub(super) fn from_message(
        reference: String,
        data: &smf::SmContextUpdateData,
        message: &Message,
    ) -> Result<Self, GrpcError> {
        Ok(wire::SmContextUpdateData {
            sm_context_ref: reference,
            up_cnx_state: data.up_cnx_state.map(|state| state as i32),
            n1_sm_msg: part(message, data.n1_sm_msg.as_ref(), PartContent::Nas)?,
            n2_sm_info: part(message, data.n2_sm_info.as_ref(), PartContent::Ngap)?,
            n2_sm_info_type: data.n2_sm_info_type.map(|kind| kind as i32),
            sm_context: sm_context(message),
            amf_context: amf_context(message),
            to_be_switched: data.to_be_switched,
            failed_to_be_switched: data.failed_to_be_switched,
            ue_location: data.ue_location.as_ref().map(Into::into),
            ho_state: data.ho_state.map(|state| state as i32),
            target_id: data.target_id.as_ref().map(Into::into),
        })
    }

    /// Decodes the message, without the SM context reference.
    pub(super) fn into_message(self) -> Result<Message, GrpcError> {
        let mut parts = Parts::default();
        let data = smf::SmContextUpdateData {
            ue_location: self.ue_location.map(TryInto::try_into).transpose()?,
            ho_state: ho_state(self.ho_state),
            target_id: self.target_id.map(TryInto::try_into).transpose()?,
            up_cnx_state: state(self.up_cnx_state)?,
            to_be_switched: self.to_be_switched,
            failed_to_be_switched: self.failed_to_be_switched,
            n1_sm_msg: parts.n1(self.n1_sm_msg),
            n2_sm_info: parts.n2(self.n2_sm_info),
            n2_sm_info_type: kind(self.n2_sm_info_type)?,
        };
        Ok(with_amf_context(parts.into_message(data, self.sm_context), self.amf_context))
    }
}

impl wire::SmContextUpdatedData {
    pub(super) fn from_message(data: &smf::SmContextUpdatedData, message: &Message) -> Result<Self, GrpcError> {
        Ok(wire::SmContextUpdatedData {
            up_cnx_state: data.up_cnx_state.map(|state| state as i32),
            n1_sm_msg: part(message, data.n1_sm_msg.as_ref(), PartContent::Nas)?,
            n2_sm_info: part(message, data.n2_sm_info.as_ref(), PartContent::Ngap)?,
            n2_sm_info_type: data.n2_sm_info_type.map(|kind| kind as i32),
            sm_context: sm_context(message),
            ho_state: data.ho_state.map(|state| state as i32),
        })
    }

    pub(super) fn into_message(self) -> Result<Message, GrpcError> {
        let mut parts = Parts::default();
        let data = smf::SmContextUpdatedData {
            ho_state: ho_state(self.ho_state),
            up_cnx_state: state(self.up_cnx_state)?,
            n1_sm_msg: parts.n1(self.n1_sm_msg),
            n2_sm_info: parts.n2(self.n2_sm_info),
            n2_sm_info_type: kind(self.n2_sm_info_type)?,
        };
        if data == smf::SmContextUpdatedData::default() {
            return Ok(nothing_but(self.sm_context));
        }
        Ok(parts.into_message(data, self.sm_context))
    }
}

impl wire::N1N2MessageTransferReqData {
    pub(super) fn from_message(
        supi: String,
        data: &amf::N1N2MessageTransferReqData,
        message: &Message,
    ) -> Result<Self, GrpcError> {
        let n1 = |n1: &amf::N1MessageContainer| {
            Ok::<_, GrpcError>(wire::N1MessageContainer {
                n1_message_class: n1.n1_message_class.clone(),
                n1_message_content: part(message, Some(&n1.n1_message_content), PartContent::Nas)?.unwrap_or_default(),
            })
        };
        let content = |content: &amf::N2InfoContent| {
            Ok::<_, GrpcError>(wire::N2InfoContent {
                ngap_ie_type: content.ngap_ie_type.map(|kind| kind as i32),
                ngap_data: part(message, Some(&content.ngap_data), PartContent::Ngap)?.unwrap_or_default(),
            })
        };
        let sm = |sm: &amf::N2SmInformation| {
            Ok::<_, GrpcError>(wire::N2SmInformation {
                pdu_session_id: sm.pdu_session_id.into(),
                n2_info_content: sm.n2_info_content.as_ref().map(content).transpose()?,
                s_nssai: sm.s_nssai.as_ref().map(Into::into),
            })
        };
        let n2 = |n2: &amf::N2InfoContainer| {
            Ok::<_, GrpcError>(wire::N2InfoContainer {
                n2_information_class: n2.n2_information_class.clone(),
                sm_info: n2.sm_info.as_ref().map(sm).transpose()?,
            })
        };
        Ok(wire::N1N2MessageTransferReqData {
            ue_context_id: supi,
            n1_message_container: data.n1_message_container.as_ref().map(n1).transpose()?,
            n2_info_container: data.n2_info_container.as_ref().map(n2).transpose()?,
            pdu_session_id: data.pdu_session_id.map(Into::into),
            n1n2_failure_txf_notif_uri: data.failure_uri.clone(),
            sm_context: sm_context(message),
            vireo_created: data.vireo_created.as_ref().map(|created| {
                let (key, number) = (created.key.clone(), created.number);
                wire::CreatedSmContext { key, number, sm_context_ref: created.sm_context_ref.clone() }
            }),
        })
    }

    /// Decodes the message, without the SUPI.
    pub(super) fn into_message(self) -> Result<Message, GrpcError> {
        let mut parts = Parts::default();
        let n1 = self.n1_message_container.and_then(|n1| {
            let n1_message_content = parts.n1(Some(n1.n1_message_content))?;
            Some(amf::N1MessageContainer { n1_message_class: n1.n1_message_class, n1_message_content })
        });
        let mut content = |content: wire::N2InfoContent| {
            let ngap_data = parts.n2(Some(content.ngap_data)).ok_or(GrpcError::Missing("ngapData"))?;
            Ok::<_, GrpcError>(amf::N2InfoContent { ngap_ie_type: kind(content.ngap_ie_type)?, ngap_data })
        };
        let mut sm = |sm: wire::N2SmInformation| {
            Ok::<_, GrpcError>(amf::N2SmInformation {
                pdu_session_id: octet(sm.pdu_session_id, "pduSessionId")?,
                n2_info_content: sm.n2_info_content.map(&mut content).transpose()?,
                s_nssai: sm.s_nssai.map(TryInto::try_into).transpose()?,
            })
        };
        let n2 = |n2: wire::N2InfoContainer| {
            Ok::<_, GrpcError>(amf::N2InfoContainer {
                n2_information_class: n2.n2_information_class,
                sm_info: n2.sm_info.map(&mut sm).transpose()?,
            })
        };
        let data = amf::N1N2MessageTransferReqData {
            n1_message_container: n1,
            n2_info_container: self.n2_info_container.map(n2).transpose()?,
            pdu_session_id: self.pdu_session_id.map(|psi| octet(psi, "pduSessionId")).transpose()?,
            failure_uri: self.n1n2_failure_txf_notif_uri,
            vireo_created: self.vireo_created.map(|created| {
                let wire::CreatedSmContext { key, number, sm_context_ref } = created;
                amf::CreatedSmContext { key, number, sm_context_ref }
            }),
        };
        Ok(parts.into_message(data, self.sm_context))
    }
}

impl wire::N1N2MessageTransferRspData {
    /// Decodes the message, without its location.
    pub(super) fn into_message(self) -> Message {
        Parts::default().into_message(amf::N1N2MessageTransferRspData { cause: cause(self.cause) }, self.sm_context)
    }
}

impl wire::N1N2MsgTxfrFailureNotification {
    /// Decodes the message, without the path.
    pub(super) fn into_message(self) -> Message {
        let (cause, n1n2_msg_data_uri) = (cause(self.cause), self.n1n2_msg_data_uri);
        let data = amf::N1N2MsgTxfrFailureNotification { cause, n1n2_msg_data_uri };
        with_amf_context(Parts::default().into_message(data, self.sm_context), self.amf_context)
    }
}

impl wire::Problem {
    /// Encodes an error response with this status.
    pub(super) fn from_message(status: u16, message: &Message) -> Result<Self, GrpcError> {
        let mut error = match &message.body {
            Body::Model(model) => match &**model {
                Model::SmContextError(error) => error.clone(),
                Model::N1N2MessageTransferError(error) => error.error.clone().into(),
                Model::ProblemDetails(error) => error.clone().into(),
                _ => smf::SmContextError::default(),
            },
            Body::Json(_) => message.value::<ProblemDetails>()?.into(),
            Body::Nothing => smf::SmContextError::default(),
        };
        Ok(wire::Problem {
            status: status.into(),
            cause: error.error.cause.take(),
            detail: error.error.detail.take(),
            n1_sm_msg: part(message, error.n1_sm_msg.as_ref(), PartContent::Nas)?,
            n2_sm_info: part(message, error.n2_sm_info.as_ref(), PartContent::Ngap)?,
            n2_sm_info_type: error.n2_sm_info_type.map(|kind| kind as i32),
            sm_context: sm_context(message),
        })
    }

    /// Decodes the status and the message.
    pub(super) fn into_message(self) -> Result<(u16, Message), GrpcError> {
        let status = u16::try_from(self.status).ok().filter(|status| (400..600).contains(status));
        let status = status.ok_or(GrpcError::Status(self.status))?;
        let error = ProblemDetails { status: Some(status), cause: self.cause, detail: self.detail };
        let mut parts = Parts::default();
        let (n1_sm_msg, n2_sm_info) = (parts.n1(self.n1_sm_msg), parts.n2(self.n2_sm_info));
        if n1_sm_msg.is_none() && n2_sm_info.is_none() {
            return Ok((status, parts.into_message(error, self.sm_context)));
        }
        let n2_sm_info_type = kind(self.n2_sm_info_type)?;
        let error = smf::SmContextError { error, n1_sm_msg, n2_sm_info, n2_sm_info_type };
        Ok((status, parts.into_message(error, self.sm_context)))
    }
}

impl From<ProblemDetails> for smf::SmContextError {
    fn from(error: ProblemDetails) -> Self {
        smf::SmContextError { error, ..smf::SmContextError::default() }
    }
}
