//! Format of a log line: text or JSON, for a terminal, a file or the journal.

use super::write_field;
use serde_json::{Map, Value as Json};
use std::fmt::{self, Debug};
use std::os::unix::fs::MetadataExt;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use vireo_config::LogFormat;
use vireo_logging::{Report, Value};

/// Environment variable of systemd: device and inode of the journal's socket.
const JOURNAL: &str = "JOURNAL_STREAM";
/// Target of the lines that the log itself writes.
const TARGET: &str = "vireo_logging";

/// Format of the lines of this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineFormat {
    pub(super) format: LogFormat,
    /// True if each line begins with its priority and has no time: the journal has it.
    pub(super) is_journal: bool,
    /// True if SUPIs are shown complete.
    pub(super) reveal: bool,
}

impl LineFormat {
    /// Returns the line of a report of the log itself.
    pub(super) fn report(&self, report: &Report) -> String {
        let mut line = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_report(&mut Writer::new(&mut line), report);
        line
    }

    fn write_report(&self, writer: &mut Writer<'_>, Report { level, message, fields }: &Report) -> fmt::Result {
        self.write_priority(writer, *level)?;
        if self.format == LogFormat::Json {
            let fields = fields.iter().map(|(name, value)| {
                let value = match value {
                    Value::Text(text) => Json::from(text.as_str()),
                    Value::Number(number) => Json::from(*number),
                };
                ((*name).to_owned(), value)
            });
            return self.write_json(writer, (*level, TARGET), *message, fields.collect());
        }
        if !self.is_journal {
            SystemTime.format_time(writer)?;
            write!(writer, " ")?;
        }
        write!(writer, "{level:>5} {TARGET}: {message}")?;
        for (name, value) in fields {
            match value {
                Value::Text(text) => write!(writer, " {name}={text:?}")?,
                Value::Number(number) => write!(writer, " {name}={number}")?,
            }
        }
        writeln!(writer)
    }

    /// Writes the priority of sd-daemon(3). The journal removes it from the line.
    fn write_priority(&self, writer: &mut Writer<'_>, level: Level) -> fmt::Result {
        let priority = match level {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        if self.is_journal { write!(writer, "<{priority}>") } else { Ok(()) }
    }

    fn write_json(
        &self,
        writer: &mut Writer<'_>,
        (level, target): (Level, &str),
        message: impl Into<Json>,
        fields: Map<String, Json>,
    ) -> fmt::Result {
        let mut line = Map::new();
        if !self.is_journal {
            let mut time = String::new();
            SystemTime.format_time(&mut Writer::new(&mut time))?;
            line.insert("timestamp".into(), time.into());
        }
        line.insert("level".into(), level.as_str().into());
        line.insert("target".into(), target.into());
        line.insert("message".into(), message.into());
        line.insert("fields".into(), fields.into());
        // JSON escapes the control characters of ASCII but DEL.
        for character in Json::from(line).to_string().chars() {
            match character.is_control() {
                true => write!(writer, "\\u{:04x}", u32::from(character))?,
                false => writer.write_char(character)?,
            }
        }
        writeln!(writer)
    }
}

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, ctx: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let metadata = event.metadata();
        self.write_priority(&mut writer, *metadata.level())?;
        match (self.format, self.is_journal) {
            (LogFormat::Text, false) => Format::<Full>::default().format_event(ctx, writer, event),
            (LogFormat::Text, true) => Format::<Full>::default().without_time().format_event(ctx, writer, event),
            (LogFormat::Json, _) => {
                let mut fields = Fields { reveal: self.reveal, fields: Map::new() };
                event.record(&mut fields);
                let message = fields.fields.remove("message").unwrap_or_default();
                self.write_json(&mut writer, (*metadata.level(), metadata.target()), message, fields.fields)
            }
        }
    }
}

/// Fields of an event as JSON.
struct Fields {
    reveal: bool,
    fields: Map<String, Json>,
}

impl Fields {
    fn insert(&mut self, field: &Field, value: impl Into<Json>) {
        self.fields.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.insert(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() != "supi" {
            return self.insert(field, value);
        }
        // A packed SUPI, in the words of the text format.
        let mut text = String::new();
        if write_field(&mut text, "supi", &value, self.reveal).is_ok() {
            self.insert(field, text.trim_start_matches("supi="));
        }
    }
}

/// Returns true if standard error is the journal of systemd.
pub(super) fn is_journal(standard_error: &std::fs::File) -> bool {
    let stream = std::env::var(JOURNAL).unwrap_or_default();
    let found = standard_error.metadata().map(|found| format!("{}:{}", found.dev(), found.ino()));
    found.is_ok_and(|found| found == stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::layer::SubscriberExt;

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Write for Memory {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").extend(octets);
            Ok(octets.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the lines of some events and of a report.
    fn lines(format: LogFormat, is_journal: bool, reveal: bool) -> Vec<String> {
        let (memory, format) = (Memory::default(), LineFormat { format, is_journal, reveal });
        let writer = memory.clone();
        let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(layer.event_format(format));
        let supi: vireo_types::Supi = "999700000000001".parse().expect("an IMSI");
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(supi = supi.as_u64(), count = 7, up = true, name = "a\"\n\u{9b}", "one {}", "thing");
            tracing::debug!(error = %io::Error::other("no"), "two");
        });
        let fields = vec![("line", Value::Text("x".into())), ("count", Value::Number(3))];
        let report = format.report(&Report { level: Level::WARN, message: "log lines suppressed", fields });
        let text = String::from_utf8(memory.0.lock().expect("no panic").clone()).expect("text") + &report;
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn json_lines_have_fields_as_values() {
        let lines = lines(LogFormat::Json, false, false);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(!lines[0].contains('\u{9b}'), "{}", lines[0]);
        let parsed: Vec<Json> = lines.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let fields = serde_json::json!({"supi": "imsi-99970**********", "count": 7, "up": true, "name": "a\"\n\u{9b}"});
        assert_eq!((&parsed[0]["level"], &parsed[0]["message"]), (&"WARN".into(), &"one thing".into()));
        assert_eq!(parsed[0]["fields"], fields);
        assert!(parsed[0]["timestamp"].as_str().is_some_and(|time| time.ends_with('Z')), "{}", lines[0]);
        assert_eq!(parsed[1]["fields"], serde_json::json!({"error": "no"}));
        assert_eq!(parsed[2]["fields"], serde_json::json!({"line": "x", "count": 3}));
        assert_eq!(parsed[2]["target"], "vireo_logging");
    }

    #[test]
    fn json_supi_is_complete_only_if_configured() {
        let parsed: Json = serde_json::from_str(&lines(LogFormat::Json, false, true)[0]).expect("JSON");
        assert_eq!(parsed["fields"]["supi"], "imsi-999700000000001");
    }

    #[test]
    fn journal_lines_have_priorities_and_no_time() {
        let text = lines(LogFormat::Text, true, false);
        assert!(text[0].starts_with("<4> WARN vireo::logging::format::tests: one thing"), "{}", text[0]);
        assert!(text.iter().any(|line| line.starts_with("<7>DEBUG ")), "{text:?}");
        assert_eq!(
            text.last().map(String::as_str),
            Some("<4> WARN vireo_logging: log lines suppressed line=\"x\" count=3")
        );
        let json = lines(LogFormat::Json, true, false);
        let parsed: Json = serde_json::from_str(json[0].strip_prefix("<4>").expect("a priority")).expect("JSON");
        assert_eq!(parsed.get("timestamp"), None);
    }
}
