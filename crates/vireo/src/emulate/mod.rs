//! `vireo emulate`: gNBs, eNBs and UEs against any core.

mod args;
mod memory;
mod options;

pub(crate) use args::Args;

use indicatif::{ProgressBar, ProgressStyle};
use options::options;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vireo_config::Failure;
use vireo_emulator::scenario::Scenario;
use vireo_emulator::{Phase, Progress};

/// Runs the emulator.
///
/// # Errors
///
/// Returns an error if any UE failed.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if args.list {
        for scenario in Scenario::all_for(args.rat.rats()) {
            println!("{:<17} {}", scenario.name, scenario.about);
        }
        for (name, reason) in Scenario::absent_for(args.rat.rats()) {
            println!("{name:<17} (not with this --rat: {reason})");
        }
        return Ok(());
    }
    let mut options = options(args)?;
    let mut json = args.json.as_deref().map(create).transpose()?;
    let timeline = args.load.timeline.as_deref().map(create).transpose()?;
    let stop = stop_on_signal()?;
    options.stop = Some(Arc::clone(&stop));
    let bar = if args.quiet { ProgressBar::hidden() } else { bar(u64::from(options.ues)) };
    let pids = &args.mutation.pid;
    let mut memory = if pids.is_empty() { None } else { Some(memory::Watch::new(pids).map_err(Failure)?) };
    let result = vireo_emulator::run(&options, &mut |progress| {
        show(&bar, progress);
        if let Some(memory) = &mut memory {
            memory.progress(progress.done, progress.ues);
        }
    });
    bar.finish_and_clear();
    let mut report = result?;
    if let (Some(mutations), Some(memory)) = (&mut report.mutations, memory) {
        mutations.judge_memory(memory.finish().map_err(Failure)?, args.mutation.max_growth);
    }
    if !args.quiet {
        print!("{report}");
    }
    if let Some(file) = &mut json {
        serde_json::to_writer_pretty(&mut *file, &report)?;
        file.write_all(b"\n")?;
    }
    if let Some(file) = timeline {
        vireo_emulator::write_csv(&report.timeline, std::io::BufWriter::new(file))?;
    }
    if let Some(mutations) = &report.mutations {
        let harm = mutations.harm.join("; ");
        return if harm.is_empty() {
            Ok(())
        } else {
            Err(Failure(format!("{harm}; repeat with --seed {}", args.seed)))
        };
    }
    if stop.load(Ordering::Relaxed) {
        return Err(Failure(format!("stopped after {} of {} UEs", report.started, report.ues)));
    }
    if report.is_success() {
        return Ok(());
    }
    let steady = &report.steady;
    if steady.failed_procedures > 0 || steady.lost > 0 {
        let (failed, all, lost) = (steady.failed_procedures, steady.procedures, steady.lost);
        return Err(Failure(format!("{failed} of {all} procedures failed, {lost} UEs were lost: see the table")));
    }
    Err(Failure(match report.cases.iter().filter(|case| !case.passed()).count() {
        0 => format!("{} of {} UEs succeeded: see the table", report.succeeded, report.ues),
        failed => format!("{failed} of {} cases failed: see above", report.cases.len()),
    }))
}

/// Creates a file for writing.
pub(crate) fn create(path: &Path) -> Result<std::fs::File, Failure> {
    std::fs::File::create(path).map_err(|error| Failure(format!("{}: {error}", path.display())))
}

fn bar(ues: u64) -> ProgressBar {
    let bar = ProgressBar::new(ues);
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} UEs, {per_sec}, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_length(progress.ues);
    bar.set_position(progress.done);
    bar.set_message(match progress.phase {
        Phase::Connecting => "connecting the gNBs".into(),
        _ if progress.procedures > 0 => format!("{} procedures, {} UEs lost", progress.procedures, progress.lost),
        _ if progress.failed > 0 => format!("{} failed", progress.failed),
        _ => format!("{} registered, {} sessions", progress.registered, progress.sessions),
    });
}

/// Returns a flag that the first SIGINT or SIGTERM sets. The emulator then starts nothing new,
/// completes what is in progress and reports its measurements. A second signal ends the process at
/// once.
pub(crate) fn stop_on_signal() -> Result<Arc<AtomicBool>, Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut term, mut int) = runtime.block_on(async {
        Ok::<_, std::io::Error>((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
    })?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            for stopped in [false, true] {
                tokio::select! {
                    _ = term.recv() => {}
                    _ = int.recv() => {}
                }
                if stopped {
                    std::process::exit(1);
                }
                flag.store(true, Ordering::Relaxed);
            }
        });
    });
    Ok(stop)
}
