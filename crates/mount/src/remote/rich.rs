//! Volumes with rich ACLs: no answer before the server's verdict.
//!
//! The kernel judges nothing here. What could be answered from caches, or would be served from the
//! kernel's own afterwards, is judged first: look-ups (may the directory be searched), opens for
//! reading and of directories (may they be read), running a program, access(2). All else is done at
//! the server, which judges it there.
//!
//! A verdict that is known under a lease costs nothing; any other a round trip, and it is the same
//! decision that the server takes for every other client ([`client::volume`]).

use super::{Call, RemoteFs};
use crate::kernel::Operation;
use base::FsError;
use rustix::fs::{Access, OFlags};
use std::sync::Arc;

const READS: u8 = 4;
const WRITES: u8 = 2;
const EXECUTES: u8 = 1;
/// The kernel opens a program in order to run it (`FMODE_EXEC` of its `fs.h`).
const TO_RUN: u32 = 0x20;

/// What an operation takes of its inode before it may be answered from here.
fn rights_for(operation: &Operation) -> Option<u8> {
    match operation {
        Operation::Lookup { .. } => Some(EXECUTES),
        Operation::OpenDir { .. } => Some(READS),
        Operation::Open { flags, .. } if flags.bits() & TO_RUN != 0 => Some(EXECUTES),
        Operation::Open { flags, .. } if !flags.intersects(OFlags::WRONLY | OFlags::RDWR) => {
            Some(READS)
        }
        Operation::Access { mask } => {
            let right = |bit, right| if mask.contains(bit) { right } else { 0 };
            Some(
                right(Access::READ_OK, READS)
                    | right(Access::WRITE_OK, WRITES)
                    | right(Access::EXEC_OK, EXECUTES),
            )
        }
        _ => None,
    }
}

impl RemoteFs {
    /// As [`Self::dispatch`], after the server's verdict where one is needed.
    pub(super) fn dispatch_judged(&self, mut call: Call, operation: Operation) {
        let Some(rights) = rights_for(&operation) else {
            return self.dispatch(call, operation);
        };
        let who = call.who();
        call.who = Some(who.clone());
        match self.volume.verdict(&who, call.node, rights) {
            Some(true) => return self.go_on(call, operation),
            Some(false) => return call.answer.fail(FsError::AccessDenied),
            None => {}
        }
        let Some(this) = self.this.upgrade() else {
            return call.answer.fail(FsError::Io);
        };
        call.answer.wait(None);
        let volume = Arc::clone(&self.volume);
        self.runtime.spawn(async move {
            match volume.judge(&who, call.node, rights).await {
                Ok(()) => this.go_on(call, operation),
                Err(error) => call.answer.fail(error),
            }
        });
    }

    fn go_on(&self, call: Call, operation: Operation) {
        match operation {
            Operation::Access { .. } => call.answer.done(),
            operation => self.dispatch(call, operation),
        }
    }
}
