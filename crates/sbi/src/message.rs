//! What a request or an answer says: a model of the interface, or the JSON that one is to be read from, and the binary parts that
//! it refers to. As octets it is JSON alone, or JSON and the parts (TS 29.502 6.1.2.4), or what [`crate::grpc`] makes of it.

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

/// Octets of a body at the most: an N1 and an N2 message of the largest size, and what is said of them.
pub const BODY_OCTETS: usize = 192 * 1024;
/// Binary parts of a message at the most.
pub const PARTS: usize = 8;
/// The Content-ID of the part for or of the UE, in messages of this build.
pub const N1: &str = "n1";
/// Of the part for or of the RAN.
pub const N2: &str = "n2";
/// Of the SM context that travels.
pub const SM_CONTEXT: &str = "sm-context";
/// Of what is to be committed of the AMF.
pub const AMF_CONTEXT: &str = "amf-context";
/// The JSON that says nothing.
const EMPTY: &[u8] = b"{}";

/// What a binary part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartContent {
    /// A NAS message (`application/vnd.3gpp.5gnas`).
    Nas,
    /// An IE of NGAP (`application/vnd.3gpp.ngap`).
    Ngap,
    /// An SM context that travels between functions that both know it (`application/vnd.vireo.sm-context`).
    SmContext,
    /// What an SMF is to commit of the AMF that asks it, where both know that (`application/vnd.vireo.amf-context`).
    AmfContext,
}

impl PartContent {
    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            PartContent::Nas => "application/vnd.3gpp.5gnas",
            PartContent::Ngap => "application/vnd.3gpp.ngap",
            PartContent::SmContext => "application/vnd.vireo.sm-context",
            PartContent::AmfContext => "application/vnd.vireo.amf-context",
        }
    }

    fn of(media_type: &str) -> Option<Self> {
        let all = [PartContent::Nas, PartContent::Ngap, PartContent::SmContext, PartContent::AmfContext];
        all.into_iter().find(|content| media_type.eq_ignore_ascii_case(content.media_type()))
    }
}

/// A binary part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its Content-ID.
    pub id: String,
    /// What it is.
    pub content: PartContent,
    /// Its octets.
    pub octets: Vec<u8>,
}

/// The models of what is said, of whichever one.
macro_rules! models {
    ($($name:ident),* $(,)?) => {
        /// What is said, as a model.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is the type of its name")]
        #[allow(clippy::large_enum_variant, reason = "a message has it in a box")]
        pub enum Model {
            $($name($name),)*
        }

        impl Model {
            /// Its JSON.
            fn json(&self) -> Vec<u8> {
                // The models have no map with keys that are no strings, which alone could fail.
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
                fn of(model: &Model) -> Option<&Self> {
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

/// A model that a message may say.
pub trait TypedBody: Clone + DeserializeOwned + Into<Model> {
    /// It, if it is that one.
    fn of(model: &Model) -> Option<&Self>;
}

/// What a message says, without its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Body {
    /// Nothing.
    #[default]
    Nothing,
    /// What this JSON says: which model it is, its reader knows.
    Json(Vec<u8>),
    /// This.
    Model(Box<Model>),
}

/// What is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// What it says.
    pub body: Body,
    /// What that refers to.
    pub parts: Vec<Part>,
}

/// Why octets are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Of a media type that is not served.
    #[error("the body is neither JSON nor multipart/related")]
    MediaType,
    /// No boundary, or not divided by it.
    #[error("the multipart body is not divided by its boundary")]
    Boundary,
    /// More parts than are taken.
    #[error("the body has more than {PARTS} binary parts")]
    TooMany,
    /// The first part is no JSON, or another one is of a type that is not known.
    #[error("a part of the body is of a media type that is not known")]
    PartType,
    /// A binary part that nothing can refer to.
    #[error("a binary part of the body has no Content-ID")]
    NoId,
}

impl Message {
    /// A message that says this.
    pub fn of(value: impl Into<Model>) -> Self {
        Message { body: Body::Model(Box::new(value.into())), parts: Vec::new() }
    }

    /// A message of this JSON.
    pub fn of_json(json: Vec<u8>) -> Self {
        Message { body: Body::Json(json), parts: Vec::new() }
    }

    /// Adds a part, for which the reference is to be in the JSON.
    pub fn with(mut self, id: &str, content: PartContent, octets: Vec<u8>) -> Self {
        self.parts.push(Part { id: id.to_owned(), content, octets });
        self
    }

    /// What it says.
    ///
    /// # Errors
    ///
    /// In the words of the JSON reader, for a problem's detail.
    pub fn value<T: TypedBody>(&self) -> Result<T, String> {
        match &self.body {
            Body::Nothing => Err("there is no body".into()),
            Body::Json(json) => serde_json::from_slice(json).map_err(|error| error.to_string()),
            Body::Model(model) => T::of(model).cloned().ok_or_else(|| "the body is that of another operation".into()),
        }
    }

    /// Whether it says nothing, but by its parts.
    pub fn says_nothing(&self) -> bool {
        match &self.body {
            Body::Nothing => true,
            Body::Json(json) => json.is_empty() || json == EMPTY,
            Body::Model(_) => false,
        }
    }

    /// The part that is referred to, if it is there and what it should be.
    pub fn part(&self, reference: &RefToBinaryData, content: PartContent) -> Option<&[u8]> {
        let part = self.parts.iter().find(|part| part.id == reference.content_id && part.content == content)?;
        Some(&part.octets)
    }

    /// The SM context that travels with it, which nothing refers to: only who has asked for it gets one.
    pub fn sm_context(&self) -> Option<&[u8]> {
        let part = self.parts.iter().find(|part| part.content == PartContent::SmContext)?;
        Some(&part.octets)
    }

    /// The body in JSON, with its parts, and its media type; nothing if there is no body.
    pub fn encode(&self, json_type: &'static str) -> (Option<String>, Vec<u8>) {
        let json: Cow<'_, [u8]> = match &self.body {
            // Parts are behind a root.
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

    /// Reads a body.
    ///
    /// # Errors
    ///
    /// [`MessageError`].
    pub fn decode(media_type: Option<&str>, body: &[u8]) -> Result<Self, MessageError> {
        let Some(media_type) = media_type else {
            return if body.is_empty() { Ok(Message::default()) } else { Err(MessageError::MediaType) };
        };
        let (essence, parameters) = media_type.split_once(';').unwrap_or((media_type, ""));
        let essence = essence.trim();
        if is_json(essence) {
            return Ok(Message::of_json(body.to_vec()));
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
        let mut message = Message::of_json(root.octets.to_vec());
        for section in sections {
            if message.parts.len() == PARTS {
                return Err(MessageError::TooMany);
            }
            let content = section.media_type.and_then(PartContent::of).ok_or(MessageError::PartType)?;
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
        Message::of_json(br#"{"n1SmMsg":{"contentId":"n1"}}"#.to_vec())
            .with("n1", PartContent::Nas, vec![0x2e, 1, 1, 0xc1, 0xff, 0xff])
            .with("n2", PartContent::Ngap, b"\r\n--vireo-0\r\n--".to_vec())
    }

    #[test]
    fn a_message_comes_back_whatever_its_parts_hold() {
        for message in [message(), Message { parts: Vec::new(), ..message() }, Message::default()] {
            let (media_type, body) = message.encode(JSON);
            assert_eq!(Message::decode(media_type.as_deref(), &body), Ok(message));
        }
        let id = RefToBinaryData { content_id: "n1".into() };
        assert_eq!(message().part(&id, PartContent::Nas).map(<[u8]>::len), Some(6));
        assert_eq!(message().part(&id, PartContent::Ngap), None, "it is no NGAP");
    }

    #[test]
    fn a_message_of_another_implementation_is_read() {
        let body = "preamble\r\n--=-_\r\ncontent-type: application/json\r\n\r\n{}\r\n--=-_ \t\r\nContent-Id: <x@y>\r\n\
                    Content-Type: application/vnd.3gpp.ngap; x=1\r\n\r\n\0\r\n\r\n--=-_--\r\nepilogue";
        let media_type = "Multipart/Related;boundary=\"=-_\" ; type=application/json";
        let read = Message::decode(Some(media_type), body.as_bytes()).unwrap();
        assert_eq!((read.says_nothing(), read.parts.len()), (true, 1));
        assert_eq!((read.parts[0].id.as_str(), read.parts[0].octets.as_slice()), ("x@y", &b"\0\r\n"[..]));
    }

    #[test]
    fn what_is_no_message_is_refused() {
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
