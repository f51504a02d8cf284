//! The process behind a mount: from connecting to the last byte written back.

use super::Plan;
use crate::background;
use crate::cli::server::{Signals, raise_descriptor_limit};
use crate::config::Config;
use crate::connect::{GOODBYE_TIME_MAX, runtime};
use crate::errors::{Code, Failure, Result};
use crate::output;
use ::mount::kernel::{MountPoint, SessionEnd};
use ::mount::remote::{MountConfig, RemoteMount, THREADS};
use client::volume::Volume;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for the server at the end if nothing can be lost any more: nothing is unwritten, or the
/// mount was broken on purpose.
const PARTING_TIME_MAX: Duration = Duration::from_secs(2);
/// How often it is looked at the end whether there is a server.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Runs as the process that the command in the foreground started and listens to.
pub(super) fn run_reporting(plan: &Plan, config: &Config) -> Result<()> {
    let log = plan.options.log.as_deref();
    background::run_reporting(log, plan.verbose, |ready| {
        run(plan, config, || ready(Value::Bool(true)))
    })
}

/// Mounts, says `ready`, and answers until the volume is unmounted.
///
/// # Errors
/// What kept it from getting ready, or what could not be written back at the end.
pub(super) fn run(plan: &Plan, config: &Config, ready: impl FnOnce() -> Result<()>) -> Result<()> {
    raise_descriptor_limit();
    let runtime = runtime()?;
    // Before there is a mount: a signal that comes while it is made takes it off again.
    let mut signals = runtime.block_on(async { Signals::new() })?;
    let volume = runtime.block_on(async {
        tokio::select! {
            volume = plan.attach(config) => volume,
            () = signals.wait() => Err(Failure::interrupted("interrupted")),
        }
    })?;
    let options = &plan.options;
    let settings = MountConfig {
        source: plan.volume.to_string(),
        allow_other: options.allow_other,
        read_only: options.read_only,
        suid: options.suid,
        dev: options.dev,
        exec: !options.no_exec,
        threads: THREADS,
    };
    let handle = runtime.handle().clone();
    let mounted = RemoteMount::mount(Arc::clone(&volume), &plan.directory, &settings, handle);
    let mounted = match mounted {
        Ok(mounted) => mounted,
        Err(error) => {
            runtime.block_on(volume.transport().close(GOODBYE_TIME_MAX));
            return Err(error.into());
        }
    };
    let point = mounted.mount_point().clone();
    let timeout = plan.timeout(config);
    runtime.spawn(unmount_on_signal(
        signals,
        Arc::clone(&volume),
        point.clone(),
        timeout,
    ));
    tracing::info!(volume = %plan.volume, on = %plan.directory.display(), "mounted");
    if let Err(failure) = ready() {
        // Nobody would know of the mount.
        drop(mounted);
        runtime.block_on(volume.transport().close(GOODBYE_TIME_MAX));
        return Err(failure);
    }
    let end = mounted.run();
    // Whoever breaks the connection has given up what is unwritten.
    let time_max = match &end {
        Ok(SessionEnd::Aborted) => timeout.min(PARTING_TIME_MAX),
        _ => timeout,
    };
    finish(plan, config, &runtime, &volume, time_max)?;
    match end {
        Ok(SessionEnd::Unmounted | SessionEnd::Aborted) => {
            tracing::info!(volume = %plan.volume, "unmounted");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Writes back what is left and remembers the line.
fn finish(
    plan: &Plan,
    config: &Config,
    runtime: &tokio::runtime::Runtime,
    volume: &Volume,
    timeout: Duration,
) -> Result<()> {
    let line = volume.transport().line_memory();
    let received = volume.transport().figures().bytes_received;
    if let Err(failure) = config.save_line(&plan.volume.server, line, received) {
        tracing::warn!("cannot remember the line: {}", failure.message());
    }
    let unwritten = volume.unwritten_bytes();
    let outcome = runtime.block_on(async {
        tokio::select! {
            outcome = volume.detach(timeout) => Some(outcome),
            () = is_cut_off(volume) => None,
        }
    });
    let Some(outcome) = outcome else {
        volume.transport().abandon();
        tracing::warn!("the server does not answer; nothing was unwritten");
        return Ok(());
    };
    outcome.map_err(|error| {
        let what = match unwritten {
            // Of names made ahead, or changes that were under way.
            0 => format!("changes of {} may be lost", plan.volume),
            bytes => format!("{} of {} may be lost", output::size(bytes), plan.volume),
        };
        Failure::new(Code::Unwritten, format!("{what}: {error}")).hint(
            "what fsync or `azekura sync` has acknowledged is safe, and what was closed with \
                 success unless the server's machine fails before its disk has it",
        )
    })
}

/// Returns when nothing can be lost any more and nobody has been there to be told so for
/// [`PARTING_TIME_MAX`].
async fn is_cut_off(volume: &Volume) {
    let mut since = Instant::now();
    while since.elapsed() < PARTING_TIME_MAX {
        tokio::time::sleep(LOOK_INTERVAL).await;
        if volume.transport().figures().connected || volume.has_unwritten() {
            since = Instant::now();
        }
    }
}

/// Takes the mount off in order when the process is told to end. Programs that use it keep what
/// they have open; nobody new gets in.
async fn unmount_on_signal(
    mut signals: Signals,
    volume: Arc<Volume>,
    point: MountPoint,
    timeout: Duration,
) {
    signals.wait().await;
    let synced = tokio::time::timeout(timeout, volume.sync(volume.transport().own())).await;
    match synced {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(%error, "not everything could be written back before unmounting");
            // It is told by the end of the process.
            volume.on_unheard(error);
        }
        Err(_) => tracing::warn!("not everything is written back yet before unmounting"),
    }
    let unmounted =
        tokio::task::spawn_blocking(move || point.unmount(false).or_else(|_| point.unmount(true)));
    if let Ok(Err(error)) = unmounted.await {
        tracing::error!(%error, "cannot unmount");
    }
}
