//! Signals that end a lab in order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vireo_config::Failure;

/// Flag that SIGINT or SIGTERM has set.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Starts listening for the signals. This starts a thread, so the namespaces must exist before.
    pub fn listen() -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let flag = Arc::new(AtomicBool::new(false));
        let interrupt = Interrupt(flag.clone());
        let (mut int, mut term) = {
            use tokio::signal::unix::{SignalKind, signal};
            let _inside = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! { _ = int.recv() => {}, _ = term.recv() => {} }
            });
            flag.store(true, Ordering::Release);
        })?;
        Ok(interrupt)
    }

    /// Returns an error if a signal arrived.
    pub fn check(&self) -> Result<(), Failure> {
        if self.0.load(Ordering::Acquire) { Err(Failure("interrupted".into())) } else { Ok(()) }
    }
}
