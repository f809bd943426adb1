//! Log lines on standard error, with SUPIs masked.
//!
//! A SUPI is logged either as text (`supi = %supi`), which is always masked, or as its packed word under the field name
//! `supi` (`supi = supi.as_u64()`), which is shown whole if the configuration says `reveal-supi`. So no crate below
//! has to know the setting, and there is no switch for the whole process.
//!
//! [`vireo_logging`] does the writing: lines wait in a bounded queue, and a peer that causes many is limited.

use crate::config::LogConfig;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::{self, Debug};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};
use vireo_logging::{Escaped, Limits, Output, RateLimit, counts};
use vireo_types::Supi;

/// The filter of a level or of directives.
pub(crate) fn directives(text: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::builder().parse(text)
}

/// Where log lines of this process go, once [`start`] was called.
static OUTPUT: OnceLock<Output> = OnceLock::new();

/// What is logged, once [`start`] was called.
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Logs by another level or other directives from now on.
///
/// # Errors
///
/// Why it does not.
pub(crate) fn set_level(level: &str) -> Result<(), String> {
    if std::env::var_os("RUST_LOG").is_some() {
        return Err("the environment's RUST_LOG overrides it".into());
    }
    let filter = directives(level).map_err(|error| error.to_string())?;
    FILTER.get().map_or(Ok(()), |handle| handle.reload(filter)).map_err(|error| error.to_string())
}

/// How long the last lines may take to leave at the end of the process.
const LAST: Duration = Duration::from_secs(1);
/// The same when a thread panics, which may not be the end.
const PANIC: Duration = Duration::from_millis(50);

/// Starts logging for the whole process; the first call counts. `RUST_LOG` overrides the level. No line blocks or ends the
/// thread that writes it, panics included.
///
/// # Errors
///
/// When the system gives no thread or descriptor.
pub(crate) fn start(config: &LogConfig) -> io::Result<()> {
    if OUTPUT.get().is_some() {
        return Ok(());
    }
    let directives = std::env::var("RUST_LOG").unwrap_or_else(|_| config.level.clone());
    let (filter, handle) = reload::Layer::new(EnvFilter::builder().parse_lossy(directives));
    let reveal = config.reveal_supi;
    let fields = debug_fn(move |writer: &mut Writer<'_>, field: &Field, value: &dyn Debug| {
        write_field(&mut Escaped(writer), field.name(), value, reveal)
    });
    let limit = config.limit.then(|| RateLimit::new(Limits::default()));
    let suppressed = limit.clone();
    let suppressed = move |all| suppressed.as_ref().map_or_else(Vec::new, |limit| limit.ended(Instant::now(), all));
    let output = Output::start(Output::standard_error()?, suppressed)?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(output.clone())
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .log_internal_errors(false)
        .fmt_fields(fields.delimited(" "));
    // A second call finds the first one's subscriber in place
    let _ = tracing_subscriber::registry().with(filter).with(limit).with(lines).try_init();
    let _ = FILTER.set(handle);
    let _ = OUTPUT.set(output);
    std::panic::set_hook(Box::new(log_panic));
    Ok(())
}

/// As the standard library tells it, but in a log line: its own way blocks on a standard error that is full.
fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let location = panic.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
    let what = panic.payload_as_str().unwrap_or("no text");
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => tracing::error!(thread, location, %backtrace, "panic: {what}"),
        _ => tracing::error!(thread, location, "panic: {what}"),
    }
    // It may be the end of the process.
    if let Some(output) = OUTPUT.get() {
        output.flush(PANIC);
    }
}

/// Writes why the process ends, to standard error.
pub(crate) fn last_words(text: &str) {
    match OUTPUT.get() {
        Some(output) => output.line(format!("{text}\n").as_bytes()),
        // closed: there is nobody to be told
        None => drop(writeln!(io::stderr(), "{text}")),
    }
}

/// Waits until the last lines have been written, within bounds.
pub(crate) fn finish() {
    if let Some(output) = OUTPUT.get() {
        output.finish(LAST);
    }
}

/// Has this process, a worker, report lines that it drops to the process that started it, through its standard output.
///
/// # Errors
///
/// When the system gives no descriptor.
pub(crate) fn report_to_parent() -> io::Result<()> {
    let place = std::env::var(counts::PLACE).ok().and_then(|place| place.parse().ok());
    if let Some(place) = place {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        rustix::stdio::dup2_stdout(File::options().write(true).open("/dev/null")?)?;
        counts::report_through(file, place);
    }
    Ok(())
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
