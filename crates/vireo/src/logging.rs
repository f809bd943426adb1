//! Log lines on standard error, with SUPIs masked.
//!
//! A SUPI is logged either as text (`supi = %supi`), which is always masked, or as its packed word under the field name
//! `supi` (`supi = supi.as_u64()`), which is shown whole if the configuration says `reveal-supi`. So no crate below
//! has to know the setting, and there is no switch for the whole process.

use crate::config::LogConfig;
use std::fmt::{self, Debug};
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use vireo_types::Supi;

/// The filter of a level or of directives.
pub(crate) fn directives(text: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::builder().parse(text)
}

/// Starts logging for the whole process; the first call counts. `RUST_LOG` overrides the level.
pub(crate) fn start(config: &LogConfig) {
    let directives = std::env::var("RUST_LOG").unwrap_or_else(|_| config.level.clone());
    let filter = EnvFilter::builder().parse_lossy(directives);
    let reveal = config.reveal_supi;
    let fields = debug_fn(move |writer: &mut Writer<'_>, field: &Field, value: &dyn Debug| {
        write_field(writer, field.name(), value, reveal)
    });
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .fmt_fields(fields.delimited(" "));
    // A second call finds the first one's subscriber in place
    let _ = subscriber.try_init();
}

fn write_field(writer: &mut dyn fmt::Write, name: &str, value: &dyn Debug, reveal: bool) -> fmt::Result {
    if name == "message" {
        return write!(writer, "{value:?}");
    }
    let packed = (name == "supi").then(|| format!("{value:?}").parse().ok()).flatten();
    match packed.and_then(Supi::from_u64) {
        Some(supi) if reveal => write!(writer, "{name}=imsi-{}", supi.reveal()),
        Some(supi) => write!(writer, "{name}={supi}"),
        None => write!(writer, "{name}={value:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supi_shows_whole_only_when_the_configuration_says_so() {
        let supi: Supi = "999700000000001".parse().expect("an IMSI");
        let line = |name: &str, value: &dyn Debug, reveal| {
            let mut text = String::new();
            write_field(&mut text, name, value, reveal).expect("written");
            text
        };
        assert_eq!(line("supi", &supi.as_u64(), false), "supi=imsi-99970**********");
        assert_eq!(line("supi", &supi.as_u64(), true), "supi=imsi-999700000000001");
        assert_eq!(line("supi", &format_args!("{supi}"), true), "supi=imsi-99970**********");
        assert_eq!(line("count", &7, true), "count=7");
        assert_eq!(line("message", &format_args!("all is well"), true), "all is well");
    }
}
