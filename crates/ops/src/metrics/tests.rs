//! Tests of the metrics.

use super::*;

/// Returns the value of the series in a Prometheus text.
fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|l| l.strip_prefix(series)?.trim().parse().ok())
}

#[test]
fn counts_by_procedure_and_cause() {
    let metrics = Metrics::new();
    metrics.procedures.started(Procedure::Registration);
    metrics.procedures.succeeded(Procedure::Registration, Duration::from_millis(3));
    metrics.procedures.failed(Procedure::Registration, Failure::Cause(7));
    metrics.procedures.failed(Procedure::Registration, Failure::Cause(7));
    metrics.procedures.failed(Procedure::SessionEstablishment, Failure::Lost);
    let text = metrics.render();
    let total = |labels| value(&text, &format!("vireo_procedures_completed_total{{{labels}}}"));
    assert_eq!(total(r#"procedure="registration",result="success",cause="""#), Some(1.0), "{text}");
    assert_eq!(total(r#"procedure="registration",result="failure",cause="7""#), Some(2.0), "{text}");
    assert_eq!(total(r#"procedure="session_establishment",result="failure",cause="lost""#), Some(1.0));
    let bucket =
        |le| value(&text, &format!(r#"vireo_procedure_duration_seconds_bucket{{procedure="registration",le="{le}"}}"#));
    assert_eq!((bucket("0.0025"), bucket("0.005"), bucket("10")), (Some(0.0), Some(1.0), Some(1.0)), "{text}");
}

#[test]
fn fault_keys_are_distinct() {
    let keys: std::collections::HashSet<Key> = Fault::ALL.iter().map(|fault| fault.key()).collect();
    assert_eq!(keys.len(), Fault::ALL.len());
}

#[test]
fn metrics_exist_from_the_start() {
    let metrics = Metrics::new();
    let text = metrics.render();
    assert_eq!(value(&text, r#"vireo_peer_errors_total{protocol="nas",kind="integrity"}"#), Some(0.0), "{text}");
    metrics.fault(Fault::NasIntegrity);
    metrics.population(Population::Registered, 12);
    metrics.queue_depth(Queue::Subscribers, 3);
    metrics.messages(Flow::NgapIn, 5);
    let text = metrics.render();
    assert_eq!(value(&text, r#"vireo_peer_errors_total{protocol="nas",kind="integrity"}"#), Some(1.0));
    assert_eq!(value(&text, "vireo_ues_registered"), Some(12.0));
    assert_eq!(value(&text, r#"vireo_queue_depth{queue="subscribers"}"#), Some(3.0));
    assert_eq!(value(&text, r#"vireo_ngap_messages_total{direction="in"}"#), Some(5.0));
    assert!(value(&text, "process_resident_memory_bytes").is_some_and(|v| v > 1e6), "{text}");
    assert!(value(&text, "process_cpu_seconds_total").is_some(), "{text}");
}
