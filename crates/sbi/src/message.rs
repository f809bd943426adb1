//! Content of requests and responses.
//!
//! A message has a typed model, or JSON that is not yet parsed, and the binary parts to which that
//! refers. It is encoded as JSON, as multipart with JSON and parts (TS 29.502 6.1.2.4), or by
//! [`crate::grpc`].

use crate::amf::{
    N1N2MessageTransferError, N1N2MessageTransferReqData, N1N2MessageTransferRspData, N1N2MsgTxfrFailureNotification,
};
use crate::common::{ProblemDetails, RefToBinaryData};
use crate::multipart;
use crate::smf::{
    SmContextCreateData, SmContextCreatedData, SmContextError, SmContextReleaseData, SmContextStatusNotification,
    SmContextUpdateData, SmContextUpdatedData,
};
use serde::de::DeserializeOwned;
use std::borrow::Cow;

/// Maximum size of a body in bytes: an N1 and an N2 message of the largest size, and the JSON.
pub const BODY_OCTETS: usize = 192 * 1024;
/// Maximum of binary parts in a message.
pub const PARTS: usize = 8;
/// Content-ID of the N1 part, in messages that Vireo sends.
pub const N1: &str = "n1";
/// Content-ID of the N2 part, in messages that Vireo sends.
pub const N2: &str = "n2";
/// Content-ID of the piggybacked SM context.
pub const SM_CONTEXT: &str = "sm-context";
/// Content-ID of the AMF part for a commit by the SMF.
pub const AMF_CONTEXT: &str = "amf-context";
/// JSON object without members.
const EMPTY: &[u8] = b"{}";

/// Content type of a binary part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartContent {
    /// NAS message (`application/vnd.3gpp.5gnas`).
    Nas,
    /// NGAP IE (`application/vnd.3gpp.ngap`).
    Ngap,
    /// Piggybacked SM context (`application/vnd.vireo.sm-context`). Vireo extension.
    SmContext,
    /// AMF part of a shared UE record, for a commit by the SMF
    /// (`application/vnd.vireo.amf-context`). Vireo extension.
    AmfContext,
}

impl PartContent {
    /// Returns the media type.
    pub fn media_type(self) -> &'static str {
        match self {
            PartContent::Nas => "application/vnd.3gpp.5gnas",
            PartContent::Ngap => "application/vnd.3gpp.ngap",
            PartContent::SmContext => "application/vnd.vireo.sm-context",
            PartContent::AmfContext => "application/vnd.vireo.amf-context",
        }
    }

    fn from_media_type(media_type: &str) -> Option<Self> {
        let all = [PartContent::Nas, PartContent::Ngap, PartContent::SmContext, PartContent::AmfContext];
        all.into_iter().find(|content| media_type.eq_ignore_ascii_case(content.media_type()))
    }
}

/// A binary part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Content-ID of the part.
    pub id: String,
    pub content: PartContent,
    pub octets: Vec<u8>,
}

/// Declares [`Model`] with one variant for each type.
macro_rules! models {
    ($($name:ident),* $(,)?) => {
        /// Model of a body.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is the type of its name")]
        #[allow(clippy::large_enum_variant, reason = "a message has it in a box")]
        pub enum Model {
            $($name($name),)*
        }

        impl Model {
            /// Encodes the model as JSON.
            fn json(&self) -> Vec<u8> {
                // Encoding could fail only for maps with non-string keys, which no model has.
                match self {
                    $(Model::$name(value) => serde_json::to_vec(value).unwrap_or_default(),)*
                }
            }
        }

        $(
            impl From<$name> for Model {
                fn from(value: $name) -> Self {
                    Model::$name(value)
                }
            }

            impl From<&$name> for Model {
                fn from(value: &$name) -> Self {
                    Model::$name(value.clone())
                }
            }

            impl TypedBody for $name {
                fn from_model(model: &Model) -> Option<&Self> {
                    if let Model::$name(value) = model { Some(value) } else { None }
                }
            }
        )*
    };
}

models! {
    SmContextCreateData,
    SmContextCreatedData,
    SmContextUpdateData,
    SmContextUpdatedData,
    SmContextReleaseData,
    SmContextError,
    SmContextStatusNotification,
    N1N2MessageTransferReqData,
    N1N2MessageTransferRspData,
    N1N2MessageTransferError,
    N1N2MsgTxfrFailureNotification,
    ProblemDetails,
}

/// Model that can be the body of a message.
pub trait TypedBody: Clone + DeserializeOwned + Into<Model> {
    /// Returns the model if it has this type.
    fn from_model(model: &Model) -> Option<&Self>;
}

/// Body of a message, without its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Body {
    /// No body.
    #[default]
    Nothing,
    /// JSON whose model the receiver must know.
    Json(Vec<u8>),
    /// A typed model.
    Model(Box<Model>),
}

/// A message: body and binary parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    pub body: Body,
    /// Binary parts, to most of which the body refers.
    pub parts: Vec<Part>,
}

/// Reasons why a body is not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The media type is not supported.
    #[error("the body is neither JSON nor multipart/related")]
    MediaType,
    /// The boundary is missing or does not divide the body.
    #[error("the multipart body is not divided by its boundary")]
    Boundary,
    /// The body has more than [`PARTS`] binary parts.
    #[error("the body has more than {PARTS} binary parts")]
    TooMany,
    /// The first part is not JSON, or another part has an unknown type.
    #[error("a part of the body is of a media type that is not known")]
    PartType,
    /// A binary part has no Content-ID.
    #[error("a binary part of the body has no Content-ID")]
    NoId,
}

/// Reasons why a body is not of the requested type. The text is the detail of a problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    #[error("there is no body")]
    Missing,
    /// Text of the JSON parser.
    #[error("{0}")]
    Json(String),
    #[error("the body is that of another operation")]
    OtherOperation,
}

impl Message {
    /// Creates a message with a model.
    pub fn new(value: impl Into<Model>) -> Self {
        Message { body: Body::Model(Box::new(value.into())), parts: Vec::new() }
    }

    /// Creates a message with JSON.
    pub fn from_json(json: Vec<u8>) -> Self {
        Message { body: Body::Json(json), parts: Vec::new() }
    }

    /// Adds a part. The body must have the reference to it.
    pub fn with(mut self, id: &str, content: PartContent, octets: Vec<u8>) -> Self {
        self.parts.push(Part { id: id.to_owned(), content, octets });
        self
    }

    /// Returns the model of the body.
    ///
    /// # Errors
    ///
    /// Returns a [`BodyError`] if the body has another type.
    pub fn value<T: TypedBody>(&self) -> Result<T, BodyError> {
        match &self.body {
            Body::Nothing => Err(BodyError::Missing),
            Body::Json(json) => serde_json::from_slice(json).map_err(|error| BodyError::Json(error.to_string())),
            Body::Model(model) => T::from_model(model).cloned().ok_or(BodyError::OtherOperation),
        }
    }

    /// Returns true if the body is empty. The message may have parts.
    pub fn is_body_empty(&self) -> bool {
        match &self.body {
            Body::Nothing => true,
            Body::Json(json) => json.is_empty() || json == EMPTY,
            Body::Model(_) => false,
        }
    }

    /// Returns the part of a reference, if it exists and has the given type.
    pub fn part(&self, reference: &RefToBinaryData, content: PartContent) -> Option<&[u8]> {
        let part = self.parts.iter().find(|part| part.id == reference.content_id && part.content == content)?;
        Some(&part.octets)
    }

    /// Returns the piggybacked SM context. The body does not refer to it, as only peers that use it
    /// send it.
    pub fn sm_context(&self) -> Option<&[u8]> {
        let part = self.parts.iter().find(|part| part.content == PartContent::SmContext)?;
        Some(&part.octets)
    }

    /// Encodes the message as JSON or multipart. Returns also the media type; `None` if there is no
    /// body.
    pub fn encode(&self, json_type: &'static str) -> (Option<String>, Vec<u8>) {
        let json: Cow<'_, [u8]> = match &self.body {
            // Parts need a root part.
            Body::Nothing if self.parts.is_empty() => Cow::Borrowed(&[]),
            Body::Nothing => Cow::Borrowed(EMPTY),
            Body::Json(json) => Cow::Borrowed(json),
            Body::Model(model) => Cow::Owned(model.json()),
        };
        if self.parts.is_empty() {
            return ((!json.is_empty()).then(|| json_type.to_owned()), json.into_owned());
        }
        let (boundary, body) = multipart::write(&json, json_type, &self.parts);
        (Some(format!("multipart/related; boundary={boundary}; type=\"{json_type}\"")), body)
    }

    /// Decodes a body.
    ///
    /// # Errors
    ///
    /// Returns an error if the body is not a valid message.
    pub fn decode(media_type: Option<&str>, body: &[u8]) -> Result<Self, MessageError> {
        let Some(media_type) = media_type else {
            return if body.is_empty() { Ok(Message::default()) } else { Err(MessageError::MediaType) };
        };
        let (essence, parameters) = media_type.split_once(';').unwrap_or((media_type, ""));
        let essence = essence.trim();
        if is_json(essence) {
            return Ok(Message::from_json(body.to_vec()));
        }
        if !essence.eq_ignore_ascii_case("multipart/related") {
            return Err(MessageError::MediaType);
        }
        let boundary = multipart::boundary(parameters).ok_or(MessageError::Boundary)?;
        let mut sections = multipart::read(boundary, body).ok_or(MessageError::Boundary)?.into_iter();
        let root = sections.next().ok_or(MessageError::Boundary)?;
        if !root.media_type.is_some_and(is_json) {
            return Err(MessageError::PartType);
        }
        let mut message = Message::from_json(root.octets.to_vec());
        for section in sections {
            if message.parts.len() == PARTS {
                return Err(MessageError::TooMany);
            }
            let content = section.media_type.and_then(PartContent::from_media_type).ok_or(MessageError::PartType)?;
            let id = section.id.ok_or(MessageError::NoId)?.to_owned();
            message.parts.push(Part { id, content, octets: section.octets.to_vec() });
        }
        Ok(message)
    }
}

fn is_json(essence: &str) -> bool {
    let known = ["application/json", "application/problem+json"];
    known.iter().any(|known| essence.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = "application/json";

    fn message() -> Message {
        Message::from_json(br#"{"n1SmMsg":{"contentId":"n1"}}"#.to_vec())
            .with("n1", PartContent::Nas, vec![0x2e, 1, 1, 0xc1, 0xff, 0xff])
            .with("n2", PartContent::Ngap, b"\r\n--vireo-0\r\n--".to_vec())
    }

    #[test]
    fn message_round_trips_with_any_parts() {
        for message in [message(), Message { parts: Vec::new(), ..message() }, Message::default()] {
            let (media_type, body) = message.encode(JSON);
            assert_eq!(Message::decode(media_type.as_deref(), &body), Ok(message));
        }
        let id = RefToBinaryData { content_id: "n1".into() };
        assert_eq!(message().part(&id, PartContent::Nas).map(<[u8]>::len), Some(6));
        assert_eq!(message().part(&id, PartContent::Ngap), None, "it is no NGAP");
    }

    #[test]
    fn foreign_message_is_decoded() {
        let body = "preamble\r\n--=-_\r\ncontent-type: application/json\r\n\r\n{}\r\n--=-_ \t\r\nContent-Id: <x@y>\r\n\
                    Content-Type: application/vnd.3gpp.ngap; x=1\r\n\r\n\0\r\n\r\n--=-_--\r\nepilogue";
        let media_type = "Multipart/Related;boundary=\"=-_\" ; type=application/json";
        let read = Message::decode(Some(media_type), body.as_bytes()).unwrap();
        assert_eq!((read.is_body_empty(), read.parts.len()), (true, 1));
        assert_eq!((read.parts[0].id.as_str(), read.parts[0].octets.as_slice()), ("x@y", &b"\0\r\n"[..]));
    }

    #[test]
    fn malformed_message_is_refused() {
        let decode = |media_type: &str, body: &str| Message::decode(Some(media_type), body.as_bytes());
        assert_eq!(decode("text/plain", "{}"), Err(MessageError::MediaType));
        assert_eq!(Message::decode(None, b"{}"), Err(MessageError::MediaType));
        assert_eq!(decode("multipart/related", ""), Err(MessageError::Boundary));
        assert_eq!(decode("multipart/related; boundary=b", "--b\r\n\r\n{}"), Err(MessageError::Boundary), "no end");
        let of = |part: &str| {
            format!("--b\r\nContent-Type: application/json\r\n\r\n{{}}\r\n--b\r\n{part}\r\n\r\nx\r\n--b--")
        };
        let refused = |part: &str| decode("multipart/related; boundary=b", &of(part));
        assert_eq!(refused("Content-Id: a\r\nContent-Type: image/png"), Err(MessageError::PartType));
        assert_eq!(refused("Content-Type: application/vnd.3gpp.5gnas"), Err(MessageError::NoId));
        let many = "Content-Id: a\r\nContent-Type: application/vnd.3gpp.5gnas\r\n\r\nx\r\n--b\r\n".repeat(PARTS);
        let many = format!("{many}Content-Id: a\r\nContent-Type: application/vnd.3gpp.5gnas");
        assert_eq!(refused(&many), Err(MessageError::TooMany));
    }
}
