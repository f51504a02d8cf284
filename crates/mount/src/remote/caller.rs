//! Who asks: the kernel tells uid and gid, the rest is looked up.

use super::Call;
use crate::kernel::Process;
use base::Principal;

impl Call {
    /// The caller's identity. For root the groups are left out: they never decide anything for it.
    /// Must be asked while the caller waits, before anything is handed to a task.
    pub(super) fn who(&self) -> Principal {
        if let Some(who) = &self.who {
            return who.clone();
        }
        if self.uid == 0 || self.pid == 0 {
            return Principal::alone(self.uid, self.gid);
        }
        match Process::of(self.pid) {
            Ok(process) => Principal::new(self.uid, self.gid, process.groups),
            // Not visible from here (another PID namespace): fewer groups, never more rights.
            Err(_) => Principal::alone(self.uid, self.gid),
        }
    }
}
