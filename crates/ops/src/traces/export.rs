//! Encoding of spans as a request of OTLP (`ExportTraceServiceRequest`).

use super::{Part, span::Span};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{self as otlp, ResourceSpans, ScopeSpans, Status, status::StatusCode};
use prost::Message;

/// Returns the encoded request. Each part of the core is a scope.
pub(super) fn request(instance: &str, spans: &[Span]) -> Vec<u8> {
    let scopes = [(Part::Balancer, "vireo.balancer"), (Part::Host, "vireo.host"), (Part::Upf, "vireo.upf")];
    let scope_spans = scopes.into_iter().filter_map(|(part, name)| {
        let spans: Vec<_> = spans.iter().filter(|span| span.part == part).map(encode).collect();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let scope = InstrumentationScope { name: name.to_owned(), version, ..InstrumentationScope::default() };
        (!spans.is_empty()).then(|| ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() })
    });
    let attributes = vec![text("service.name", "vireo"), text("service.instance.id", instance)];
    let resource = Resource { attributes, ..Resource::default() };
    let resource_spans =
        ResourceSpans { resource: Some(resource), scope_spans: scope_spans.collect(), ..ResourceSpans::default() };
    ExportTraceServiceRequest { resource_spans: vec![resource_spans] }.encode_to_vec()
}

fn encode(span: &Span) -> otlp::Span {
    let id = |number: u64| if number == 0 { Vec::new() } else { number.to_be_bytes().to_vec() };
    let mut attributes = vec![number("vireo.ltmsi", u64::from(span.ltmsi.get()))];
    attributes.extend(span.attribute.map(|(name, value)| number(name, value)));
    let status = span.failure.map(|cause| {
        attributes.push(number("vireo.cause", u64::from(cause)));
        Status { code: StatusCode::Error.into(), message: format!("cause {cause}") }
    });
    otlp::Span {
        trace_id: [span.trace.high.to_be_bytes(), span.trace.low.to_be_bytes()].concat(),
        span_id: id(span.id),
        parent_span_id: id(span.parent),
        name: span.name.to_owned(),
        kind: span.kind as i32,
        start_time_unix_nano: span.start.as_micros().saturating_mul(1000),
        end_time_unix_nano: span.end.as_micros().saturating_mul(1000),
        attributes,
        status,
        ..otlp::Span::default()
    }
}

fn attribute(name: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn text(name: &str, value: &str) -> KeyValue {
    attribute(name, any_value::Value::StringValue(value.to_owned()))
}

fn number(name: &str, value: u64) -> KeyValue {
    attribute(name, any_value::Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}
