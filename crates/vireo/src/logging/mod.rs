//! Log lines on standard error or in a file, with masked SUPIs.
//!
//! A SUPI appears either as text (`supi = %supi`), which is always masked, or as its packed word in
//! the field `supi` (`supi = supi.as_u64()`). The packed word is shown complete if the
//! configuration sets `reveal-supi`. Other crates therefore do not depend on the setting, and no
//! process-wide switch exists.
//!
//! [`vireo_logging`] writes the lines: they wait in a bounded queue, and the lines of one peer are
//! rate-limited. With `log.file`, standard error of the process and of its workers is a pipe to the
//! file.

mod format;

use format::LineFormat;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt::{self, Debug};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};
use vireo_config::{LogConfig, directives};
use vireo_logging::{Escaped, FileLimits, Limits, LogFile, Output, RateLimit, counts};
use vireo_types::Supi;

/// Output of the log lines of this process, set by [`start`].
static OUTPUT: OnceLock<Output> = OnceLock::new();

/// Log file of this process, set by [`start`].
static LOG_FILE: OnceLock<LogFile> = OnceLock::new();

/// Filter of the log lines of this process, set by [`start`].
static FILTER: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Replaces the level or directives of the log filter.
///
/// # Errors
///
/// Returns an error if the text is invalid.
pub(crate) fn set_level(level: &str) -> Result<(), String> {
    if std::env::var_os("RUST_LOG").is_some() {
        return Err("the environment's RUST_LOG overrides it".into());
    }
    let filter = directives(level).map_err(|error| error.to_string())?;
    FILTER.get().map_or(Ok(()), |handle| handle.reload(filter)).map_err(|error| error.to_string())
}

/// Time limit for writing the last lines at the end of the process.
const FINAL_WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit for writing lines after a panic, which may not end the process.
const PANIC_WRITE_TIMEOUT: Duration = Duration::from_millis(50);

/// Starts logging for the process; later calls have no effect. `RUST_LOG` overrides the level. No
/// line, panics included, blocks or ends the thread that logs it.
///
/// # Errors
///
/// Returns an error if the log file cannot be opened, or the system provides no thread or
/// descriptor.
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
    let suppressed =
        move |all| suppressed.as_ref().map_or_else(Vec::new, |limit| limit.take_ended(Instant::now(), all));
    if let Some(file) = &config.file {
        let limits = FileLimits { octets: file.max_bytes, files: file.max_files };
        let opened = LogFile::redirect_standard_error(&file.path, limits);
        let opened = opened.map_err(|e| io::Error::new(e.kind(), format!("log.file: {}: {e}", file.path.display())))?;
        let _ = LOG_FILE.set(opened);
    }
    let standard_error = Output::standard_error()?;
    let is_journal = format::is_journal(&standard_error);
    let format = LineFormat { format: config.format, is_journal, reveal };
    let output = Output::start(standard_error, move |report| format.report(report), suppressed)?;
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(output.clone())
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .log_internal_errors(false)
        .fmt_fields(fields.delimited(" "))
        .event_format(format);
    // A second call keeps the subscriber of the first one.
    let _ = tracing_subscriber::registry().with(filter).with(limit).with(lines).try_init();
    let _ = FILTER.set(handle);
    let _ = OUTPUT.set(output);
    std::panic::set_hook(Box::new(log_panic));
    Ok(())
}

/// Logs a panic in the format of the standard library. The default hook would block on a full
/// standard error.
fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let location = panic.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current().name().unwrap_or("unnamed").to_owned();
    let what = panic.payload_as_str().unwrap_or("no text");
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => tracing::error!(thread, location, %backtrace, "panic: {what}"),
        _ => tracing::error!(thread, location, "panic: {what}"),
    }
    // The process may end after the panic.
    if let Some(output) = OUTPUT.get() {
        output.flush(PANIC_WRITE_TIMEOUT);
    }
    if let Some(file) = LOG_FILE.get() {
        file.flush(PANIC_WRITE_TIMEOUT);
    }
}

/// Writes the reason for the end of the process to the log and to standard error.
pub(crate) fn last_words(text: &str) {
    if let Some(file) = LOG_FILE.get() {
        file.write_to_terminal(format!("{text}\n").as_bytes());
    }
    match OUTPUT.get() {
        Some(output) => output.line(format!("{text}\n").as_bytes()),
        // Ignores a write error: standard error is closed.
        None => drop(writeln!(io::stderr(), "{text}")),
    }
}

/// Waits, within a time limit, until the last lines are written.
pub(crate) fn finish() {
    if let Some(output) = OUTPUT.get() {
        output.finish(FINAL_WRITE_TIMEOUT);
    }
    if let Some(file) = LOG_FILE.get() {
        file.flush(FINAL_WRITE_TIMEOUT);
    }
}

/// Reports the number of dropped lines of this worker process to its parent, through standard
/// output.
///
/// # Errors
///
/// Returns an error if the system provides no descriptor.
pub(crate) fn report_to_parent() -> io::Result<()> {
    let slot = std::env::var(counts::SLOT_VARIABLE).ok().and_then(|slot| slot.parse().ok());
    if let Some(slot) = slot {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        rustix::stdio::dup2_stdout(File::options().write(true).open("/dev/null")?)?;
        counts::report_through(file, slot);
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
    fn supi_is_complete_only_if_configured() {
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
