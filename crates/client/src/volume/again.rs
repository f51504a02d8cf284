//! Writing again what storage servers have lost.
//!
//! What a store had and had not committed is lost with the process of its server. That is found out
//! when a connection stands again and says another verifier, and everything goes on its way once
//! more ([`Volume::replay`]). Meanwhile others must not read there what is older than what was
//! closed here: the server refuses to read until each of its former writers has said that all of
//! his is back ([`Volume::until_written_again`]).
//!
//! An answer may be on its way here when its server ends. What it says to be stored is not, unless
//! the run in which it was is the latest one still when it is taken over
//! ([`Volume::look_at_runs`]): so no `close` returns for what nobody would write again.

use super::Volume;
use crate::clock::now;
use crate::file::{File, Written};
use base::limits::WRITING_AGAIN_STILL_TIME_MAX;
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked whether anything moves.
const LOOK_TIME: Duration = Duration::from_millis(250);

/// Files with the pieces that they lack at the servers, in order.
type Lacking = Vec<(Arc<File>, Vec<u64>)>;

impl Volume {
    /// What was stored in a run of a storage server that is over is lost with that.
    pub(super) fn look_at_runs(&self, written: &mut Written) {
        if let Some(stripes) = &self.stripes {
            written.on_verifier(stripes.verifier());
        }
    }

    /// Sees to it that what a server has lost is on its way there.
    pub(super) fn send_lost(&self) {
        for (node, file) in self.files_by_node() {
            let has_lost = file.lock().written.has_lost();
            if has_lost {
                self.send_written(node, &file);
            }
        }
    }

    /// Waits until what servers have lost is there again, or cannot be; for as long as some of it
    /// goes on arriving.
    pub(super) async fn until_written_again(&self) {
        self.send_lost();
        let files = self.files().into_iter();
        let lost = |file: Arc<File>| {
            let lost = file.lock().written.lost();
            Some((file, lost)).filter(|(_, lost)| !lost.is_empty())
        };
        let mut lacking: Lacking = files.filter_map(lost).collect();
        let (mut since, mut seen) = (now(), arrivals(&lacking));
        while let Some((file, lost)) = lacking.last() {
            let file = Arc::clone(file);
            let progress = file.progress.notified();
            tokio::pin!(progress);
            // Registered before the look, so that no wake-up is lost between the two.
            progress.as_mut().enable();
            let is_lacking = file.lock().written.has_lost_of(lost);
            if is_lacking {
                // What happens to the others is seen a little later.
                let _ = tokio::time::timeout(LOOK_TIME, progress).await;
            } else {
                lacking.pop();
            }
            let arrived = arrivals(&lacking);
            if arrived != seen {
                (since, seen) = (now(), arrived);
            } else if now().since(since) >= WRITING_AGAIN_STILL_TIME_MAX {
                tracing::warn!(
                    files = lacking.len(),
                    "what a storage server has lost does not get there again"
                );
                return;
            }
        }
    }
}

/// A number that changes whenever more of that has come to the servers.
fn arrivals(lacking: &Lacking) -> u64 {
    let arrivals = lacking
        .iter()
        .map(|(file, _)| file.lock().written.arrivals());
    arrivals.sum::<u64>() + lacking.len() as u64
}
